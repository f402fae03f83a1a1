//! The model driven register by register, in the datasheet's order.

mod formats;
mod offloads;

use super::*;
use crate::packet::samples;
use crate::wire::script::Script;
use crate::wire::{Loop, Offload, Pair, pair};
use hw::sim::{View, arena};

const ADDRESS: [u8; 6] = samples::DESTINATION;
const IOVA: u64 = 0x10_0000_0000;
const RX_RING: u64 = IOVA;
const TX_RING: u64 = IOVA + 0x1000;
const BUFFERS: u64 = IOVA + 0x10_000;
/// How far apart buffers lie; most tests use less of them.
const BUFFER_BYTES: u64 = 16 << 10;
const DESCRIPTORS: u32 = 8;
const MEMORY_BYTES: usize = 2 << 20;
/// RCTL: on, broadcasts, the check sequence stripped.
const RCTL: u32 = 1 << 1 | 1 << 15 | 1 << 26;

/// A driver of the least kind: each call is one step of section 4.6.
struct Driver<W> {
    device: Intel82574<W>,
    memory: View,
    now: Duration,
    rx_next: u32,
    tx_next: u32,
}

impl<W: Wire> Driver<W> {
    fn new(wire: W) -> Self {
        Self::misbehaving(wire, "")
    }

    fn misbehaving(wire: W, how: &str) -> Self {
        let (_arena, memory) = arena(MEMORY_BYTES, IOVA);
        let device = Intel82574::new(ADDRESS, wire, &how.parse().unwrap());
        Self {
            device,
            memory,
            now: Duration::ZERO,
            rx_next: 0,
            tx_next: 0,
        }
    }

    /// All of 4.6, with extended descriptors, the first queues and MSI-X vectors 0 (receive), 1
    /// (transmit) and 2 (others).
    fn ready(wire: W) -> Self {
        let mut driver = Self::new(wire);
        driver.initialise();
        driver
    }

    fn initialise(&mut self) {
        self.reset();
        self.start_receive();
        self.start_transmit();
        self.start_interrupts();
        self.poll();
        assert_eq!(self.read(0x8) & 0xc3, 0x83, "link at 1 Gb/s, full duplex");
        self.read(0xc0);
        self.device.take_interrupts();
    }

    fn read(&mut self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.device.read(0, offset, &mut word);
        u32::from_le_bytes(word)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.device.write(0, offset, &value.to_le_bytes());
    }

    fn change(&mut self, offset: u64, set: u32, clear: u32) {
        let value = self.read(offset);
        self.write(offset, value & !clear | set);
    }

    fn wait(&mut self, offset: u64, bits: u32) {
        let set = (0..10).any(|_| self.read(offset) & bits == bits);
        assert!(set, "{offset:#x} never had {bits:#x}");
    }

    fn poll(&mut self) -> Progress {
        self.now += Duration::from_millis(1);
        self.device.poll(&self.memory, self.now)
    }

    /// 4.6.1, 4.6.2.
    fn reset(&mut self) {
        self.write(0xd8, u32::MAX);
        self.change(0x0, 1 << 2, 0);
        assert_eq!(self.read(0x8) & 1 << 19, 0, "no master");
        self.change(0x0, 1 << 26, 0);
        assert_ne!(self.read(0x0) & 1 << 26, 0);
        (0..3).for_each(|_| _ = self.read(0x0));
        assert_eq!(self.read(0x0) & 1 << 26, 0);
        self.write(0xd8, u32::MAX);
        self.wait(0x10, 1 << 9);
        self.change(0x5b00, 1 << 22, 0);
        self.change(0x0, 1 << 6, 1 << 2);
    }

    /// 4.6.5.
    fn start_receive(&mut self) {
        self.write(0x5008, 1 << 15);
        self.write(0x2800, RX_RING as u32);
        self.write(0x2804, (RX_RING >> 32) as u32);
        self.write(0x2808, DESCRIPTORS * 16);
        self.write(0x2810, 0);
        self.write(0x2818, 0);
        (0..DESCRIPTORS).for_each(|index| self.offer(index));
        self.write(0x100, RCTL);
        self.write(0x2818, DESCRIPTORS - 1);
    }

