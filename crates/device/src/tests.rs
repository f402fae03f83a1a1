//! Checksums, segmentation and virtio-net headers, with etherparse as an independent reader.

use crate::offload::{Checksum, Gso, GsoKind, Offload};
use crate::virtio::{self, BadHeader, GSO_SIZE_MIN, HEADER_SIZE};
use crate::{Batch, Netif, SEGMENT_HEADER_MAX, coalesced, segments};
use etherparse::{
    NetSlice, PacketBuilder, SingleVlanHeader, SlicedPacket, TcpHeader, TransportSlice, VlanId,
};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// A frame as a sender with offloads leaves it, and what is left to do.
#[derive(Clone, Debug)]
struct Sent {
    frame: Vec<u8>,
    header: usize,
    start: usize,
    payload: Vec<u8>,
}

/// Shape of a generated TCP packet.
#[derive(Clone, Copy, Debug)]
struct Shape {
    vlan: bool,
    ipv6: bool,
    options: usize,
    flags: u8,
    sequence: u32,
    ports: (u16, u16),
}

fn shape() -> impl Strategy<Value = Shape> {
    let ports = (any::<u16>(), any::<u16>());
    (
        any::<bool>(),
        any::<bool>(),
        0..11usize,
        any::<u8>(),
        any::<u32>(),
        ports,
    )
        .prop_map(|(vlan, ipv6, words, flags, sequence, ports)| Shape {
            vlan,
            ipv6,
            options: 4 * words,
            flags,
            sequence,
            ports,
        })
}

/// Writes `value` big-endian.
fn put(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Sum of the pseudo header by the book: addresses, protocol, length.
fn pseudo_sum(addresses: &[u8], protocol: u8, len: usize) -> u16 {
    let words = addresses
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum = words.sum::<u32>() + u32::from(protocol) + len as u32;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn tcp(shape: Shape, payload: Vec<u8>) -> Sent {
    let link = if shape.vlan { 18 } else { 14 };
    let ip = if shape.ipv6 { 40 } else { 20 };
    let mut tcp = TcpHeader::new(shape.ports.0, shape.ports.1, shape.sequence, 1000);
    tcp.set_options_raw(&vec![1; shape.options]).unwrap();

    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frame = Vec::new();
    macro_rules! write {
        ($link:expr) => {
            if shape.ipv6 {
                let builder = $link.ipv6([3; 16], [4; 16], 64).tcp_header(tcp);
                builder.write(&mut frame, &payload).unwrap();
            } else {
                let builder = $link.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp_header(tcp);
                builder.write(&mut frame, &payload).unwrap();
            }
        };
    }
    if shape.vlan {
        let tag = SingleVlanHeader {
            vlan_id: VlanId::try_new(7).unwrap(),
            ..SingleVlanHeader::default()
        };
        write!(ethernet.vlan(etherparse::VlanHeader::Single(tag)));
    } else {
        write!(ethernet);
    }
    let start = link + ip;
    frame[start + 13] = shape.flags;
    let addresses = if shape.ipv6 {
        link + 8..link + 40
    } else {
        link + 12..link + 20
    };
    let sum = pseudo_sum(&frame[addresses], 6, frame.len() - start);
    put(&mut frame, start + 16, sum);
    Sent {
        header: start + 20 + shape.options,
        frame,
        start,
        payload,
    }
}

impl Sent {
    fn offload(&self, size: u16, ipv6: bool) -> Offload {
        Offload {
            checksum: Some(Checksum {
                start: self.start as u16,
                offset: 16,
            }),
            gso: Some(Gso {
                kind: if ipv6 { GsoKind::TcpV6 } else { GsoKind::TcpV4 },
                size,
                header: self.header as u16,
                ecn: false,
            }),
        }
    }
}

/// What etherparse reads from a frame, having verified its checksums: 0 and 0xffff are one number
/// in one's complement.
struct Received {
    tcp: TcpHeader,
    identification: u16,
    payload: Vec<u8>,
}

fn receive(frame: &[u8]) -> Received {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Tcp(slice)) = packet.transport else {
        panic!("not TCP");
    };
    let tcp = slice.to_header();
    let (checksum, identification, ip_len) = match packet.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            let expected = header.calc_header_checksum();
            assert_eq!(header.header_checksum % 0xffff, expected % 0xffff);
            let checksum = tcp.calc_checksum_ipv4(&header, slice.payload()).unwrap();
            (
                checksum,
                header.identification,
                usize::from(header.total_len),
            )
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            let checksum = tcp.calc_checksum_ipv6(&header, slice.payload()).unwrap();
            (checksum, 0, 40 + usize::from(header.payload_length))
        }
        other => panic!("not IP: {other:?}"),
    };
    assert_eq!(tcp.checksum % 0xffff, checksum % 0xffff);
    let link = if frame[12] == 0x81 { 18 } else { 14 };
    assert_eq!(link + ip_len, frame.len());
    Received {
        payload: slice.payload().to_vec(),
        identification,
        tcp,
    }
}

