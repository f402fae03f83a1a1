//! The driver against a puppet, and against a device that answers as it likes.

mod rings;

use super::registers::*;
use super::*;
use crate::net::recovery::{HANG_NANOSECONDS, HEALTHY_NANOSECONDS, RESETS_MAX};
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::sync::atomic::AtomicU32;
use device::{Frame, offload};
use hw::sim::{self, View};
use hw::{Reachable, Registers};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;

const IOVA: u64 = 0x4000_0000;
const N: usize = 64;
const COUNT: usize = 3 * N;

/// DD and EOP of a received frame.
const DONE: u64 = 0b11;
/// DD of a frame that was sent.
const SENT: u64 = 1 << 32;

/// Memory for rings and frames, of which the test plays the device's end.
struct Rings {
    arena: DmaArena,
    view: View,
    pool: Pool,
    counts: NicCounts,
}

impl Rings {
    fn new() -> Self {
        let (mut arena, view) = sim::arena(COUNT * 4096, IOVA);
        let pool = Pool::dma(&mut arena, COUNT, BUFFER_BYTES).unwrap();
        Self {
            arena,
            view,
            pool,
            counts: NicCounts::default(),
        }
    }

    /// A frame of so many bytes, each of them `fill`.
    fn frame(&self, length: usize, fill: u8) -> Frame {
        let mut frame = self.pool.alloc(length).unwrap();
        frame.bytes_mut().fill(fill);
        frame
    }

    /// A word of a ring, as the device sees it.
    fn word(&self, base: u64, index: usize, word: usize) -> u64 {
        self.view.load(place(base, index, word)).unwrap()
    }

    fn set_word(&self, base: u64, index: usize, word: usize, value: u64) {
        self.view.store(place(base, index, word), value).unwrap();
    }
}

fn place(base: u64, index: usize, word: usize) -> u64 {
    base + (index % N * 16 + word * 8) as u64
}

/// Frames that somebody holds: no two may share a buffer.
fn assert_distinct(held: &[Frame]) {
    let addresses: BTreeSet<_> = held.iter().map(|frame| frame.iova().unwrap()).collect();
    assert_eq!(
        addresses.len(),
        held.len(),
        "one buffer was handed out twice"
    );
}

#[test]
fn a_frame_refused_in_the_middle_does_not_count_and_those_behind_it_do() {
    let mut bench = Bench::new();
    let mut batch = Batch::new();
    for length in [60, 16, 70, 1519, 80] {
        batch.push(bench.pool.alloc(length).unwrap()).unwrap();
    }
    let (frames, bytes) = (3, 210);
    assert_eq!(bench.nic.transmit(&mut batch), Sent { frames, bytes });
    assert_eq!(bench.nic.counts().tx_refused, 2);
    for _ in 0..2 * N {
        let room = batch.push(bench.pool.alloc(60).unwrap());
        if room.is_err() {
            break;
        }
    }
    let given = batch.len() as u64;
    let sent = bench.nic.transmit(&mut batch);
    assert_eq!(sent.frames, given - bench.nic.counts().tx_no_room);
    assert_eq!(sent.bytes, 60 * sent.frames);
    bench.puppet.set_link(false);
    bench.tend();
    batch.push(bench.pool.alloc(60).unwrap()).unwrap();
    assert_eq!(bench.nic.transmit(&mut batch), Sent::default());
}

/// What happens to a ring.
#[derive(Clone, Debug)]
enum Event {
    /// The device writes something into a word of a descriptor.
    Scribble(usize, usize, u64),
    /// The driver is asked for frames, of which so many are kept.
    Receive(usize),
    /// Frames are sent, as many as that.
    Send(usize),
    Arm,
    /// So much later.
    Tend(u64),
    /// What was kept is dropped.
    Drop,
}

