//! Receive side coalescing: the driver and the model of the 82599 must read the datasheet alike.

use device::{Batch, Frame, Nic, NicCounts, Pool, TEND_NANOSECONDS, segments};
use drivers::net::ixgbe::{
    COALESCED_BUFFER_BYTES, COALESCED_BUFFERS as BUFFERS, COALESCED_DMA_BYTES,
    COALESCED_RING as RING, Config, Driver,
};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use hw::DmaArena;
use hw::sim::{View, arena};
use models::wire::{Offload, Wire};
use models::{Device, Intel82599, Local};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

const IOVA: u64 = 0x10_0000_0000;
const MSS: usize = 1448;
/// Headers without options and tags.
const HEADERS: usize = 54;
/// Most payload of a packet.
const PAYLOAD_MAX: usize = 65_535 - 40;
/// Longer than a frame may be held back, in nanoseconds.
const HELD_NANOSECONDS: u64 = 100_000;

/// A wire from which large frames come, as from a tap, and to which segments go.
#[derive(Default)]
struct Line {
    incoming: VecDeque<(Vec<u8>, Offload)>,
    outgoing: VecDeque<Vec<u8>>,
}

impl Wire for Line {
    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        let (frame, offload) = self.incoming.front()?;
        Some((frame, *offload))
    }

    fn take(&mut self) {
        self.incoming.pop_front();
    }

    fn send(&mut self, frame: &[u8], _: Offload) {
        self.outgoing.push_back(frame.to_vec());
    }
}

/// A NIC, its driver, and the other end of its wire.
struct Port {
    device: Rc<Local<Intel82599<Line>>>,
    driver: Driver<RING, RING>,
    memory: Rc<View>,
    pool: Pool,
    now: Rc<Cell<u64>>,
}

impl Port {
    /// Two, the first of which misbehaves.
    fn two(how: &str) -> (Self, Self) {
        let (mut arena, memory) = arena(2 * COALESCED_DMA_BYTES, IOVA);
        let memory = Rc::new(memory);
        let left = Self::new(&mut arena, memory.clone(), how);
        let right = Self::new(&mut arena, memory, "");
        (left, right)
    }

    fn new(arena: &mut DmaArena, memory: Rc<View>, how: &str) -> Self {
        let wire = Line::default();
        let device = Local::new(Intel82599::new([2; 6], wire, &how.parse().unwrap()));
        let pool = Pool::dma(arena, BUFFERS, COALESCED_BUFFER_BYTES).unwrap();
        let now = Rc::new(Cell::new(0));
        let clock = now.clone();
        let clock = move || {
            clock.set(clock.get() + 1000);
            clock.get()
        };
        let driver = Driver::new(device.mmio(), arena, pool, Config::COALESCE, clock).unwrap();
        let mut port = Self {
            device,
            driver,
            memory,
            pool,
            now,
        };
        port.tend();
        port.tend();
        port
    }

    /// The device acts, some time later.
    fn turn(&mut self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
        let now = Duration::from_nanos(self.now.get());
        self.device.poll(&*self.memory, now);
    }

    fn tend(&mut self) {
        self.turn(TEND_NANOSECONDS);
        self.driver.tend(self.now.get());
    }

    fn arrives(&mut self, (frame, offload): (Vec<u8>, Offload)) {
        let mut device = self.device.device();
        device.wire().incoming.push_back((frame, offload));
    }

    /// What has come out of the device.
    fn sent(&mut self) -> VecDeque<Vec<u8>> {
        let mut device = self.device.device();
        std::mem::take(&mut device.wire().outgoing)
    }

    fn receive(&mut self) -> Batch {
        let mut batch = Batch::new();
        self.driver.receive(&mut batch);
        batch
    }

    fn assert_lawful(&self) {
        let device = self.device.device();
        assert!(device.violations().is_empty(), "{}", device.violations());
    }
}

/// A sender of TCP that knows its port and how far it is.
struct Flow {
    port: u16,
    tagged: bool,
    sent: Vec<u8>,
    received: Vec<u8>,
}

impl Flow {
    fn new(port: u16, tagged: bool) -> Self {
        let (sent, received) = (Vec::new(), Vec::new());
        Self {
            port,
            tagged,
            sent,
            received,
        }
    }

