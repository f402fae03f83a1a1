//! The model driven register by register, in the datasheet's order.

mod aggregation;
mod bring_up;
mod coalescing;

use super::*;
use crate::packet::checksum::{fold, set_word};
use crate::packet::complete;
use crate::packet::headers::Ip;
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

/// A driver of the least kind: each call is one step of section 4.6.
struct Driver<W> {
    device: Intel82599<W>,
    memory: View,
    now: Duration,
    rx_next: u32,
    tx_next: u32,
    /// SRRCTL: advanced descriptors, buffers of 2 KiB.
    split: u32,
}

impl<W: Wire> Driver<W> {
    fn new(wire: W) -> Self {
        Self::misbehaving(wire, "")
    }

    fn misbehaving(wire: W, how: &str) -> Self {
        let (_arena, memory) = arena(MEMORY_BYTES, IOVA);
        let device = Intel82599::new(ADDRESS, wire, &how.parse().unwrap());
        let now = Duration::ZERO;
        Self {
            device,
            memory,
            now,
            rx_next: 0,
            tx_next: 0,
            split: 1 << 25 | 2,
        }
    }

    /// All of 4.6, with receive and transmit queue 0 and MSI-X vectors 0 (receive), 1 (transmit)
    /// and 2 (others).
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
        assert_eq!(
            self.read(0x42a4) & 0x7000_0000,
            0x7000_0000,
            "link at 10 Gb/s"
        );
        self.read(0x800);
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

    /// 4.6.3.
    fn reset(&mut self) {
        self.write(0x888, 0x7fff_ffff);
        self.write(0x0, 1 << 26);
        assert_ne!(self.read(0x0) & 1 << 26, 0);
        (0..3).for_each(|_| _ = self.read(0x0));
        assert_eq!(self.read(0x0) & 1 << 26, 0);
        self.write(0x888, 0x7fff_ffff);
        self.wait(0x10010, 1 << 9);
        self.wait(0x2f00, 1 << 3);
    }

    /// 4.6.7.
    fn start_receive(&mut self) {
        self.write(0x5080, 1 << 10);
        self.change(0x4240, 1 << 1, 0);
        self.change(0x2f00, 1 << 1 | 1 << 25 | 1 << 26, 0x1f << 17);
        self.write(0x1000, RX_RING as u32);
        self.write(0x1004, (RX_RING >> 32) as u32);
        self.write(0x1008, DESCRIPTORS * 16);
        self.write(0x1014, self.split);
        self.change(0x1028, 1 << 25, 0);
        self.wait(0x1028, 1 << 25);
        (0..DESCRIPTORS).for_each(|index| self.offer(index));
        self.write(0x1018, DESCRIPTORS - 1);
        self.change(0x8d00, 1 << 1, 0);
        self.wait(0x8d04, 1);
        self.write(0x3000, 1);
        self.change(0x8d00, 0, 1 << 1);
        self.change(0x18, 1 << 16, 0);
        self.change(0x100c, 0, 1 << 12);
    }

    /// 4.6.8.
    fn start_transmit(&mut self) {
        self.change(0x4240, 1 << 0 | 1 << 10, 0);
        self.change(0x4900, 1 << 6, 0);
        self.write(0x8100, 0xfff);
        (1..8).for_each(|n| self.write(0xcc00 + 4 * n, 0));
        self.change(0x4900, 0, 1 << 6);
        self.write(0x6000, TX_RING as u32);
        self.write(0x6004, (TX_RING >> 32) as u32);
        self.write(0x6008, DESCRIPTORS * 16);
        self.change(0x4a80, 1, 0);
        self.change(0x6028, 1 << 25, 0);
        self.wait(0x6028, 1 << 25);
    }

    /// 4.6.6.
    fn start_interrupts(&mut self) {
        self.write(0x898, 1 << 4 | 1 << 5);
        self.write(0x900, 0x8180);
        self.write(0xa00, 0x8200);
        self.write(0x810, 3);
        self.write(0x880, 3 | 1 << 20);
    }