/// Words that a device may write: mostly such that the driver takes for something.
fn words() -> impl Strategy<Value = u64> {
    let received = (0u64..2200).prop_map(|length| DONE | length << 32);
    let bits = (0u32..64).prop_map(|bit| DONE | SENT | 1 << bit);
    prop_oneof![4 => received, 1 => bits, 1 => any::<u64>(), 1 => Just(0), 1 => Just(SENT)]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..N, 0..2usize, words()).prop_map(|(i, w, v)| Event::Scribble(i, w, v)),
        3 => (0..80usize).prop_map(Event::Receive),
        2 => (0..80usize).prop_map(Event::Send),
        1 => Just(Event::Arm),
        1 => (0u64..3_000_000_000).prop_map(Event::Tend),
        1 => Just(Event::Drop),
    ];
    vec(event, 0..200)
}

/// A device that remembers what was written, and answers as it likes.
struct Liar {
    written: RefCell<BTreeMap<usize, u32>>,
    answers: Vec<u32>,
    asked: Cell<usize>,
}

impl Registers for Liar {
    fn len(&self) -> usize {
        BAR_BYTES
    }

    fn read32(&self, offset: usize) -> u32 {
        let asked = self.asked.replace(self.asked.get() + 1);
        let answer = self.answers.get(asked % self.answers.len().max(1));
        let written = self.written.borrow().get(&offset).copied();
        match (offset, answer) {
            (_, Some(answer)) if asked % 7 == 3 => *answer,
            // What makes a driver go on.
            (0x00, _) => written.unwrap_or(0) & !CTRL_RST,
            (0x08, _) => 0x83,
            (0x10, _) => EEC_AUTO_RD,
            (0x5400, _) => 0x1234_5602,
            (0x5404, _) => RAH_AV | 0x789a,
            _ => written.unwrap_or(0),
        }
    }

    fn write32(&self, offset: usize, value: u32) {
        self.written.borrow_mut().insert(offset, value);
    }

    fn read_narrow(&self, _: usize, _: usize) -> u32 {
        ALL_ONES
    }

    fn write_narrow(&self, _: usize, _: usize, _: u32) {}
}

/// A driver of a device that lies, after some answers that do not stop it from starting.
fn start(rings: &mut Rings, answers: Vec<u32>) -> (Rc<Liar>, Result<Driver<N, N>, Error>) {
    let liar = Rc::new(Liar {
        written: RefCell::default(),
        answers,
        asked: Cell::new(0),
    });
    let time = Cell::new(0);
    let clock = || time.replace(time.get() + 1_000_000);
    let bar = Mmio::asked(liar.clone());
    let driver = Driver::new(bar, &mut rings.arena, rings.pool, Config::FORWARD, clock);
    (liar, driver)
}

#[test]
fn nothing_there_is_an_error_and_no_wait_without_end() {
    let mut rings = Rings::new();
    let bar = Mmio::shared(&[]);
    let driver = Driver::<N, N>::new(bar, &mut rings.arena, rings.pool, Config::FORWARD, || 0);
    assert_eq!(
        driver.err(),
        Some(Error::Bar {
            wanted: BAR_BYTES,
            found: 0,
        })
    );
    struct Nothing;
    impl Registers for Nothing {
        fn len(&self) -> usize {
            BAR_BYTES
        }
        fn read32(&self, _: usize) -> u32 {
            ALL_ONES
        }
        fn write32(&self, _: usize, _: u32) {}
        fn read_narrow(&self, _: usize, _: usize) -> u32 {
            ALL_ONES
        }
        fn write_narrow(&self, _: usize, _: usize, _: u32) {}
    }
    let bar = Mmio::asked(Rc::new(Nothing));
    let time = Cell::new(0);
    let clock = || time.replace(time.get() + 1_000_000);
    let driver = Driver::<N, N>::new(bar, &mut rings.arena, rings.pool, Config::FORWARD, clock);
    assert_eq!(driver.err(), Some(Error::Gone));
}

