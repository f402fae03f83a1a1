//! A bad network: it drops, delays, reorders, doubles and corrupts what goes through a port, each
//! segment on the wire for itself, the same way for the same seed.
//!
//! Frames that are left to be cut are cut first, and checksums completed, so that any other stack
//! beside ours meets the same. Each frame is copied: what is under way keeps no buffer of the port.

use crate::counts::{Counts, reasons};
use crate::random::Random;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use device::{Batch, Frame, Netif, Offloads, WaitHandle, segments};
use ports::Instant;

/// Bytes that are under way in one direction: 20 ms of ten gigabits a second.
pub const UNDER_WAY_MAX: usize = 25_000_000;

/// What a chance is counted in.
pub const MILLION: u32 = 1_000_000;

/// What happens in one direction. Chances are parts of a [`MILLION`], of each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Chance that a frame is lost.
    pub drop: u32,
    /// Chance that it comes twice.
    pub duplicate: u32,
    /// Chance that one of its bits is changed.
    pub corrupt: u32,
    /// Chance that it comes later than it should, by [`Self::late`].
    pub reorder: u32,
    /// How long it takes.
    pub delay: Duration,
    /// How much longer it may take. Frames stay in order, but for those that are reordered.
    pub jitter: Duration,
    /// How much later a frame comes that is reordered.
    pub late: Duration,
}

reasons! {
    /// What happened to frames.
    pub enum Fault {
        /// One was lost.
        Dropped = "fault_dropped",
        /// One came twice.
        Duplicated = "fault_duplicated",
        /// One was changed.
        Corrupted = "fault_corrupted",
        /// One came late.
        Reordered = "fault_reordered",
        /// One was lost because too much is under way.
        Overflow = "fault_overflow",
    }
}

/// One direction.
struct Line {
    settings: Settings,
    random: Random,
    /// What is under way: when it arrives, and the how manieth it is.
    under_way: BTreeMap<(Instant, u64), Vec<u8>>,
    bytes: usize,
    count: u64,
    /// When the last frame arrives that is not reordered.
    last: Instant,
    faults: Counts<Fault>,
}

impl Line {
    fn new(seed: u64) -> Self {
        Self {
            settings: Settings::default(),
            random: Random::new(seed),
            under_way: BTreeMap::new(),
            bytes: 0,
            count: 0,
            last: Instant::PAST,
            faults: Counts::default(),
        }
    }

    /// Takes a frame in, each segment of it for itself.
    fn take(&mut self, mut frame: Frame, now: Instant) {
        let offload = frame.offload();
        let Some(gso) = offload.gso else {
            offload.complete_checksum(frame.bytes_mut());
            self.enter(frame.bytes(), now);
            return;
        };
        let Some(mut rest) = segments(frame.bytes(), gso) else {
            return;
        };
        let mut segment = vec![0; gso.segment_bytes()];
        while let Some(len) = rest.next(&mut segment) {
            self.enter(&segment[..len], now);
        }
    }

    /// Decides what happens to one frame. The same numbers are drawn whatever happens, so that one
    /// setting does not change what another one does.
    fn enter(&mut self, bytes: &[u8], now: Instant) {
        let Settings {
            drop,
            duplicate,
            corrupt,
            reorder,
            delay,
            jitter,
            late,
        } = self.settings;
        let mut chance = |parts: u32| self.random.below(MILLION.into()) < parts.into();
        let (drop, duplicate) = (chance(drop), chance(duplicate));
        let (corrupt, reorder) = (chance(corrupt), chance(reorder));
        let bit = self.random.below(8 * bytes.len() as u64) as usize;
        let mut due = now + delay + self.random.within(jitter);
        if drop {
            self.faults.add(Fault::Dropped);
            return;
        }
        if reorder {
            self.faults.add(Fault::Reordered);
            due = due.max(self.last) + late;
        } else {
            due = due.max(self.last);
            self.last = due;
        }
        let mut bytes = bytes.to_vec();
        if corrupt && let Some(byte) = bytes.get_mut(bit / 8) {
            self.faults.add(Fault::Corrupted);
            *byte ^= 1 << (bit % 8);
        }
        if duplicate {
            self.faults.add(Fault::Duplicated);
            self.put(due, bytes.clone());
        }
        self.put(due, bytes);
    }

    fn put(&mut self, due: Instant, bytes: Vec<u8>) {
        if self.bytes + bytes.len() > UNDER_WAY_MAX {
            self.faults.add(Fault::Overflow);
            return;
        }
        self.bytes += bytes.len();
        self.count += 1;
        self.under_way.insert((due, self.count), bytes);
    }

