//! Several NICs and whoever waits for them: what a port and the wait share of a driver.
//!
//! A driver is polled while there are frames, and armed before anybody sleeps: it interrupts for
//! the next frame, and has looked once more. Time is brought to it by whoever waits.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use device::{Batch, Frame, Nic, NicCounts, Sent, TEND_NANOSECONDS};

/// Waits in a row that are answered for busy NICs alone, before the others are looked at, the host
/// is asked for its devices, and drivers are told the time.
const BUSY_WAITS_MAX: u32 = 16;
/// How often the others are looked at without asking the host, where it has nothing that may be
/// waited for: to ask a host costs far more than to look, and not the same on each.
const LOOKS_MAX: u32 = 16;
/// Longest sleep in nanoseconds: an interrupt may be lost, and a device unplugged.
const SLEEP_NANOSECONDS: u64 = 1_000_000_000;
/// Longest sleep in nanoseconds where a device cannot interrupt.
const BLIND_NANOSECONDS: u64 = 100_000;
/// The past: not to sleep, but to look.
const LOOK: u64 = 0;

/// Who is told what becomes of a NIC.
pub(crate) trait Observer {
    /// What was counted since the last time.
    fn counted(&self, counts: &NicCounts);
    /// The link is up, with this many Mb/s, or down.
    fn link(&self, speed: Option<u32>);
    /// The driver has given the device up.
    fn given_up(&self);
}

/// A driver, and what is known of it.
struct Slot<O> {
    index: u8,
    observer: O,
    driver: RefCell<Box<dyn Nic>>,
    /// Whether it can interrupt.
    interrupts: bool,
    /// Whether the last look found frames.
    busy: Cell<bool>,
    /// Whether it will interrupt for the next frame.
    armed: Cell<bool>,
    /// Whether nobody has the port any more.
    orphaned: Cell<bool>,
    /// What the observer knows.
    reported: Cell<NicCounts>,
    link: Cell<Option<u32>>,
    /// Frames that are sent together.
    staged: RefCell<Batch>,
}

/// A port's hold of its driver.
pub(crate) struct NicHandle<O: 'static>(&'static Slot<O>);

impl<O> NicHandle<O> {
    /// As [`Nic::receive`]; how many frames were added.
    #[inline]
    pub(crate) fn receive(&self, batch: &mut Batch) -> usize {
        let before = batch.len();
        self.0.driver.borrow_mut().receive(batch);
        let found = batch.len() - before;
        self.0.busy.set(found > 0);
        if found > 0 {
            // An interrupt for them may have come or not.
            self.0.armed.set(false);
        }
        found
    }

    /// As [`Nic::transmit`].
    #[inline]
    pub(crate) fn transmit(&self, batch: &mut Batch) -> Sent {
        self.0.driver.borrow_mut().transmit(batch)
    }

    /// Sends a frame together with others, by [`Self::flush`] at the latest; what was sent now.
    pub(crate) fn stage(&self, frame: Frame) -> Sent {
        let mut staged = self.0.staged.borrow_mut();
        let sent = match staged.is_full() {
            true => self.transmit(&mut staged),
            false => Sent::default(),
        };
        // There is room: it was full by number, or not at all.
        let _ = staged.push(frame);
        sent
    }

    /// Sends what was staged.
    pub(crate) fn flush(&self) -> Sent {
        self.transmit(&mut self.0.staged.borrow_mut())
    }
}

impl<O> Drop for NicHandle<O> {
    fn drop(&mut self) {
        self.0.orphaned.set(true);
    }
}

impl<O: Observer> Slot<O> {
    fn bit(&self) -> u64 {
        1 << self.index
    }

    /// Tells the driver the time, and the observer what became of it.
    fn tend(&self, now: u64) {
        let mut driver = self.driver.borrow_mut();
        driver.tend(now);
        let (link, counts) = (driver.link(), *driver.counts());
        drop(driver);
        let before = self.reported.replace(counts);
        self.observer.counted(&counts.since(&before));
        if counts.given_up && !before.given_up {
            self.observer.given_up();
        } else if self.link.replace(link) != link {
            // It may have been reset meanwhile, and then it will not interrupt.
            self.armed.set(false);
            self.observer.link(link);
        }
    }
}

/// All NICs of an image.
pub(crate) struct Schedule<O: 'static> {
    slots: RefCell<Vec<&'static Slot<O>>>,
    /// Whether nobody sleeps: the operator wants so.
    sleepless: bool,
    /// Networks of the host's that may be waited for as well.
    networks: usize,
    /// Waits since all NICs were looked at last.
    waits: Cell<u32>,
    /// Such looks since the host was asked last.
    looks: Cell<u32>,
    /// When drivers were told the time last.
    tended: Cell<u64>,
}