    /// 4.6.6.
    fn start_transmit(&mut self) {
        self.write(0x3828, 1 << 22 | 1 << 24 | 1 << 16);
        self.write(0x3800, TX_RING as u32);
        self.write(0x3804, (TX_RING >> 32) as u32);
        self.write(0x3808, DESCRIPTORS * 16);
        self.write(0x3810, 0);
        self.write(0x3818, 0);
        self.write(0x400, 1 << 1 | 1 << 3);
    }

    /// 7.4.
    fn start_interrupts(&mut self) {
        self.write(0xe4, 0xa_0908);
        self.write(0xdc, 1 << 20 | 1 << 22);
        self.write(0xd0, 1 << 20 | 1 << 22 | 1 << 24 | 1 << 2);
    }

    fn buffer(index: u32) -> u64 {
        BUFFERS + u64::from(index) * BUFFER_BYTES
    }

    fn store(&self, ring: u64, index: u32, words: [u64; 2]) {
        let at = ring + u64::from(index) * 16;
        self.memory.store(at, words[0]).unwrap();
        self.memory.store(at + 8, words[1]).unwrap();
    }

    /// Gives a receive descriptor its buffer.
    fn offer(&mut self, index: u32) {
        self.store(RX_RING, index, [Self::buffer(index), 0]);
    }

    fn descriptor(&self, ring: u64, index: u32) -> [u64; 2] {
        let at = ring + u64::from(index) * 16;
        [at, at + 8].map(|at| self.memory.load(at).unwrap())
    }

    /// Takes the next received buffer: its bytes and its descriptor.
    fn receive_buffer(&mut self) -> Option<(Vec<u8>, [u64; 2])> {
        let index = self.rx_next % DESCRIPTORS;
        let words = self.descriptor(RX_RING, index);
        if words[1] & 1 == 0 {
            return None;
        }
        let mut bytes = vec![0; usize::from((words[1] >> 32) as u16)];
        self.memory.read(Self::buffer(index), &mut bytes).unwrap();
        self.rx_next += 1;
        self.offer(index);
        self.write(0x2818, (self.rx_next + DESCRIPTORS - 1) % DESCRIPTORS);
        Some((bytes, words))
    }

    /// Puts words into the next transmit descriptor, without telling.
    fn put(&mut self, words: [u64; 2]) {
        self.store(TX_RING, self.tx_next % DESCRIPTORS, words);
        self.tx_next += 1;
    }

    fn ring_transmit(&mut self) {
        self.write(0x3818, self.tx_next % DESCRIPTORS);
    }

    /// Puts a frame, in pieces, behind the receive buffers; `options` are those of each descriptor.
    fn put_frame(&mut self, frame: &[u8], pieces: usize, options: u64) {
        let at = Self::buffer(64);
        self.memory.write(at, frame).unwrap();
        let size = frame.len().div_ceil(pieces);
        for (number, piece) in frame.chunks(size).enumerate() {
            let is_last = (number + 1) * size >= frame.len();
            let end = if is_last { 0x0b00_0000 } else { 0 };
            let command = 0x2010_0000 | end;
            let words = piece.len() as u64 | command | options;
            self.put([at + (number * size) as u64, words]);
        }
    }

    fn transmit(&mut self, frame: &[u8]) {
        self.put_frame(frame, 1, 0);
        self.ring_transmit();
    }

    fn violations(&self) -> Vec<&'static str> {
        self.device.violations().counts().into_keys().collect()
    }

    fn assert_lawful(&self) {
        let violations = self.device.violations();
        assert!(violations.is_empty(), "{violations}");
    }
}

#[test]
fn the_datasheets_order_is_lawful_and_frames_come_back() {
    let mut driver = Driver::ready(Loop::new());
    for round in 0..30u32 {
        let v6 = round % 2 == 0;
        let frame = samples::udp(v6, None, &samples::bytes(20 + 40 * round as usize));
        driver.transmit(&frame);
        assert!(driver.receive_buffer().is_none());
        driver.poll();
        driver.poll();
        let [_, word] = driver.descriptor(TX_RING, round % DESCRIPTORS);
        assert_eq!(word >> 32, 1);
        let (bytes, words) = driver.receive_buffer().unwrap();
        assert_eq!(bytes, frame);
        // Done, end of packet; checksums of UDP, and of IPv4's header, right.
        assert_eq!(words[0], 0);
        assert_eq!(words[1] & 0xffff_ffff, if v6 { 0x33 } else { 0x73 });
        assert_eq!(driver.device.take_interrupts(), 3);
    }
    assert_eq!([driver.read(0x4074), driver.read(0x4080)], [30, 30]);
    assert_eq!([driver.read(0x4074), driver.read(0x40d4)], [0, 30]);
    driver.assert_lawful();
}

