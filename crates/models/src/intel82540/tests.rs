//! The model driven register by register.

use super::*;
use crate::packet::Offload;
use crate::packet::checksum::{fold, frame_check, set_word};
use crate::packet::headers::Ip;
use crate::packet::samples;
use crate::wire::script::Script;
use crate::wire::{Loop, Pair, pair};
use hw::sim::{View, arena};
use proptest::prelude::*;

const ADDRESS: [u8; 6] = samples::DESTINATION;
const IOVA: u64 = 0x10_0000_0000;
const RX_RING: u64 = IOVA;
const TX_RING: u64 = IOVA + 0x1000;
const BUFFERS: u64 = IOVA + 0x1_0000;
const BUFFER_BYTES: u64 = 0x1000;
const DESCRIPTORS: u32 = 8;
const MEMORY_BYTES: usize = 1 << 20;
/// EOP, IFCS and RS of a descriptor.
const LAST: u64 = 0x0b00_0000;

/// A driver of the least kind: each call is one step of chapter 14.
struct Driver<W> {
    device: Intel82540<W>,
    memory: View,
    now: Duration,
    rx_next: u32,
    tx_next: u32,
}

impl<W: Wire> Driver<W> {
    fn new(wire: W, how: &str) -> Self {
        let (_arena, memory) = arena(MEMORY_BYTES, IOVA);
        Self {
            device: Intel82540::new(ADDRESS, wire, &how.parse().unwrap()),
            memory,
            now: Duration::ZERO,
            rx_next: 0,
            tx_next: 0,
        }
    }

    fn ready(wire: W) -> Self {
        let mut driver = Self::new(wire, "");
        driver.start();
        driver
    }

    fn start(&mut self) {
        self.write(0xd8, u32::MAX);
        // As Linux does: through I/O space.
        self.write_io(0, &0u32.to_le_bytes());
        self.write_io(4, &(1u32 << 26).to_le_bytes());
        assert_ne!(self.read(0) & 1 << 26, 0);
        (0..3).for_each(|_| _ = self.read(0));
        assert_eq!(self.read(0) & 1 << 26, 0);
        // CTRL: link up, tags.
        self.write(0, 0x4000_0241);
        for (base, ring) in [(0x2800, RX_RING), (0x3800, TX_RING)] {
            self.write(base, ring as u32);
            self.write(base + 4, (ring >> 32) as u32);
            self.write(base + 8, DESCRIPTORS * 16);
        }
        (0..DESCRIPTORS).for_each(|index| self.offer(index));
        // Sums of TCP and UDP, and of IPv4; broadcasts, buffers of 2 KiB; padding.
        self.write(0x5000, 0x300);
        self.write(0x100, 0x8002);
        self.write(0x400, 0xa);
        self.write(0x2818, DESCRIPTORS - 1);
        (0..2).for_each(|_| _ = self.poll());
        assert_eq!(self.read(8) & 0x83, 0x83, "link at 1 Gb/s");
        self.read(0xc0);
        self.write(0xd0, 0x9d);
    }

    fn offer(&mut self, index: u32) {
        let at = RX_RING + 16 * u64::from(index);
        self.memory
            .store(at, BUFFERS + u64::from(index) * BUFFER_BYTES)
            .unwrap();
        self.memory.store(at + 8, 0).unwrap();
    }

    fn read(&mut self, offset: u64) -> u32 {
        let mut word = [0; 4];
        self.device.read(0, offset, &mut word);
        u32::from_le_bytes(word)
    }

    fn write(&mut self, offset: u64, value: u32) {
        self.device.write(0, offset, &value.to_le_bytes());
    }

    fn write_io(&mut self, offset: u64, bytes: &[u8]) {
        self.device.write(2, offset, bytes);
    }

    fn poll(&mut self) -> Progress {
        self.now += Duration::from_millis(1);
        self.device.poll(&self.memory, self.now)
    }

