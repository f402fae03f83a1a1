//! An AHCI adapter that writes whatever it likes into registers and buffers, and a disk that says
//! anything of itself: their driver must neither panic nor hand a request out twice, and once the
//! device behaves, every request must come back.

use device::block::{BlockQueue, Buffers, Operation, Request};
use drivers::block::ahci::puppet::{CI, GHC, IS, Puppet, SACT, SIG, SSTS, TFD};
use drivers::block::ahci::{DMA_BYTES, Driver};
use hw::DmaArena;
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

const BLOCKS: u64 = 64;
const BUFFER: usize = 8192;
const REQUESTS: usize = 12;
const ARENA_BYTES: usize = DMA_BYTES + REQUESTS * BUFFER;
/// What one input does; each step takes eight bytes of it.
const STEPS_MAX: usize = 1000;
/// What passes between two looks at the clock, in nanoseconds.
const TICK: u64 = 50_000_000;
/// Looks within which a driver has noticed that a device hangs, and has reset it as often as it
/// ever does.
const LOOKS_MAX: usize = 100_000;

/// Requests that are over.
type Requests = Vec<Box<Request>>;

struct Subject {
    puppet: Rc<Puppet>,
    driver: Driver,
    idle: VecDeque<Box<Request>>,
    todo: VecDeque<Box<Request>>,
    done: Requests,
    in_flight: usize,
    /// What the disk says of itself while it behaves.
    good: [u16; 256],
}

thread_local! {
    /// One for all inputs, each of which finds it as new.
    static SUBJECT: RefCell<Option<Subject>> = const { RefCell::new(None) };
}

fn request(arena: &mut DmaArena, token: usize) -> Box<Request> {
    let buffer = arena.buf(BUFFER, 4096).expect("there is room");
    let mut request = Request::new(Buffers(vec![buffer]));
    request.token = token as u64;
    request
}

impl Subject {
    fn new() -> Self {
        let (puppet, bar, mut arena) = Puppet::new(ARENA_BYTES, BLOCKS);
        let driver = Driver::new(bar, &mut arena, puppet.clock(TICK));
        let good = *puppet.identity.borrow();
        Self {
            driver: driver.expect("the puppet comes up"),
            idle: (0..REQUESTS)
                .map(|token| request(&mut arena, token))
                .collect(),
            todo: VecDeque::new(),
            done: Vec::new(),
            in_flight: 0,
            puppet,
            good,
        }
    }

    fn run(&mut self, bytes: &[u8]) {
        for step in bytes.chunks_exact(8).take(STEPS_MAX) {
            let [what, a, b, c, d, e, f, g] = *step else {
                unreachable!("eight bytes");
            };
            let (small, large) = (u16::from_le_bytes([a, b]), u32::from_le_bytes([c, d, e, f]));
            self.step(what, small, large, g);
        }
        self.recover();
    }

    /// One step. Where there is no list, the puppet finds none: its errors are no news.
    fn step(&mut self, what: u8, small: u16, large: u32, more: u8) {
        let puppet = &self.puppet;
        match what % 9 {
            0 => self.ask(small, large, more),
            1 => self.look(),
            2 => {
                let _ = puppet.take();
                puppet.answer(usize::from(more));
            }
            3 => puppet.fail(more),
            4 => {
                const ANY: [usize; 7] = [CI, GHC, IS, SACT, SIG, SSTS, TFD];
                puppet.set(ANY[usize::from(more) % ANY.len()], large);
            }
            5 => {
                let at = 0x1_0000_0000 + u64::from(small) * 8;
                let _ = puppet.view().store(at, u64::from(large) << (more % 33));
            }
            6 => puppet.sleep(u64::from(large) << (small % 4)),
            7 => puppet.identity.borrow_mut()[usize::from(small % 256)] = large as u16,
            _ => {
                puppet.is_silent.set(more & 1 != 0);
                puppet.is_unplugged.set(more & 6 == 6);
                puppet.is_busy.set(more & 24 == 24);
            }
        }
    }

    /// Submits a request, whatever it asks for.
    fn ask(&mut self, small: u16, large: u32, more: u8) {
        let Some(mut request) = self.idle.pop_front() else {
            return;
        };
        request.operation = match more % 5 {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            3 => Operation::Discard,
            _ => Operation::WriteZeroes,
        };
        request.offset = u64::from(small) * 512;
        request.length = u64::from(large % 20) * 512;
        self.in_flight += 1;
        self.todo.push_back(request);
        self.driver.submit(&mut self.todo);
    }

    /// Takes what is over: each request once, with its buffer unless the device was given up.
    fn look(&mut self) {
        self.driver.submit(&mut self.todo);
        self.driver.complete(&mut self.done);
        self.in_flight -= self.done.len();
        self.idle.extend(self.done.drain(..));
        let seen: BTreeSet<_> = self.idle.iter().map(|request| request.token).collect();
        assert_eq!(seen.len(), self.idle.len(), "a request came twice");
        assert_eq!(seen.len() + self.in_flight, REQUESTS);
    }

    /// The device behaves from now on.
    fn recover(&mut self) {
        let puppet = self.puppet.clone();
        *puppet.identity.borrow_mut() = self.good;
        puppet.is_silent.set(false);
        puppet.is_unplugged.set(false);
        puppet.is_busy.set(false);
        for _ in 0..LOOKS_MAX {
            if self.in_flight == 0 {
                break;
            }
            (0..32).for_each(|slot| {
                // IDENTIFY DEVICE it answers by itself.
                let opcode = puppet.peek(slot).map(|taken| taken.opcode);
                if opcode.is_ok_and(|opcode| opcode != 0xec) {
                    puppet.answer(slot);
                }
            });
            self.look();
        }
        assert_eq!(self.in_flight, 0, "every request comes back");
    }

    /// Whether the next input finds it as new: no buffer was lost.
    fn is_as_new(&mut self) -> bool {
        let mut sizes = self.idle.iter().map(|request| request.buffers.bytes());
        sizes.all(|bytes| bytes == BUFFER as u64) && {
            self.driver.renew().expect("the puppet comes up");
            true
        }
    }
}

pub fn feed(bytes: &[u8]) {
    SUBJECT.with_borrow_mut(|subject| {
        let one = subject.get_or_insert_with(Subject::new);
        one.run(bytes);
        if !one.is_as_new() {
            *subject = None;
        }
    });
}