#[test]
fn frames_for_others_do_not_pass() {
    let mut driver = Driver::ready(Loop::new());
    let mut frame = samples::udp(false, None, &[0; 50]);
    frame[0] = 4;
    driver.transmit(&frame);
    (0..3).for_each(|_| _ = driver.poll());
    assert!(driver.receive_buffer().is_none());
    assert_eq!([driver.read(0x4074), driver.read(0x40d0)], [0, 1]);
    driver.change(0x100, 1 << 3, 0);
    driver.transmit(&frame);
    (0..3).for_each(|_| _ = driver.poll());
    assert!(driver.receive_buffer().is_some());
    driver.assert_lawful();
}

#[test]
fn without_descriptors_frames_wait() {
    let mut driver = Driver::ready(Script::default());
    let frame = samples::udp(false, None, &[1; 50]);
    let frames = (0..12).map(|_| (frame.clone(), Offload::default()));
    driver.device.wire().incoming = frames.collect();
    (0..3).for_each(|_| _ = driver.poll());
    assert_eq!(driver.device.wire().incoming.len(), 5);
    assert_eq!(driver.read(0x2810), DESCRIPTORS - 1);
    while driver.receive_buffer().is_some() {
        driver.poll();
    }
    assert_eq!(driver.device.wire().incoming.len(), 0);
    assert_eq!(driver.read(0x4074), 12);
    driver.assert_lawful();
}

#[test]
fn the_link_is_told_and_frames_wait_for_it() {
    let (near, mut far): (Pair, Pair) = pair();
    let mut driver = Driver::ready(near);
    far.plug(false);
    driver.poll();
    assert_eq!(driver.read(0x8) & 2, 0);
    assert_eq!(driver.device.take_interrupts(), 1 << 2);
    assert_eq!(driver.read(0xc0), 1 << 31 | 1 << 24 | 1 << 2);
    let frame = samples::udp(false, None, &[1; 50]);
    driver.transmit(&frame);
    driver.poll();
    assert_eq!(far.receive(), None);
    far.plug(true);
    driver.poll();
    assert_eq!(driver.device.take_interrupts(), 0b110);
    assert_eq!(far.receive(), Some(frame));
    driver.assert_lawful();
}

/// Reads or writes a register of the transceiver.
fn phy<W: Wire>(driver: &mut Driver<W>, register: u32, value: Option<u16>) -> u16 {
    let (operation, data) = match value {
        Some(value) => (1, u32::from(value)),
        None => (2, 0),
    };
    driver.write(0x20, operation << 26 | 1 << 21 | register << 16 | data);
    let done = driver.read(0x20);
    assert_eq!(done >> 28, 1, "ready, no error");
    done as u16
}

#[test]
fn the_transceiver_is_at_its_address_and_has_the_link() {
    let mut driver = Driver::ready(Loop::new());
    assert_eq!(
        [2, 3].map(|at| phy(&mut driver, at, None)),
        [0x0141, 0x0cb1]
    );
    let link = |driver: &mut Driver<Loop>| {
        driver.poll();
        let status = [1, 1].map(|at| phy(driver, at, None) & 4);
        (status[1] != 0, driver.read(0x8) & 2 != 0)
    };
    assert_eq!(link(&mut driver), (true, true));
    phy(&mut driver, 0, Some(0x1940));
    assert_eq!(link(&mut driver), (false, false));
    phy(&mut driver, 0, Some(0x1140));
    driver.poll();
    assert_eq!(link(&mut driver), (true, true));
    driver.change(0x0, 1 << 31, 0);
    assert_eq!(driver.read(0x0) >> 31, 0, "it clears itself");
    assert_ne!(driver.read(0x8) & 1 << 10, 0, "the reset is told");
    driver.poll();
    assert_eq!(link(&mut driver), (true, true));
    // Nobody is at another address.
    driver.write(0x20, 2 << 26 | 2 << 21 | 2 << 16);
    assert_eq!(driver.read(0x20) >> 28, 5);
    driver.assert_lawful();
}

