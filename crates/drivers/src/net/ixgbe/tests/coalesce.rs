//! Coalesced frames, and a device that lies about them.

use super::*;
use device::segments;

const COALESCE: Config = Config::COALESCE;
const MSS: usize = 1448;
/// As many segments as fill a buffer.
const COUNT: usize = 11;

impl Bench {
    /// Delivers a frame of which the device says that it was `count`, and with these bits of status
    /// besides.
    fn deliver_coalesced(&mut self, bytes: &[u8], count: usize, bits: u64) {
        assert!(self.puppet.deliver(bytes).unwrap());
        let packet = (count as u64 + 1) << RX_PACKET_RSCCNT_SHIFT;
        let status = RX_DD | RX_EOP | bits | (bytes.len() as u64) << RX_LENGTH_SHIFT;
        self.puppet
            .scribble_receive(usize::MAX, [packet, status])
            .unwrap();
    }
}

/// What a device makes of segments: the checksum of one of them is left in the frame.
fn coalesced(payload: usize) -> Vec<u8> {
    let mut frame = tcp(payload);
    for (at, byte) in frame[54..].iter_mut().enumerate() {
        *byte = (at * 7 + at / 251) as u8;
    }
    frame[50..52].copy_from_slice(&[0x12, 0x34]);
    frame
}

#[test]
fn a_coalesced_frame_says_how_it_is_to_be_cut() {
    let mut bench = Bench::with(COALESCE);
    let frame = coalesced(COUNT * MSS - 100);
    for _ in 0..2 * RX {
        bench.deliver_coalesced(&frame, COUNT, 0);
        let mut batch = bench.receive();
        let received = batch.iter().next().unwrap();
        let offload = received.offload();
        let gso = offload.gso.unwrap();
        assert_eq!(offload.checksum, Some(TCP_AT));
        assert_eq!((gso.kind, gso.header, gso.ecn), (GsoKind::TcpV4, 54, false));
        assert_eq!(usize::from(gso.size), (frame.len() - 54).div_ceil(COUNT));
        assert_eq!(received.bytes()[54..], frame[54..]);
        let mut cut = segments(received.bytes(), gso).unwrap();
        let mut segment = [0; 1514];
        let mut stream = Vec::new();
        while let Some(length) = cut.next(&mut segment) {
            stream.extend_from_slice(&segment[54..length]);
        }
        assert_eq!(stream, frame[54..]);

        // It goes on as it is, to be cut by the next device.
        bench.nic.transmit(&mut batch);
        let sent = bench.puppet.drain().unwrap();
        let [.., first, last] = sent.as_slice() else {
            panic!("a frame in two parts");
        };
        assert_eq!(first[1] >> TX_PAYLEN_SHIFT, frame.len() as u64 - 54);
        assert_eq!((first[1] & 0xffff) + (last[1] & 0xffff), frame.len() as u64);
        assert_eq!(last[1] & (TX_EOP | TX_TSE), TX_EOP | TX_TSE);
    }
    bench.tend();
    assert_eq!(bench.pool.free(), BUFFERS - RX);
    assert_eq!(bench.nic.counts().tx_no_room, 0);
    bench.works();
}

#[test]
fn what_was_not_coalesced_is_as_it_came() {
    let mut bench = Bench::with(COALESCE);
    for count in [0, 1] {
        let frame = coalesced(MSS);
        bench.deliver_coalesced(&frame, count, 0);
        let batch = bench.receive();
        let received = batch.iter().next().unwrap();
        assert!(!received.has_offload() && received.bytes() == frame);
    }
    bench.works();
}

#[test]
fn a_batch_of_coalesced_frames_is_full_by_bytes() {
    let mut bench = Bench::with(COALESCE);
    let frame = coalesced(COUNT * MSS);
    for _ in 0..RX - 1 {
        bench.deliver_coalesced(&frame, COUNT, 0);
    }
    let full = device::BATCH_BYTES_MAX.div_ceil(frame.len());
    assert_eq!(bench.receive().len(), full);
    assert_eq!(bench.receive().len(), full);
    // Small ones are as many as without.
    let mut bench = Bench::with(COALESCE);
    for _ in 0..RX - 1 {
        assert!(bench.puppet.deliver(&[1; 60]).unwrap());
    }
    assert_eq!(bench.receive().len(), RX - 1);
}