fn cut(frame: &[u8], gso: Gso) -> Vec<Vec<u8>> {
    let mut segmenter = segments(frame, gso).unwrap();
    let mut all = Vec::new();
    let mut out = vec![0xa5; gso.segment_bytes()];
    while let Some(len) = segmenter.next(&mut out) {
        all.push(out[..len].to_vec());
    }
    all
}

/// One UDP packet of these payloads' bytes, whose checksum is the sum of the pseudo header.
fn udp(ipv6: bool, payload: &[u8]) -> Sent {
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frame = Vec::new();
    let (addresses, start) = if ipv6 {
        let builder = ethernet.ipv6([3; 16], [4; 16], 64).udp(5, 6);
        builder.write(&mut frame, payload).unwrap();
        (22..54, 54)
    } else {
        let builder = ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(5, 6);
        builder.write(&mut frame, payload).unwrap();
        (26..34, 34)
    };
    let sum = pseudo_sum(&frame[addresses], 17, frame.len() - start);
    put(&mut frame, start + 6, sum);
    Sent {
        header: start + 8,
        frame,
        start,
        payload: payload.into(),
    }
}

proptest! {
    /// Each with a length and a checksum of its own, which etherparse verifies.
    #[test]
    fn datagrams_that_leave_as_one_are_cut_into_whole_ones(
        ipv6: bool,
        payload in proptest::collection::vec(any::<u8>(), 1..5000),
        size in 1u16..2000,
    ) {
        let sent = udp(ipv6, &payload);
        let kind = if ipv6 { GsoKind::UdpV6 } else { GsoKind::UdpV4 };
        let gso = Gso { kind, size, header: sent.header as u16, ecn: false };
        let mut stream: Vec<u8> = Vec::new();
        for (index, frame) in cut(&sent.frame, gso).iter().enumerate() {
            let packet = SlicedPacket::from_ethernet(frame).unwrap();
            let Some(TransportSlice::Udp(slice)) = packet.transport else {
                panic!("not UDP");
            };
            let (header, payload) = (slice.to_header(), slice.payload());
            prop_assert_eq!(usize::from(header.length), 8 + payload.len());
            let checksum = match packet.net.unwrap() {
                NetSlice::Ipv4(ip) => {
                    let ip = ip.header().to_header();
                    prop_assert_eq!(usize::from(ip.identification), index);
                    header.calc_checksum_ipv4(&ip, payload).unwrap()
                }
                NetSlice::Ipv6(ip) => {
                    header.calc_checksum_ipv6(&ip.header().to_header(), payload).unwrap()
                }
                other => panic!("not IP: {other:?}"),
            };
            prop_assert_eq!(header.checksum % 0xffff, checksum % 0xffff);
            stream.extend(payload);
        }
        prop_assert_eq!(stream, payload);
        let other = if ipv6 { GsoKind::TcpV6 } else { GsoKind::UdpV6 };
        let misnamed = Gso { kind: other, ..gso };
        prop_assert!(segments(&sent.frame, misnamed).is_none());
        // Taps take it, and are not offered to leave it to us.
        let checksum = Checksum { start: sent.start as u16, offset: 6 };
        let header = virtio::emit(Offload { checksum: Some(checksum), gso: Some(gso) });
        prop_assert_eq!((header[0], header[1]), (1, 5));
        let parsed = virtio::parse(&header, &sent.frame);
        prop_assert_eq!(parsed, Err(virtio::BadHeader::GsoUdp));
    }

    #[test]
    fn a_completed_checksum_is_the_one_a_receiver_computes(
        shape in shape(),
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut sent = tcp(shape, payload);
        let offload = Offload { gso: None, ..sent.offload(0, shape.ipv6) };
        offload.complete_checksum(&mut sent.frame);
        prop_assert_eq!(receive(&sent.frame).payload, sent.payload);
    }

    #[test]
    fn segments_carry_the_stream_in_whole_packets(
        shape in shape(),
        payload in proptest::collection::vec(any::<u8>(), 1..5000),
        size in GSO_SIZE_MIN..2000,
        identification: u16,
    ) {
        let mut sent = tcp(shape, payload);
        if !shape.ipv6 {
            put(&mut sent.frame, sent.start - 16, identification);
        }
        let gso = sent.offload(size, shape.ipv6).gso.unwrap();
        let all = cut(&sent.frame, gso);
        prop_assert_eq!(all.len(), sent.payload.len().div_ceil(usize::from(size)));
        let mut stream = Vec::new();
        for (index, frame) in all.iter().enumerate() {
            prop_assert!(frame.len() <= gso.segment_bytes());
            let flags = frame[sent.start + 13];
            let (first, last) = (index == 0, index + 1 == all.len());
            let cleared = if first { 0 } else { 0x80 } | if last { 0 } else { 0x09 };
            prop_assert_eq!(flags, shape.flags & !cleared);
            // Link header and everything that no segment changes.
            prop_assert_eq!(&frame[..14], &sent.frame[..14]);
            prop_assert_eq!(&frame[sent.start + 20..sent.header], vec![1; shape.options]);

            let received = receive(frame);
            let sequence = shape.sequence.wrapping_add(stream.len() as u32);
            prop_assert_eq!(received.tcp.sequence_number, sequence);
            if !shape.ipv6 {
                let expected = identification.wrapping_add(index as u16);
                prop_assert_eq!(received.identification, expected);
            }
            stream.extend(received.payload);
        }
        prop_assert_eq!(stream, sent.payload);
    }

    /// Segments of any sizes, which a device has made one frame: a checksum is no longer in it.
    #[test]
    fn what_was_coalesced_is_cut_into_the_same_stream(
        shape in shape(),
        payloads in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 1..1400), 2..15,
        ),
        checksum: u16,
    ) {
        let shape = Shape { ipv6: false, ..shape };
        let mut frame = tcp(shape, payloads.concat()).frame;
        let start = if shape.vlan { 38 } else { 34 };
        put(&mut frame, start + 16, checksum);
        let count = payloads.len();
        let gso = coalesced(&mut frame, count, 1500).unwrap().gso.unwrap();
        prop_assert_eq!(gso.ecn, shape.flags & 0x80 != 0);
        let largest = payloads.iter().map(Vec::len).max().unwrap();
        prop_assert!(usize::from(gso.size) <= largest);
        let all = cut(&frame, gso);
        prop_assert!(all.len() <= count);
        let stream: Vec<u8> = all.iter().flat_map(|each| receive(each).payload).collect();
        prop_assert_eq!(stream, payloads.concat());
    }

    /// Whatever a device says that it has put together, segments are no larger than it may receive.
    #[test]
    fn what_cannot_have_been_coalesced_is_refused(
        len in 0..3000usize,
        count in 0..20usize,
        mtu in 0..2000usize,
        edits in proptest::collection::vec((0..60usize, any::<u8>()), 0..3),
        cut_to in 0..4000usize,
    ) {
        let mut frame = tcp(PLAIN, vec![7; len]).frame;
        for (at, byte) in edits {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut_to);
        if let Some(offload) = coalesced(&mut frame, count, mtu) {
            let gso = offload.gso.unwrap();
            prop_assert!(count > 0 && frame.len() >= usize::from(gso.header) + count);
            prop_assert!(gso.segment_bytes() <= mtu + 14 + 2 * 4);
            let stream: usize = cut(&frame, gso).iter()
                .map(|each| each.len() - usize::from(gso.header)).sum();
            prop_assert_eq!(stream, frame.len() - usize::from(gso.header));
        }
    }

    #[test]
    fn what_is_emitted_is_parsed(
        shape in shape(),
        payload in proptest::collection::vec(any::<u8>(), 1..300),
        size in GSO_SIZE_MIN..,
        ecn: bool,
        segmented: bool,
    ) {
        let sent = tcp(shape, payload);
        let mut offload = sent.offload(size, shape.ipv6);
        if segmented {
            offload.gso.as_mut().unwrap().ecn = ecn;
        } else {
            offload.gso = None;
        }
        prop_assert_eq!(virtio::parse(&virtio::emit(offload), &sent.frame), Ok(offload));
    }

    /// Hostile bytes in a real frame: whatever is accepted can be carried out in memory.
    #[test]
    fn nothing_panics_and_what_is_accepted_is_done(
        shape in shape(),
        len in 0..400usize,
        size: u16,
        header_edits in proptest::collection::vec((0..HEADER_SIZE, any::<u8>()), 0..3),
        frame_edits in proptest::collection::vec((0..80usize, any::<u8>()), 0..4),
        cut_to in 0..600usize,
    ) {
        let sent = tcp(shape, vec![7; len]);
        let mut header = virtio::emit(sent.offload(size, shape.ipv6));
        let mut frame = sent.frame;
        frame.truncate(cut_to);
        header_edits.iter().for_each(|&(at, byte)| header[at] = byte);
        for &(at, byte) in frame_edits.iter().filter(|edit| edit.0 < cut_to) {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        if let Ok(offload) = virtio::parse(&header, &frame) {
            if let Some(gso) = offload.gso {
                prop_assert!(usize::from(gso.header) <= SEGMENT_HEADER_MAX);
                let bytes: usize = cut(&frame, gso).iter().map(Vec::len).sum();
                prop_assert!(bytes >= frame.len());
            }
            offload.complete_checksum(&mut frame);
        }
    }

    #[test]
    fn random_bytes_never_panic(
        header: [u8; HEADER_SIZE],
        mut frame in proptest::collection::vec(any::<u8>(), 0..200),
        start: u16,
        offset: u16,
        size: u16,
    ) {
        let _ = virtio::parse(&header, &frame);
        for kind in [GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpV4, GsoKind::UdpV6] {
            let _ = segments(&frame, Gso { kind, size, header: offset, ecn: false });
        }
        let checksum = Some(Checksum { start, offset });
        Offload { checksum, gso: None }.complete_checksum(&mut frame);
    }
}