#[test]
fn the_transceiver_loops_back_without_a_wire() {
    let (near, mut far): (Pair, Pair) = pair();
    let mut driver = Driver::ready(near);
    far.plug(false);
    phy(&mut driver, 0, Some(0x4140));
    driver.poll();
    let frame = samples::udp(false, None, &[7; 100]);
    driver.transmit(&frame);
    driver.poll();
    driver.poll();
    assert_eq!(driver.receive_buffer().unwrap().0, frame);
    assert_eq!(far.receive(), None);
    driver.assert_lawful();
}

#[test]
fn the_eeprom_has_its_sum() {
    let mut driver = Driver::new(Loop::new());
    let sum: u32 = (0..=0x3f)
        .map(|word| {
            driver.write(0x14, word << 2 | 1);
            driver.wait(0x14, 2);
            driver.read(0x14) >> 16
        })
        .sum();
    assert_eq!(sum & 0xffff, 0xbaba);
}

#[test]
fn registers_are_reached_through_io_space_too() {
    let mut driver = Driver::ready(Loop::new());
    driver.device.write(2, 0, &0x5400u32.to_le_bytes());
    let mut word = [0; 4];
    driver.device.read(2, 4, &mut word);
    assert_eq!(word, ADDRESS[..4]);
    driver.device.write(2, 4, &[9; 4]);
    assert_eq!(driver.read(0x40), 0x0909_0909, "and at the older place");
    driver.device.read(2, 0, &mut word);
    assert_eq!(u32::from_le_bytes(word), 0x5400);
    driver.device.read(2, 8, &mut word);
    assert_eq!(word, [0xff; 4]);
    driver.assert_lawful();
}

#[test]
fn bits_that_give_orders_read_zero_and_some_registers_are_worked_out() {
    let mut driver = Driver::ready(Loop::new());
    driver.change(0x18, 1 << 31 | 1 << 28 | 1 << 13, 0);
    assert_eq!(driver.read(0x18), 1 << 28);
    for delay in [0x2820, 0x3820] {
        driver.write(delay, 1 << 31 | 5);
        assert_eq!(driver.read(delay), 5);
    }
    // Heads and tails of queues that are off hold anything.
    for place in [0x2910, 0x2918, 0x3910, 0x3918] {
        driver.write(place, 0x5a5a);
        assert_eq!(driver.read(place), 0x5a5a);
        driver.write(place, 0);
    }
    driver.write(0x1000, 26);
    assert_eq!(
        driver.read(0x1000),
        14 << 16 | 26,
        "the rest is for sending"
    );
    driver.change(0x10, 1 << 6, 0);
    assert_eq!(driver.read(0x10) & 0x3c0, 0x3c0, "granted, present, read");
    assert_eq!([0; 2].map(|_: u32| driver.read(0x5b50)), [0, 1], "taken");
    driver.write(0x5b50, 0);
    driver.assert_lawful();
}

#[test]
fn each_mistake_of_a_driver_is_reported() {
    type Mistake = fn(&mut Driver<Script>);
    let at = Driver::<Script>::buffer;
    let mistakes: [(&str, Mistake); 19] = [
        ("no-register", |driver| driver.write(0x1_fff0, 1)),
        ("read-only", |driver| driver.write(0x4074, 1)),
        ("reserved-bits", |driver| driver.write(0x100, RCTL | 1)),
        ("access", |driver| driver.device.write(0, 0x2818, &[0; 8])),
        ("access", |driver| driver.device.write(1, 0, &[0; 4])),
        ("order", |driver| driver.write(0x2808, 256)),
        ("order", |driver| driver.write(0x2810, 3)),
        ("value", |driver| driver.write(0x3908, 130)),
        ("reserved-bits", |driver| {
            driver.write(0x20, 3 << 26 | 1 << 31 | 1 << 21)
        }),
        ("value", |driver| driver.write(0xe4, 0xd)),
        ("tail-outside", |driver| driver.write(0x3818, DESCRIPTORS)),
        ("tail-past-head", |driver| {
            driver.write(0x2818, DESCRIPTORS - 2)
        }),
        ("advice", |driver| driver.change(0x0, 1 << 26, 0)),
        ("order", |driver| {
            driver.write(0x400, 0);
            driver.write(0x3828, 0);
            driver.write(0x400, 2);
        }),
        ("descriptor", |driver| {
            driver.put([0, 0x2040_0000]);
            driver.ring_transmit();
        }),
        ("packet", |driver| {
            driver.put_frame(&[1; 60], 1, 0);
            driver.tx_next -= 1;
            // Without IFCS.
            driver.put([Driver::<Script>::buffer(64), 0x2910_003c]);
            driver.ring_transmit();
        }),
        ("packet", |driver| {
            driver.put_frame(&[1; 16], 1, 0);
            driver.ring_transmit();
        }),
        ("dma", |driver| {
            driver.put([IOVA - 60, 0x2b10_003c]);
            driver.ring_transmit();
        }),
        ("buffer-reused", |driver| {
            driver.put([Driver::<Script>::buffer(2), 0x2b10_01f4]);
            driver.ring_transmit();
        }),
    ];
    assert_eq!(at(1) - at(0), BUFFER_BYTES);
    for (number, (kind, mistake)) in mistakes.into_iter().enumerate() {
        let mut driver = Driver::ready(Script::default());
        driver.poll();
        driver.assert_lawful();
        mistake(&mut driver);
        driver.poll();
        let found = driver.device.violations();
        assert!(driver.violations().contains(&kind), "{number}: {found}");
    }
}