    /// What the next descriptor says that came in, and its bytes without the check sequence.
    fn received(&mut self) -> Option<(u64, Vec<u8>)> {
        let at = RX_RING + 16 * u64::from(self.rx_next);
        let said = self.memory.load(at + 8).unwrap();
        if said >> 32 & 1 == 0 {
            return None;
        }
        let mut bytes = vec![0; (said & 0xffff) as usize];
        let buffer = self.memory.load(at).unwrap();
        self.memory.read(buffer, &mut bytes).unwrap();
        let frame = bytes[..bytes.len() - 4].to_vec();
        if said >> 35 & 1 == 0 {
            assert_eq!(bytes[frame.len()..], frame_check(&frame));
        }
        self.offer(self.rx_next);
        let given = self.rx_next;
        self.rx_next = (given + 1) % DESCRIPTORS;
        self.write(0x2818, given);
        Some((said, frame))
    }

    fn describe(&mut self, words: [u64; 2]) {
        let at = TX_RING + 16 * u64::from(self.tx_next);
        self.memory.store(at, words[0]).unwrap();
        self.memory.store(at + 8, words[1]).unwrap();
        self.tx_next = (self.tx_next + 1) % DESCRIPTORS;
    }

    /// Sends a frame in parts, with these bits in every descriptor.
    fn send(&mut self, parts: &[&[u8]], bits: u64) {
        for (number, part) in parts.iter().enumerate() {
            let buffer = BUFFERS + (8 + u64::from(self.tx_next)) * 4 * BUFFER_BYTES;
            self.memory.write(buffer, part).unwrap();
            let last = if number + 1 == parts.len() { LAST } else { 0 };
            self.describe([buffer, part.len() as u64 | bits | last]);
        }
        let tail = self.tx_next;
        self.write(0x3818, tail);
        self.poll();
    }

    fn rules(&self) -> Vec<String> {
        let reports = self.device.violations().reports();
        reports.iter().map(|report| report.to_string()).collect()
    }

    fn assert_no_violations(&self) {
        assert_eq!(self.rules(), Vec::<String>::new());
    }

    fn assert_one_violation(&self, part: &str) {
        let rules = self.rules();
        assert!(rules.len() == 1 && rules[0].contains(part), "{rules:?}");
    }
}

fn cabled() -> (Driver<Pair>, Pair) {
    let (ours, theirs) = pair();
    (Driver::ready(ours), theirs)
}

#[test]
fn the_card_says_what_it_is() {
    let mut driver = Driver::new(Loop::new(), "");
    let identity = driver.device.identity();
    assert_eq!((identity.vendor, identity.device), (0x8086, 0x100e));
    assert!(identity.pin && identity.msix.vectors == 0);
    assert_eq!(identity.bars[..3], [128 << 10, 0, 64]);
    assert_eq!([driver.read(0x5400), driver.read(0x5404)], [2, 0x8000_0100]);
    assert_eq!(driver.read(4), driver.read(0), "CTRL, a second time");
}

#[test]
fn the_eeprom_is_read_bit_by_bit_and_word_by_word() {
    let mut driver = Driver::new(Loop::new(), "");
    driver.write(0x10, 0x40);
    assert_eq!(driver.read(0x10) & 0x3c0, 0x1c0, "granted, present, small");
    let mut word = |address: u32| {
        driver.write(0x14, address << 8 | 1);
        let at_once = driver.read(0x14);
        assert_eq!(at_once & 0x10, 0x10);
        driver.write(0x10, 0x40);
        for number in (0..9).rev() {
            let data = ((0b110 << 6 | address) >> number & 1) * 4;
            driver.write(0x10, 0x42 | data);
            driver.write(0x10, 0x43 | data);
        }
        let bits = (0..16).fold(0, |word, _| {
            driver.write(0x10, 0x42);
            driver.write(0x10, 0x43);
            word << 1 | driver.read(0x10) >> 3 & 1
        });
        assert_eq!(at_once >> 16, bits);
        bits as u16
    };
    let words: Vec<u16> = (0..64).map(&mut word).collect();
    assert_eq!(words[..3], [0x0002, 0x0000, 0x0100]);
    assert_eq!(
        words.iter().fold(0u16, |sum, word| sum.wrapping_add(*word)),
        0xbaba
    );
    driver.assert_no_violations();
    driver.write(0x10, 0);
    driver.write(0x10, 0x02);
    driver.assert_one_violation("EECD was written: EE_REQ must be 1");
}

