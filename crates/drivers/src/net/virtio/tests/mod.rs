//! The driver against a puppet.

mod large;
mod lies;

use super::puppet::{MAC, PLAIN, Puppet};
use super::registers::*;
use super::*;
use crate::net::recovery::{HANG_NANOSECONDS, RESETS_MAX};
use crate::virtio::Either;
use crate::virtio::feature;
use crate::virtio::mmio::Mmio;
use crate::virtio::pci::Pci;
use alloc::vec;
use alloc::vec::Vec;
use device::virtio::HEADER_SIZE as VIRTIO_BYTES;
use device::{Checksum, Frame, Gso, GsoKind, Offload, TEND_NANOSECONDS};

const N: usize = 64;
/// What both rings hold, and a batch.
const COUNT: usize = 3 * N;
const DMA_BYTES: usize = COUNT * (BUFFER_BYTES + 64) + 6 * 4096;

/// A driver and the device's end.
struct Bench<T: Transport = Pci> {
    puppet: Puppet,
    nic: Driver<T, N>,
    pool: Pool,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| ())
    }

    /// With a device that was changed before its driver sees it.
    fn with(change: impl FnOnce(&Puppet)) -> Self {
        Self::try_with(change).unwrap()
    }

    fn try_with(change: impl FnOnce(&Puppet)) -> Result<Self, Error> {
        let (puppet, transport, mut arena) = Puppet::new(DMA_BYTES);
        change(&puppet);
        let pool = Pool::dma(&mut arena, COUNT, BUFFER_BYTES).unwrap();
        Self::over(puppet, transport, &mut arena, pool, Config::FORWARD)
    }
}

/// The same over memory-mapped registers.
fn mmio() -> Bench<Either> {
    let (puppet, registers, mut arena) = Puppet::mmio(DMA_BYTES);
    let transport = Either::Mmio(Mmio::new(registers));
    let pool = Pool::dma(&mut arena, COUNT, BUFFER_BYTES).unwrap();
    Bench::over(puppet, transport, &mut arena, pool, Config::FORWARD).unwrap()
}

impl<T: Transport> Bench<T> {
    fn over(
        puppet: Puppet,
        transport: T,
        arena: &mut DmaArena,
        pool: Pool,
        config: Config,
    ) -> Result<Self, Error> {
        let nic = Driver::new(transport, arena, pool, config, puppet.clock())?;
        let now = 0;
        Ok(Self {
            puppet,
            nic,
            pool,
            now,
        })
    }

    fn receive(&mut self) -> Batch {
        let mut batch = Batch::new();
        self.nic.receive(&mut batch);
        batch
    }

    fn tend(&mut self) {
        self.now += TEND_NANOSECONDS;
        self.nic.tend(self.now);
    }

    fn frame(&self, bytes: &[u8]) -> Frame {
        let mut frame = self.pool.alloc(bytes.len()).unwrap();
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }

    fn send(&mut self, frames: impl IntoIterator<Item = Frame>) -> Sent {
        let mut batch = Batch::new();
        for frame in frames {
            batch.push(frame).unwrap();
        }
        let sent = self.nic.transmit(&mut batch);
        assert!(batch.is_empty());
        sent
    }

    /// Frames pass both ways.
    fn works(&mut self) {
        for number in 0..2 * N {
            let frame = bytes(60 + number, number as u8);
            assert!(self.puppet.deliver(PLAIN, &frame).unwrap());
            let mut batch = self.receive();
            assert_eq!(batch.len(), 1, "frame {number}");
            assert_eq!(batch.iter().next().unwrap().bytes(), frame);
            let sent = self.nic.transmit(&mut batch);
            assert_eq!((sent.frames, sent.bytes), (1, frame.len() as u64));
            let [sent] = &self.puppet.drain().unwrap()[..] else {
                panic!("not one frame");
            };
            let (header, rest) = sent.split_first_chunk::<VIRTIO_BYTES>().unwrap();
            assert_eq!((header, rest), (&[0; VIRTIO_BYTES], &frame[..]));
        }
        assert_eq!(self.nic.link(), Some(10_000));
    }