const PLAIN: Shape = Shape {
    vlan: false,
    ipv6: false,
    options: 0,
    flags: 0x18,
    sequence: 1,
    ports: (1, 7070),
};

#[test]
fn a_port_in_memory_cuts_what_was_left_to_it() {
    let mut port = crate::memory::MemoryPort::new("net").with_tso();
    assert!(port.offloads().tso && port.offloads().checksum);
    let sent = tcp(PLAIN, vec![7; 2500]);
    let mut frame = port.alloc(sent.frame.len()).unwrap();
    frame.bytes_mut().copy_from_slice(&sent.frame);
    frame.set_offload(sent.offload(1000, false));
    let mut batch = Batch::new();
    batch.push(frame).unwrap();
    port.transmit(&mut batch);
    let payloads = port
        .sent()
        .iter()
        .map(|frame| receive(frame).payload.len())
        .collect::<Vec<_>>();
    assert_eq!(payloads, [1000, 1000, 500]);
}

#[test]
fn the_largest_frame_is_cut() {
    let payload: Vec<u8> = (0..65_535 - 40).map(|i| (i % 251) as u8).collect();
    let sent = tcp(PLAIN, payload.clone());
    let gso = sent.offload(1460, false).gso.unwrap();
    let all = cut(&sent.frame, gso);
    assert_eq!(all.len(), 45);
    assert!(all.iter().all(|frame| frame.len() <= 1514));
    let stream: Vec<u8> = all
        .iter()
        .flat_map(|frame| receive(frame).payload)
        .collect();
    assert_eq!(stream, payload);
}