#[test]
fn the_transceiver_is_an_m88() {
    let (mut driver, _peer) = cabled();
    let mut phy = |register: u32| {
        driver.write(0x20, 0x0820_0000 | register << 16);
        let read = driver.read(0x20);
        assert_eq!(read >> 28, 1, "ready, no error");
        read & 0xffff
    };
    assert_eq!([phy(2), phy(3)], [0x0141, 0x0c20]);
    phy(1);
    assert_eq!(phy(1) & 0x24, 0x24);
    // It interrupts if it is asked to.
    let mdac = |driver: &mut Driver<_>| driver.read(0xc0) & 0x200;
    assert_eq!(mdac(&mut driver), 0);
    driver.write(0x20, 0x2820_0000 | 1 << 16);
    assert_eq!(mdac(&mut driver), 0x200);
    let mut phy = |register: u32| {
        driver.write(0x20, 0x0820_0000 | register << 16);
        driver.read(0x20) & 0xffff
    };
    assert_eq!(phy(17) & 0xfc00, 0xac00, "1000 Mb/s, full duplex, link");
    driver.write(0x20, 0x0c40_0000);
    assert_eq!(
        driver.read(0x20) >> 28,
        5,
        "there is one at address 1 alone"
    );
    driver.assert_one_violation("the operation must be to read or to write (10.2.2.7 / 13.4.7)");
}

#[test]
fn all_registers_are_reached_through_io_space() {
    let mut driver = Driver::new(Loop::new(), "");
    let word = |driver: &mut Driver<Loop>, offset| {
        let mut word = [0; 4];
        driver.device.read(2, offset, &mut word);
        u32::from_le_bytes(word)
    };
    driver.write_io(0, &0x5400u32.to_le_bytes());
    driver.write_io(4, &7u32.to_le_bytes());
    assert_eq!([word(&mut driver, 0), word(&mut driver, 4)], [0x5400, 7]);
    assert_eq!(driver.read(0x5400), 7);
    driver.assert_no_violations();
    driver.write_io(0, &[1]);
    driver.assert_one_violation("1 bytes at 0x0 were accessed: registers are 32-bit words");
}

#[test]
fn frames_go_both_ways_and_are_counted() {
    let (mut driver, mut peer) = cabled();
    let frame = samples::udp(false, None, &samples::bytes(200));
    for _ in 0..3 * DESCRIPTORS {
        peer.send(&frame, Offload::default());
        driver.poll();
        let (said, received) = driver.received().unwrap();
        assert_eq!(received, frame);
        // Done, the last, sums of TCP or UDP and of IPv4 looked at, and no errors.
        assert_eq!(said >> 32 & 0xffff, 0x63);
        driver.send(&[&frame[..50], &frame[50..]], 0x0a00_0000);
        assert_eq!(peer.receive(), Some(frame.clone()));
    }
    assert_eq!(
        [
            driver.read(0x4074),
            driver.read(0x4080),
            driver.read(0x40d0)
        ],
        [24; 3]
    );
    assert_eq!(driver.read(0x4088), 24 * (frame.len() as u32 + 4));
    assert_eq!(driver.read(0x4074), 0);
    driver.assert_no_violations();
}

#[test]
fn the_pin_tells_of_frames_until_the_causes_are_read() {
    let (mut driver, mut peer) = cabled();
    assert!(!driver.device.asserts_pin());
    peer.send(&samples::udp(false, None, &[1; 100]), Offload::default());
    driver.poll();
    assert!(driver.device.asserts_pin());
    assert_eq!([driver.read(0xc0), driver.read(0xc0)], [0x80, 0]);
    assert!(!driver.device.asserts_pin());
    driver.send(&[&[2; 100]], 0);
    assert!(driver.device.asserts_pin());
    driver.write(0xd8, u32::MAX);
    assert!(!driver.device.asserts_pin());
    assert_eq!(driver.read(0xc0), 3);
    // What software says has happened, whatever it is.
    driver.write(0xd0, 0x120);
    driver.write(0xc8, 0x100);
    driver.poll();
    assert!(driver.device.asserts_pin() && driver.read(0xc0) == 0x100);
    peer.plug(false);
    driver.poll();
    assert_eq!((driver.read(0xc0), driver.read(8) & 2), (4, 0));
    driver.assert_no_violations();
}