#[test]
fn a_frame_that_cannot_have_been_coalesced_is_an_error() {
    let good = coalesced(3 * MSS);
    let edited = |edits: &[(usize, u8)]| {
        let mut frame = good.clone();
        edits.iter().for_each(|&(at, byte)| frame[at] = byte);
        frame
    };
    let cases = [
        (edited(&[(23, 17)]), 0, "UDP"),
        (edited(&[(12, 0x86), (13, 0xdd)]), 0, "no IPv4"),
        (edited(&[(14, 0x44)]), 0, "IP header too short"),
        (edited(&[(16, 0)]), 0, "IP length"),
        (edited(&[(20, 0x20)]), 0, "a fragment"),
        (edited(&[(46, 0x40)]), 0, "TCP header too short"),
        (good[..good.len() - 1].to_vec(), 0, "cut off"),
        (good[..60].to_vec(), 0, "no payload"),
        (tcp(2), 0, "fewer bytes than segments"),
        (tcp(0), 0, "only headers"),
        (vec![0xff; 14], 0, "an Ethernet header"),
        (good.clone(), RX_L4E, "TCP checksum"),
        (good.clone(), RX_IPE, "IP checksum"),
        (good.clone(), RX_RXE, "MAC"),
    ];
    let mut bench = Bench::with(COALESCE);
    for (number, (frame, bits, what)) in cases.into_iter().enumerate() {
        bench.deliver_coalesced(&frame, 3, bits);
        assert!(bench.receive().is_empty(), "{what}");
        assert_eq!(bench.nic.counts().rx_error, number as u64 + 1, "{what}");
    }
    assert_eq!(bench.nic.counts().rx_lie, 0);
    assert_eq!(bench.pool.free(), BUFFERS - RX);
    bench.works();
}

#[test]
fn segments_are_no_larger_than_the_wire_of_the_device_has_them() {
    let mut bench = Bench::with(COALESCE);
    let frame = coalesced(COUNT * MSS);
    // One fewer than there can have been.
    bench.deliver_coalesced(&frame, 2, 0);
    let batch = bench.receive();
    let gso = batch.iter().next().unwrap().offload().gso.unwrap();
    assert_eq!(gso.segment_bytes(), 1514);
}

#[test]
fn a_length_that_nobody_coalesced_is_a_lie() {
    let length = |bytes: u64| RX_DD | RX_EOP | bytes << RX_LENGTH_SHIFT;
    let coalesced = 5 << RX_PACKET_RSCCNT_SHIFT;
    for (packet, status) in [
        (0, length(2049)),
        (1 << RX_PACKET_RSCCNT_SHIFT, length(16_000)),
        (coalesced, length(16_385)),
        (coalesced, length(13)),
        (coalesced, length(0xffff)),
        (coalesced, RX_DD | 3000 << RX_LENGTH_SHIFT),
        (u64::MAX, length(16_385)),
    ] {
        let mut bench = Bench::with(COALESCE);
        bench.puppet.scribble_receive(0, [packet, status]).unwrap();
        assert!(bench.receive().is_empty(), "{packet:#x} {status:#x}");
        assert_eq!(bench.nic.counts().rx_lie, 1, "{packet:#x} {status:#x}");
        bench.recover();
        bench.works();
    }
}

/// A frame that is being coalesced keeps its descriptor while others pass, but not for long.
#[test]
fn a_descriptor_that_is_kept_for_a_while_is_no_lie() {
    let status = RX_DD | RX_EOP | 60 << RX_LENGTH_SHIFT;
    let mut bench = Bench::with(COALESCE);
    bench.puppet.scribble_receive(1, [0, status]).unwrap();
    bench.tend();
    assert!(bench.receive().is_empty());
    bench.puppet.scribble_receive(0, [0, status]).unwrap();
    assert_eq!(bench.receive().len(), 2);
    bench.puppet.scribble_receive(3, [0, status]).unwrap();
    bench.tend();
    assert_eq!(bench.nic.counts().rx_lie, 0);
    bench.recover();
    assert_eq!(bench.nic.counts().rx_lie, 1);
    bench.works();
}

