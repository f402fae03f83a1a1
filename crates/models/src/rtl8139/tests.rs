//! The model driven register by register.

use super::*;
use crate::packet::Offload;
use crate::packet::checksum::{fold, frame_check, set_word, word};
use crate::packet::headers::Ip;
use crate::packet::samples;
use crate::wire::script::Script;
use crate::wire::{Loop, Pair, pair};
use hw::sim::{View, arena};
use proptest::prelude::*;

const ADDRESS: [u8; 6] = samples::DESTINATION;
const IOVA: u64 = 0x10_0000_0000;
const RX_RING: u64 = IOVA;
const TX_RING: u64 = IOVA + 0x400;
const BUFFERS: u64 = IOVA + 0x1_0000;
/// How far apart buffers lie, and how much of them the card may use.
const BUFFER_BYTES: u64 = 0x1000;
const ROOM: u64 = 1536;
const DESCRIPTORS: u64 = 8;
const MEMORY_BYTES: usize = 1 << 20;
const OWN: u64 = 1 << 31;
const END: u64 = 1 << 30;
const WHOLE: u64 = 3 << 28;

/// A driver of the least kind.
struct Driver<W> {
    device: Rtl8139<W>,
    memory: View,
    now: Duration,
    rx_next: u64,
    tx_next: u64,
}

fn end(index: u64) -> u64 {
    if index == DESCRIPTORS - 1 { END } else { 0 }
}

impl<W: Wire> Driver<W> {
    fn new(wire: W, how: &str) -> Self {
        let (_arena, memory) = arena(MEMORY_BYTES, IOVA);
        Self {
            device: Rtl8139::new(ADDRESS, wire, &how.parse().unwrap()),
            memory,
            now: Duration::ZERO,
            rx_next: 0,
            tx_next: 0,
        }
    }

    /// Switched on, with a full ring of buffers.
    fn ready(wire: W) -> Self {
        let mut driver = Self::new(wire, "");
        driver.start();
        driver
    }

    fn start(&mut self) {
        self.reset();
        // C+CR: tags, checksums, both directions.
        self.write16(0xe0, 0x63);
        self.write32(0xe4, RX_RING as u32);
        self.write32(0xe8, (RX_RING >> 32) as u32);
        self.write32(0x20, TX_RING as u32);
        self.write32(0x24, (TX_RING >> 32) as u32);
        (0..DESCRIPTORS).for_each(|index| self.offer(index));
        self.write8(0x37, 0xc);
        // What is sent to us, and to all.
        self.write32(0x44, 0xa);
        self.poll();
        self.write16(0x3e, 0xe1ff);
        self.write16(0x3c, 0x80ff);
    }

    fn reset(&mut self) {
        self.write8(0x37, 0x10);
        let reads = [0; 4].map(|_| self.read(0x37, 1) & 0x10);
        assert_eq!((reads[0], reads[3]), (0x10, 0));
    }

    fn offer(&mut self, index: u64) {
        let at = RX_RING + 16 * index;
        let buffer = BUFFERS + index * BUFFER_BYTES;
        self.memory.store(at + 8, buffer).unwrap();
        self.memory.store(at, OWN | end(index) | ROOM).unwrap();
    }

    fn read(&mut self, offset: u64, bytes: usize) -> u32 {
        let mut word = [0; 4];
        // The same registers are in both BARs.
        let bar = (offset % 2) as u8;
        self.device.read(bar, offset, &mut word[..bytes]);
        u32::from_le_bytes(word)
    }

    fn write8(&mut self, offset: u64, value: u8) {
        self.device.write(1, offset, &[value]);
    }

    fn write16(&mut self, offset: u64, value: u16) {
        self.device.write(1, offset, &value.to_le_bytes());
    }

    fn write32(&mut self, offset: u64, value: u32) {
        self.device.write(0, offset, &value.to_le_bytes());
    }

    fn poll(&mut self) -> Progress {
        self.now += Duration::from_millis(1);
        self.device.poll(&self.memory, self.now)
    }