#[test]
fn receive_descriptors_are_checked_when_they_are_fetched() {
    let offer = |words: [u64; 2]| {
        let mut driver = Driver::ready(Loop::new());
        driver.poll();
        driver.store(RX_RING, 7, words);
        driver.device.nic.mac.rx[0].ring.advance();
        driver.write(0x2818, 0);
        driver.poll();
        driver.violations()
    };
    let buffer = Driver::<Loop>::buffer;
    assert_eq!(offer([buffer(7), 0]), Vec::<&str>::new());
    assert_eq!(offer([buffer(3), 0]), ["buffer-reused"]);
    // Behind the longest frame, 1522 bytes, nothing is written to a buffer.
    let end = IOVA + MEMORY_BYTES as u64;
    assert_eq!(offer([end - 1521, 0]), ["dma"]);
    assert!(!offer([end - 1522, 0]).contains(&"dma"));
    assert_eq!(offer([buffer(3) + 1408, 0]), ["buffer-reused"]);
    assert_eq!(offer([buffer(3) + 1536, 0]), Vec::<&str>::new());
}

#[test]
fn misbehaviour_does_what_it_says() {
    let frame = samples::udp(false, None, &[1; 50]);
    let run = |how: &str| {
        let mut driver = Driver::misbehaving(Loop::new(), how);
        driver.initialise();
        driver.transmit(&frame);
        driver.poll();
        driver.poll();
        driver
    };
    let mut driver = run("");
    assert_eq!(driver.receive_buffer().unwrap().0, frame);
    let mut driver = run("length=1,seed=1");
    assert_ne!(driver.receive_buffer().unwrap().0.len(), frame.len());
    let mut driver = run("status=1,seed=1");
    assert_ne!(driver.receive_buffer().unwrap().1[1] & 0xffff_ffff, 0x73);
    let mut driver = run("garbage=1");
    assert_ne!(driver.receive_buffer().unwrap().1[0], 0);
    let mut driver = run("skip=1");
    assert!(driver.receive_buffer().is_none());
    assert_eq!(driver.descriptor(TX_RING, 0)[1] >> 32 & 1, 0);
    let mut driver = run("transmit-hang=1");
    assert!(driver.receive_buffer().is_none());
    assert_eq!(driver.read(0x3810), 0);
    let mut driver = run("stuck=0x3810:0xffff:0x1234");
    assert_eq!(driver.read(0x3810), 0x1234);
    let mut driver = run("lost-interrupt=1");
    assert_eq!(driver.device.take_interrupts(), 0);
    assert!(driver.receive_buffer().is_some());
    for driver in [run("length=1"), run("skip=1"), run("transmit-hang=1")] {
        driver.assert_lawful();
    }
}

