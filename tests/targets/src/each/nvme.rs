//! An NVM Express disk that writes whatever it likes into queues, buffers and registers, and says
//! anything of itself: its driver must neither panic nor hand a request out twice, every request
//! must come back, and once the device behaves it must be read again, unless it was given up.

use crate::requests::{self, Requests, steps};
use drivers::block::nvme::puppet::Puppet;
use drivers::block::nvme::{DMA_BYTES, Driver};
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
    /// What the device says of itself while it behaves.
    good: [Vec<u8>; 3],
}

thread_local! {
    /// One for all inputs, each of which finds it as new.
    static SUBJECT: RefCell<Option<Subject>> = const { RefCell::new(None) };
}

impl Subject {
    fn new() -> Self {
        let (puppet, bar, mut arena) = Puppet::new(ARENA_BYTES, BLOCKS);
        let driver = Driver::new(bar, &mut arena, None, puppet.clock(TICK));
        let good = puppet.pages.borrow().clone();
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

    /// One step. Where there is no queue, the puppet finds none: its errors are no news.
    fn step(&mut self, what: u8, small: u16, large: u32, more: u8) {
        let puppet = &self.puppet;
        match what % 10 {
            0 => self.requests.ask(&mut self.driver, small, large, more),
            1 => self.requests.look(&mut self.driver),
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
            if self.requests.in_flight() == 0 {
                break;
            }
            while self.answer(0).unwrap_or(false) {}
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