    /// The next descriptor that came in, and its bytes without the check sequence.
    fn received(&mut self) -> Option<(u64, Vec<u8>)> {
        let at = RX_RING + 16 * self.rx_next;
        let said = self.memory.load(at).unwrap();
        if said & OWN != 0 {
            return None;
        }
        let mut bytes = vec![0; (said & 0x1fff) as usize];
        let buffer = self.memory.load(at + 8).unwrap();
        self.memory.read(buffer, &mut bytes).unwrap();
        let frame = bytes[..bytes.len() - 4].to_vec();
        // It is that of the frame as it came, with its tag.
        if said >> 48 & 1 == 0 {
            assert_eq!(bytes[frame.len()..], frame_check(&frame));
        }
        self.offer(self.rx_next);
        self.rx_next = (self.rx_next + 1) % DESCRIPTORS;
        Some((said, frame))
    }

    /// Sends a frame in parts, with these bits in every descriptor.
    fn send(&mut self, parts: &[&[u8]], bits: u64) {
        let last = parts.len() - 1;
        for (number, part) in parts.iter().enumerate() {
            let index = self.tx_next;
            let buffer = BUFFERS + (8 + index) * 2 * BUFFER_BYTES;
            let at = TX_RING + 16 * index;
            self.memory.write(buffer, part).unwrap();
            self.memory.store(at + 8, buffer).unwrap();
            let first = if number == 0 { 1 << 29 } else { 0 };
            let ends = if number == last { 1 << 28 } else { 0 };
            let words = OWN | end(index) | first | ends | bits | part.len() as u64;
            self.memory.store(at, words).unwrap();
            self.tx_next = (index + 1) % DESCRIPTORS;
        }
        self.write8(0xd9, 0x40);
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
    assert_eq!((identity.vendor, identity.device), (0x10ec, 0x8139));
    assert!(identity.revision >= 0x20 && identity.pin && identity.msix.vectors == 0);
    assert_eq!(
        [driver.read(0, 4), driver.read(4, 4)],
        [0x0000_0002, 0x0000_0100]
    );
    assert_eq!(driver.read(0x40, 4) & 0x7cc0_0000, 0x7480_0000);
    // A link of 100 Mb/s, full duplex, which was negotiated.
    let numbers = [0x64, 0x68].map(|offset| driver.read(offset, 2));
    assert_eq!(numbers, [0x782d, 0x45e1]);
    assert_eq!(driver.read(0x58, 1) & 0xc, 0);
}

#[test]
fn the_eeprom_is_read_bit_by_bit() {
    let mut driver = Driver::new(Loop::new(), "");
    let mut word = |address: u32| {
        driver.write8(0x50, 0x80);
        driver.write8(0x50, 0x88);
        for number in (0..9).rev() {
            let data = ((0b110 << 6 | address) >> number & 1) as u8 * 2;
            driver.write8(0x50, 0x88 | data);
            driver.write8(0x50, 0x8c | data);
        }
        (0..16).fold(0, |word, _| {
            driver.write8(0x50, 0x88);
            driver.write8(0x50, 0x8c);
            word << 1 | driver.read(0x50, 1) & 1
        })
    };
    assert_eq!(
        [0, 7, 8, 9].map(&mut word),
        [0x8129, 0x0002, 0x0000, 0x0100]
    );
    driver.assert_no_violations();
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
        // The last one of the ring, both ends, our address, UDP with sound checksums.
        assert_eq!(said & 0x3fff_e000, WHOLE | 1 << 25 | 2 << 16);
        driver.send(&[&frame[..50], &frame[50..]], 0);
        assert_eq!(peer.receive(), Some(frame.clone()));
    }
    assert!(driver.received().is_none() && peer.receive().is_none());
    driver.write32(0x14, (BUFFERS >> 32) as u32);
    driver.write32(0x10, BUFFERS as u32 | 8);
    assert_eq!(driver.read(0x10, 4) & 8, 8);
    driver.poll();
    assert_eq!(driver.read(0x10, 4) & 8, 0);
    let counted = [0, 8, 16, 40].map(|at| driver.memory.load(BUFFERS + at).unwrap());
    assert_eq!(counted, [24, 24, 0, 24]);
    driver.assert_no_violations();
}

