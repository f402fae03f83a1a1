//! An AHCI adapter that writes whatever it likes into registers and buffers, and a disk that says
//! anything of itself: their driver must neither panic nor hand a request out twice, and once the
//! device behaves, every request must come back.

use crate::requests::{self, Requests, steps};
use drivers::block::ahci::puppet::{CI, GHC, IS, Puppet, SACT, SIG, SSTS, TFD};
use drivers::block::ahci::{DMA_BYTES, Driver};
use std::cell::RefCell;
use std::rc::Rc;

const BLOCKS: u64 = 64;
const ARENA_BYTES: usize = DMA_BYTES + requests::ARENA_BYTES;
/// What passes between two looks at the clock, in nanoseconds.
const TICK: u64 = 50_000_000;
/// Looks within which a driver has noticed that a device hangs, and has reset it as often as it
/// ever does.
const LOOKS_MAX: usize = 100_000;

struct Subject {
    puppet: Rc<Puppet>,
    driver: Driver,
    requests: Requests,
    /// What the disk says of itself while it behaves.
    good: [u16; 256],
}

thread_local! {
    /// One for all inputs, each of which finds it as new.
    static SUBJECT: RefCell<Option<Subject>> = const { RefCell::new(None) };
}

impl Subject {
    fn new() -> Self {
        let (puppet, bar, mut arena) = Puppet::new(ARENA_BYTES, BLOCKS);
        let driver = Driver::new(bar, &mut arena, puppet.clock(TICK));
        let good = *puppet.identity.borrow();
        Self {
            driver: driver.expect("the puppet comes up"),
            requests: Requests::new(&mut arena),
            puppet,
            good,
        }
    }

    fn run(&mut self, bytes: &[u8]) {
        for (what, small, large, more) in steps(bytes) {
            self.step(what, small, large, more);
        }
        self.recover();
    }

    /// One step. Where there is no list, the puppet finds none: its errors are no news.
    fn step(&mut self, what: u8, small: u16, large: u32, more: u8) {
        let puppet = &self.puppet;
        match what % 9 {
            0 => self.requests.ask(&mut self.driver, small, large, more),
            1 => self.requests.look(&mut self.driver),
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

    /// The device behaves from now on.
    fn recover(&mut self) {
        let puppet = self.puppet.clone();
        *puppet.identity.borrow_mut() = self.good;
        puppet.is_silent.set(false);
        puppet.is_unplugged.set(false);
        puppet.is_busy.set(false);
        for _ in 0..LOOKS_MAX {
            if self.requests.in_flight() == 0 {
                break;
            }
            (0..32).for_each(|slot| {
                // IDENTIFY DEVICE it answers by itself.
                let opcode = puppet.peek(slot).map(|taken| taken.opcode);
                if opcode.is_ok_and(|opcode| opcode != 0xec) {
                    puppet.answer(slot);
                }
            });
            self.requests.look(&mut self.driver);
        }
        assert_eq!(self.requests.in_flight(), 0, "every request comes back");
    }

    /// Whether the next input finds it as new: no buffer was lost.
    fn is_as_new(&mut self) -> bool {
        self.requests.have_buffers() && {
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