    /// The device is reset, and works again.
    fn recover(&mut self) {
        let resets = self.nic.counts().resets;
        for _ in 0..3 {
            self.tend();
        }
        assert_eq!(self.nic.counts().resets, resets + 1);
        self.works();
    }

    /// Buffers that nobody holds, once all frames are sent.
    fn free(&mut self) -> usize {
        self.puppet.drain().unwrap();
        self.tend();
        self.pool.free()
    }
}

/// Bytes of a frame that is no IP.
fn bytes(length: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| seed.wrapping_mul(31).wrapping_add(at as u8);
    let mut bytes: Vec<_> = (0..length).map(byte).collect();
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

/// An IPv4 packet of TCP with so much payload.
fn tcp(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 54 + payload];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&(40 + payload as u16).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 6]);
    frame[46] = 0x50;
    for (at, byte) in frame[54..].iter_mut().enumerate() {
        *byte = (at * 7 + at / 251) as u8;
    }
    frame
}

/// Where its checksum is.
const TCP_AT: Checksum = Checksum {
    start: 34,
    offset: 16,
};

/// The header of a frame whose checksum is to be completed, and which is to be cut into segments of
/// `size`, unless that is 0.
fn header(size: u16) -> [u8; VIRTIO_BYTES] {
    let gso = (size > 0).then_some(Gso {
        kind: GsoKind::TcpV4,
        size,
        header: 54,
        ecn: false,
    });
    let checksum = Some(TCP_AT);
    let mut header = device::virtio::emit(Offload { checksum, gso });
    header[10] = 1;
    header
}

#[test]
fn frames_pass_both_ways_over_either_transport() {
    Bench::new().works();
    mmio().works();
}

#[test]
fn a_device_is_brought_up_as_the_specification_says() {
    let bench = Bench::new();
    let device = bench.puppet.device();
    assert_eq!(*device.statuses.borrow(), [0, 1, 3, 11, 15]);
    let [receive, transmit, _] = *device.queues.borrow();
    assert!(receive.enabled && transmit.enabled);
    assert_eq!((receive.vector, transmit.vector), (0, 0xffff));
    assert_eq!(bench.puppet.available(0).unwrap(), N);
    assert_eq!((bench.nic.mac(), bench.nic.mtu()), (MAC, 1500));
    let all = Offloads {
        checksum: true,
        tso: true,
        uso: false,
    };
    assert_eq!(bench.nic.offloads(), all);
    // Nothing large is wanted.
    let accepted = device.accepted.get();
    assert_eq!(accepted & (GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN), 0);
    let wanted = feature::VERSION_1 | feature::ACCESS_PLATFORM | feature::EVENT_IDX;
    assert_eq!(accepted & wanted, wanted);
    assert_eq!(bench.pool.free(), COUNT - N);
}

#[test]
fn a_device_that_can_do_little_is_left_little() {
    for (offered, checksum, tso) in [
        (0, false, false),
        (CSUM, true, false),
        (CSUM | HOST_TSO4, true, false),
        (HOST_TSO4 | HOST_TSO6 | HOST_ECN, false, false),
        (CSUM | HOST_TSO4 | HOST_TSO6 | HOST_ECN, true, true),
    ] {
        let base = HAS_MAC | HAS_STATUS | feature::VERSION_1 | feature::ACCESS_PLATFORM;
        let mut bench = Bench::with(|puppet| puppet.device().offered.set(base | offered));
        let found = bench.nic.offloads();
        assert_eq!((found.checksum, found.tso), (checksum, tso), "{offered:#x}");
        assert_eq!(bench.nic.link(), Some(0), "no speed is known");
        bench.puppet.deliver(PLAIN, &bytes(60, 1)).unwrap();
        assert_eq!(bench.receive().len(), 1);
    }
}