#[test]
fn the_pin_tells_of_frames_until_the_cause_is_cleared() {
    let (mut driver, mut peer) = cabled();
    assert!(!driver.device.asserts_pin());
    peer.send(&samples::udp(false, None, &[1; 100]), Offload::default());
    driver.poll();
    assert!(driver.device.asserts_pin());
    assert_eq!(driver.read(0x3e, 2), 1);
    driver.write16(0x3e, 1);
    assert!(!driver.device.asserts_pin());
    driver.send(&[&[2; 100]], 0);
    assert_eq!(driver.read(0x3e, 2), 0x84);
    driver.write16(0x3c, 0);
    assert!(!driver.device.asserts_pin());
    // The plug.
    driver.write16(0x3e, 0xe1ff);
    peer.plug(false);
    driver.poll();
    assert_eq!((driver.read(0x3e, 2), driver.read(0x64, 2) & 4), (0x20, 0));
}

#[test]
fn a_frame_waits_until_there_is_a_descriptor() {
    let (mut driver, mut peer) = cabled();
    for number in 0..DESCRIPTORS as u8 + 1 {
        peer.send(
            &samples::udp(false, None, &[number; 100]),
            Offload::default(),
        );
    }
    driver.poll();
    assert_eq!(driver.read(0x3e, 2), 0x11);
    assert_eq!(driver.device.due(), Some(driver.now + HUNGRY));
    driver.write16(0x3e, 0x11);
    driver.poll();
    assert_eq!(driver.read(0x3e, 2), 0, "it is told once");
    for number in 0..DESCRIPTORS as u8 + 1 {
        let (_, frame) = driver.received().unwrap();
        assert_eq!(frame[50], number);
        driver.poll();
    }
    assert_eq!(driver.device.due(), None);
    driver.assert_no_violations();
}

#[test]
fn received_checksums_are_checked_and_tags_taken_out() {
    let (mut driver, mut peer) = cabled();
    let mut said = |frame: &[u8]| {
        peer.send(frame, Offload::default());
        driver.poll();
        let (said, frame) = driver.received().unwrap();
        (said >> 13 & 0x1f, said >> 32, frame)
    };
    let mut tcp = samples::tcp(false, None, 1, &samples::bytes(100));
    assert_eq!(said(&tcp).0, 0b01000);
    tcp[80] ^= 1;
    assert_eq!(said(&tcp).0, 0b01001);
    tcp[15] ^= 1;
    assert_eq!(said(&tcp).0, 0b01101);
    let mut udp = samples::udp(false, None, &samples::bytes(100));
    udp[80] ^= 1;
    assert_eq!(said(&udp).0, 0b10010);
    assert_eq!(said(&samples::tcp(true, None, 1, &[1])).0, 0, "no IPv6");
    let tagged = samples::udp(false, Some(0xe123), &samples::bytes(100));
    let (kind, tag, frame) = said(&tagged);
    assert_eq!((kind, tag), (0b10000, 0x1_23e1));
    assert_eq!(frame, samples::udp(false, None, &samples::bytes(100)));
    driver.write16(0xe0, 0x03);
    peer.send(&tagged, Offload::default());
    driver.poll();
    let (said, frame) = driver.received().unwrap();
    assert_eq!((said >> 13 & 0x1f, said >> 32), (0, 0));
    assert_eq!(frame, tagged);
}

#[test]
fn a_frame_takes_as_many_buffers_as_it_needs_and_none_if_it_is_too_long() {
    let mut driver = Driver::ready(Script::default());
    for len in [3000, 4092, 4093] {
        let mut frame = samples::bytes(len);
        frame[..6].copy_from_slice(&ADDRESS);
        let incoming = &mut driver.device.wire().incoming;
        incoming.push_back((frame, Offload::default()));
    }
    driver.poll();
    let said: Vec<u64> = (0..6)
        .map(|at| driver.memory.load(RX_RING + 16 * at).unwrap())
        .collect();
    let parts: Vec<u64> = said.iter().map(|said| said >> 28 & 0xb).collect();
    assert_eq!(parts, [2, 1, 2, 0, 1, 8]);
    assert_eq!(driver.read(0x3e, 2), 3);
}