    fn buffer(index: u32) -> u64 {
        BUFFERS + u64::from(index) * BUFFER_BYTES
    }

    /// Gives a receive descriptor its buffer.
    fn offer(&mut self, index: u32) {
        self.memory
            .store(RX_RING + u64::from(index) * 16, Self::buffer(index))
            .unwrap();
        self.memory
            .store(RX_RING + u64::from(index) * 16 + 8, 0)
            .unwrap();
    }

    fn descriptor(&self, ring: u64, index: u32) -> [u64; 2] {
        let at = ring + u64::from(index) * 16;
        [
            self.memory.load(at).unwrap(),
            self.memory.load(at + 8).unwrap(),
        ]
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
        self.write(0x1018, (self.rx_next + DESCRIPTORS - 1) % DESCRIPTORS);
        Some((bytes, words))
    }

    /// Puts words into the next transmit descriptor, without telling.
    fn put(&mut self, words: [u64; 2]) {
        let at = TX_RING + u64::from(self.tx_next % DESCRIPTORS) * 16;
        self.memory.store(at, words[0]).unwrap();
        self.memory.store(at + 8, words[1]).unwrap();
        self.tx_next += 1;
    }

    fn ring_transmit(&mut self) {
        self.write(0x6018, self.tx_next % DESCRIPTORS);
    }

    /// Puts a frame, in pieces, behind the receive buffers; `options` are those of the first
    /// descriptor, `payload` is PAYLEN.
    fn put_frame(&mut self, frame: &[u8], pieces: usize, options: u64, payload: usize) {
        let at = Self::buffer(64);
        self.memory.write(at, frame).unwrap();
        let size = frame.len().div_ceil(pieces);
        for (number, piece) in frame.chunks(size).enumerate() {
            let is_last = (number + 1) * size >= frame.len();
            let command = 0x2230_0000 | u64::from(is_last) << 24 | u64::from(is_last) << 27;
            let words = piece.len() as u64 | command | options | (payload as u64) << 46;
            self.put([at + (number * size) as u64, words]);
        }
    }

    fn transmit(&mut self, frame: &[u8]) {
        self.put_frame(frame, 1, 0, frame.len());
        self.ring_transmit();
    }

    fn violations(&self) -> Vec<&'static str> {
        self.device.violations().counts().into_keys().collect()
    }

    fn assert_lawful(&self) {
        assert!(
            self.device.violations().is_empty(),
            "{}",
            self.device.violations()
        );
    }
}

#[test]
fn the_datasheets_order_is_lawful_and_frames_come_back() {
    let mut driver = Driver::ready(Loop::new());
    for round in 0..30u32 {
        let frame = samples::udp(
            round % 2 == 0,
            None,
            &samples::bytes(20 + 40 * round as usize),
        );
        driver.transmit(&frame);
        assert!(driver.receive_buffer().is_none());
        driver.poll();
        driver.poll();
        assert_eq!(
            driver.descriptor(TX_RING, round % DESCRIPTORS),
            [0, 1 << 32]
        );
        let (bytes, words) = driver.receive_buffer().unwrap();
        assert_eq!(bytes, frame);
        // UDP over IPv6 or IPv4; done, end of packet, checksums right.
        let v6 = round % 2 == 0;
        assert_eq!(words[0], if v6 { 0x240 } else { 0x210 });
        assert_eq!(words[1] & 0xffff_ffff, if v6 { 0x23 } else { 0x63 });
        assert_eq!(driver.device.take_interrupts(), 3);
    }
    assert_eq!((driver.read(0x4074), driver.read(0x4080)), (30, 30));
    assert_eq!(
        (
            driver.read(0x4074),
            driver.read(0x1030),
            driver.read(0x8680)
        ),
        (0, 30, 30)
    );
    driver.assert_lawful();
}

