use super::super::feature as common;
use super::super::testing::{Buffer, Driver};
use super::header::{BYTES as HEADER, Header};
use super::*;
use crate::device::Device;
use crate::packet::samples;
use crate::packet::segment::Plan;
use crate::wire::{Incoming, Offload, Pair, pair};
use hw::sim::vectored::{Span, SpanMut};
use std::collections::VecDeque;

const ADDRESS: [u8; 6] = samples::DESTINATION;
const CONTROL: usize = 2 * PAIRS as usize;
const RX: usize = 0;
const TX: usize = 1;

/// A wire that takes large frames, with or without a copy.
#[derive(Default)]
struct Large {
    incoming: VecDeque<(Vec<u8>, Offload)>,
    sent: Vec<(Vec<u8>, Offload)>,
    in_place: bool,
    cuts_no_udp: bool,
    down: bool,
    fragments: usize,
}

impl Wire for Large {
    fn is_up(&mut self) -> bool {
        !self.down
    }

    fn peek(&mut self) -> Option<(&[u8], Offload)> {
        let (frame, offload) = self.incoming.front()?;
        Some((frame, *offload))
    }

    fn take(&mut self) {
        self.incoming.pop_front();
    }

    fn takes_large_frames(&self) -> bool {
        true
    }

    fn takes_large_datagrams(&self) -> bool {
        !self.cuts_no_udp
    }

    fn send(&mut self, frame: &[u8], offload: Offload) {
        self.sent.push((frame.to_vec(), offload));
    }

    fn sends_fragments(&self) -> bool {
        self.in_place
    }