#[test]
fn what_a_device_says_of_itself_is_checked() {
    let refused = |change: fn(&Puppet)| Bench::try_with(change).err().unwrap();
    let group = refused(|puppet| puppet.set_config(0, 0x0101));
    assert!(matches!(group, Error::Mac([1, 1, ..])));
    let none = refused(|puppet| puppet.device().config.borrow_mut()[..6].fill(0));
    assert_eq!(none, Error::Mac([0; 6]));
    let no_mac = refused(|puppet| {
        let offered = puppet.device().offered.get();
        puppet.device().offered.set(offered & !HAS_MAC);
    });
    assert_eq!(no_mac, Error::Virtio(virtio::Error::Features(HAS_MAC)));
    let tiny = refused(|puppet| {
        let offered = puppet.device().offered.get();
        puppet.device().offered.set(offered | HAS_MTU);
        puppet.set_config(MTU.offset(), 67);
    });
    assert_eq!(tiny, Error::Mtu(67));
    let small = refused(|puppet| puppet.device().size_max.set(32));
    let found = 32;
    let small_queue = virtio::Error::Queue { number: 0, found };
    assert_eq!(small, Error::Virtio(small_queue));
}

#[test]
fn the_smaller_mtu_holds() {
    for (says, holds) in [(1280, 1280), (1500, 1500), (9000, 1500), (u16::MAX, 1500)] {
        let bench = Bench::with(|puppet| {
            let offered = puppet.device().offered.get();
            puppet.device().offered.set(offered | HAS_MTU);
            puppet.set_config(MTU.offset(), says);
        });
        assert_eq!(bench.nic.mtu(), holds, "{says}");
        // Who accepts it, promises buffers for it.
        let accepted = bench.puppet.device().accepted.get() & HAS_MTU != 0;
        assert_eq!(accepted, says <= 1500, "{says}");
    }
}

#[test]
fn buffers_have_to_be_large_enough() {
    let (puppet, transport, mut arena) = Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, COUNT, HEADROOM + 1500).unwrap();
    let found = Bench::over(puppet, transport, &mut arena, pool, Config::FORWARD);
    let (wanted, found_bytes) = (1522, 1500);
    let error = Error::BufferSize {
        wanted,
        found: found_bytes,
    };
    assert_eq!(found.err(), Some(error));
    let (puppet, transport, mut arena) = Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, N - 1, BUFFER_BYTES).unwrap();
    let found = Bench::over(puppet, transport, &mut arena, pool, Config::FORWARD);
    assert_eq!(found.err(), Some(Error::Buffers));
}

#[test]
fn a_batch_is_received_and_its_buffers_are_offered_again() {
    let mut bench = Bench::new();
    for round in 0..20 {
        for number in 0..N {
            let frame = bytes(60 + number, round);
            assert!(bench.puppet.deliver(PLAIN, &frame).unwrap());
        }
        assert!(!bench.puppet.deliver(PLAIN, &[0; 60]).unwrap(), "no buffer");
        let batch = bench.receive();
        assert_eq!(batch.len(), N);
        let lengths = batch.iter().map(Frame::len);
        assert!(lengths.eq(60..60 + N));
        assert_eq!(bench.puppet.available(0).unwrap(), N);
    }
    assert_eq!(bench.nic.counts().polls_busy, 20);
    assert!(bench.receive().is_empty());
    assert_eq!(bench.nic.counts().polls_idle, 1);
}

#[test]
fn frames_of_every_length_that_fits_are_received() {
    let mut bench = Bench::new();
    for length in [14, 60, 1514, 1522, 2048] {
        assert!(bench.puppet.deliver(PLAIN, &bytes(length, 3)).unwrap());
        let batch = bench.receive();
        assert_eq!(batch.iter().next().unwrap().bytes(), bytes(length, 3));
    }
}

#[test]
fn without_a_free_buffer_frames_wait() {
    let mut bench = Bench::new();
    let kept: Vec<_> = std::iter::from_fn(|| bench.pool.alloc(60)).collect();
    bench.puppet.deliver(PLAIN, &bytes(60, 1)).unwrap();
    assert!(bench.receive().is_empty());
    assert_eq!(bench.nic.counts().no_buffer, 1);
    drop(kept);
    assert_eq!(bench.receive().len(), 1);
    bench.works();
}

#[test]
fn frames_for_which_there_is_no_room_are_counted() {
    let mut bench = Bench::new();
    let frames: Vec<_> = (0..N).map(|n| bench.frame(&bytes(60, n as u8))).collect();
    assert_eq!(bench.send(frames).frames, N as u64);
    let more = bench.frame(&bytes(60, 7));
    assert_eq!(bench.send([more]), Sent::default());
    assert_eq!(bench.nic.counts().tx_no_room, 1);
    assert!(bench.nic.needs_tend());
    assert_eq!(bench.free(), COUNT - N);
    bench.works();
}