#[test]
fn small_frames_are_padded_and_broken_checksums_are_told() {
    let mut driver = Driver::ready(Loop::new());
    let mut frame = samples::udp(false, None, &[1, 2, 3]);
    frame[24] ^= 1;
    driver.transmit(&frame);
    driver.poll();
    driver.poll();
    let (bytes, words) = driver.receive_buffer().unwrap();
    assert_eq!(bytes.len(), 60);
    assert_eq!(&bytes[..frame.len()], frame);
    assert_eq!(
        words[1] & 0xffff_ffff,
        0x8000_0063,
        "the header's checksum is wrong"
    );
    let mut frame = samples::tcp(false, None, 1, &[9; 100]);
    frame[100] ^= 1;
    driver.transmit(&frame);
    driver.poll();
    driver.poll();
    let (_, words) = driver.receive_buffer().unwrap();
    assert_eq!((words[0], words[1] & 0xffff_ffff), (0x110, 0x4000_0063));
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
    assert_eq!((driver.read(0x4074), driver.read(0x40d0)), (0, 1));
}

#[test]
fn tags_are_stripped_and_inserted() {
    let mut driver = Driver::ready(Script::default());
    driver.change(0x1028, 1 << 30, 0);
    let tagged = samples::udp(false, Some(0x6123), &[5; 100]);
    let plain = samples::udp(false, None, &[5; 100]);
    driver
        .device
        .wire()
        .incoming
        .push_back((tagged.clone(), Offload::default()));
    driver.poll();
    let (bytes, words) = driver.receive_buffer().unwrap();
    assert_eq!(bytes, plain);
    assert_eq!((words[1] >> 48, words[1] & 0xff), (0x6123, 0x6b));
    driver.put([0x6123 << 16, 0x2020_0000]);
    driver.put_frame(&plain, 2, 1 << 30, plain.len());
    driver.ring_transmit();
    driver.poll();
    assert_eq!(driver.device.wire().sent, [(tagged, Offload::default())]);
    driver.assert_lawful();
}

/// A sample as a driver hands it over for checksums to be inserted.
fn unfinished(frame: &[u8], tcp: bool) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let ip = Ip::find(&frame).unwrap();
    let pseudo = fold(ip.pseudo_header(&frame, ip.end - ip.payload));
    set_word(&mut frame, ip.payload + if tcp { 16 } else { 6 }, pseudo);
    if !ip.v6 {
        set_word(&mut frame, ip.start + 10, 0);
    }
    frame
}

/// A context for a sample.
fn context(v6: bool, tcp: bool, mss: u64) -> [u64; 2] {
    let ip_len = if v6 { 40 } else { 20 };
    let command = u64::from(!v6) << 10 | u64::from(tcp) << 11;
    [
        ip_len | 14 << 9,
        0x2020_0000 | command | 20 << 40 | mss << 48,
    ]
}

#[test]
fn checksums_are_inserted() {
    let mut driver = Driver::ready(Script::default());
    for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        let frame = match tcp {
            true => samples::tcp(v6, None, 9, &samples::bytes(333)),
            false => samples::udp(v6, None, &samples::bytes(333)),
        };
        driver.put(context(v6, tcp, 0));
        let options = u64::from(!v6) << 40 | 1 << 41;
        driver.put_frame(&unfinished(&frame, tcp), 3, options, frame.len());
        driver.ring_transmit();
        driver.poll();
        assert_eq!(driver.device.wire().sent.pop().unwrap().0, frame);
    }
    driver.assert_lawful();
}