impl<O: Observer> Schedule<O> {
    /// None so far, beside so many `networks` of the host's; `sleepless` if nobody is to sleep.
    pub(crate) fn new(networks: usize, sleepless: bool) -> Self {
        Self {
            slots: RefCell::new(Vec::new()),
            sleepless,
            networks,
            waits: Cell::new(0),
            looks: Cell::new(0),
            tended: Cell::new(0),
        }
    }

    /// Adds the NIC that ready bits know by this index, below 64; whether it `interrupts`.
    pub(crate) fn add(
        &self,
        index: u8,
        driver: Box<dyn Nic>,
        interrupts: bool,
        observer: O,
    ) -> NicHandle<O> {
        let slot = Box::leak(Box::new(Slot {
            index,
            observer,
            link: Cell::new(driver.link()),
            driver: RefCell::new(driver),
            interrupts,
            busy: Cell::new(false),
            armed: Cell::new(false),
            orphaned: Cell::new(false),
            reported: Cell::default(),
            staged: RefCell::default(),
        }));
        self.slots.borrow_mut().push(slot);
        NicHandle(slot)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.borrow().is_empty()
    }

    /// The bits of those of which `is` is true.
    fn bits(&self, is: impl Fn(&Slot<O>) -> bool) -> u64 {
        let slots = self.slots.borrow();
        let slots = slots.iter().filter(|slot| !slot.orphaned.get());
        slots.fold(0, |bits, slot| bits | if is(slot) { slot.bit() } else { 0 })
    }

    /// Waits until `deadline`, if there is one: the NICs to look at, and the devices of the host
    /// that have something. `clock` tells the time in nanoseconds, `host` sleeps until a time or
    /// until one of its devices, or an interrupt, has something, and says which.
    pub(crate) fn wait(
        &self,
        deadline: Option<u64>,
        clock: impl Fn() -> u64,
        host: impl Fn(u64) -> u64,
    ) -> u64 {
        let busy = self.bits(|slot| self.sleepless || slot.busy.get());
        let waits = self.waits.get();
        if busy != 0 && waits < BUSY_WAITS_MAX {
            self.waits.set(waits + 1);
            return busy;
        }
        self.waits.set(0);
        let looks = self.looks.get();
        if busy != 0 && self.networks == 0 && deadline.is_none() && looks < LOOKS_MAX {
            self.looks.set(looks + 1);
            return self.bits(|_| true);
        }
        self.looks.set(0);
        let now = clock();
        self.tend(now);
        if busy != 0 {
            let over = deadline.is_some_and(|deadline| deadline <= now);
            let found = self.bits(|slot| slot.busy.get());
            return self.woken(host(LOOK)) | if over { found } else { busy };
        }
        let found = self.bits(Self::arm);
        if found != 0 {
            return found | self.woken(host(LOOK));
        }
        let bound = self.sleep_bound(now);
        let until = deadline.map_or(bound, |deadline| deadline.min(bound));
        self.woken(host(until)) | self.bits(|slot| !slot.interrupts)
    }

    /// Arms a NIC that is not; whether it has frames already.
    fn arm(slot: &Slot<O>) -> bool {
        let found = !slot.armed.replace(true) && slot.driver.borrow_mut().arm();
        if found {
            slot.armed.set(false);
        }
        found
    }

    /// When somebody who sleeps now must wake up for the drivers' sake.
    fn sleep_bound(&self, now: u64) -> u64 {
        if self.bits(|slot| !slot.interrupts) != 0 {
            return now + BLIND_NANOSECONDS;
        }
        let restless = self.bits(|slot| slot.driver.borrow().needs_tend()) != 0;
        let most = match restless {
            true => TEND_NANOSECONDS,
            false => SLEEP_NANOSECONDS,
        };
        self.tended.get() + most
    }

    /// Notes which NICs have interrupted.
    fn woken(&self, ready: u64) -> u64 {
        for slot in self.slots.borrow().iter() {
            if ready & slot.bit() != 0 {
                slot.armed.set(false);
            }
        }
        ready
    }

    fn tend(&self, now: u64) {
        let since = now.saturating_sub(self.tended.get());
        if since < TEND_NANOSECONDS {
            return;
        }
        self.tended.set(now);
        for slot in self.slots.borrow().iter() {
            slot.tend(now);
            // After a long sleep an interrupt may have been lost: it is armed anew.
            slot.armed
                .set(slot.armed.get() && since < SLEEP_NANOSECONDS);
        }
    }
}