#[test]
fn a_device_that_lies_is_reset_some_times_and_then_given_up() {
    let mut rings = Rings::new();
    let (liar, driver) = start(&mut rings, Vec::new());
    let mut driver = driver.unwrap();
    assert_eq!(
        (driver.mac(), driver.link()),
        ([2, 0x56, 0x34, 0x12, 0x9a, 0x78], Some(1000))
    );
    let mut now = 0;
    for lies in 1.. {
        let base = u64::from(liar.written.borrow()[&RDBAL.offset()]);
        rings.set_word(base, 0, 1, DONE | 4000 << 32);
        let mut batch = Batch::new();
        driver.receive(&mut batch);
        assert!(batch.is_empty() && driver.link().is_none());
        assert_eq!(driver.counts().rx_lie, lies);
        assert_eq!(liar.written.borrow()[&RCTL.offset()], 0, "it was stopped");
        assert!(driver.needs_tend());
        for _ in 0..3 {
            now += device::TEND_NANOSECONDS;
            driver.tend(now);
        }
        if driver.counts().given_up {
            break;
        }
        assert_eq!(driver.link(), Some(1000), "it runs again");
        let enabled = liar.written.borrow()[&RCTL.offset()];
        assert_ne!(enabled & RCTL_EN, 0);
    }
    assert_eq!(driver.counts().resets, u64::from(RESETS_MAX));
    assert_eq!(liar.written.borrow()[&RCTL.offset()], 0, "it was stopped");
    assert!(!driver.needs_tend() && !driver.arm());
}

#[test]
fn frames_that_are_never_sent_mean_a_reset_but_not_while_the_link_is_down() {
    let mut rings = Rings::new();
    let (_, driver) = start(&mut rings, Vec::new());
    let mut driver = driver.unwrap();
    // Long idle before the first frame.
    driver.tend(1);
    let start = 1 << 40;
    let mut batch = Batch::new();
    batch.push(rings.frame(60, 0)).unwrap();
    driver.transmit(&mut batch);
    for later in [0, HANG_NANOSECONDS - 1] {
        driver.tend(start + later);
        assert_eq!(driver.counts().resets, 0);
        assert!(driver.needs_tend());
    }
    let with_frame = rings.pool.free();
    driver.tend(start + HANG_NANOSECONDS);
    assert_eq!(driver.counts().resets, 1);
    assert_eq!(
        rings.pool.free(),
        with_frame,
        "the device may still read it"
    );
    driver.tend(start + HANG_NANOSECONDS + 2);
    driver.tend(start + 2 * HANG_NANOSECONDS);
    assert_eq!(driver.link(), Some(1000));
    assert_eq!(rings.pool.free(), with_frame + 1);
}

proptest! {
    /// Whatever the device writes into the rings and says in its registers: nothing panics, no
    /// buffer has two owners, no frame is longer than its buffer, and none is lost for ever.
    #[test]
    fn no_device_gets_the_better_of_the_driver(
        answers in vec(prop_oneof![any::<u32>(), Just(ALL_ONES), Just(0)], 0..9),
        events in events(),
    ) {
        let mut rings = Rings::new();
        let (liar, driver) = start(&mut rings, answers);
        let Ok(mut driver) = driver else { return Ok(()) };
        let bases = [RDBAL, TDBAL].map(|base| u64::from(liar.written.borrow()[&base.offset()]));
        let mut held: Vec<Frame> = Vec::new();
        let mut now = 0;
        for event in events {
            let mut batch = Batch::new();
            match event {
                Event::Scribble(index, word, value) => {
                    rings.set_word(bases[index % 2], index, word, value);
                }
                Event::Receive(keep) => {
                    driver.receive(&mut batch);
                    held.extend(batch.drain().take(keep));
                }
                Event::Send(count) => {
                    for frame in held.drain(..count.min(held.len()).min(BATCH_FRAMES_MAX)) {
                        batch.push(frame).unwrap();
                    }
                    let given = Sent::all(&batch);
                    let sent = driver.transmit(&mut batch);
                    prop_assert!(sent.frames <= given.frames && sent.bytes <= given.bytes);
                    prop_assert!(batch.is_empty());
                }
                Event::Arm => _ = driver.arm(),
                Event::Tend(later) => {
                    now += later;
                    driver.tend(now);
                }
                Event::Drop => held.clear(),
            }
            assert_distinct(&held);
            prop_assert!(held.iter().all(|frame| frame.len() <= RX_BUFFER_BYTES));
            prop_assert!(driver.counts().resets <= 1000);
        }
        held.clear();
        // All that is not in the pool is with the device: at most what its rings hold.
        prop_assert!(rings.pool.free() >= COUNT - 2 * (N - 1));
    }
}