    /// Has what arrives now written into frames of `port`, until `batch` is full.
    fn deliver(&mut self, port: &mut dyn Netif, batch: &mut Batch, now: Instant) {
        while !batch.is_full()
            && let Some(first) = self.under_way.first_entry()
            && first.key().0 <= now
        {
            let Some(mut frame) = port.alloc(first.get().len()) else {
                return;
            };
            let bytes = first.remove();
            self.bytes -= bytes.len();
            frame.bytes_mut().copy_from_slice(&bytes);
            // There is room.
            let _ = batch.push(frame);
        }
    }

    fn due(&self) -> Option<Instant> {
        Some(self.under_way.first_key_value()?.0.0)
    }
}

/// When frames arrive next: who sleeps on the port's handle wakes up for them.
#[derive(Clone, Debug, Default)]
pub struct Alarm(Rc<Cell<Option<Instant>>>);

impl Alarm {
    /// When [`Netif::receive`] is to be called, even if the port has nothing.
    pub fn due(&self) -> Option<Instant> {
        self.0.get()
    }
}

/// A port behind a bad network.
pub struct Faults<C> {
    port: Box<dyn Netif>,
    clock: C,
    sending: Line,
    receiving: Line,
    alarm: Alarm,
}

impl<C: Fn() -> Instant> Faults<C> {
    /// A network that does nothing yet. `clock` tells the time.
    pub fn new(port: Box<dyn Netif>, seed: u64, clock: C) -> Self {
        let mut random = Random::new(seed);
        Self {
            port,
            clock,
            sending: Line::new(random.number()),
            receiving: Line::new(random.number()),
            alarm: Alarm::default(),
        }
    }

    /// The same, with this for what is sent.
    #[must_use]
    pub fn sending(mut self, settings: Settings) -> Self {
        self.sending.settings = settings;
        self
    }

    /// The same, with this for what is received.
    #[must_use]
    pub fn receiving(mut self, settings: Settings) -> Self {
        self.receiving.settings = settings;
        self
    }

    /// Tells when frames arrive.
    pub fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// What happened to frames that were sent.
    pub fn sent(&self) -> &Counts<Fault> {
        &self.sending.faults
    }

    /// What happened to frames that were received.
    pub fn received(&self) -> &Counts<Fault> {
        &self.receiving.faults
    }

    /// Sends what has come through.
    fn send(&mut self, now: Instant) {
        loop {
            let mut batch = Batch::new();
            self.sending.deliver(&mut *self.port, &mut batch, now);
            if batch.is_empty() {
                break;
            }
            self.port.transmit(&mut batch);
        }
        let due = self.sending.due().into_iter().chain(self.receiving.due());
        self.alarm.0.set(due.min());
    }
}

impl<C: Fn() -> Instant> Netif for Faults<C> {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn offloads(&self) -> Offloads {
        self.port.offloads()
    }

    fn max_frame(&self) -> usize {
        self.port.max_frame()
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        self.port.alloc(len)
    }