#[test]
fn checksums_and_tags_are_put_in() {
    let (mut driver, mut peer) = cabled();
    for (tcp, bits) in [(true, 5 << 16), (false, 6 << 16)] {
        let payload = samples::bytes(100);
        let expected = match tcp {
            true => samples::tcp(false, None, 1, &payload),
            false => samples::udp(false, None, &payload),
        };
        let mut frame = expected.clone();
        let ip = Ip::find(&frame).unwrap();
        set_word(&mut frame, ip.start + 10, 0x1234);
        set_word(&mut frame, ip.payload + if tcp { 16 } else { 6 }, 0);
        driver.send(&[&frame], bits);
        assert_eq!(peer.receive(), Some(expected));
    }
    let untagged = samples::udp(false, None, &[1; 100]);
    driver.send(&[&untagged], 0x2_23e1 << 32);
    assert_eq!(
        peer.receive(),
        Some(samples::udp(false, Some(0xe123), &[1; 100]))
    );
    driver.send(&[&[3; 20]], 0);
    assert_eq!(peer.receive().unwrap().len(), 60);
    driver.assert_no_violations();
}

#[test]
fn packets_are_cut_into_segments_here_or_by_the_wire() {
    for large in [false, true] {
        let mut driver = Driver::ready(Script {
            large,
            ..Script::default()
        });
        let frame = samples::tcp(false, None, 7, &samples::bytes(3000));
        driver.send(&[&frame[..54], &frame[54..]], 1 << 27 | 1000 << 16);
        let sent = &driver.device.wire().sent;
        if large {
            assert_eq!((sent.len(), sent[0].1.segment), (1, Some(1000)));
            let ip = Ip::find(&sent[0].0).unwrap();
            let pseudo = fold(ip.pseudo_header(&sent[0].0, 3020));
            assert_eq!(word(&sent[0].0, ip.payload + 16), Some(pseudo));
        } else {
            let lens: Vec<usize> = sent.iter().map(|(frame, _)| frame.len()).collect();
            assert_eq!(lens, [1054; 3]);
            for (frame, _) in sent {
                let ip = Ip::find(frame).unwrap();
                assert!(ip.header_is_sound(frame));
                assert_eq!(ip.payload_is_sound(frame), Some(true));
            }
        }
        driver.assert_no_violations();
    }
}

#[test]
fn steps_in_the_wrong_order_are_told() {
    let mut driver = Driver::new(Loop::new(), "");
    driver.write32(0x20, TX_RING as u32);
    driver.assert_one_violation("C+ mode must be on before its descriptors are named (6.33)");
    let mut driver = Driver::new(Loop::new(), "");
    driver.write8(0x37, 0xc);
    driver.assert_one_violation("CR was written: C+CR must switch the C+ mode on first");
    let mut driver = Driver::new(Loop::new(), "");
    driver.write8(0xd9, 0x40);
    driver.assert_one_violation("TPPoll was written: CR.TE and C+CR must be on first");
    let mut driver = Driver::new(Loop::new(), "");
    driver.write8(0x52, 0x20);
    driver.assert_one_violation("9346CR.EEM must be 3");
    assert_eq!(driver.read(0x52, 1), 0x0c);
    driver.write8(0x50, 0xc0);
    driver.write8(0x52, 0x20);
    driver.write16(0x62, 0x1000);
    assert_eq!([driver.read(0x52, 1), driver.read(0x62, 2)], [0x2c, 0x1000]);
    driver.assert_one_violation("9346CR.EEM must be 3");
    let mut driver = Driver::ready(Loop::new());
    driver.write16(0, 1);
    driver.assert_one_violation("registers are 32-bit words");
    let mut driver = Driver::ready(Loop::new());
    driver.write32(0xe4, RX_RING as u32 + 16);
    driver.assert_one_violation("a ring must begin at a multiple of 256 bytes");
}