#[test]
fn sent_frames_come_back_in_any_order() {
    let mut bench = Bench::new();
    for round in 0..40 {
        let frames: Vec<_> = (0..9).map(|n| bench.frame(&bytes(60, n))).collect();
        let sent = bench.send(frames);
        assert_eq!(
            sent.frames + bench.nic.counts().tx_no_room,
            9 * (round + 1) - 9 * round
        );
        let mut heads = Vec::new();
        while let Some((head, _)) = bench.puppet.fetch(1).unwrap() {
            heads.push(head);
        }
        heads.reverse();
        for head in heads {
            bench.puppet.give_back(1, head, 0).unwrap();
        }
    }
    assert_eq!(bench.free(), COUNT - N);
    assert_eq!(bench.nic.counts().rx_lie, 0);
    bench.works();
}

#[test]
fn a_buffer_that_is_late_keeps_its_slot() {
    let mut bench = Bench::new();
    let first: Vec<_> = (0..2).map(|n| bench.frame(&bytes(60, n))).collect();
    bench.send(first);
    let (late, _) = bench.puppet.fetch(1).unwrap().unwrap();
    let (head, _) = bench.puppet.fetch(1).unwrap().unwrap();
    bench.puppet.give_back(1, head, 0).unwrap();
    // All others go round until the slot of the late one is next.
    for _ in 0..N - 2 {
        let frame = bench.frame(&bytes(60, 1));
        assert_eq!(bench.send([frame]).frames, 1);
        let (head, _) = bench.puppet.fetch(1).unwrap().unwrap();
        bench.puppet.give_back(1, head, 0).unwrap();
    }
    let frame = bench.frame(&bytes(60, 1));
    assert_eq!(bench.send([frame]), Sent::default());
    assert_eq!(bench.nic.counts().tx_no_room, 1);
    bench.puppet.give_back(1, late, 0).unwrap();
    assert_eq!(bench.free(), COUNT - N);
    bench.works();
}

#[test]
fn received_buffers_come_back_in_any_order() {
    let mut bench = Bench::new();
    for round in 0..30 {
        let mut given = Vec::new();
        for number in 0..8u8 {
            let (head, buffers) = bench.puppet.fetch(0).unwrap().unwrap();
            let frame = [&PLAIN[..], &bytes(60, number)].concat();
            bench.puppet.view().write(buffers[0].0, &frame).unwrap();
            given.push((head, number));
        }
        given.rotate_left(round % 8);
        given.swap(0, 3);
        for (head, _) in &given {
            bench.puppet.give_back(0, *head, 72).unwrap();
        }
        let batch = bench.receive();
        let expected = given.iter().map(|(_, number)| bytes(60, *number));
        assert!(
            batch
                .iter()
                .map(|frame| frame.bytes().to_vec())
                .eq(expected)
        );
    }
    assert_eq!(bench.nic.counts().rx_lie, 0);
    assert_eq!(bench.puppet.available(0).unwrap(), N);
    bench.works();
}

#[test]
fn frames_that_cannot_be_sent_are_refused() {
    let mut bench = Bench::new();
    let runt = bench.frame(&[0; 13]);
    assert_eq!(bench.send([runt]), Sent::default());
    let plain = Pool::new(vec![0; 4096].leak(), 2048);
    assert_eq!(bench.send([plain.alloc(60).unwrap()]), Sent::default());
    let mut full = bench.frame(&bytes(60, 1));
    full.push_front(HEADROOM - VIRTIO_BYTES + 1).unwrap();
    assert_eq!(bench.send([full]), Sent::default());
    assert_eq!(bench.nic.counts().tx_refused, 3);
    assert_eq!(bench.pool.free(), COUNT - N);
    bench.works();
}