/// A driver and a device that does what a test says.
struct Bench {
    puppet: puppet::Puppet,
    nic: Driver<N, N>,
    pool: Pool,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        let (puppet, bar, mut arena) = puppet::Puppet::new(COUNT * 4096);
        let pool = Pool::dma(&mut arena, COUNT, BUFFER_BYTES).unwrap();
        let nic = Driver::new(bar, &mut arena, pool, Config::FORWARD, puppet.clock());
        Self {
            puppet,
            nic: nic.unwrap(),
            pool,
            now: 0,
        }
    }

    fn tend(&mut self) {
        self.now += device::TEND_NANOSECONDS;
        self.nic.tend(self.now);
    }

    fn receive(&mut self) -> Vec<Frame> {
        let mut batch = Batch::new();
        self.nic.receive(&mut batch);
        batch.drain().collect()
    }

    /// Frames pass both ways, each once and unharmed.
    fn works(&mut self) {
        for n in 0..3 * N as u8 {
            assert!(self.puppet.deliver(&[n; 60]).unwrap());
            let mut batch = Batch::new();
            self.nic.receive(&mut batch);
            assert!(batch.iter().all(|frame| frame.bytes() == [n; 60]));
            assert_eq!(batch.len(), 1);
            self.nic.transmit(&mut batch);
            let sent = self.puppet.drain().unwrap();
            let (bytes, last): (Vec<_>, _) = (self.puppet.frames(&sent).unwrap(), sent.len() - 1);
            // In one descriptor, or in two where a page ends.
            assert!(
                bytes
                    .iter()
                    .all(|bytes| bytes.iter().all(|byte| *byte == n))
            );
            assert_ne!(sent[last][1] & descriptor::TX_RS, 0);
        }
        self.tend();
        assert!(
            self.pool.free() >= COUNT - (N - 1),
            "all that was sent came back"
        );
    }
}

#[test]
fn frames_pass_round_the_rings_and_again_after_a_lie() {
    let mut bench = Bench::new();
    assert_eq!(
        (bench.nic.mac(), bench.nic.link()),
        (puppet::MAC, Some(1000))
    );
    bench.works();
    bench.puppet.scribble_receive(0, [0, DONE]).unwrap();
    assert!(bench.receive().is_empty() && bench.nic.link().is_none());
    bench.tend();
    assert!(bench.puppet.end_reset(), "the driver resets the device");
    bench.tend();
    bench.works();
    let counts = *bench.nic.counts();
    assert_eq!(
        (counts.rx_lie, counts.resets, counts.given_up),
        (1, 1, false)
    );
}

#[test]
fn a_poll_that_finds_nothing_is_idle_whatever_the_reason() {
    let mut bench = Bench::new();
    let polls = |bench: &Bench| {
        let counts = bench.nic.counts();
        (counts.polls_busy, counts.polls_idle)
    };
    bench.receive();
    assert_eq!(polls(&bench), (0, 1));
    bench.puppet.deliver(&[1; 60]).unwrap();
    bench.receive();
    assert_eq!(polls(&bench), (1, 1));
    // A bad frame is work, though nothing comes of it.
    let bad = DONE | 60 << 32 | 1 << 31;
    bench.puppet.scribble_receive(0, [0, bad]).unwrap();
    assert!(bench.receive().is_empty());
    assert_eq!((polls(&bench), bench.nic.counts().rx_error), ((2, 1), 1));
    // A lie is none, and nor is a device that is being reset.
    bench.puppet.scribble_receive(1, [0, DONE]).unwrap();
    bench.receive();
    bench.receive();
    assert_eq!(polls(&bench), (2, 3));
}