    fn send_fragments(&mut self, headers: &[u8], payload: &[Span<'_>], offload: Offload) {
        self.fragments += 1;
        let mut frame = headers.to_vec();
        for part in payload {
            let at = frame.len();
            frame.resize(at + part.len(), 0);
            part.copy_to(&mut frame[at..]);
        }
        self.send(&frame, offload);
    }
}

fn on_pair(features: u64) -> (Driver<VirtioNet<Pair>>, Pair) {
    let (ours, theirs) = pair();
    (Driver::up(VirtioNet::new(ADDRESS, ours), features), theirs)
}

fn on_large(features: u64, in_place: bool) -> Driver<VirtioNet<Large>> {
    let wire = Large {
        in_place,
        ..Large::default()
    };
    Driver::up(VirtioNet::new(ADDRESS, wire), features)
}

/// Sends a frame with this header, in pieces.
fn send<W: Wire>(driver: &mut Driver<VirtioNet<W>>, header: Header, frame: &[u8], pieces: usize) {
    let all = [&header.bytes()[..], frame].concat();
    let mut buffers = Vec::new();
    for piece in all.chunks(all.len().div_ceil(pieces)) {
        buffers.push(driver.filled(piece));
    }
    let head = driver.offer(TX, &buffers);
    driver.poll();
    assert_eq!(driver.used(TX), Some((head.into(), 0)));
}

fn receive_buffers<W: Wire>(
    driver: &mut Driver<VirtioNet<W>>,
    count: usize,
    bytes: usize,
) -> Vec<Buffer> {
    let buffers: Vec<_> = (0..count).map(|_| driver.buffer(bytes, true)).collect();
    for buffer in &buffers {
        driver.offer(RX, &[*buffer]);
    }
    buffers
}

/// The next frame that was received, with its header.
fn received<W: Wire>(
    driver: &mut Driver<VirtioNet<W>>,
    buffers: &mut impl Iterator<Item = Buffer>,
) -> Option<(Header, Vec<u8>)> {
    let mut all = Vec::new();
    let mut left = 1;
    while left > 0 {
        let (_, bytes) = driver.used(RX)?;
        let buffer = buffers.next()?;
        all.extend_from_slice(&driver.bytes(buffer)[..bytes as usize]);
        if all.len() as u32 == bytes {
            left = Header::read(all.first_chunk().unwrap()).buffers;
        }
        left -= 1;
    }
    let (header, frame) = all.split_first_chunk::<HEADER>().unwrap();
    Some((Header::read(header), frame.to_vec()))
}

fn command<W: Wire>(driver: &mut Driver<VirtioNet<W>>, class: u8, command: u8, data: &[u8]) -> u8 {
    let buffers = [
        driver.filled(&[class, command]),
        driver.filled(data),
        driver.buffer(1, true),
    ];
    let head = driver.offer(CONTROL, &buffers);
    driver.poll();
    assert_eq!(driver.used(CONTROL), Some((head.into(), 1)));
    driver.bytes(buffers[2])[0]
}

fn tso(frame: &[u8], v6: bool, size: u16) -> Header {
    let plan = Plan::read(frame, size).unwrap();
    Header {
        flags: 1,
        gso: if v6 { 4 } else { 1 },
        header_len: plan.header as u16,
        gso_size: size,
        checksum_start: plan.ip.payload as u16,
        checksum_offset: 16,
        buffers: 0,
    }
}

/// A frame whose checksum is left to do, as a driver prepares it.
fn unfinished(v6: bool, payload: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let whole = samples::tcp(v6, None, 7, payload);
    let mut frame = whole.clone();
    let plan = Plan::read(&whole, 1000).unwrap();
    plan.leave_to_wire(&mut frame, whole.len());
    (frame, whole)
}

#[test]
fn frames_cross_both_ways() {
    let (mut driver, mut wire) = on_pair(feature::MRG_RXBUF);
    let frame = samples::udp(false, None, &samples::bytes(100));
    for pieces in 1..5 {
        send(&mut driver, Header::default(), &frame, pieces);
        assert_eq!(wire.receive(), Some(frame.clone()));
    }
    let buffers = receive_buffers(&mut driver, 6, 60);
    let mut buffers = buffers.into_iter();
    wire.send(&frame, Offload::default());
    wire.send(&frame, Offload::default());
    driver.poll();
    for _ in 0..2 {
        let (header, came) = received(&mut driver, &mut buffers).unwrap();
        assert_eq!((header.flags, header.gso, header.buffers), (0, 0, 3));
        assert_eq!(came, frame);
    }
    driver.assert_good();
}

#[test]
fn a_frame_waits_until_there_is_room_for_all_of_it() {
    let (mut driver, mut wire) = on_pair(feature::MRG_RXBUF);
    let frame = samples::udp(false, None, &samples::bytes(100));
    let mut buffers = receive_buffers(&mut driver, 2, 60);
    wire.send(&frame, Offload::default());
    assert_eq!((driver.poll().received, driver.used(RX)), (0, None));
    buffers.extend(receive_buffers(&mut driver, 1, 60));
    assert_eq!(driver.poll().received, 1);
    let came = received(&mut driver, &mut buffers.into_iter());
    assert_eq!(came.unwrap().1, frame);
    driver.assert_good();
}

#[test]
fn without_mergeable_buffers_each_must_take_a_frame() {
    let (mut driver, mut wire) = on_pair(0);
    let frame = samples::udp(false, None, &samples::bytes(1400));
    let buffers = receive_buffers(&mut driver, 1, 1526);
    wire.send(&frame, Offload::default());
    driver.poll();
    let came = received(&mut driver, &mut buffers.into_iter()).unwrap();
    assert_eq!((came.0.buffers, came.1), (1, frame.clone()));
    driver.assert_good();
    receive_buffers(&mut driver, 1, 1000);
    wire.send(&frame, Offload::default());
    driver.poll();
    assert_eq!(driver.used(RX).unwrap().1, 0);
    driver.assert_report("room for the longest frame (5.1.6.3.1)");
}

#[test]
fn checksums_are_completed_where_the_wire_or_the_driver_does_not() {
    let features = feature::CSUM | feature::GUEST_CSUM;
    for v6 in [false, true] {
        let (frame, whole) = unfinished(v6, &samples::bytes(500));
        let header = Header {
            gso: 0,
            gso_size: 0,
            ..tso(&frame, v6, 1000)
        };
        let (mut driver, mut wire) = on_pair(features);
        send(&mut driver, header, &frame, 3);
        assert_eq!(wire.receive().unwrap(), whole);
        for (features, expected) in [(features, &frame), (feature::CSUM, &whole)] {
            let mut driver = on_large(features, false);
            let start = header.checksum_start;
            let offload = Offload {
                checksum: Some((start, 16)),
                segment: None,
            };
            send(&mut driver, header, &frame, 1);
            let wire = driver.pci.device().wire();
            assert_eq!(wire.sent, [(frame.clone(), offload)]);
            wire.incoming.push_back((frame.clone(), offload));
            let buffers = receive_buffers(&mut driver, 1, 1600);
            driver.poll();
            let (header, came) = received(&mut driver, &mut buffers.into_iter()).unwrap();
            let flags = u8::from(features & feature::GUEST_CSUM != 0);
            assert_eq!((header.flags, &came), (flags, expected));
            driver.assert_good();
        }
    }
}

#[test]
fn large_packets_are_cut_where_the_wire_takes_none() {
    let features = feature::CSUM | feature::HOST_TSO4 | feature::HOST_TSO6;
    for v6 in [false, true] {
        let (frame, _) = unfinished(v6, &samples::bytes(3500));
        let header = tso(&frame, v6, 1000);
        let (mut driver, mut wire) = on_pair(features);
        send(&mut driver, header, &frame, 3);
        let mut payload = Vec::new();
        for _ in 0..4 {
            let segment = wire.receive().unwrap();
            let plan = Plan::read(&segment, 1).unwrap();
            assert_eq!(plan.ip.payload_is_sound(&segment), Some(true));
            payload.extend_from_slice(&segment[plan.header..]);
        }
        assert_eq!((payload, wire.receive()), (samples::bytes(3500), None));
        driver.assert_good();
        for in_place in [false, true] {
            let mut driver = on_large(features, in_place);
            send(&mut driver, header, &frame, 5);
            let wire = driver.pci.device().wire();
            assert_eq!(wire.sent, [(frame.clone(), header.offload())]);
            assert_eq!(wire.fragments, usize::from(in_place));
            driver.assert_good();
        }
    }
}

#[test]
fn large_packets_come_whole_if_the_driver_takes_them() {
    let all = feature::GUEST_CSUM | feature::GUEST_TSO4 | feature::GUEST_TSO6 | feature::MRG_RXBUF;
    for v6 in [false, true] {
        let (frame, _) = unfinished(v6, &samples::bytes(5000));
        let expected = tso(&frame, v6, 1000);
        for features in [all, feature::MRG_RXBUF] {
            let mut driver = on_large(features, false);
            let wire = driver.pci.device().wire();
            wire.incoming.push_back((frame.clone(), expected.offload()));
            let buffers = receive_buffers(&mut driver, 10, 1100);
            driver.poll();
            let mut buffers = buffers.into_iter();
            if features == all {
                let (header, came) = received(&mut driver, &mut buffers).unwrap();
                assert_eq!(came, frame);
                assert_eq!(
                    Header {
                        buffers: 0,
                        ..header
                    },
                    expected
                );
                assert_eq!(header.buffers, 5);
                continue;
            }
            let mut payload = Vec::new();
            while let Some((header, came)) = received(&mut driver, &mut buffers) {
                assert_eq!((header.flags, header.gso, header.buffers), (0, 0, 1));
                let plan = Plan::read(&came, 1).unwrap();
                assert_eq!(plan.ip.payload_is_sound(&came), Some(true));
                payload.extend_from_slice(&came[plan.header..]);
            }
            assert_eq!(payload, samples::bytes(5000));
            driver.assert_good();
        }
    }
}

/// A datagram to be cut into shorter ones, as a driver prepares it, with its header.
fn uso(v6: bool, payload: &[u8], size: u16) -> (Vec<u8>, Header) {
    let mut frame = samples::udp(v6, None, payload);
    let plan = Plan::read(&frame, size).unwrap();
    let bytes = frame.len();
    plan.leave_to_wire(&mut frame, bytes);
    let start = if v6 { 54 } else { 34 };
    let header = Header {
        flags: 1,
        gso: 5,
        header_len: start + 8,
        gso_size: size,
        checksum_start: start,
        checksum_offset: 6,
        buffers: 0,
    };
    (frame, header)
}

/// What a datagram carries, whose lengths and checksum are right.
fn datagram(frame: &[u8], v6: bool) -> &[u8] {
    let header = if v6 { 62 } else { 42 };
    let plan = Plan::read(frame, 1).unwrap();
    assert!(plan.is_udp() && plan.header == header);
    assert_eq!(plan.ip.payload_is_sound(frame), Some(true));
    let length = [frame[header - 4], frame[header - 3]];
    assert_eq!(
        usize::from(u16::from_be_bytes(length)),
        frame.len() - header + 8
    );
    &frame[header..]
}

#[test]
fn large_datagrams_are_cut_where_the_wire_takes_none() {
    let features = feature::CSUM | feature::HOST_USO;
    for v6 in [false, true] {
        let (frame, header) = uso(v6, &samples::bytes(3500), 1000);
        let (mut driver, mut wire) = on_pair(features);
        send(&mut driver, header, &frame, 3);
        let came: Vec<_> = std::iter::from_fn(|| wire.receive()).collect();
        let parts: Vec<_> = came.iter().map(|frame| datagram(frame, v6)).collect();
        assert_eq!(parts.iter().map(|part| part.len()).max(), Some(1000));
        assert_eq!((parts.len(), parts.concat()), (4, samples::bytes(3500)));
        driver.assert_good();
        for (in_place, cuts_no_udp) in [(false, false), (true, false), (true, true)] {
            let mut driver = on_large(features, in_place);
            driver.pci.device().wire().cuts_no_udp = cuts_no_udp;
            send(&mut driver, header, &frame, 5);
            let wire = driver.pci.device().wire();
            match cuts_no_udp {
                true => assert_eq!(wire.sent.len(), 4),
                false => assert_eq!(wire.sent, [(frame.clone(), header.offload())]),
            }
            let fragments = usize::from(in_place && !cuts_no_udp);
            assert_eq!(wire.fragments, fragments);
            driver.assert_good();
        }
    }
}

#[test]
fn large_datagrams_come_whole_if_the_driver_takes_them() {
    let both = [feature::GUEST_USO4, feature::GUEST_USO6];
    for (v6, takes) in [(false, both[0]), (true, both[1])] {
        let (frame, expected) = uso(v6, &samples::bytes(3500), 1000);
        for feature in both {
            let features = feature::GUEST_CSUM | feature::MRG_RXBUF | feature;
            let mut driver = on_large(features, false);
            let wire = driver.pci.device().wire();
            wire.incoming.push_back((frame.clone(), expected.offload()));
            let mut buffers = receive_buffers(&mut driver, 4, 1100).into_iter();
            driver.poll();
            if feature == takes {
                let (header, came) = received(&mut driver, &mut buffers).unwrap();
                let buffers = 0;
                assert_eq!(
                    (Header { buffers, ..header }, came),
                    (expected, frame.clone())
                );
                assert_eq!(header.buffers, 4);
            } else {
                let came = std::iter::from_fn(|| received(&mut driver, &mut buffers));
                let frames: Vec<_> = came.map(|(_, frame)| frame).collect();
                let parts: Vec<_> = frames.iter().map(|frame| datagram(frame, v6)).collect();
                assert_eq!((parts.len(), parts.concat()), (4, samples::bytes(3500)));
            }
            driver.assert_good();
        }
    }
}

#[test]
fn segmentation_of_udp_takes_a_datagram() {
    let features = feature::CSUM | feature::HOST_USO | feature::HOST_TSO4 | feature::HOST_ECN;
    let (tcp, of_tcp) = {
        let (frame, _) = unfinished(false, &samples::bytes(3000));
        let header = tso(&frame, false, 1000);
        (frame, header)
    };
    let (udp, of_udp) = uso(false, &samples::bytes(3000), 1000);
    for (frame, header, rule) in [
        (
            &tcp,
            Header { gso: 5, ..of_tcp },
            "must fit what the frame is",
        ),
        (
            &udp,
            Header { gso: 1, ..of_udp },
            "must fit what the frame is",
        ),
        (
            &udp,
            Header {
                gso: 0x85,
                ..of_udp
            },
            "ECN is of TCP alone",
        ),
    ] {
        for in_place in [false, true] {
            let mut driver = on_large(features, in_place);
            send(&mut driver, header, frame, 2);
            assert!(driver.pci.device().wire().sent.is_empty(), "{rule}");
            driver.assert_report(rule);
        }
    }
}

#[test]
fn a_packet_that_is_cut_goes_on_where_there_was_no_room() {
    let mut driver = on_large(feature::MRG_RXBUF, false);
    let (frame, _) = unfinished(false, &samples::bytes(3000));
    let offload = tso(&frame, false, 1000).offload();
    let wire = driver.pci.device().wire();
    wire.incoming.push_back((frame, offload));
    let mut payload = Vec::new();
    for _ in 0..3 {
        assert!(payload.len() < 3000);
        let buffers = receive_buffers(&mut driver, 1, 1100);
        driver.poll();
        let came = received(&mut driver, &mut buffers.into_iter());
        payload.extend_from_slice(&came.unwrap().1[54..]);
    }
    assert_eq!(payload, samples::bytes(3000));
    assert!(driver.pci.device().wire().incoming.is_empty());
}

#[test]
fn a_number_of_buffers_that_nobody_looks_at_is_reported_and_sent() {
    let features = feature::CSUM | feature::HOST_TSO4;
    let (frame, _) = unfinished(false, &samples::bytes(3000));
    let header = Header {
        buffers: 1,
        ..tso(&frame, false, 1000)
    };
    let mut driver = on_large(features, true);
    send(&mut driver, header, &frame, 2);
    assert_eq!(driver.pci.device().wire().sent.len(), 1);
    driver.assert_report("num_buffers was written: it must be 0");
}

#[test]
fn what_a_header_must_not_say_is_reported_and_not_sent() {
    let features = feature::CSUM | feature::HOST_TSO4;
    let (frame, _) = unfinished(false, &samples::bytes(3000));
    let good = tso(&frame, false, 1000);
    let cases: [(Header, &str); 8] = [
        (Header { flags: 3, ..good }, "flags other than"),
        (Header { gso: 4, ..good }, "one that was negotiated"),
        (Header { gso: 5, ..good }, "one that was negotiated"),
        (Header { gso: 0x81, ..good }, "ECN takes HOST_ECN"),
        (Header { gso: 0x80, ..good }, "ECN takes a kind"),
        (
            Header {
                gso_size: 0,
                ..good
            },
            "NEEDS_CSUM and a gso_size",
        ),
        (Header { flags: 0, ..good }, "NEEDS_CSUM and a gso_size"),
        (
            Header {
                checksum_start: 0xffff,
                ..good
            },
            "must lie in the frame",
        ),
    ];
    for (header, rule) in cases {
        let mut driver = on_large(features, true);
        send(&mut driver, header, &frame, 2);
        assert!(driver.pci.device().wire().sent.is_empty(), "{rule}");
        driver.assert_report(rule);
    }
    let mut driver = on_large(features, true);
    let wrong = Header {
        checksum_offset: 6,
        ..good
    };
    send(&mut driver, wrong, &frame, 2);
    driver.assert_report("must fit what the frame is");
    send(&mut driver, good, &frame[..8], 1);
    driver.assert_report("must have an Ethernet header");
    let mut driver = on_large(0, true);
    send(
        &mut driver,
        Header {
            flags: 1,
            ..Header::default()
        },
        &frame,
        2,
    );
    driver.assert_report("NEEDS_CSUM takes CSUM");
}

#[test]
fn commands_switch_what_they_name() {
    let features = feature::CTRL_VQ
        | feature::CTRL_RX
        | feature::CTRL_VLAN
        | feature::CTRL_MAC_ADDR
        | feature::MQ
        | feature::GUEST_CSUM
        | feature::CTRL_GUEST_OFFLOADS;
    let (mut driver, mut wire) = on_pair(features | feature::MRG_RXBUF);
    receive_buffers(&mut driver, 20, 1600);
    let mut reaches = |driver: &mut Driver<VirtioNet<Pair>>, frame: &[u8]| {
        wire.send(frame, Offload::default());
        driver.poll();
        driver.used(RX).is_some()
    };
    let plain = samples::udp(false, None, b"x");
    assert!(reaches(&mut driver, &plain));
    assert_eq!(command(&mut driver, 0, 0, &[0]), 0);
    assert!(reaches(&mut driver, &plain));
    assert_eq!(command(&mut driver, 1, 1, &[2, 7, 7, 7, 7, 7]), 0);
    assert!(!reaches(&mut driver, &plain));
    assert_eq!(driver.read(0x2000, 4), 0x0707_0702);
    let table = [&[1, 0, 0, 0][..], &ADDRESS, &[0, 0, 0, 0]].concat();
    assert_eq!(command(&mut driver, 1, 0, &table), 0);
    assert!(reaches(&mut driver, &plain));
    let tagged = samples::udp(false, Some(5), b"x");
    assert!(!reaches(&mut driver, &tagged));
    assert_eq!(command(&mut driver, 2, 0, &[5, 0]), 0);
    assert!(reaches(&mut driver, &tagged));
    assert_eq!(command(&mut driver, 2, 1, &[5, 0]), 0);
    assert!(!reaches(&mut driver, &tagged));
    assert_eq!(command(&mut driver, 4, 0, &[4, 0]), 0);
    assert_eq!(command(&mut driver, 5, 0, &[0; 8]), 0);
    driver.assert_good();
    for (class, number, data, part) in [
        (0, 0, &[2][..], "a mode is on"),
        (0, 9, &[0], "no such command"),
        (1, 0, &[9, 0, 0, 0, 1], "two tables"),
        (1, 1, &[1, 2], "six bytes"),
        (2, 0, &[0, 0x10], "less than 4096"),
        (3, 0, &[], "takes GUEST_ANNOUNCE"),
        (4, 0, &[5, 0], "max_virtqueue_pairs"),
        (4, 0, &[0, 0], "max_virtqueue_pairs"),
        (
            5,
            0,
            &[0x80, 0, 0, 0, 0, 0, 0, 0],
            "must have been negotiated",
        ),
        (77, 0, &[], "no such command"),
    ] {
        assert_eq!(command(&mut driver, class, number, data), 1, "{part}");
        driver.assert_report(part);
    }
    let head = driver.filled(&[0, 0, 1]);
    driver.offer(CONTROL, &[head]);
    driver.poll();
    assert_eq!(driver.used(CONTROL).unwrap().1, 0);
    driver.assert_report("room for ack");
}

#[test]
fn a_wire_that_comes_back_is_announced() {
    let features = feature::STATUS | feature::CTRL_VQ | feature::GUEST_ANNOUNCE;
    let mut driver = on_large(features, false);
    assert_eq!(driver.read(0x2006, 2), 1);
    driver.pci.device().wire().down = true;
    driver.poll();
    assert_eq!((driver.read(0x2006, 2), driver.read(0x15, 1)), (0, 1));
    assert_eq!(driver.pci.take_interrupts(), 1);
    driver.pci.device().wire().down = false;
    driver.poll();
    assert_eq!((driver.read(0x2006, 2), driver.read(0x15, 1)), (3, 2));
    assert_eq!(command(&mut driver, 3, 0, &[]), 0);
    assert_eq!(driver.read(0x2006, 2), 1);
    driver.assert_good();
    assert_eq!(command(&mut driver, 3, 0, &[]), 1);
}

#[test]
fn a_flow_comes_in_on_the_queue_that_it_went_out_on() {
    let (mut driver, mut wire) = on_pair(feature::CTRL_VQ | feature::MQ | feature::MRG_RXBUF);
    assert_eq!(command(&mut driver, 4, 0, &[4, 0]), 0);
    let frame = samples::udp(false, None, b"flow");
    for number in [3, 2] {
        let all = driver.filled(&[&[0; HEADER][..], &frame].concat());
        driver.offer(2 * number + 1, &[all]);
        driver.poll();
        assert!(driver.used(2 * number + 1).is_some() && wire.receive().is_some());
        let buffer = driver.buffer(100, true);
        driver.offer(2 * number, &[buffer]);
        wire.send(&frame, Offload::default());
        driver.poll();
        assert_eq!(
            driver.used(2 * number).unwrap().1 as usize,
            HEADER + frame.len()
        );
    }
    driver.assert_good();
}

#[test]
fn features_that_take_others_are_refused_without_them() {
    let (ours, _) = pair();
    let mut driver = Driver::new(VirtioNet::new(ADDRESS, ours), "");
    for (feature, takes, rule) in TAKES {
        assert_eq!(driver.negotiate(feature), 3, "{rule}");
        driver.assert_report(rule);
        let one = takes & takes.wrapping_neg();
        let more = match one {
            feature::GUEST_TSO4 | feature::GUEST_USO4 | feature::GUEST_USO6 => feature::GUEST_CSUM,
            feature::HOST_TSO4 | feature::HOST_USO => feature::CSUM,
            _ => 0,
        };
        assert_eq!(driver.negotiate(feature | one | more), 11, "{rule}");
    }
    assert_eq!(driver.negotiate(feature::MTU), 3);
    driver.assert_report("must not accept what is not offered");
}

#[test]
fn the_longest_packet_is_told_if_there_is_one() {
    let (ours, _) = pair();
    let card = VirtioNet::new(ADDRESS, ours).with_mtu(Some(9000));
    let mut driver = Driver::up(card, feature::MTU | feature::MAC | feature::SPEED_DUPLEX);
    assert_eq!(driver.read(0x200a, 2), 9000);
    assert_eq!(
        (driver.read(0x200c, 4), driver.read(0x2010, 1)),
        (10_000, 1)
    );
    assert_eq!(driver.read(0x2000, 1), 2);
    assert_eq!(driver.read(0x2100, 4), 0);
    driver.assert_good();
    driver.write(0x2000, 1, 7);
    driver.assert_report("7 was written to device configuration");
}

#[test]
fn no_frame_is_longer_than_the_mtu_allows() {
    // An Ethernet header and a tag are not counted.
    let [longest, longer] = [9018, 9019].map(|bytes| vec![3; bytes]);
    for (features, crosses) in [(feature::MTU, false), (0, true)] {
        let (ours, mut wire) = pair();
        let card = VirtioNet::new(ADDRESS, ours).with_mtu(Some(9000));
        let mut driver = Driver::up(card, features | feature::MRG_RXBUF);
        send(&mut driver, Header::default(), &longest, 2);
        driver.assert_good();
        send(&mut driver, Header::default(), &longer, 2);
        assert_eq!(driver.pci.violations().is_empty(), crosses);
        let sent = std::iter::from_fn(|| wire.receive()).count();
        receive_buffers(&mut driver, 8, 5000);
        for frame in [&longest, &longer] {
            wire.send(frame, Offload::default());
        }
        let came = driver.poll().received;
        assert_eq!((sent, came), if crosses { (2, 2) } else { (1, 1) });
        if !crosses {
            driver.assert_report("it must not exceed the MTU (5.1.4.2)");
        }
    }
}

#[test]
fn it_goes_wrong_on_demand() {
    let frame = samples::udp(false, None, &samples::bytes(100));
    let run = |faults: &str, frames: usize| {
        let (ours, mut wire) = pair();
        let mut driver = Driver::new(VirtioNet::new(ADDRESS, ours), faults);
        driver.bring_up(feature::MRG_RXBUF, 64);
        let buffers = receive_buffers(&mut driver, 32, 200);
        for _ in 0..frames {
            wire.send(&frame, Offload::default());
        }
        driver.poll();
        let used: Vec<_> = std::iter::from_fn(|| driver.used(RX)).collect();
        let first = driver.bytes(buffers[0]);
        (used, first, driver)
    };
    let good = (0, (HEADER + frame.len()) as u32);
    assert_eq!(run("", 1).0, [good]);
    assert_ne!(run("length=1", 1).0[0].1, good.1);
    assert_ne!(run("garbage=1", 1).0[0].0, good.0);
    assert_eq!(run("skip=1", 1).0, []);
    let whole = run("", 1).1;
    for fault in ["status=1", "joined=1", "wild-write=1"] {
        let (used, first, _) = run(fault, 1);
        assert_eq!(used, [good], "{fault}");
        assert_ne!(first, whole, "{fault}");
    }
    assert_eq!(run("early-done=1", 1).1, whole);
    assert_eq!(run("", 1).2.pci.take_interrupts(), 2);
    assert_eq!(run("lost-interrupt=1", 1).2.pci.take_interrupts(), 0);
    let mut flapped = run("link-flap=1", 1).2;
    assert_eq!(flapped.read(0x2006, 2), 0);
    let mut gone = run("gone=1", 1).2;
    assert_eq!((gone.read(0x2006, 2), gone.status()), (0xffff, 0xff));
    gone.pci.reset();
    assert_eq!(gone.status(), 0);
    let mut hung = run("transmit-hang=1", 0).2;
    let all = hung.filled(&[&[0; HEADER][..], &frame].concat());
    hung.offer(TX, &[all]);
    hung.poll();
    assert_eq!(hung.used(TX), None);
}

#[test]
fn event_indices_say_when_to_tell() {
    let (mut driver, mut wire) = on_pair(feature::MRG_RXBUF | common::EVENT_IDX);
    let frame = samples::udp(false, None, b"x");
    receive_buffers(&mut driver, 8, 200);
    let used_event = driver.rings[RX].driver_area() + 4 + 2 * u64::from(driver.rings[RX].size);
    driver.memory.store16(used_event, 2).unwrap();
    for expected in [0, 0, 2, 0] {
        wire.send(&frame, Offload::default());
        driver.poll();
        assert_eq!(driver.pci.take_interrupts(), expected);
    }
    driver.assert_good();
}

#[test]
fn places_are_not_used_by_wires_that_have_none() {
    let mut wire = Large::default();
    let none: Option<Incoming<'_>> = wire.peek_split(10, &[] as &[SpanMut<'_>]);
    assert!(none.is_none());
}
