//! Waits over a NIC and a host that do what a test says.

use super::*;
use alloc::rc::Rc;
use device::{Offloads, Pool};

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
    nics: Schedule<Rc<State>>,
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
        let nics = Schedule::new(networks, sleepless);
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
