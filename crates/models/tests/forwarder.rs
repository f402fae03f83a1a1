//! Frames from one 82599 to another by way of their drivers: in order, without loss, and without
//! anything that the datasheet forbids.

use device::{Batch, Nic, Pool, TEND_NANOSECONDS};
use drivers::net::ixgbe::{AddressFilter, BUFFER_BYTES, BUFFERS, Config, Driver, RING};
use hw::DmaArena;
use hw::sim::{View, arena};
use models::wire::{Offload, Pair, Wire, pair};
use models::{Device, Intel82599, Local};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// For two drivers: all of an image share its DMA memory.
const DMA_BYTES: usize = 8 << 20;
const IOVA: u64 = 0x10_0000_0000;
const LEFT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RIGHT: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Without the checksum.
const FRAME_BYTES_MIN: usize = 60;
const FRAME_BYTES_MAX: usize = 1514;
/// Turns in which all that is under way arrives.
const TURNS: usize = 40;

/// A NIC, its driver, and the other end of its wire.
struct Port {
    device: Rc<Local<Intel82599<Pair>>>,
    driver: Driver,
    memory: Rc<View>,
    far: Pair,
    pool: Pool,
    now: Rc<Cell<u64>>,
}

impl Port {
    fn alone(config: Config) -> Self {
        let (mut arena, memory) = arena(DMA_BYTES, IOVA);
        Self::new(&mut arena, Rc::new(memory), LEFT, "", config)
    }

    /// Two, the second of which misbehaves.
    fn two(how: &str) -> (Self, Self) {
        let (mut arena, memory) = arena(DMA_BYTES, IOVA);
        let memory = Rc::new(memory);
        let left = Self::new(&mut arena, memory.clone(), LEFT, "", Config::FORWARD);
        let right = Self::new(&mut arena, memory, RIGHT, how, Config::FORWARD);
        (left, right)
    }

    fn new(
        arena: &mut DmaArena,
        memory: Rc<View>,
        mac: [u8; 6],
        how: &str,
        config: Config,
    ) -> Self {
        let (near, far) = pair();
        let device = Local::new(Intel82599::new(mac, near, &how.parse().unwrap()));
        let pool = Pool::dma(arena, BUFFERS, BUFFER_BYTES).unwrap();
        let now = Rc::new(Cell::new(0));
        let clock = now.clone();
        let clock = move || {
            clock.set(clock.get() + 1000);
            clock.get()
        };
        let driver = Driver::new(device.mmio(), arena, pool, config, clock).unwrap();
        let mut port = Self {
            device,
            driver,
            memory,
            far,
            pool,
            now,
        };
        port.pass(TEND_NANOSECONDS);
        port.pass(TEND_NANOSECONDS);
        assert_eq!(port.driver.link(), Some(10_000));
        port
    }

    /// The device acts.
    fn turn(&mut self) {
        self.now.set(self.now.get() + 1000);
        let now = Duration::from_nanos(self.now.get());
        self.device.poll(&*self.memory, now);
    }

    /// Time passes for both.
    fn pass(&mut self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
        self.turn();
        self.driver.tend(self.now.get());
    }

    /// A frame comes by the wire.
    fn arrives(&mut self, frame: &[u8]) {
        self.far.send(frame, Offload::default());
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        self.turn();
        let mut batch = Batch::new();
        self.driver.receive(&mut batch);
        batch.iter().map(|frame| frame.bytes().to_vec()).collect()
    }

    fn forward_to(&mut self, other: &mut Self) {
        self.turn();
        let mut batch = Batch::new();
        self.driver.receive(&mut batch);
        other.driver.transmit(&mut batch);
        other.turn();
    }

    fn assert_lawful(&self) {
        let device = self.device.device();
        assert!(device.violations().is_empty(), "{}", device.violations());
    }
}