#[test]
fn coalescing_is_set_up_where_it_is_asked_for() {
    let plain = Bench::new();
    assert_eq!(plain.puppet.get(RFCTL) & RFCTL_RSC_DIS, RFCTL_RSC_DIS);
    assert_eq!(plain.puppet.get(RSCCTL), 0);
    assert_eq!(plain.puppet.get(EITR), 0);
    assert_eq!(plain.puppet.get(SRRCTL) & 0x1f, 2);
    let bench = Bench::with(COALESCE);
    assert_eq!(bench.puppet.get(RFCTL) & RFCTL_RSC_DIS, 0);
    assert_eq!(bench.puppet.get(RSCCTL), RSCCTL_ENABLE);
    assert_eq!(bench.puppet.get(RSCDBU), RSCDBU_ACK_DIS);
    assert_eq!(bench.puppet.get(PSRTYPE), PSRTYPE_TCP);
    assert_eq!(bench.puppet.get(EITR), EITR_COALESCE);
    assert_eq!(bench.puppet.get(SRRCTL) & 0x1f, 16);
    assert!(bench.puppet.get(SRRCTL) >> 8 & 0x3f >= 2, "128 bytes");
}

#[test]
fn buffers_have_to_be_large() {
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES);
    let pool = Pool::dma(&mut arena, BUFFERS, BUFFER_BYTES).unwrap();
    let nic = Driver::<RX, TX>::new(bar, &mut arena, pool, COALESCE, puppet.clock());
    let (wanted, found) = (16 << 10, 2048);
    assert_eq!(nic.err(), Some(Error::BufferSize { wanted, found }));
}

#[test]
fn what_it_says_to_take_of_the_dma_memory_suffices() {
    let (puppet, bar, mut arena) = Puppet::new(COALESCED_DMA_BYTES);
    let pool = Pool::dma(&mut arena, COALESCED_BUFFERS, COALESCED_BUFFER_BYTES).unwrap();
    type Coalescing = Driver<COALESCED_RING, COALESCED_RING>;
    assert!(Coalescing::new(bar, &mut arena, pool, COALESCE, puppet.clock()).is_ok());
}

proptest! {
    /// Whatever the device says of a frame, and whatever is in it, is passed on or refused.
    #[test]
    fn no_coalesced_frame_makes_it_panic(
        frames in prop::collection::vec((
            0..16_384usize, 0..15usize, prop::collection::vec((0..60usize, any::<u8>()), 0..3),
            prop_oneof![4 => Just(0u64), 1 => any::<u64>()],
        ), 1..20),
    ) {
        let mut bench = Bench::with(COALESCE);
        for (length, count, edits, bits) in frames {
            let mut frame = coalesced(length.saturating_sub(54));
            frame.resize(length.max(1), 0);
            for (at, byte) in edits {
                if let Some(place) = frame.get_mut(at) {
                    *place = byte;
                }
            }
            bench.deliver_coalesced(&frame, count, bits & (RX_L4E | RX_IPE | RX_RXE));
            let mut batch = bench.receive();
            for received in batch.iter() {
                prop_assert!(received.len() <= frame.len());
                if let Some(gso) = received.offload().gso {
                    prop_assert!(gso.segment_bytes() <= 1500 + 14 + 8);
                    prop_assert!(segments(received.bytes(), gso).is_some());
                }
            }
            bench.nic.transmit(&mut batch);
            bench.puppet.drain().unwrap();
            if bench.nic.state != State::Running {
                bench.now += HEALTHY_NANOSECONDS;
                bench.recover();
            }
        }
        bench.tend();
        prop_assert_eq!(bench.pool.free(), BUFFERS - RX);
    }
}
