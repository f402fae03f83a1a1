//! IPv4 over ports in memory.

use super::header::parse;
use super::*;
use crate::counts::Reason;
use crate::ethernet::Ethernet;
use crate::icmp::Kind;
use crate::random::Random;
use crate::testing::{self, Wire, at};
use alloc::boxed::Box;
use device::memory::MemoryPort;
use device::{Batch, Checksum, Gso, GsoKind};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const UDP: u8 = 17;

/// Knows one neighbour: shows that ARP can be replaced.
struct Fixed;

impl Resolve for Fixed {
    fn lookup(&mut self, neighbour: Ipv4Addr, _: Instant) -> Option<Mac> {
        (neighbour == PEER).then_some(Mac(PEER_MAC))
    }

    fn hold(
        &mut self,
        _: &mut impl Link,
        _: Ipv4Addr,
        _: Unaddressed,
        _: Instant,
    ) -> Result<(), Unsent> {
        Err(Unsent::NoNeighbour)
    }

    fn confirm(&mut self, _: Ipv4Addr, _: Instant) {}

    fn claim(&mut self, _: Ipv4Addr, _: Detect, _: Instant) -> bool {
        true
    }

    fn release(&mut self, _: Ipv4Addr) {}

    fn is_usable(&self, address: Ipv4Addr) -> bool {
        address == OURS
    }

    fn is_lost(&self, _: Ipv4Addr) -> bool {
        false
    }

    fn receive(&mut self, _: &mut impl Link, _: Mac, _: &[u8], _: Instant) {}