#[test]
fn descriptors_and_packets_that_cannot_be_are_told() {
    for (parts, bits, rule) in [
        (&[&[1u8; 60][..]][..], 1 << 24, "reserved bits must be 0"),
        (&[&[][..], &[1; 60]], 0, "its length must not be 0"),
        (&[&[1; 8]], 0, "it must have an Ethernet header"),
        (&[&[1; 60]], 4 << 16, "IPCS, UDPCS and TCPCS take IPv4"),
        (&[&[1; 60]], 1 << 27, "MSS must not be 0"),
        (&[&[1; 60]], 1 << 27 | 9 << 16, "LGSEN takes TCP over IPv4"),
    ] {
        let mut driver = Driver::ready(Script::default());
        driver.send(parts, bits);
        driver.assert_one_violation(rule);
    }
    let mut driver = Driver::ready(Script::default());
    driver.memory.store(TX_RING + 8, IOVA - 64).unwrap();
    driver.memory.store(TX_RING, OWN | WHOLE | 60).unwrap();
    driver.write8(0xd9, 0x40);
    driver.poll();
    driver.assert_one_violation("transmit queue 0: 60 bytes at 0xfffffffc0 are outside");
    assert_eq!(driver.read(0x3e, 2) & 0x8000, 0x8000);
}

#[test]
fn a_card_that_misbehaves_does_so_on_demand() {
    let (ours, mut peer) = pair();
    let mut driver = Driver::new(ours, "length=1,status=1,lost-interrupt=1,seed=3");
    driver.start();
    peer.send(&samples::udp(false, None, &[1; 100]), Offload::default());
    driver.poll();
    let said = driver.memory.load(RX_RING).unwrap();
    assert!(said & OWN == 0 && said & 0x1fff != 146, "{said:#x}");
    assert!(driver.read(0x3e, 2) & 1 != 0 && !driver.device.asserts_pin());
    // What comes after its descriptor comes at the next poll, and not behind a reset.
    for (resets, arrives) in [(false, true), (true, false)] {
        let (ours, mut peer) = pair();
        let mut driver = Driver::new(ours, "early-done=1");
        driver.start();
        peer.send(&samples::udp(false, None, &[1; 100]), Offload::default());
        driver.poll();
        assert_eq!(driver.memory.load(BUFFERS).unwrap(), 0);
        if resets {
            driver.reset();
        }
        driver.poll();
        assert_eq!(driver.memory.load(BUFFERS).unwrap() != 0, arrives);
    }
    let mut driver = Driver::new(Loop::new(), "gone=1");
    driver.poll();
    assert_eq!(driver.read(0, 4), u32::MAX);
    driver.device.reset();
    assert_eq!(driver.read(0, 4), 2);
}

proptest! {
    /// Whatever a driver writes, to registers and to rings, nothing panics and each poll ends.
    #[test]
    fn no_driver_makes_the_card_panic(
        writes in proptest::collection::vec(
            (0u64..0x110, any::<u32>(), 1usize..9, any::<bool>()), 0..60,
        ),
        words in proptest::collection::vec(any::<u64>(), 32),
    ) {
        let mut driver = Driver::ready(Loop::new());
        for (offset, value, bytes, polls) in writes {
            let value = u64::from(value).to_le_bytes();
            driver.device.write(0, offset, &value[..bytes]);
            driver.device.read(1, offset, &mut [0; 8][..bytes]);
            if polls {
                for (at, word) in words.iter().enumerate() {
                    // Addresses are within the memory or close to it.
                    let word = if at % 2 == 0 { *word } else { IOVA + (word & 0x1f_ffff) };
                    driver.memory.store(RX_RING + 8 * at as u64, word).unwrap();
                    driver.memory.store(TX_RING + 8 * at as u64, word).unwrap();
                }
                driver.write16(0xe0, 0x63);
                driver.write8(0x37, 0xc);
                driver.write8(0xd9, 0x40);
                driver.poll();
            }
        }
    }
}

#[test]
fn registers_have_names() {
    let name = Rtl8139::<Script>::register_name;
    let found = [0x3c, 0x3e, 0x3f, 0x0f, 0xff].map(|offset| name(1, offset));
    let wanted = [Some("IMR"), Some("ISR"), Some("ISR"), Some("MAR"), None];
    assert_eq!(found, wanted);
}