#[test]
fn a_buffer_that_is_too_short_ends_the_cutting() {
    let sent = tcp(PLAIN, vec![1; 100]);
    let gso = sent.offload(50, false).gso.unwrap();
    let mut segmenter = segments(&sent.frame, gso).unwrap();
    assert_eq!(segmenter.next(&mut [0; 103]), None);
    assert_eq!(segmenter.next(&mut [0; 104]), Some(104));
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    // The words sum up to 0xffff, whose complement is 0.
    let mut frame = [0; 22];
    put(&mut frame, 14, 0xfff0);
    put(&mut frame, 20, 0x000f);
    let checksum = Some(Checksum {
        start: 14,
        offset: 6,
    });
    Offload {
        checksum,
        gso: None,
    }
    .complete_checksum(&mut frame);
    assert_eq!(frame[20..], [0xff, 0xff]);
}

#[test]
fn extension_headers_and_double_tags_are_looked_through() {
    let Sent { frame, .. } = tcp(
        Shape {
            ipv6: true,
            ..PLAIN
        },
        vec![3; 100],
    );
    let mut long = frame[..54].to_vec();
    // Hop-by-hop options of 16 bytes behind two tags.
    long[20] = 0;
    put(&mut long, 18, 20 + 100 + 16);
    long.extend([6, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    long.extend(&frame[54..]);
    long.splice(12..12, [0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
    let start = 14 + 8 + 40 + 16;
    let offload = to_be_cut(start);
    assert_eq!(virtio::parse(&virtio::emit(offload), &long), Ok(offload));
    let all = cut(&long, offload.gso.unwrap());
    assert_eq!(all.len(), 2);
    for frame in all {
        // etherparse does not verify across extension headers: sum by the book.
        let len = frame.len() - start;
        assert_eq!(frame[26..28], (len as u16 + 16).to_be_bytes());
        let own = pseudo_sum(&frame[start..], 0, 0);
        let pseudo = pseudo_sum(&frame[30..62], 6, len);
        assert_eq!(
            pseudo_sum(&[own.to_be_bytes(), pseudo.to_be_bytes()].concat(), 0, 0),
            0xffff
        );
    }
}

/// What is left to do for TCP over IPv6 whose header, without options, begins at `start`.
fn to_be_cut(start: usize) -> Offload {
    Offload {
        checksum: Some(Checksum {
            start: start as u16,
            offset: 16,
        }),
        gso: Some(Gso {
            kind: GsoKind::TcpV6,
            size: 60,
            header: start as u16 + 20,
            ecn: false,
        }),
    }
}

/// TCP over IPv6 behind destination options of `sizes` bytes, to be cut, and its virtio-net header.
fn behind_options(sizes: &[usize]) -> ([u8; HEADER_SIZE], Vec<u8>) {
    let shape = Shape {
        ipv6: true,
        ..PLAIN
    };
    let Sent { frame, .. } = tcp(shape, vec![3; 100]);
    let mut long = frame[..54].to_vec();
    long[20] = 60;
    for (index, size) in sizes.iter().enumerate() {
        let next = if index + 1 == sizes.len() { 6 } else { 60 };
        long.extend([next, (size / 8 - 1) as u8]);
        long.resize(long.len() + size - 2, 0);
    }
    let start = long.len();
    put(&mut long, 18, (start - 54 + 120) as u16);
    long.extend(&frame[54..]);
    let offload = to_be_cut(start);
    (virtio::emit(offload), long)
}

#[test]
fn extension_headers_are_bounded() {
    let parse = |sizes: &[usize]| {
        let (header, frame) = behind_options(sizes);
        virtio::parse(&header, &frame).map(|offload| offload.gso.unwrap().header)
    };
    assert_eq!(parse(&[8; 8]), Ok(54 + 64 + 20));
    assert_eq!(parse(&[8; 9]), Err(BadHeader::ChecksumField));
    assert_eq!(parse(&[176]), Ok(250));
    assert_eq!(
        parse(&[184]),
        Err(BadHeader::GsoFrame),
        "258 bytes of headers"
    );
}

#[test]
fn headers_without_work_cost_no_look_at_the_frame() {
    let mut header = [0; HEADER_SIZE];
    assert_eq!(virtio::parse(&header, &[]), Ok(Offload::NONE));
    header[0] = 2;
    header[10] = 1;
    assert_eq!(virtio::parse(&header, &[]), Ok(Offload::NONE));
    assert_eq!(virtio::emit(Offload::NONE), [0; HEADER_SIZE]);
}

#[test]
fn each_contradiction_has_its_reason() {
    let sent = tcp(PLAIN, vec![1; 100]);
    let good = virtio::emit(sent.offload(50, false));
    let parse = |edits: &[(usize, u8)], frame: &[u8]| {
        let mut header = good;
        edits.iter().for_each(|&(at, byte)| header[at] = byte);
        virtio::parse(&header, frame).unwrap_err()
    };
    let frame = &sent.frame[..];
    assert_eq!(parse(&[(0, 5)], frame), BadHeader::Flags);
    assert_eq!(parse(&[(0, 0x80), (1, 0)], frame), BadHeader::Flags);
    assert_eq!(parse(&[(1, 2)], frame), BadHeader::GsoType);
    assert_eq!(parse(&[(1, 0x80)], frame), BadHeader::GsoType);
    assert_eq!(parse(&[(1, 3)], frame), BadHeader::GsoUdp);
    assert_eq!(parse(&[(1, 5)], frame), BadHeader::GsoUdp);
    assert_eq!(parse(&[(0, 0)], frame), BadHeader::GsoWithoutChecksum);
    assert_eq!(parse(&[(4, 0)], frame), BadHeader::GsoSize);
    assert_eq!(parse(&[(4, 7)], frame), BadHeader::GsoSize);
    assert_eq!(parse(&[(1, 4)], frame), BadHeader::GsoFrame, "not IPv6");
    // The destination address, a port, behind the frame, a header cut short.
    for (start, offset) in [(14, 16), (34, 0), (34, 15), (33, 17), (60_000, 16), (0, 50)] {
        let [low, high] = u16::to_le_bytes(start);
        let edits = [(1, 0), (6, low), (7, high), (8, offset), (9, 0)];
        assert_eq!(
            parse(&edits, frame),
            BadHeader::ChecksumField,
            "{start} + {offset}"
        );
    }
    assert_eq!(parse(&[(1, 0)], &frame[..53]), BadHeader::ChecksumField);
    assert_eq!(
        parse(&[], &frame[..frame.len() - 1]),
        BadHeader::GsoFrame,
        "cut off"
    );
    assert_eq!(
        parse(&[], &[frame, &[0]].concat()),
        BadHeader::GsoFrame,
        "padded"
    );

    let edited = |at: usize, byte: u8| {
        let mut frame = sent.frame.clone();
        frame[at] = byte;
        frame
    };
    assert_eq!(
        parse(&[], &edited(20, 0x20)),
        BadHeader::ChecksumField,
        "a fragment"
    );
    assert_eq!(parse(&[], &edited(23, 17)), BadHeader::ChecksumField, "UDP");
    assert_eq!(
        parse(&[(8, 6)], &edited(23, 17)),
        BadHeader::GsoFrame,
        "UDP to be cut as TCP"
    );
    assert_eq!(
        parse(&[], &edited(46, 0x40)),
        BadHeader::GsoFrame,
        "data offset below 5"
    );
    let empty = tcp(PLAIN, vec![]);
    assert_eq!(parse(&[], &empty.frame), BadHeader::GsoFrame, "no payload");
}