    fn receive(&mut self, batch: &mut Batch) {
        let now = (self.clock)();
        let mut arrived = Batch::new();
        self.port.receive(&mut arrived);
        for frame in arrived.drain() {
            self.receiving.take(frame, now);
        }
        self.receiving.deliver(&mut *self.port, batch, now);
        self.send(now);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        let now = (self.clock)();
        for frame in batch.drain() {
            self.sending.take(frame, now);
        }
        self.send(now);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.port.wait_handle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::{Ethernet, Link, Mac};
    use crate::layer::Filled;
    use crate::layers::vlan::Trunk;
    use crate::testing::{self, Wire, at};
    use device::memory::MemoryPort;
    use device::{Checksum, Gso, GsoKind, Offload};

    type Clock = Rc<Cell<Instant>>;

    /// A port behind a network with this for both directions, and a clock that the test sets.
    fn faults(settings: Settings, seed: u64) -> (Faults<impl Fn() -> Instant>, Wire, Clock) {
        let (port, wire) = MemoryPort::new("net").split();
        let clock = Rc::new(Cell::new(at(0)));
        let time = clock.clone();
        let faults = Faults::new(Box::new(port), seed, move || time.get())
            .sending(settings)
            .receiving(settings);
        (faults, wire, clock)
    }

    /// Sends numbered frames, and returns the numbers that came out.
    fn through(settings: Settings, seed: u64, count: u32) -> Vec<u32> {
        let (mut faults, wire, clock) = faults(settings, seed);
        let number = |frame: &Vec<u8>| u32::from_be_bytes(*frame.first_chunk().unwrap());
        let mut out = Vec::new();
        for n in 0..count {
            clock.set(at(n.into()));
            let mut frame = faults.alloc(60).unwrap();
            frame.bytes_mut().fill(0);
            frame.bytes_mut()[..4].copy_from_slice(&n.to_be_bytes());
            let mut batch = Batch::new();
            batch.push(frame).unwrap();
            faults.transmit(&mut batch);
            out.extend(wire.sent().iter().map(number));
        }
        while let Some(due) = faults.alarm().due() {
            clock.set(due);
            faults.receive(&mut Batch::new());
            out.extend(wire.sent().iter().map(number));
        }
        out
    }

    #[test]
    fn a_good_network_changes_nothing() {
        assert_eq!(
            through(Settings::default(), 1, 200),
            (0..200).collect::<Vec<_>>()
        );
    }

    #[test]
    fn frames_are_lost_and_doubled_as_often_as_asked() {
        let settings = Settings {
            drop: 100_000,
            ..Settings::default()
        };
        let out = through(settings, 1, 10_000);
        assert!((8_900..9_100).contains(&out.len()), "{}", out.len());
        assert!(out.is_sorted());
        let settings = Settings {
            duplicate: 100_000,
            ..Settings::default()
        };
        let out = through(settings, 1, 10_000);
        assert!((10_900..11_100).contains(&out.len()), "{}", out.len());
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let settings = Settings {
            drop: 50_000,
            duplicate: 50_000,
            reorder: 50_000,
            jitter: Duration::from_millis(9),
            late: Duration::from_millis(9),
            ..Settings::default()
        };
        assert_eq!(through(settings, 5, 500), through(settings, 5, 500));
        assert_ne!(through(settings, 5, 500), through(settings, 6, 500));
    }

    #[test]
    fn frames_take_their_time_and_stay_in_order_but_for_the_late_ones() {
        let delay = Duration::from_millis(20);
        let jitter = Duration::from_millis(50);
        let settings = Settings {
            delay,
            jitter,
            ..Settings::default()
        };
        assert!(through(settings, 1, 500).is_sorted());
        let late = Duration::from_millis(3);
        let settings = Settings {
            delay,
            reorder: 100_000,
            late,
            ..Settings::default()
        };
        let out = through(settings, 1, 500);
        assert!(!out.is_sorted() && out.len() == 500);
        let (mut faults, wire, clock) = faults(settings, 1);
        wire.arrives(&[7; 60]);
        let mut batch = Batch::new();
        faults.receive(&mut batch);
        assert!(batch.is_empty());
        assert_eq!(faults.alarm().due(), Some(at(20)));
        clock.set(at(20));
        faults.receive(&mut batch);
        assert_eq!((batch.len(), faults.alarm().due()), (1, None));
    }

    #[test]
    fn a_corrupted_frame_differs_in_one_bit() {
        let settings = Settings {
            corrupt: MILLION,
            ..Settings::default()
        };
        let (mut faults, wire, _) = faults(settings, 1);
        wire.arrives(&[0; 60]);
        let mut batch = Batch::new();
        faults.receive(&mut batch);
        let frame = batch.drain().next().unwrap();
        let bits: u32 = frame.bytes().iter().map(|byte| byte.count_ones()).sum();
        assert_eq!((bits, faults.received().get(Fault::Corrupted)), (1, 1));
    }

    #[test]
    fn what_is_under_way_is_bounded_and_keeps_no_buffer() {
        let delay = Duration::from_secs(1);
        let (mut faults, _, _) = faults(
            Settings {
                delay,
                ..Settings::default()
            },
            1,
        );
        for _ in 0..UNDER_WAY_MAX / 1500 + 100 {
            let mut batch = Batch::new();
            batch.push(faults.alloc(1500).unwrap()).unwrap();
            faults.transmit(&mut batch);
        }
        assert!(faults.sending.bytes <= UNDER_WAY_MAX);
        assert_eq!(faults.sent().get(Fault::Overflow), 100);
    }

    #[test]
    fn each_segment_of_a_large_frame_meets_its_own_fate_under_a_tag() {
        let (port, wire) = testing::port_with_tso();
        let settings = Settings {
            drop: 500_000,
            ..Settings::default()
        };
        let faults = Faults::new(Box::new(port), 3, || at(0)).sending(settings);
        let trunk = Trunk::new(Box::new(faults));
        let mut link = Ethernet::new(Box::new(trunk.vlan(7).unwrap()));
        let fill = |place: &mut [u8]| {
            place.fill(0);
            let total = (place.len() as u16).to_be_bytes();
            place[..4].copy_from_slice(&[0x45, 0, total[0], total[1]]);
            place[9] = 6;
            place[20 + 12] = 5 << 4;
            Filled {
                len: place.len(),
                offload: Offload {
                    checksum: Some(Checksum {
                        start: 20,
                        offset: 16,
                    }),
                    gso: Some(Gso {
                        kind: GsoKind::TcpV4,
                        size: 1000,
                        header: 40,
                        ecn: false,
                    }),
                },
            }
        };
        link.write(Mac::BROADCAST, 0x800, 60_040, fill).unwrap();
        link.flush();
        let sent = wire.sent();
        assert!((10..50).contains(&sent.len()), "{}", sent.len());
        assert!(
            sent.iter()
                .all(|frame| frame.len() == 1058 && frame[12..16] == [0x81, 0, 0, 7])
        );
    }
}