    fn poll(&mut self, _: &mut impl Link, _: Instant) {}

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn counts(&self, _: &mut dyn FnMut(&'static str, u64)) {}
}

struct Host<R> {
    ipv4: Ipv4<R>,
    link: Ethernet,
    wire: Wire,
}

fn network(address: Ipv4Addr) -> Prefix<Ipv4Addr> {
    Prefix::new(address, 24).unwrap()
}

impl Host<Fixed> {
    fn new(port: MemoryPort) -> Self {
        let (port, wire) = port.split();
        let mut ipv4 = Ipv4::over(Fixed, testing::large(6), 1);
        assert!(ipv4.add_address(network(OURS), Detect::Later, at(0)));
        Self {
            ipv4,
            link: Ethernet::new(Box::new(port)),
            wire,
        }
    }

    fn plain() -> Self {
        Self::new(MemoryPort::new("net"))
    }
}

impl<R: Resolve> Host<R> {
    fn write(&mut self, packet: Packet<Ipv4Addr>, payload: &[u8]) -> Result<(), Unsent> {
        let fill = |place: &mut [u8]| {
            place.copy_from_slice(payload);
            Filled::new(payload.len())
        };
        self.ipv4
            .write(&mut self.link, packet, payload.len(), fill, at(0))
    }

    /// Packets that were sent since the last time, without their Ethernet headers.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        self.link.flush();
        let sent = self.wire.sent();
        let is_ipv4 = |frame: &&Vec<u8>| frame[12..14] == [8, 0];
        sent.iter()
            .filter(is_ipv4)
            .map(|frame| frame[14..].to_vec())
            .collect()
    }

    /// A packet comes to our own link address.
    fn receive(&mut self, packet: &[u8]) -> Option<Arrived<Ipv4Addr>> {
        self.receive_to([2, 0, 0, 0, 0, 0], packet)
    }

    fn receive_to(&mut self, to: [u8; 6], packet: &[u8]) -> Option<Arrived<Ipv4Addr>> {
        let frame = [&to[..], &PEER_MAC, &[8, 0], packet].concat();
        self.wire.arrives(&frame);
        let mut batch = Batch::new();
        self.link.receive(&mut batch);
        let frame = batch.drain().next()?;
        let arrival = self.link.accept(frame)?;
        self.ipv4.accept(&mut self.link, arrival, at(0))
    }

    fn dropped(&self, reason: Dropped) -> u64 {
        self.ipv4.dropped().get(reason)
    }
}

fn udp() -> Packet<Ipv4Addr> {
    Packet::new(OURS, PEER, UDP)
}

fn received(arrived: Option<Arrived<Ipv4Addr>>) -> Received<Ipv4Addr> {
    match arrived {
        Some(Arrived::Packet(received)) => received,
        other => panic!("{other:?}"),
    }
}

/// A packet from the peer.
fn from_peer(edit: impl FnOnce(&mut Header), payload: &[u8]) -> Vec<u8> {
    let mut header = header_of(&Packet::new(PEER, OURS, UDP), payload.len());
    edit(&mut header);
    let mut packet = vec![0; HEADER];
    header.emit(packet.first_chunk_mut().unwrap());
    packet.extend(payload);
    packet
}

#[test]
fn a_packet_has_its_header_and_goes_to_its_next_hop() {
    let mut host = Host::plain();
    assert_eq!(host.write(udp(), b"hello"), Ok(()));
    host.link.flush();
    let frame = host.wire.sent().remove(0);
    assert_eq!(frame[..6], PEER_MAC);
    let (header, len) = parse(&frame[14..]).unwrap();
    assert_eq!((header.source, header.destination, len), (OURS, PEER, 20));
    assert_eq!(
        (header.total, header.hops, header.dont_fragment),
        (25, 64, true)
    );
    assert_eq!(frame[34..], *b"hello");
}

#[test]
fn what_is_left_to_the_port_lies_behind_all_headers() {
    let mut host = Host::plain();
    let fill = |place: &mut [u8]| {
        place.fill(0);
        Filled {
            len: 40,
            offload: Offload {
                checksum: Some(Checksum {
                    start: 0,
                    offset: 16,
                }),
                gso: None,
            },
        }
    };
    let written = host.ipv4.write(&mut host.link, udp(), 100, fill, at(0));
    assert_eq!(written, Ok(()));
    // The sum of nothing, at its place.
    assert_eq!(host.sent()[0][20 + 16..20 + 18], [0xff, 0xff]);
}

/// Fills a large TCP segment with so many bytes of payload in segments of `size`.
fn large_segment(place: &mut [u8], size: u16) -> Filled {
    place.fill(7);
    place[12] = 5 << 4;
    Filled {
        len: place.len(),
        offload: Offload {
            checksum: Some(Checksum {
                start: 0,
                offset: 16,
            }),
            gso: Some(Gso {
                kind: GsoKind::TcpV4,
                size,
                header: 20,
                ecn: false,
            }),
        },
    }
}

#[test]
fn a_large_segment_is_cut_by_the_port() {
    let mut host = Host::new(MemoryPort::new("net").with_tso());
    let largest = Version::largest(&host.ipv4, &host.link, PEER, at(0));
    assert_eq!(largest, 65_515);
    let packet = Packet::new(OURS, PEER, 6);
    let fill = |place: &mut [u8]| large_segment(place, 1460);
    let written = host
        .ipv4
        .write(&mut host.link, packet, largest, fill, at(0));
    assert_eq!(written, Ok(()));
    let sent = host.sent();
    assert_eq!(sent.len(), 45);
    assert!(
        sent.iter()
            .all(|packet| parse(packet).unwrap().0.total as usize == packet.len())
    );
    // Segments that exceed the MTU are not sent.
    let fill = |place: &mut [u8]| large_segment(place, 1461);
    let written = host
        .ipv4
        .write(&mut host.link, packet, largest, fill, at(0));
    assert_eq!((written, host.sent().len()), (Err(Unsent::TooBig), 0));
}

#[test]
fn a_packet_without_a_route_or_way_is_not_sent() {
    let mut host = Host::plain();
    let to = |destination: [u8; 4]| Packet::new(OURS, destination.into(), UDP);
    assert_eq!(host.write(to([192, 0, 2, 1]), b""), Err(Unsent::NoRoute));
    assert_eq!(
        host.write(to([10, 0, 0, 1]), b""),
        Err(Unsent::NoRoute),
        "our own"
    );
    assert_eq!(host.write(to([10, 0, 0, 3]), b""), Err(Unsent::NoNeighbour));
    let default = Prefix::new([0; 4].into(), 0).unwrap();
    host.ipv4.routes().add(Route {
        network: default,
        gateway: Some(PEER),
    });
    assert_eq!(host.write(to([192, 0, 2, 1]), b""), Ok(()));
    assert_eq!(
        Version::<Ethernet>::source(&host.ipv4, [192, 0, 2, 1].into(), at(0)),
        Some(OURS)
    );
}

#[test]
fn groups_and_everybody_have_link_addresses_of_their_own() {
    let mut host = Host::plain();
    for (destination, mac) in [
        ([224, 129, 2, 3], [1, 0, 0x5e, 1, 2, 3]),
        ([255; 4], [0xff; 6]),
        ([10, 0, 0, 255], [0xff; 6]),
    ] {
        host.write(Packet::new(OURS, destination.into(), UDP), b"")
            .unwrap();
        host.link.flush();
        assert_eq!(host.wire.sent()[0][..6], mac);
    }
}

#[test]
fn a_source_lies_in_the_network_of_the_next_hop() {
    let mut host = Host::new(MemoryPort::new("net"));
    let mut ipv4 = Ipv4::new(testing::large(3), 1);
    let other = Ipv4Addr::new(10, 9, 0, 1);
    ipv4.add_address(network(OURS), Detect::Later, at(0));
    ipv4.add_address(network(other), Detect::Later, at(0));
    let source = |ipv4: &Ipv4, to: [u8; 4]| Version::<Ethernet>::source(ipv4, to.into(), at(0));
    assert_eq!(source(&ipv4, [10, 9, 0, 7]), Some(other));
    assert_eq!(source(&ipv4, [10, 9, 0, 255]), Some(other));
    assert_eq!(source(&ipv4, [255; 4]), Some(OURS));
    assert_eq!(source(&ipv4, [192, 0, 2, 1]), None);
    // Two of one network: the route stays until both are gone.
    let twin = Ipv4Addr::new(10, 0, 0, 200);
    ipv4.add_address(network(twin), Detect::Later, at(0));
    ipv4.remove_address(twin);
    assert_eq!(source(&ipv4, [10, 0, 0, 7]), Some(OURS));
    ipv4.remove_address(OURS);
    assert_eq!(source(&ipv4, [10, 0, 0, 7]), None);
    // With ARP, a packet waits for the neighbour's address.
    let mut ipv4 = Ipv4::new(testing::large(3), 1);
    ipv4.add_address(network(OURS), Detect::Later, at(0));
    let fill = |_: &mut [u8]| Filled::new(0);
    let written = ipv4.write(&mut host.link, udp(), 0, fill, at(0));
    assert_eq!((written, host.sent()), (Ok(()), vec![]));
}

#[test]
fn what_may_not_be_cut_is_refused() {
    let mut host = Host::plain();
    assert_eq!(host.write(udp(), &[0; 1481]), Err(Unsent::TooBig));
    assert_eq!(host.write(udp(), &[0; 1480]), Ok(()));
    let cut = Packet {
        fragment: true,
        ..udp()
    };
    assert_eq!(host.write(cut, &[0; 65_516]), Err(Unsent::TooBig));
    assert_eq!(host.write(cut, &[0; 65_515]), Ok(()));
    let small = host.write(cut, b"small");
    let packet = host.sent().pop().unwrap();
    assert_eq!(small, Ok(()));
    assert!(!parse(&packet).unwrap().0.dont_fragment);
}

#[test]
fn a_path_that_carries_less_is_believed_only_of_a_live_packet() {
    let mut host = Host::plain();
    let report = Report {
        kind: Kind::TooBig { mtu: 1300 },
        source: OURS,
        destination: PEER,
        protocol: 6,
        len: 1500,
        transport: [0; 8],
    };
    let Host { ipv4, link, .. } = &mut host;
    assert_eq!(ipv4.too_big(link, &report, false, at(0)), None);
    assert_eq!(ipv4.too_big(link, &report, true, at(0)), Some(1300));
    assert_eq!(ipv4.mtu(link, PEER, at(0)), 1300);
    assert_eq!(ipv4.largest(link, PEER, at(0)), 1280);
    assert_eq!(host.write(udp(), &[0; 1281]), Err(Unsent::TooBig));
    let cut = Packet {
        fragment: true,
        ..udp()
    };
    host.write(cut, &[0; 1281]).unwrap();
    assert_eq!(host.sent().len(), 2);
}

#[test]
fn a_received_packet_goes_up_without_header_and_padding() {
    let mut host = Host::plain();
    let mut packet = from_peer(|header| header.class = 3, b"hello");
    packet.extend([0; 21]);
    let mut up = received(host.receive(&packet));
    assert_eq!((up.source, up.destination, up.protocol), (PEER, OURS, UDP));
    assert_eq!(
        (up.unicast, up.class, up.frame.bytes()),
        (true, 3, &b"hello"[..])
    );
    up.frame.push_front(up.header).unwrap();
    assert_eq!(up.frame.bytes(), &packet[..25]);
}

#[test]
fn each_packet_that_is_not_for_us_has_its_reason() {
    let mut host = Host::plain();
    let to =
        |destination: [u8; 4]| from_peer(|header| header.destination = destination.into(), b"");
    assert!(host.receive(&to([10, 0, 0, 9])).is_none());
    assert!(
        host.receive_to([1, 0, 0x5e, 1, 2, 3], &to([224, 1, 2, 3]))
            .is_none()
    );
    assert_eq!(host.dropped(Dropped::NotOurs), 2);
    assert!(host.receive_to([0xff; 6], &to([10, 0, 0, 1])).is_none());
    assert_eq!(host.dropped(Dropped::Broadcast), 1);
    for source in [[10, 0, 0, 255], [10, 0, 0, 1], [0; 4]] {
        let packet = from_peer(|header| header.source = source.into(), b"");
        assert!(host.receive(&packet).is_none());
    }
    assert_eq!(host.dropped(Dropped::Source), 3);
    for destination in [[10, 0, 0, 255], [255; 4], [224, 0, 0, 1]] {
        let up = received(host.receive_to([0xff; 6], &to(destination)));
        assert!(!up.unicast);
    }
    assert!(host.ipv4.join([224, 1, 2, 3].into(), at(0)) && !host.ipv4.join(PEER, at(0)));
    assert!(
        host.receive_to([1, 0, 0x5e, 1, 2, 3], &to([224, 1, 2, 3]))
            .is_some()
    );
    host.ipv4.leave([224, 1, 2, 3].into(), at(0));
    assert!(
        host.receive_to([1, 0, 0x5e, 1, 2, 3], &to([224, 1, 2, 3]))
            .is_none()
    );
    assert_eq!(Dropped::NAMES[Dropped::Icmp.index()], "ipv4_icmp");
}

/// The echo request of `ping -s`, in fragments that the peer sends.
fn ping(size: usize) -> Vec<Vec<u8>> {
    let mut message = vec![0; 8 + size];
    message[0] = 8;
    message[8..]
        .iter_mut()
        .enumerate()
        .for_each(|(n, byte)| *byte = n as u8);
    crate::icmp::complete(&mut message, 0);
    let pieces = message.chunks(1480).count();
    let fragment = |(n, piece): (usize, &[u8])| {
        let edit = |header: &mut Header| {
            header.protocol = icmp::PROTOCOL;
            header.id = 77;
            header.dont_fragment = false;
            header.more = n + 1 < pieces;
            header.offset = (n * 1480) as u16;
        };
        from_peer(edit, piece)
    };
    message.chunks(1480).enumerate().map(fragment).collect()
}

#[test]
fn an_echo_of_65000_bytes_comes_back() {
    for size in [0, 56, 65_000] {
        let mut host = Host::plain();
        for fragment in ping(size) {
            assert!(host.receive(&fragment).is_none());
        }
        let mut message = Vec::new();
        for packet in host.sent() {
            let (header, len) = parse(&packet).unwrap();
            assert_eq!(
                (header.offset as usize, header.destination),
                (message.len(), PEER)
            );
            message.extend(&packet[len..]);
        }
        assert_eq!((message.len(), message[0]), (8 + size, 0));
        assert!(crate::icmp::is_intact(&message, 0));
        assert!(
            message[8..]
                .iter()
                .enumerate()
                .all(|(n, byte)| *byte == n as u8)
        );
        assert_eq!(host.ipv4.large.free(), 6);
    }
}

#[test]
fn an_echo_to_everybody_has_no_answer() {
    let mut host = Host::plain();
    let mut packet = ping(8).remove(0);
    let (mut header, _) = parse(&packet).unwrap();
    header.destination = [10, 0, 0, 255].into();
    header.emit(packet.first_chunk_mut().unwrap());
    host.receive_to([0xff; 6], &packet);
    assert_eq!(host.sent(), Vec::<Vec<u8>>::new());
}

#[test]
fn a_refused_packet_is_quoted_and_errors_are_limited() {
    let mut host = Host::plain();
    let packet = from_peer(|_| {}, &[7; 1000]);
    for _ in 0..100 {
        let up = received(host.receive(&packet));
        host.ipv4.refuse(&mut host.link, up, Refusal::Port, at(0));
    }
    let sent = host.sent();
    assert_eq!(sent.len() as u32, ERRORS_BURST);
    assert_eq!((sent[0].len(), sent[0][20], sent[0][21]), (576, 3, 3));
    assert_eq!(sent[0][28..], packet[..548]);
    // Not for everybody.
    let mut broadcast = received(host.receive(&packet));
    broadcast.unicast = false;
    host.ipv4
        .refuse(&mut host.link, broadcast, Refusal::Port, at(9000));
    assert_eq!(host.sent().len(), 0);
}

#[test]
fn an_error_about_our_packet_goes_up() {
    let mut host = Host::plain();
    host.write(udp(), &[7; 100]).unwrap();
    let ours = host.sent().remove(0);
    for (quoted, expected) in [(ours, true), (from_peer(|_| {}, &[7; 100]), false)] {
        let mut message = vec![3, 4, 0, 0, 0, 0, 5, 0];
        message.extend(quoted);
        crate::icmp::complete(&mut message, 0);
        let packet = from_peer(|header| header.protocol = icmp::PROTOCOL, &message);
        match host.receive(&packet) {
            Some(Arrived::Report(report)) if expected => {
                assert_eq!(report.kind, Kind::TooBig { mtu: 1280 });
            }
            None if !expected => {}
            other => panic!("{other:?}"),
        }
    }
    let broken = from_peer(|header| header.protocol = icmp::PROTOCOL, &[3, 4, 0, 0]);
    assert!(host.receive(&broken).is_none());
    assert_eq!(host.dropped(Dropped::Icmp), 1);
}

#[test]
fn a_packet_that_does_not_become_whole_is_told_of() {
    let mut host = Host::plain();
    host.receive(&from_peer(|header| header.more = true, &[7; 800]));
    let due = Version::<Ethernet>::deadline(&host.ipv4).unwrap();
    assert_eq!(due, at(30_000));
    host.ipv4.poll(&mut host.link, due);
    let error = host.sent().remove(0);
    assert_eq!((error[20], error[21], error.len()), (11, 1, 576));
}

proptest! {
    #[test]
    fn what_is_cut_is_put_together_in_any_order(
        payload in proptest::collection::vec(any::<u8>(), 1..6000),
        mtu in 600usize..1500,
        seed: u64,
    ) {
        let mut host = Host::new(MemoryPort::new("net").with_mtu(mtu));
        host.write(Packet { fragment: true, ..udp() }, &payload).unwrap();
        let mut packets = host.sent();
        let mut random = Random::new(seed);
        for n in (1..packets.len()).rev() {
            packets.swap(n, random.below(n as u64 + 1) as usize);
        }
        let mut peer = Host::plain();
        let mut whole = None;
        for packet in &mut packets {
            prop_assert!(packet.len() <= mtu);
            let (mut header, _) = parse(packet).unwrap();
            (header.source, header.destination) = (PEER, OURS);
            header.emit(packet.first_chunk_mut().unwrap());
            prop_assert!(whole.is_none());
            whole = peer.receive(packet);
        }
        let whole = received(whole);
        prop_assert_eq!(whole.frame.bytes(), &payload[..]);
    }

    #[test]
    fn random_packets_never_panic(
        packets in proptest::collection::vec(
            (any::<bool>(), any::<u16>(), 0u8..20, proptest::collection::vec(any::<u8>(), 0..60)),
            1..20,
        ),
    ) {
        let mut host = Host::plain();
        for (more, offset, protocol, payload) in packets {
            let packet = from_peer(
                |header| {
                    header.more = more;
                    header.offset = offset & 0xfff8;
                    header.protocol = protocol;
                },
                &payload,
            );
            if let Some(Arrived::Packet(up)) = host.receive(&packet) {
                host.ipv4.refuse(&mut host.link, up, Refusal::Protocol, at(0));
            }
        }
        host.ipv4.poll(&mut host.link, at(100_000));
        prop_assert_eq!(host.ipv4.large.free(), 6);
    }
}
