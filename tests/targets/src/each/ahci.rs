//! An AHCI adapter that writes whatever it likes into registers and buffers, and a disk that says
//! anything of itself: their driver must neither panic nor hand a request out twice, and once the
//! device behaves, every request must come back.
//!
//! As long as the device tells no lies, whatever is reset, unplugged or broken behind the driver:
//! what succeeded was carried out, and no flush succeeds behind a loss of what had been written.

use crate::requests::{self, Requests, steps};
use device::block::{Operation, Request};
use drivers::block::ahci::puppet::{CI, GHC, IS, Puppet, SACT, SIG, SSTS, TFD};
use drivers::block::ahci::{DMA_BYTES, Driver};
use hw::Reachable;
use std::cell::RefCell;
use std::collections::BTreeSet;
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
    ledger: Ledger,
    /// What the disk says of itself while it behaves.
    good: [u16; 256],
}

/// What a device that tells no lies has carried out.
#[derive(Default)]
struct Ledger {
    has_lied: bool,
    /// Where the data of commands begin that it did since it was last reset.
    done: BTreeSet<u64>,
    resets: usize,
    /// Whether what was written waits for a flush, and whether it was lost.
    is_dirty: bool,
    is_lost: bool,
}

impl Ledger {
    /// The device carries the command of a slot out, if it has that.
    fn carries_out(&mut self, puppet: &Puppet, slot: usize) {
        if puppet.slots() & 1 << (slot % 32) == 0 {
            return;
        }
        let taken = puppet.peek(slot % 32);
        let data = taken.ok().and_then(|taken| Some(taken.regions.first()?.0));
        self.done.extend(data);
    }

    /// What was carried out before a reset is of no use to commands behind it.
    fn notices(&mut self, puppet: &Puppet) {
        if self.resets != puppet.resets.get() {
            self.resets = puppet.resets.get();
            self.done.clear();
        }
    }

    /// The disk lost its power.
    fn loses(&mut self) {
        self.is_lost |= self.is_dirty;
    }

    /// A request is over.
    fn judges(&mut self, request: &Request) {
        let place = request.buffers.iova().map(|iova| iova.raw());
        let is_done = place.is_some_and(|place| self.done.remove(&place));
        if self.has_lied {
            return;
        }
        let is_ok = request.result.is_ok();
        match request.operation {
            Operation::Read | Operation::Write if is_ok && request.length > 0 => {
                assert!(is_done, "nobody did this: {request:?}");
                self.is_dirty |= request.operation == Operation::Write;
            }
            Operation::Flush if is_ok => {
                assert!(!self.is_lost, "this was lost");
                self.is_dirty = false;
            }
            Operation::Flush => (self.is_dirty, self.is_lost) = (false, false),
            _ => {}
        }
    }
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
            ledger: Ledger::default(),
            puppet,
            good,
        }
    }

    fn run(&mut self, bytes: &[u8]) {
        self.ledger = Ledger::default();
        for (what, small, large, more) in steps(bytes) {
            self.step(what, small, large, more);
        }
        self.recover();
    }

    /// One step. Where there is no list, the puppet finds none: its errors are no news.
    fn step(&mut self, what: u8, small: u16, large: u32, more: u8) {
        let puppet = self.puppet.clone();
        self.ledger.notices(&puppet);
        self.ledger.has_lied |= matches!(what % 12, 4 | 5);
        match what % 12 {
            0 => self.requests.ask(&mut self.driver, small, large, more),
            1 => self.look(),
            2 => {
                let _ = puppet.take();
                self.ledger.carries_out(&puppet, usize::from(more));
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
            8 => puppet.reset_port(more & 1 != 0),
            9 => {
                puppet.bounce();
                self.ledger.loses();
            }
            10 => puppet.fault(),
            _ => {
                puppet.is_silent.set(more & 1 != 0);
                puppet.is_unplugged.set(more & 6 == 6);
                puppet.is_busy.set(more & 24 == 24);
            }
        }
    }

    fn look(&mut self) {
        let ledger = &mut self.ledger;
        self.requests
            .look_at(&mut self.driver, |request| ledger.judges(request));
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
                    self.ledger.notices(&puppet);
                    self.ledger.carries_out(&puppet, slot);
                    puppet.answer(slot);
                }
            });
            self.look();
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