    /// A packet that is to be cut, as its sender leaves it.
    fn packet(&mut self, payload: &[u8], push: bool) -> (Vec<u8>, Offload) {
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 7], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(self.port, 80, self.sent.len() as u32, 1000)
            .ack(7);
        let builder = if push { builder.psh() } else { builder };
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        let pseudo = 2 * 0x0a00 + 3 + 6 + 20 + payload.len() as u32;
        let pseudo = (pseudo & 0xffff) + (pseudo >> 16);
        frame[50..52].copy_from_slice(&(pseudo as u16).to_be_bytes());
        let tag = if self.tagged { 4 } else { 0 };
        if self.tagged {
            frame.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
        }
        self.sent.extend_from_slice(payload);
        let offload = Offload {
            checksum: Some((34 + tag, 16)),
            segment: (payload.len() > MSS).then_some(MSS as u16),
        };
        (frame, offload)
    }

    /// Takes a segment that is whole, checksums and all, and the next one of this flow.
    fn take(&mut self, frame: &[u8]) {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
            (packet.net, packet.transport)
        else {
            panic!("no TCP: {frame:02x?}");
        };
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
        let checksum = tcp.to_header().calc_checksum_ipv4(&header, tcp.payload());
        assert_eq!(tcp.checksum(), checksum.unwrap());
        assert_eq!(tcp.sequence_number() as usize, self.received.len());
        assert_eq!(tcp.acknowledgment_number(), 7);
        self.received.extend_from_slice(tcp.payload());
    }
}

fn source_port(frame: &[u8]) -> Option<u16> {
    match SlicedPacket::from_ethernet(frame).ok()?.transport? {
        TransportSlice::Tcp(tcp) => Some(tcp.source_port()),
        _ => None,
    }
}

fn udp(number: u32) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 7], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1000, 2000);
    let mut frame = Vec::new();
    builder
        .write(&mut frame, &[&number.to_be_bytes()[..], &[0; 40]].concat())
        .unwrap();
    frame
}

/// Three streams in packets of all sizes, one of them tagged, with datagrams in between.
#[test]
fn streams_are_coalesced_and_cut_again_byte_for_byte() {
    const PACKETS: u32 = 1000;
    let mut random = fastrand::Rng::with_seed(711);
    let (mut left, mut right) = Port::two("");
    let mut flows = [Flow::new(1, false), Flow::new(2, false), Flow::new(3, true)];
    let (mut large, mut received, mut segments, mut expected) = (0, 0, 0, 0);
    let mut data = vec![0; PAYLOAD_MAX];
    for number in 0..PACKETS {
        random.fill(&mut data);
        let len = match number % 3 {
            0 => PAYLOAD_MAX,
            1 => random.usize(1..=PAYLOAD_MAX),
            _ => random.usize(1..=2 * MSS),
        };
        let flow = random.usize(..flows.len());
        left.arrives(flows[flow].packet(&data[..len], random.bool()));
        left.arrives((udp(number), Offload::default()));
        expected += len.div_ceil(MSS);
        let mut datagrams = Vec::new();
        for _ in 0..4 {
            left.turn(HELD_NANOSECONDS);
            let mut batch = left.receive();
            received += batch.len();
            let offloads = batch.iter().map(Frame::offload);
            large += offloads.filter(|offload| offload.gso.is_some()).count();
            right.driver.transmit(&mut batch);
            right.turn(1000);
            for frame in right.sent() {
                match source_port(&frame) {
                    Some(port) => {
                        segments += 1;
                        flows[usize::from(port) - 1].take(&frame);
                    }
                    None => datagrams.push(frame),
                }
            }
        }
        assert_eq!(datagrams, [udp(number)]);
    }
    for flow in &flows {
        assert!(flow.sent == flow.received, "{} bytes", flow.received.len());
    }
    assert_eq!(segments, expected, "as many as there were");
    let (packets, most) = (PACKETS as usize, expected / 5);
    assert!(large > packets, "{large} large frames");
    assert!(received - packets < most, "{received} frames");
    left.tend();
    right.tend();
    for port in [&left, &right] {
        let counts = port.driver.counts();
        assert_eq!((counts.rx_error, counts.rx_lie, counts.resets), (0, 0, 0));
        assert_eq!(port.pool.free(), BUFFERS - RING, "all buffers came back");
        port.assert_lawful();
    }
}

#[test]
fn a_full_buffer_is_one_frame() {
    let (mut left, _) = Port::two("");
    left.arrives(Flow::new(1, false).packet(&[7; 22 * MSS], false));
    (0..4).for_each(|_| left.turn(HELD_NANOSECONDS));
    let batch = left.receive();
    let lengths: Vec<_> = batch.iter().map(Frame::len).collect();
    assert_eq!(lengths, [HEADERS + 11 * MSS; 2]);
    for frame in batch.iter() {
        let gso = frame.offload().gso.unwrap();
        assert_eq!(usize::from(gso.size), MSS);
    }
    left.assert_lawful();
}