#[test]
fn short_frames_are_padded_with_zeros() {
    let mut bench = Bench::new();
    for length in [14, 42, 59, 60] {
        // What was in the buffer before stays here.
        drop(bench.frame(&[0xee; 100]));
        let frame = bench.frame(&bytes(length, 5));
        let sent = bench.send([frame]);
        assert_eq!((sent.frames, sent.bytes), (1, length as u64));
        let sent = bench.puppet.drain().unwrap().remove(0);
        let mut expected = bytes(length, 5);
        expected.resize(60, 0);
        assert_eq!(sent[VIRTIO_BYTES..], expected);
    }
    bench.works();
}

#[test]
fn checksums_and_segmentation_are_left_to_a_device_that_can() {
    let offload = |size| device::virtio::parse(&header(size), &tcp(1000)).unwrap();
    let mut bench = Bench::new();
    for size in [0, 100] {
        let mut frame = bench.frame(&tcp(1000));
        frame.set_offload(offload(size));
        assert_eq!(bench.send([frame]).frames, 1);
        let sent = bench.puppet.drain().unwrap().remove(0);
        let (found, rest) = sent.split_first_chunk::<VIRTIO_BYTES>().unwrap();
        assert_eq!((&found[..10], rest), (&header(size)[..10], &tcp(1000)[..]));
    }
    // What it cannot, is done here or refused.
    let base = HAS_MAC | HAS_STATUS | feature::VERSION_1 | feature::ACCESS_PLATFORM;
    let mut bench = Bench::with(|puppet| puppet.device().offered.set(base));
    let mut frame = bench.frame(&tcp(1000));
    frame.set_offload(offload(0));
    assert_eq!(bench.send([frame]).frames, 1);
    let sent = bench.puppet.drain().unwrap().remove(0);
    assert_eq!(sent[..VIRTIO_BYTES], [0; VIRTIO_BYTES]);
    let mut expected = tcp(1000);
    offload(0).complete_checksum(&mut expected);
    assert_eq!(sent[VIRTIO_BYTES..], expected);
    let mut frame = bench.frame(&tcp(1000));
    frame.set_offload(offload(100));
    assert_eq!(bench.send([frame]), Sent::default());
    assert_eq!(bench.nic.counts().tx_refused, 1);
}

#[test]
fn the_link_is_what_the_device_says() {
    let mut bench = Bench::new();
    assert!(!bench.nic.needs_tend());
    bench.puppet.set_link(false);
    bench.tend();
    assert_eq!(bench.nic.link(), None);
    assert!(bench.nic.needs_tend());
    let frame = bench.frame(&bytes(60, 1));
    assert_eq!(bench.send([frame]), Sent::default());
    assert_eq!(bench.nic.counts().tx_link_down, 1);
    bench.puppet.set_link(true);
    bench.tend();
    bench.works();
    assert_eq!(bench.nic.counts().resets, 0);
}

#[test]
fn an_interrupt_is_armed_behind_what_was_seen() {
    let mut bench = Bench::new();
    assert!(!bench.nic.arm());
    assert_eq!(bench.puppet.wants(0).unwrap(), (0, 0));
    bench.puppet.deliver(PLAIN, &bytes(60, 1)).unwrap();
    assert!(bench.nic.arm(), "there is a frame");
    assert_eq!(bench.receive().len(), 1);
    assert!(!bench.nic.arm());
    assert_eq!(bench.puppet.wants(0).unwrap(), (0, 1));
}

#[test]
fn at_work_no_register_is_touched_but_doorbells() {
    let mut bench = mmio();
    let before = bench.puppet.device().accesses.get();
    assert!(before > 0, "it was brought up");
    bench.works();
    bench.nic.arm();
    bench.works();
    assert_eq!(bench.puppet.device().accesses.get(), before);
}

#[test]
fn the_device_is_told_when_it_wants_to_know() {
    let mut bench = Bench::new();
    let device = bench.puppet.device();
    assert!(device.has_rung(0) && !device.has_rung(1));
    let frame = bench.frame(&bytes(60, 1));
    bench.send([frame]);
    assert!(bench.puppet.device().has_rung(1));
    bench.puppet.set_event(1, 5).unwrap();
    for expected in [false, false, false, false, true, false] {
        let frame = bench.frame(&bytes(60, 1));
        bench.send([frame]);
        assert_eq!(bench.puppet.device().has_rung(1), expected);
    }
}