#[test]
fn large_packets_are_cut_or_left_whole_for_a_wire_that_takes_them() {
    for v6 in [false, true] {
        let mut driver = Driver::ready(Script::default());
        let payload = samples::bytes(5000);
        let whole = samples::tcp(v6, None, 77, &payload);
        let mut frame = unfinished(&whole, true);
        let ip = Ip::find(&frame).unwrap();
        let pseudo = fold(ip.pseudo_header(&frame, 0));
        set_word(&mut frame, ip.payload + 16, pseudo);
        let header = ip.payload + 20;
        for large in [false, true] {
            driver.device.wire().large = large;
            driver.put(context(v6, true, 1400));
            let options = 1 << 31 | u64::from(!v6) << 40 | 1 << 41;
            driver.put_frame(&frame, 3, options, payload.len());
            driver.ring_transmit();
            driver.poll();
            let sent = std::mem::take(&mut driver.device.wire().sent);
            assert_eq!(
                (driver.read(0x4080), driver.read(0x4090)),
                (4, 5000 + 4 * (header as u32 + 4))
            );
            if large {
                let mut completed = sent[0].0.clone();
                let (start, offset) = sent[0].1.checksum.unwrap();
                complete(&mut completed, start, offset);
                assert_eq!((sent.len(), sent[0].1.segment), (1, Some(1400)));
                assert_eq!(completed, whole);
                continue;
            }
            let parts: Vec<u8> = sent
                .iter()
                .flat_map(|(s, _)| s[header..].to_vec())
                .collect();
            assert_eq!((sent.len(), parts), (4, payload.clone()));
            for (segment, _) in &sent {
                let ip = Ip::find(segment).unwrap();
                assert!(ip.header_is_sound(segment));
                assert_eq!(ip.payload_is_sound(segment), Some(true));
            }
        }
        driver.assert_lawful();
    }
}

#[test]
fn large_frames_of_the_wire_arrive_as_segments_even_with_few_descriptors() {
    let mut driver = Driver::ready(Script::default());
    let payload = samples::bytes(20_000);
    let whole = samples::tcp(false, None, 5, &payload);
    let partial = unfinished(&whole, true);
    let offload = Offload {
        checksum: Some((34, 16)),
        segment: Some(1460),
    };
    driver.device.wire().incoming.push_back((partial, offload));
    let mut received = Vec::new();
    for _ in 0..10 {
        driver.poll();
        while let Some((bytes, words)) = driver.receive_buffer() {
            assert_eq!(words[1] & 0xffff_ffff, 0x63);
            let ip = Ip::find(&bytes).unwrap();
            assert_eq!(ip.payload_is_sound(&bytes), Some(true));
            received.extend_from_slice(&bytes[54..]);
        }
    }
    assert_eq!(received, payload);
    driver.assert_lawful();
}

#[test]
fn a_long_frame_spans_buffers() {
    let mut driver = Driver::ready(Loop::new());
    driver.change(0x4240, 1 << 2, 0);
    driver.write(0x4268, 9018 << 16);
    let frame = samples::udp(false, None, &samples::bytes(4500));
    driver.put_frame(&frame, 3, 0, frame.len());
    driver.ring_transmit();
    driver.poll();
    driver.poll();
    let mut bytes = Vec::new();
    for (number, len) in [2048, 2048, frame.len() - 4096].into_iter().enumerate() {
        let (part, words) = driver.receive_buffer().unwrap();
        assert_eq!(part.len(), len);
        assert_eq!(words[1] & 2 != 0, number == 2, "end of packet");
        bytes.extend(part);
    }
    assert_eq!(bytes, frame);
    driver.assert_lawful();
}

#[test]
fn without_descriptors_frames_wait_or_are_dropped() {
    let mut driver = Driver::ready(Script::default());
    let frame = samples::udp(false, None, &[1; 50]);
    let fill = |driver: &mut Driver<Script>| {
        let frames = (0..12).map(|_| (frame.clone(), Offload::default()));
        driver.device.wire().incoming = frames.collect();
        (0..3).for_each(|_| _ = driver.poll());
    };
    fill(&mut driver);
    assert_eq!(driver.device.wire().incoming.len(), 5);
    assert_eq!(driver.read(0x1010), DESCRIPTORS - 1);
    while driver.receive_buffer().is_some() {
        driver.poll();
    }
    assert_eq!(driver.device.wire().incoming.len(), 0);
    assert_eq!(driver.read(0x1030), 12);
    driver.assert_lawful();
    // Drop_En is changed while the queue is off; the ring begins where it was.
    driver.change(0x1028, 0, 1 << 25);
    (0..4).for_each(|_| _ = driver.read(0x1028));
    driver.change(0x1014, 1 << 28, 0);
    driver.change(0x1028, 1 << 25, 0);
    driver.wait(0x1028, 1 << 25);
    fill(&mut driver);
    assert_eq!(driver.device.wire().incoming.len(), 0);
    assert_eq!(driver.read(0x1430), 5);
    driver.assert_lawful();
}