/// What is passed on is what a sender leaves to a tap: it can be cut in software, too.
#[test]
fn software_cuts_them_as_well() {
    let (mut left, _) = Port::two("");
    let mut flow = Flow::new(1, true);
    for len in [2 * MSS, 20_000, PAYLOAD_MAX] {
        left.arrives(flow.packet(&vec![len as u8; len], true));
    }
    (0..4).for_each(|_| left.turn(HELD_NANOSECONDS));
    for frame in left.receive().iter() {
        let gso = frame.offload().gso.unwrap();
        let mut cut = segments(frame.bytes(), gso).unwrap();
        let mut segment = vec![0; gso.segment_bytes()];
        while let Some(length) = cut.next(&mut segment) {
            flow.take(&segment[..length]);
        }
    }
    assert!(flow.sent == flow.received);
    left.assert_lawful();
}

/// An acknowledgement carries nothing that could be cut again, and each one counts.
#[test]
fn acknowledgements_are_left_alone() {
    let (mut left, _) = Port::two("");
    let acknowledgement = Flow::new(1, false).packet(&[], false);
    for _ in 0..30 {
        left.arrives(acknowledgement.clone());
    }
    (0..4).for_each(|_| left.turn(HELD_NANOSECONDS));
    let batch = left.receive();
    assert_eq!(batch.len(), 30);
    assert!(batch.iter().all(|frame| !frame.has_offload()));
    left.assert_lawful();
}

/// Nobody polls: the device says that there is something, and then all of it is there.
#[test]
fn whoever_sleeps_is_woken_up() {
    let (mut left, _) = Port::two("");
    let mut flow = Flow::new(1, false);
    for count in 1..8 {
        left.device.device().take_interrupts();
        assert!(!left.driver.arm(), "there is none");
        left.arrives(flow.packet(&vec![count as u8; count * MSS], false));
        let mut interrupted = 0;
        for _ in 0..HELD_NANOSECONDS / 1000 {
            left.turn(1000);
            interrupted |= left.device.device().take_interrupts();
        }
        assert_eq!(interrupted, 1, "the first vector");
        let lengths: Vec<_> = left.receive().iter().map(Frame::len).collect();
        assert_eq!(lengths, [HEADERS + count * MSS]);
    }
    left.assert_lawful();
}

/// The devices have what is in their rings, and nobody anything else.
#[track_caller]
fn assert_owned(pool: Pool, how: &str) {
    let lent = BUFFERS - pool.free();
    assert!((RING..=2 * RING).contains(&lent), "{how}: {lent} buffers");
}

#[test]
fn no_fault_costs_a_buffer() {
    let faults = [
        "length",
        "status",
        "garbage",
        "joined",
        "early-done",
        "skip",
        "lost-interrupt",
        "wild-write",
        "gone",
    ];
    for how in faults.map(|fault| [5, 500].map(|one_in| format!("seed=9,{fault}={one_in}"))) {
        for how in how {
            soak(&how);
        }
    }
}

fn soak(how: &str) -> NicCounts {
    let (mut left, mut right) = Port::two(how);
    let mut flow = Flow::new(1, false);
    for number in 0..1000 {
        left.arrives(flow.packet(&[number as u8; 15 * MSS], number % 7 == 0));
        left.arrives((udp(number), Offload::default()));
        left.turn(HELD_NANOSECONDS);
        let mut batch = left.receive();
        assert!(batch.iter().all(|frame| frame.len() <= 16 << 10), "{how}");
        right.driver.transmit(&mut batch);
        right.turn(1000);
        for frame in right.sent() {
            assert!(frame.len() <= 1518, "{how}: {} bytes", frame.len());
        }
        if number % 10 == 0 {
            left.tend();
            right.tend();
        }
    }
    assert_eq!(right.driver.counts().resets, 0, "{how}");
    right.assert_lawful();
    assert_owned(left.pool, how);
    assert_owned(right.pool, how);
    *left.driver.counts()
}

/// A datagram is no segment, and a large frame is no small one.
#[test]
fn a_count_that_lies_is_found_out() {
    let counts = soak("seed=4,joined=5");
    assert!(counts.rx_error > 0 && counts.rx_lie > 0, "{counts:?}");
}