#[test]
fn received_checksums_are_checked_and_tags_taken_out() {
    let (mut driver, mut peer) = cabled();
    let mut said = |frame: &[u8]| {
        peer.send(frame, Offload::default());
        driver.poll();
        let (said, frame) = driver.received().unwrap();
        ([said >> 32 & 0xff, said >> 40 & 0xff, said >> 48], frame)
    };
    let mut tcp = samples::tcp(false, None, 1, &samples::bytes(100));
    assert_eq!(said(&tcp).0, [0x63, 0, 0]);
    tcp[80] ^= 1;
    assert_eq!(said(&tcp).0, [0x63, 0x20, 0]);
    tcp[15] ^= 1;
    assert_eq!(said(&tcp).0, [0x63, 0x60, 0]);
    let tagged = samples::udp(false, Some(0xe123), &samples::bytes(100));
    let (words, frame) = said(&tagged);
    assert_eq!(words, [0x6b, 0, 0xe123]);
    assert_eq!(frame, samples::udp(false, None, &samples::bytes(100)));
}

#[test]
fn long_frames_take_as_many_buffers_as_they_need() {
    let mut driver = Driver::ready(Script::default());
    driver.write(0x100, 0x8022);
    let mut frame = samples::bytes(5000);
    frame[..6].copy_from_slice(&ADDRESS);
    driver
        .device
        .wire()
        .incoming
        .push_back((frame, Offload::default()));
    driver.poll();
    let said: Vec<u64> = (0..3)
        .map(|at| driver.memory.load(RX_RING + 16 * at + 8).unwrap() & 0x3_0000_ffff)
        .collect();
    assert_eq!(
        said,
        [0x1_0000_0800, 0x1_0000_0800, 0x3_0000_0000 | (5004 - 4096)]
    );
    driver.assert_no_violations();
}

#[test]
fn checksums_and_tags_are_put_in_as_a_context_says() {
    let (mut driver, mut peer) = cabled();
    let expected = samples::tcp(false, None, 1, &samples::bytes(100));
    let mut frame = expected.clone();
    let ip = Ip::find(&frame).unwrap();
    set_word(&mut frame, ip.start + 10, 0);
    let pseudo = fold(ip.pseudo_header(&frame, 120));
    set_word(&mut frame, ip.payload + 16, pseudo);
    driver.describe([0x0000_3222_0021_180e, 0x2300_0000]);
    // DEXT, data, IXSM and TXSM.
    driver.send(&[&frame], 0x2010_0000 | 3 << 40);
    assert_eq!(peer.receive(), Some(expected));
    let untagged = samples::udp(false, None, &[1; 100]);
    driver.send(&[&untagged], 0xe123 << 48 | 1 << 30);
    assert_eq!(
        peer.receive(),
        Some(samples::udp(false, Some(0xe123), &[1; 100]))
    );
    driver.assert_no_violations();
}

#[test]
fn packets_are_cut_into_segments_here_or_by_the_wire() {
    for large in [false, true] {
        let mut driver = Driver::ready(Script {
            large,
            ..Script::default()
        });
        let mut frame = samples::tcp(false, None, 7, &samples::bytes(3000));
        let ip = Ip::find(&frame).unwrap();
        set_word(&mut frame, ip.start + 2, 0);
        set_word(&mut frame, ip.start + 10, 0);
        let pseudo = fold(ip.pseudo_header(&frame, 0));
        set_word(&mut frame, ip.payload + 16, pseudo);
        let context = 1000 << 48 | 54 << 40 | 0x2700_0000 | 3000;
        driver.describe([0x0000_3222_0021_180e, context]);
        driver.send(
            &[&frame[..54], &frame[54..]],
            3 << 40 | 0x2410_0000 | 0x0200_0000,
        );
        let sent = &driver.device.wire().sent;
        let lens: Vec<usize> = sent.iter().map(|(frame, _)| frame.len()).collect();
        match large {
            true => assert_eq!((lens, sent[0].1.segment), (vec![3054], Some(1000))),
            false => assert_eq!(lens, [1054; 3]),
        }
        assert_eq!([driver.read(0x4080), driver.read(0x40f8)], [3, 1]);
        driver.assert_no_violations();
    }
}