#[test]
fn the_link_is_told_and_frames_wait_for_it() {
    let (near, mut far): (Pair, Pair) = pair();
    let mut driver = Driver::ready(near);
    far.plug(false);
    driver.poll();
    assert_eq!(driver.read(0x42a4) & 1 << 30, 0);
    assert_eq!(driver.device.take_interrupts(), 1 << 2);
    assert_eq!(driver.read(0x800) & 1 << 20, 1 << 20);
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

#[test]
fn each_mistake_of_a_driver_is_reported() {
    type Mistake = fn(&mut Driver<Script>);
    let mistakes: [(&str, Mistake); 18] = [
        ("no-register", |driver| driver.write(0x1_fff0, 1)),
        ("read-only", |driver| driver.write(0x42a4, 1)),
        ("read-only", |driver| driver.write(0x1010, 5)),
        ("reserved-bits", |driver| driver.write(0x3000, 3)),
        ("access", |driver| driver.device.write(0, 0x1018, &[0; 8])),
        ("advice", |driver| driver.write(0x5080, 1 << 8)),
        ("order", |driver| driver.change(0x1014, 1, 0)),
        ("advice", |driver| driver.change(0x1014, 1 << 28, 0)),
        ("order", |driver| driver.write(0x1008, 256)),
        ("order", |driver| driver.write(0x1058, 3)),
        ("value", |driver| driver.write(0x6040, 64)),
        ("value", |driver| driver.write(0x6048, 130)),
        ("tail-outside", |driver| driver.write(0x6018, DESCRIPTORS)),
        ("tail-past-head", |driver| {
            driver.write(0x1018, DESCRIPTORS - 2)
        }),
        ("descriptor", |driver| {
            driver.put([Driver::<Script>::buffer(64), 60 << 46 | 0x0b00_003c]);
            driver.ring_transmit();
        }),
        ("packet", |driver| {
            driver.put_frame(&[1; 60], 1, 0, 61);
            driver.ring_transmit();
        }),
        ("dma", |driver| {
            driver.put([IOVA - 60, 60 << 46 | 0x2b30_003c]);
            driver.ring_transmit();
        }),
        ("buffer-reused", |driver| {
            driver.put([Driver::<Script>::buffer(2), 500 << 46 | 0x2b30_01f4]);
            driver.ring_transmit();
        }),
    ];
    for (kind, mistake) in mistakes {
        let mut driver = Driver::ready(Script::default());
        driver.poll();
        driver.assert_lawful();
        mistake(&mut driver);
        driver.poll();
        assert_eq!(
            driver.violations(),
            [kind],
            "{}",
            driver.device.violations()
        );
    }
}

#[test]
fn receive_descriptors_are_checked_when_they_are_fetched() {
    let offer = |words: [u64; 2]| {
        let mut driver = Driver::ready(Loop::new());
        driver.poll();
        driver.transmit(&[1; 60]);
        driver.memory.store(RX_RING + 7 * 16, words[0]).unwrap();
        driver.memory.store(RX_RING + 7 * 16 + 8, words[1]).unwrap();
        driver.write(0x5080, 1 << 10);
        driver.device.nic.rx[0].ring.advance();
        driver.write(0x1018, 0);
        driver.poll();
        driver.violations()
    };
    assert_eq!(offer([Driver::<Loop>::buffer(7), 0]), Vec::<&str>::new());
    // DD that a driver leaves there, as the card wrote it.
    assert_eq!(offer([Driver::<Loop>::buffer(7), 1]), Vec::<&str>::new());
    assert_eq!(offer([IOVA + MEMORY_BYTES as u64 - 2047, 0]), ["dma"]);
    assert_eq!(offer([Driver::<Loop>::buffer(3), 0]), ["buffer-reused"]);
    // Behind the longest frame, nothing is written to a buffer.
    let behind = |bytes| [Driver::<Loop>::buffer(3) + bytes, 0];
    assert_eq!(offer(behind(1408)), ["buffer-reused"]);
    assert_eq!(offer(behind(1536)), Vec::<&str>::new());
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
    assert_ne!(driver.receive_buffer().unwrap().1[1] & 0xffff_ffff, 0x63);
    let mut driver = run("garbage=1");
    assert_ne!(driver.receive_buffer().unwrap().1[0], 0x210);
    let mut driver = run("skip=1");
    assert!(driver.receive_buffer().is_none());
    assert_eq!(driver.descriptor(TX_RING, 0)[1] >> 32 & 1, 0);
    let mut driver = run("transmit-hang=1");
    assert!(driver.receive_buffer().is_none());
    assert_eq!(driver.read(0x6010), 0);
    let mut driver = run("stuck=0x6010:0xffff:0x1234");
    assert_eq!(driver.read(0x6010), 0x1234);
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
    driver.poll();
    assert_eq!(driver.read(0x8), u32::MAX);
    driver.write(0x0, 1 << 26);
    assert_eq!(driver.read(0x10010), u32::MAX);
    driver.device.reset();
    assert_ne!(driver.read(0x10010), u32::MAX);
}

#[test]
fn a_link_that_flaps_comes_back() {
    let mut driver = Driver::misbehaving(Loop::new(), "link-flap=40,seed=5");
    let mut seen = [0; 2];
    for _ in 0..2000 {
        driver.poll();
        seen[(driver.read(0x42a4) >> 30 & 1) as usize] += 1;
    }
    assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
}

#[test]
fn a_reset_forgets_all_but_the_report_and_the_address() {
    let mut driver = Driver::ready(Loop::new());
    driver.write(0x1_fff0, 1);
    driver.change(0x1028, 0, 1 << 25);
    driver.write(0x3000, 0);
    driver.initialise();
    assert_eq!(driver.violations(), ["no-register"]);
    assert_eq!(driver.read(0xa200), u32::from_le_bytes([2, 0, 0, 0]));
    assert_eq!(driver.read(0xa204), 0x8000_0100);
}

#[test]
fn the_eeprom_has_its_sum() {
    let mut driver = Driver::new(Loop::new());
    let sum: u32 = (0..=0x3f)
        .map(|word| {
            driver.write(0x10014, word << 2 | 1);
            driver.wait(0x10014, 2);
            driver.read(0x10014) >> 16
        })
        .sum();
    assert_eq!(sum & 0xffff, 0xbaba);
}

/// A frame may come in before the driver has come to the last step of 4.6.7; one that takes frames
/// and has not come there is told.
#[test]
fn the_last_step_of_receive_initialisation_may_follow_the_first_frame() {
    for (late, expected) in [(true, 0), (false, 2)] {
        let mut driver = Driver::ready(Loop::new());
        driver.change(0x18, 0, 1 << 16);
        driver.change(0x100c, 1 << 12, 0);
        driver.transmit(&samples::udp(true, None, &[0; 50]));
        (0..3).for_each(|_| _ = driver.poll());
        if late {
            driver.change(0x18, 1 << 16, 0);
            driver.change(0x100c, 0, 1 << 12);
        }
        assert!(driver.receive_buffer().is_some());
        assert_eq!(driver.device.violations().total(), expected, "{late}");
    }
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
const TOUCHY: [u64; 24] = [
    0x0, 0x18, 0x800, 0x808, 0x880, 0x898, 0x900, 0x1000, 0x1004, 0x1008, 0x1014, 0x1018, 0x1028,
    0x1058, 0x3000, 0x4240, 0x4268, 0x4a80, 0x5080, 0x6000, 0x6008, 0x6018, 0x6028, 0x8d00,
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
            len | (2 | any & 1) << 20
                | 0x2b00_0000
                | (any >> 40 & 0xc3) << 24
                | len << 46
                | (any >> 8 & 0x3f7) << 32
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