#[test]
fn a_device_that_is_gone_reads_all_ones_until_the_bus_is_reset() {
    let mut driver = Driver::misbehaving(Loop::new(), "gone=1");
    driver.reset();
    driver.write(0xd0, 4);
    driver.write(0xc8, 4);
    assert!(driver.device.asserts_pin());
    driver.poll();
    assert!(!driver.device.asserts_pin());
    assert_eq!(driver.read(0x8), u32::MAX);
    driver.write(0x0, 1 << 26);
    assert_eq!(driver.read(0x10), u32::MAX);
    driver.device.reset();
    assert_ne!(driver.read(0x10), u32::MAX);
}

#[test]
fn a_link_that_flaps_comes_back() {
    let mut driver = Driver::misbehaving(Loop::new(), "link-flap=40,seed=5");
    driver.change(0x0, 1 << 6, 0);
    let mut seen = [0; 2];
    for _ in 0..2000 {
        driver.poll();
        seen[(driver.read(0x8) >> 1 & 1) as usize] += 1;
    }
    assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
}

#[test]
fn a_reset_forgets_all_but_the_report_and_the_address() {
    let mut driver = Driver::ready(Loop::new());
    driver.write(0x1_fff0, 1);
    driver.write(0x5400, 7);
    driver.write(0x100, 0);
    driver.write(0x400, 0);
    driver.initialise();
    assert_eq!(driver.violations(), ["no-register"]);
    assert_eq!(driver.read(0x5400), u32::from_le_bytes([2, 0, 0, 0]));
    assert_eq!(driver.read(0x5404), 0x8000_0100);
}

/// What a hostile driver may do.
#[derive(Clone, Debug)]
enum Act {
    Write(u64, u32),
    Read(u64),
    Store(u64, u64),
    Poll,
}

/// Registers that rings and offloads depend on, of the first queues.
const TOUCHY: [u64; 26] = [
    0x0, 0x18, 0x20, 0xc0, 0xc8, 0xd0, 0xdc, 0xe4, 0x100, 0x400, 0x1000, 0x2170, 0x2800, 0x2804,
    0x2808, 0x2810, 0x2818, 0x2918, 0x3800, 0x3808, 0x3810, 0x3818, 0x3828, 0x5000, 0x5008, 0x5818,
];

fn act() -> impl proptest::strategy::Strategy<Value = Act> {
    use proptest::prelude::*;
    let offset = prop_oneof![
        8 => proptest::sample::select(&TOUCHY[..]),
        1 => any::<u64>(),
        1 => (0..REGISTER_BYTES as u64 / 4).prop_map(|word| word * 4),
    ];
    let value = prop_oneof![
        any::<u32>(),
        0u32..64,
        (0u32..32).prop_map(|bit| 1 << bit),
        (0u32..32).prop_map(|count| count * 128),
    ];
    let descriptor = prop_oneof![
        any::<u64>(),
        (0..MEMORY_BYTES as u64).prop_map(|offset| IOVA + offset),
        (any::<u64>(), 0u64..2048).prop_map(|(any, len)| {
            // Often enough a data or context descriptor that may pass.
            len | (any & 1) << 20 | 0x2b00_0000 | (any >> 40 & 0xff) << 24 | (any >> 8 & 0xff) << 40
        }),
    ];
    prop_oneof![
        6 => (offset.clone(), value).prop_map(|(offset, value)| Act::Write(offset, value)),
        1 => offset.prop_map(Act::Read),
        4 => (0u64..256, descriptor).prop_map(|(word, value)| Act::Store(word, value)),
        3 => Just(Act::Poll),
    ]
}

proptest::proptest! {
    // Each case has DMA memory of its own, which stays.
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]

    /// Whatever registers and descriptors hold, the model neither panics nor hangs.
    #[test]
    fn no_driver_makes_the_model_panic(
        ready: bool,
        acts in proptest::collection::vec(act(), 0..200),
    ) {
        let mut driver = Driver::new(Loop::new());
        if ready {
            driver.initialise();
        }
        let sample = samples::udp(false, None, &[1; 300]);
        for act in acts {
            match act {
                Act::Write(offset, value) => driver.write(offset, value),
                Act::Read(offset) => _ = driver.read(offset),
                Act::Store(word, value) => {
                    let ring = if word < 128 { RX_RING } else { TX_RING };
                    driver.memory.store(ring + word % 128 * 8, value).unwrap();
                }
                Act::Poll => {
                    driver.device.wire().inject(&sample);
                    driver.poll();
                }
            }
        }
        driver.device.take_interrupts();
    }
}