#[test]
fn steps_in_the_wrong_order_are_told() {
    let mut driver = Driver::new(Loop::new(), "");
    driver.write(0x400, 2);
    driver.assert_one_violation("TCTL was written: the ring must be set up before TCTL.EN");
    let mut driver = Driver::ready(Loop::new());
    driver.write(0x2818, 99);
    driver.assert_one_violation("tail 99 of receive queue 0 in a ring of 8 descriptors");
    let mut driver = Driver::ready(Loop::new());
    driver.write(0x3808, 24);
    driver.assert_one_violation("TDLEN was set to 0x18: it must be a multiple of 16");
    let mut driver = Driver::ready(Loop::new());
    driver.write(0x2800, RX_RING as u32 + 0x100);
    driver.assert_one_violation("RDBAL was written: descriptors must not be in use");
    let mut driver = Driver::ready(Loop::new());
    driver.write(0x8, 1);
    driver.assert_one_violation("0x1 was written to STATUS, which is read-only (13.4.2)");
}

#[test]
fn descriptors_and_packets_that_cannot_be_are_told() {
    for (parts, bits, rule) in [
        (&[&[1u8; 60][..]][..], 0x2040_0000, "DTYP must be 0 or 1"),
        (
            &[&[1; 60]],
            3 << 40 | 0x2010_0000,
            "IXSM and TXSM take a context",
        ),
        (
            &[&[1; 60]],
            0x2410_0000,
            "TSE takes a context (7.2.6 / 3.3.6)",
        ),
        (&[&[1; 8]], 0, "it must have 17 bytes"),
    ] {
        let mut driver = Driver::ready(Script::default());
        driver.send(parts, bits);
        driver.assert_one_violation(rule);
    }
    let mut driver = Driver::ready(Script::default());
    driver.describe([IOVA - 64, 60 | LAST]);
    driver.write(0x3818, 1);
    driver.poll();
    driver.assert_one_violation("transmit queue 0: 60 bytes at 0xfffffffc0 are outside");
}

#[test]
fn a_card_that_misbehaves_does_so_on_demand() {
    let (ours, mut peer) = pair();
    let mut driver = Driver::new(ours, "length=1,lost-interrupt=1,seed=3");
    driver.start();
    peer.send(&samples::udp(false, None, &[1; 100]), Offload::default());
    driver.poll();
    let said = driver.memory.load(RX_RING + 8).unwrap();
    assert!(said >> 32 & 1 != 0 && said & 0xffff != 146, "{said:#x}");
    assert!(!driver.device.asserts_pin() && driver.read(0xc0) & 0x80 != 0);
    let mut driver = Driver::new(Loop::new(), "gone=1");
    driver.poll();
    assert_eq!(driver.read(8), u32::MAX);
    driver.device.reset();
    assert_ne!(driver.read(8), u32::MAX);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a driver writes, to registers and to rings, nothing panics and each poll ends.
    #[test]
    fn no_driver_makes_the_card_panic(
        writes in proptest::collection::vec(
            (prop_oneof![0u64..0x500, 0x2800u64..0x2840, 0x3800u64..0x3840, 0u64..0x6000],
             any::<u32>(), 1usize..9, 0u8..3, any::<bool>()), 0..60,
        ),
        words in proptest::collection::vec(any::<u64>(), 32),
    ) {
        let mut driver = Driver::ready(Loop::new());
        for (offset, value, bytes, bar, polls) in writes {
            let value = u64::from(value).to_le_bytes();
            driver.device.write(bar, offset & !3, &value[..bytes]);
            driver.device.write(0, offset & !3, &value[..4]);
            driver.device.read(bar, offset, &mut [0; 8][..bytes]);
            if polls {
                for (at, word) in words.iter().enumerate() {
                    // Addresses are within the memory or close to it.
                    let word = if at % 2 != 0 { *word } else { IOVA + (word & 0x1f_ffff) };
                    driver.memory.store(RX_RING + 8 * at as u64, word).unwrap();
                    driver.memory.store(TX_RING + 8 * at as u64, word).unwrap();
                }
                driver.write(0x100, 0x801a);
                driver.write(0x400, 0xa);
                driver.write(0x2818, value[0].into());
                driver.write(0x3818, u32::from(value[1]) % DESCRIPTORS);
                driver.poll();
            }
        }
    }
}

#[test]
fn registers_have_names() {
    let name = Intel82540::<Script>::register_name;
    let found = [0xc0, 0x3818, 0x5204, 0xb000].map(|offset| name(0, offset));
    assert_eq!(found, [Some("ICR"), Some("TDT"), Some("MTA"), None]);
    assert_eq!([name(2, 4), name(2, 8)], [Some("IODATA"), None]);
}
