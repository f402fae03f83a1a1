//! An NVM Express disk that writes whatever it likes into queues, buffers and registers, and says
//! anything of itself: its driver must neither panic nor hand a request out twice, every request
//! must come back, and once the device behaves it must be read again, unless it was given up.

use device::block::{BlockQueue, Buffers, Operation, Request};
use drivers::block::nvme::puppet::Puppet;
use drivers::block::nvme::{DMA_BYTES, Driver};
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
    /// What the device says of itself while it behaves.
    good: [Vec<u8>; 3],
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
        let driver = Driver::new(bar, &mut arena, None, puppet.clock(TICK));
        let good = puppet.pages.borrow().clone();
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

    /// One step. Where there is no queue, the puppet finds none: its errors are no news.
    fn step(&mut self, what: u8, small: u16, large: u32, more: u8) {
        let puppet = &self.puppet;
        match what % 10 {
            0 => self.ask(small, large, more),
            1 => self.look(),
            2 => {
                let _ = self.answer(u16::from(more) * u16::from(more > 200));
            }
            3 => {
                let status = large as u16 & 0x7fff;
                let _ = puppet.post_as(1, (large >> 16) as u16 % 70, 1, small, status);
            }
            4 => {
                let word = u64::from(small) << 32 | u64::from(large) | u64::from(more & 3) << 48;
                let _ = puppet.scribble(1, usize::from(more), word);
            }
            5 => puppet.set_status(large & 0x3f),
            6 => puppet.sleep(u64::from(large) << (small % 4)),
            7 => {
                let mut pages = puppet.pages.borrow_mut();
                pages[usize::from(more % 3)][usize::from(small) % 4096] = large as u8;
            }
            8 => puppet.skip(usize::from(more & 1)),
            _ => puppet.is_silent.set(more & 1 != 0),
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

    /// Answers the next command, as a device that behaves but for the status.
    fn answer(&mut self, status: u16) -> Result<bool, hw::sim::Outside> {
        let Some(words) = self.puppet.fetch(1)? else {
            return Ok(false);
        };
        self.puppet.post(1, (words[0] >> 16) as u16, status)?;
        Ok(true)
    }

    /// The device behaves from now on.
    fn recover(&mut self) {
        self.puppet.pages.borrow_mut().clone_from(&self.good);
        self.puppet.is_silent.set(false);
        for _ in 0..LOOKS_MAX {
            if self.in_flight == 0 {
                break;
            }
            while self.answer(0).unwrap_or(false) {}
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