/// A frame of `len` bytes with a number in it.
fn frame(to: [u8; 6], number: u32, len: usize) -> Vec<u8> {
    let mut frame = [&to[..], &LEFT, &[0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.extend((frame.len()..len).map(|at| (at as u32 ^ number) as u8));
    frame
}

#[test]
fn a_hundred_thousand_frames_of_all_sizes_are_forwarded_in_order() {
    const FRAMES: u32 = 100_000;
    let mut random = fastrand::Rng::with_seed(82_599);
    let (mut left, mut right) = Port::two("");
    let (mut sent, mut received) = (0, 0);
    let mut expected = std::collections::VecDeque::new();
    while received < FRAMES {
        for _ in 0..random.usize(..100) {
            if sent < FRAMES && expected.len() < 400 {
                let len = random.usize(FRAME_BYTES_MIN..=FRAME_BYTES_MAX);
                let frame = frame(RIGHT, sent, len);
                left.arrives(&frame);
                expected.push_back(frame);
                sent += 1;
            }
        }
        left.forward_to(&mut right);
        while let Some(frame) = right.far.receive() {
            assert!(Some(frame) == expected.pop_front(), "frame {received}");
            received += 1;
        }
        if random.usize(..1000) == 0 {
            left.pass(TEND_NANOSECONDS);
            right.pass(TEND_NANOSECONDS);
        }
    }
    left.pass(TEND_NANOSECONDS);
    right.pass(TEND_NANOSECONDS);
    let (came, went) = (left.driver.statistics(), right.driver.statistics());
    let frames = u64::from(FRAMES);
    assert_eq!((came.rx_frames, went.tx_frames), (frames, frames));
    assert_eq!(came.rx_bytes, went.tx_bytes);
    for port in [&left, &right] {
        let counts = port.driver.counts();
        assert_eq!(
            (counts.resets, counts.rx_missed, counts.tx_no_room),
            (0, 0, 0)
        );
        assert_eq!(port.pool.free(), BUFFERS - RING, "all buffers came back");
        port.assert_lawful();
    }
}

#[test]
fn what_nobody_takes_is_dropped_and_counted() {
    let mut port = Port::alone(Config::FORWARD);
    let sent = RING + 100;
    for number in 0..sent as u32 {
        port.arrives(&frame(LEFT, number, 60));
    }
    (0..TURNS).for_each(|_| port.turn());
    port.pass(TEND_NANOSECONDS);
    let mut received = 0;
    for _ in 0..TURNS {
        received += port.receive().len();
    }
    // One descriptor stays empty.
    assert_eq!(received, RING - 1);
    let missed = port.driver.counts().rx_missed;
    assert_eq!(missed, (sent - received) as u64);
    port.assert_lawful();
}

#[test]
fn a_tag_is_kept_unless_it_is_to_go() {
    let mut tagged = frame(LEFT, 7, 100);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
    for vlan_strip in [false, true] {
        let config = Config {
            filter: AddressFilter::Own(vec![]),
            vlan_strip,
            ..Config::FORWARD
        };
        let mut port = Port::alone(config);
        port.arrives(&tagged);
        port.arrives(&frame(LEFT, 8, 100));
        let expected = if vlan_strip {
            frame(LEFT, 7, 100)
        } else {
            tagged.clone()
        };
        assert_eq!(port.receive(), [expected, frame(LEFT, 8, 100)]);
        port.assert_lawful();
    }
}

#[test]
fn largest_frames_pass_with_and_without_a_tag_and_larger_ones_do_not() {
    let mut port = Port::alone(Config::FORWARD);
    let mut tagged = frame(LEFT, 1, FRAME_BYTES_MAX);
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    let largest = frame(LEFT, 2, FRAME_BYTES_MAX);
    port.arrives(&tagged);
    port.arrives(&frame(LEFT, 3, FRAME_BYTES_MAX + 1));
    port.arrives(&largest);
    assert_eq!(port.receive(), [tagged, largest]);
    port.pass(TEND_NANOSECONDS);
    assert_eq!(port.driver.counts().rx_error, 1, "oversize");
    port.assert_lawful();
}

#[test]
fn after_one_interrupt_none_comes_until_it_is_asked_for() {
    let mut port = Port::alone(Config::FORWARD);
    let interrupts = |port: &mut Port| {
        (0..TURNS).for_each(|_| port.turn());
        port.device.device().take_interrupts()
    };
    port.arrives(&frame(LEFT, 0, 60));
    assert_eq!(interrupts(&mut port), 0, "nobody has asked");
    assert!(port.driver.arm(), "the frame is found without one");
    port.receive();
    for round in 0..100 {
        assert!(!port.driver.arm());
        assert_eq!(interrupts(&mut port), 0, "round {round}: no frame");
        port.arrives(&frame(LEFT, round, 60));
        assert_eq!(interrupts(&mut port), 1, "round {round}: the first vector");
        port.arrives(&frame(LEFT, round, 60));
        assert_eq!(
            interrupts(&mut port),
            0,
            "round {round}: none was asked for"
        );
        assert_eq!(port.receive().len(), 2);
        // A frame that comes before it is asked for is found.
        port.arrives(&frame(LEFT, round, 60));
        port.turn();
        assert!(port.driver.arm());
        port.receive();
        interrupts(&mut port);
    }
    port.assert_lawful();
}

#[test]
fn a_link_that_comes_and_goes_loses_frames_and_nothing_else() {
    let (mut left, mut right) = Port::two("");
    let mut number = 0;
    for _ in 0..30 {
        for up in [false, true] {
            right.far.plug(up);
            for _ in 0..4 {
                for _ in 0..20 {
                    left.arrives(&frame(RIGHT, number, 60));
                    number += 1;
                }
                left.forward_to(&mut right);
                left.pass(TEND_NANOSECONDS);
                right.pass(TEND_NANOSECONDS);
            }
        }
        while right.far.receive().is_some() {}
        left.arrives(&frame(RIGHT, number, 60));
        left.forward_to(&mut right);
        assert_eq!(right.far.receive(), Some(frame(RIGHT, number, 60)));
    }
    assert!(right.driver.counts().tx_link_down > 0);
    for port in [&left, &right] {
        assert_eq!(port.driver.counts().resets, 0);
        port.assert_lawful();
    }
}

#[test]
fn a_reset_under_load_loses_frames_and_nothing_else() {
    let (mut left, mut right) = Port::two("seed=1,transmit-hang=2000");
    let mut last = None;
    let mut received = 0;
    for number in 0..40_000 {
        left.arrives(&frame(RIGHT, number, 60));
        left.forward_to(&mut right);
        while let Some(frame) = right.far.receive() {
            let number = u32::from_be_bytes(frame[14..18].try_into().unwrap());
            assert!(last < Some(number), "{number} after {last:?}");
            last = Some(number);
            received += 1;
        }
        if number % 20 == 0 {
            left.pass(TEND_NANOSECONDS);
            right.pass(TEND_NANOSECONDS);
        }
    }
    let counts = right.driver.counts();
    assert!(counts.resets > 0 && !counts.given_up, "{counts:?}");
    assert!(received > 1000, "{received} frames");
    for port in [&left, &right] {
        port.assert_lawful();
    }
    for pool in [left.pool, right.pool] {
        assert_owned(pool, "resets");
    }
}

/// The devices have what is in their rings, and nobody anything else.
#[track_caller]
fn assert_owned(pool: Pool, how: &str) {
    let lent = BUFFERS - pool.free();
    assert!((RING..=2 * RING).contains(&lent), "{how}: {lent} buffers");
}

/// All faults, one after the other, rare and frequent: frames are lost, and a device may be given
/// up, but each buffer has one owner.
#[test]
fn no_fault_costs_a_buffer() {
    let faults = [
        "length",
        "status",
        "garbage",
        "early-done",
        "skip",
        "link-flap",
        "lost-interrupt",
        "transmit-hang",
        "wild-write",
        "gone",
    ];
    let mut trials = Vec::new();
    for fault in faults {
        for one_in in [5, 500] {
            trials.push((fault, format!("seed=9,{fault}={one_in}")));
        }
    }
    for (fault, how) in trials {
        let (mut left, mut right) = Port::two(&how);
        for number in 0..3000 {
            left.arrives(&frame(RIGHT, number, 60));
            right.arrives(&frame(LEFT, number, 60));
            left.forward_to(&mut right);
            right.forward_to(&mut left);
            while left.far.receive().is_some() {}
            while right.far.receive().is_some() {}
            if number % 10 == 0 {
                left.pass(TEND_NANOSECONDS);
                right.pass(TEND_NANOSECONDS);
            }
        }
        let counts = *right.driver.counts();
        match fault {
            "gone" => assert!(counts.given_up, "{how}: {counts:?}"),
            "length" | "status" => assert!(counts.rx_lie > 0, "{how}: {counts:?}"),
            "skip" | "transmit-hang" => assert!(counts.resets > 0, "{how}: {counts:?}"),
            _ => assert_eq!(counts.rx_lie, 0, "{how}: {counts:?}"),
        }
        assert_eq!(left.driver.counts().resets, 0, "{how}");
        left.assert_lawful();
        right.assert_lawful();
        assert_owned(left.pool, &how);
        assert_owned(right.pool, &how);
    }
}