#[test]
fn a_device_that_is_unplugged_while_it_is_looked_at_has_counted_nothing() {
    let mut bench = Bench::new();
    bench.puppet.set(CRCERRS, 2);
    bench.puppet.set(MPC, 3);
    let before = *bench.nic.counts();
    bench.tend();
    for register in [CRCERRS, ALGNERRC, RXERRC, RLEC, ROC] {
        bench.puppet.set(register, ALL_ONES);
    }
    bench.puppet.set(MPC, ALL_ONES);
    bench.tend();
    let counted = bench.nic.counts().since(&before);
    assert_eq!((counted.rx_error, counted.rx_missed), (2, 3));
    // And all of it, after a long healthy time: it has nothing to receive, and is given up after
    // some resets.
    bench.now += HEALTHY_NANOSECONDS;
    bench.tend();
    bench.puppet.deliver(&[1; 60]).unwrap();
    bench.puppet.all_ones();
    assert!(!bench.nic.arm() && bench.nic.link().is_none());
    assert!(bench.receive().is_empty());
    for _ in 0..3 * RESETS_MAX {
        bench.tend();
        bench.puppet.all_ones();
    }
    assert!(bench.nic.counts().given_up && bench.receive().is_empty());
    assert_eq!(bench.nic.counts().resets, u64::from(RESETS_MAX));
}

#[test]
fn a_forwarder_gets_all_frames_with_their_tags_and_a_station_its_own() {
    let bring_up = |promiscuous| {
        let (puppet, bar, mut arena) = puppet::Puppet::new(COUNT * 4096);
        let pool = Pool::dma(&mut arena, COUNT, BUFFER_BYTES).unwrap();
        // What a driver before this one has left behind.
        puppet.set(CTRL, CTRL_VME | CTRL_RFCE | CTRL_TFCE);
        puppet.set(MTA.nth(MTA_COUNT - 1, 4), 7);
        puppet.set(RAH.nth(RA_COUNT - 1, RA_STRIDE), RAH_AV);
        let config = Config { promiscuous };
        let driver = Driver::<N, N>::new(bar, &mut arena, pool, config, puppet.clock());
        (puppet, driver.unwrap())
    };
    for (promiscuous, unicast) in [(true, RCTL_UPE), (false, 0)] {
        let (puppet, _driver) = bring_up(promiscuous);
        let accepted = puppet.get(RCTL) & (RCTL_UPE | RCTL_MPE);
        assert_eq!(accepted, unicast | RCTL_MPE);
        assert_ne!(puppet.get(RCTL) & RCTL_BAM, 0);
        // No tag is taken off, nobody is asked to pause, and nobody else's address is ours.
        let control = CTRL_VME | CTRL_RFCE | CTRL_TFCE;
        assert_eq!(puppet.get(CTRL) & control, 0);
        assert!((0..MTA_COUNT).all(|n| puppet.get(MTA.nth(n, 4)) == 0));
        let others = 1..RA_COUNT;
        let is_valid = |n| puppet.get(RAH.nth(n, RA_STRIDE)) & RAH_AV != 0;
        assert!(!others.into_iter().any(is_valid));
    }
}

#[test]
fn a_tagged_frame_of_full_length_passes_whole() {
    let mut bench = Bench::new();
    let length = MTU + HEADER_SIZE + VLAN_TAG_SIZE;
    let mut sent: Vec<u8> = (0..length).map(|n| ((n * n) >> 3) as u8).collect();
    sent[12..16].copy_from_slice(&[0x81, 0, 0, 42]);
    assert!(bench.puppet.deliver(&sent).unwrap());
    let mut batch = Batch::new();
    bench.nic.receive(&mut batch);
    assert!(batch.iter().all(|frame| frame.bytes() == sent));
    bench.nic.transmit(&mut batch);
    let mut passed = Vec::new();
    for [address, word] in bench.puppet.drain().unwrap() {
        let mut part = std::vec![0; (word & 0xfffff) as usize];
        bench.puppet.view().read(address, &mut part).unwrap();
        passed.extend(part);
    }
    assert_eq!(passed, sent);
    assert_eq!(bench.nic.counts().tx_refused, 0);
}
