//! Several NICs and whoever waits for them: what a port and the wait share of a driver.
//!
//! A driver is polled while there are frames, and armed before anybody sleeps: it interrupts for
//! the next frame, and has looked once more. Time is brought to it by whoever waits.

use crate::batch::Batch;
use crate::frame::Frame;
use crate::nic::{Nic, NicCounts, Sent, TEND_NANOSECONDS};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

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
pub trait Observer {
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
    told: Cell<NicCounts>,
    link: Cell<Option<u32>>,
    /// Frames that are sent together.
    staged: RefCell<Batch>,
}

/// A port's hold of its driver.
pub struct NicHandle<O: 'static>(&'static Slot<O>);

impl<O> NicHandle<O> {
    /// As [`Nic::receive`]; how many frames were added.
    #[inline]
    pub fn receive(&self, batch: &mut Batch) -> usize {
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
    pub fn transmit(&self, batch: &mut Batch) -> Sent {
        self.0.driver.borrow_mut().transmit(batch)
    }

    /// Sends a frame together with others, by [`Self::flush`] at the latest; what was sent now.
    pub fn stage(&self, frame: Frame) -> Sent {
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
    pub fn flush(&self) -> Sent {
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
        let told = self.told.replace(counts);
        self.observer.counted(&counts.since(&told));
        if counts.given_up && !told.given_up {
            self.observer.given_up();
        } else if self.link.replace(link) != link {
            // It may have been reset meanwhile, and then it will not interrupt.
            self.armed.set(false);
            self.observer.link(link);
        }
    }
}

/// All NICs of an image.
pub struct Nics<O: 'static> {
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

impl<O: Observer> Nics<O> {
    /// None so far, beside so many `networks` of the host's; `sleepless` if nobody is to sleep.
    pub fn new(networks: usize, sleepless: bool) -> Self {
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
    pub fn add(
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
            told: Cell::default(),
            staged: RefCell::default(),
        }));
        self.slots.borrow_mut().push(slot);
        NicHandle(slot)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
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
    pub fn wait(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Offloads, Pool};
    use alloc::rc::Rc;

    const BIT: u64 = 1 << 5;
    /// Bytes of the shortest frame that the fake device takes.
    const SHORTEST: usize = 17;

    /// What a test and its NIC share.
    #[derive(Default)]
    struct State {
        /// Frames that wait.
        frames: Cell<usize>,
        /// Frames for which there is room.
        room: Cell<usize>,
        arms: Cell<u32>,
        restless: Cell<bool>,
        link: Cell<Option<u32>>,
        /// What the observer was told.
        polls: Cell<u64>,
        links: Cell<u32>,
    }

    struct Fake(Rc<State>, Pool, NicCounts);

    impl Nic for Fake {
        fn mac(&self) -> [u8; 6] {
            [2; 6]
        }
        fn mtu(&self) -> usize {
            1500
        }
        fn offloads(&self) -> Offloads {
            Offloads::default()
        }
        fn link(&self) -> Option<u32> {
            self.0.link.get()
        }
        fn receive(&mut self, batch: &mut Batch) {
            let found = self.0.frames.take();
            for _ in 0..found {
                batch.push(self.1.alloc(60).unwrap()).unwrap();
            }
            self.2.polls_busy += u64::from(found > 0);
        }
        fn transmit(&mut self, batch: &mut Batch) -> Sent {
            let mut sent = Sent::all(batch);
            for (number, frame) in batch.drain().enumerate() {
                if frame.len() < SHORTEST {
                    self.2.tx_refused += 1;
                    sent.without(frame.len());
                } else if number >= self.0.room.get() {
                    self.2.tx_no_room += 1;
                    sent.without(frame.len());
                }
            }
            sent
        }
        fn arm(&mut self) -> bool {
            self.0.arms.set(self.0.arms.get() + 1);
            self.0.frames.get() > 0
        }
        fn tend(&mut self, _: u64) {}
        fn needs_tend(&self) -> bool {
            self.0.restless.get()
        }
        fn counts(&self) -> &NicCounts {
            &self.2
        }
    }

    impl Observer for Rc<State> {
        fn counted(&self, counts: &NicCounts) {
            self.polls.set(self.polls.get() + counts.polls_busy);
        }
        fn link(&self, _: Option<u32>) {
            self.links.set(self.links.get() + 1);
        }
        fn given_up(&self) {}
    }

    struct Bench {
        state: Rc<State>,
        nics: Nics<Rc<State>>,
        port: NicHandle<Rc<State>>,
        now: Cell<u64>,
        /// Until when the host was asked to sleep, each time.
        asked: RefCell<Vec<u64>>,
    }

    impl Bench {
        fn new(sleepless: bool) -> Self {
            Self::beside(1, sleepless)
        }

        /// A NIC beside so many networks of the host's.
        fn beside(networks: usize, sleepless: bool) -> Self {
            let state = Rc::new(State::default());
            let pool = Pool::new(alloc::vec![0; 64 * 128].leak(), 128);
            let fake = Fake(state.clone(), pool, NicCounts::default());
            let nics = Nics::new(networks, sleepless);
            let port = nics.add(5, Box::new(fake), true, state.clone());
            Self {
                state,
                nics,
                port,
                now: Cell::new(10 * SLEEP_NANOSECONDS),
                asked: RefCell::default(),
            }
        }

        /// Waits on a host that answers so.
        fn wait(&self, deadline: Option<u64>, answer: u64) -> u64 {
            let host = |until| {
                self.asked.borrow_mut().push(until);
                answer
            };
            self.nics.wait(deadline, || self.now.get(), host)
        }

        fn receive(&self) -> usize {
            self.port.receive(&mut Batch::new())
        }
    }

    #[test]
    fn a_busy_nic_is_looked_at_again_and_the_host_does_not_starve() {
        let bench = Bench::new(false);
        for waits in 0..3 * (BUSY_WAITS_MAX as usize + 1) {
            bench.state.frames.set(2);
            assert_eq!(bench.receive(), 2);
            assert_eq!(bench.wait(None, 1) & BIT, BIT);
            let asked = bench.asked.borrow();
            assert_eq!(asked.len(), (waits + 1) / (BUSY_WAITS_MAX as usize + 1));
            assert!(asked.iter().all(|until| *until == LOOK));
        }
        assert_eq!(bench.state.arms.get(), 0);
    }

    #[test]
    fn where_the_host_has_no_network_it_is_asked_more_seldom() {
        const OTHER: u64 = 1 << 6;
        let bench = Bench::beside(0, false);
        let pool = Pool::new(alloc::vec![0; 64 * 128].leak(), 128);
        let idle = Fake(Rc::default(), pool, NicCounts::default());
        let _idle = bench.nics.add(6, Box::new(idle), true, Rc::default());
        let (mut busy, mut all) = (0, 0);
        while bench.asked.borrow().is_empty() {
            bench.state.frames.set(1);
            bench.receive();
            match bench.wait(None, 0) {
                BIT => busy += 1,
                ready => all += u32::from(ready == BIT | OTHER),
            }
        }
        // The last of them was the host's answer.
        assert_eq!(all, LOOKS_MAX);
        assert_eq!(busy, (LOOKS_MAX + 1) * BUSY_WAITS_MAX + 1);
        // Who has a deadline is not kept from it.
        let past = Some(bench.now.get() - 1);
        for _ in 0..=BUSY_WAITS_MAX {
            bench.wait(past, 0);
        }
        assert_eq!(bench.asked.borrow().len(), 2);
    }

    #[test]
    fn an_idle_nic_is_armed_once_until_it_interrupts() {
        let bench = Bench::new(false);
        assert_eq!(bench.receive(), 0);
        for _ in 0..4 {
            assert_eq!(bench.wait(None, 0), 0);
        }
        assert_eq!(bench.state.arms.get(), 1);
        assert_eq!(bench.wait(None, BIT), BIT);
        assert_eq!(bench.receive(), 0);
        bench.wait(None, 0);
        assert_eq!(bench.state.arms.get(), 2);
    }

    #[test]
    fn a_nic_that_was_reset_is_armed_again() {
        let bench = Bench::new(false);
        bench.state.restless.set(true);
        for (link, arms) in [
            (None, 1),
            (None, 1),
            (Some(1000), 2),
            (Some(1000), 2),
            (None, 3),
        ] {
            bench.state.link.set(link);
            bench.now.set(bench.now.get() + TEND_NANOSECONDS);
            bench.wait(None, 0);
            assert_eq!(bench.state.arms.get(), arms);
        }
    }

    #[test]
    fn a_frame_that_came_before_it_was_armed_is_no_reason_to_sleep() {
        let bench = Bench::new(false);
        bench.state.frames.set(1);
        assert_eq!(bench.wait(None, 1), BIT | 1);
        assert_eq!(*bench.asked.borrow(), [LOOK]);
        assert_eq!(bench.receive(), 1);
    }

    #[test]
    fn sleep_ends_in_time_for_the_deadline_and_for_the_driver() {
        let bench = Bench::new(false);
        let now = bench.now.get();
        bench.wait(Some(now + 7), 0);
        bench.wait(None, 0);
        bench.state.restless.set(true);
        bench.wait(None, 0);
        let ends = [now + 7, now + SLEEP_NANOSECONDS, now + TEND_NANOSECONDS];
        assert_eq!(*bench.asked.borrow(), ends);
        // After a second an interrupt may have been lost.
        bench.now.set(now + SLEEP_NANOSECONDS);
        bench.wait(None, 0);
        assert_eq!(bench.state.arms.get(), 2);
    }

    #[test]
    fn who_may_not_sleep_looks_and_learns_of_the_deadline() {
        let bench = Bench::new(true);
        for _ in 0..100 {
            assert_eq!(bench.wait(None, 0), BIT);
        }
        let past = Some(bench.now.get() - 1);
        let found = (0..=BUSY_WAITS_MAX).filter(|_| bench.wait(past, 0) == 0);
        assert_eq!(found.count(), 1);
        assert!(bench.asked.borrow().iter().all(|until| *until == LOOK));
    }

    #[test]
    fn the_observer_is_told_each_thing_once() {
        let bench = Bench::new(false);
        bench.state.frames.set(3);
        bench.receive();
        bench.state.link.set(Some(1000));
        for _ in 0..40 {
            bench.now.set(bench.now.get() + TEND_NANOSECONDS);
            bench.wait(None, 0);
        }
        let told = (bench.state.polls.get(), bench.state.links.get());
        assert_eq!(told, (1, 1));
    }

    #[test]
    fn what_there_was_no_room_for_does_not_count_as_sent() {
        let bench = Bench::new(false);
        let pool = Pool::new(alloc::vec![0; 64 * 128].leak(), 128);
        bench.state.room.set(2);
        let mut batch = Batch::new();
        for length in [20, 30, 40] {
            batch.push(pool.alloc(length).unwrap()).unwrap();
        }
        let sent = |frames, bytes| Sent { frames, bytes };
        assert_eq!(bench.port.transmit(&mut batch), sent(2, 50));
        assert_eq!(bench.port.stage(pool.alloc(25).unwrap()), sent(0, 0));
        assert_eq!(bench.port.flush(), sent(1, 25));
    }

    #[test]
    fn a_frame_refused_in_the_middle_does_not_count_and_those_behind_it_do() {
        let bench = Bench::new(false);
        let pool = Pool::new(alloc::vec![0; 64 * 128].leak(), 128);
        bench.state.room.set(3);
        let mut batch = Batch::new();
        for length in [20, SHORTEST - 1, 40] {
            batch.push(pool.alloc(length).unwrap()).unwrap();
        }
        let (frames, bytes) = (2, 60);
        assert_eq!(bench.port.transmit(&mut batch), Sent { frames, bytes });
    }

    #[test]
    fn a_port_that_is_gone_wakes_nobody() {
        let Bench {
            state, nics, port, ..
        } = Bench::new(false);
        state.frames.set(1);
        port.receive(&mut Batch::new());
        drop(port);
        state.frames.set(1);
        assert_eq!(nics.wait(None, || 0, |_| 0), 0);
    }
}
