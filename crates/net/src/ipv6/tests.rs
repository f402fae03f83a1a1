//! IPv6 over ports in memory.

use super::*;
use crate::ethernet::Ethernet;
use crate::icmp::Kind;
use crate::random::Random;
use crate::testing::{self, Wire, at};
use alloc::boxed::Box;
use device::memory::MemoryPort;
use device::{Batch, Checksum, Gso, GsoKind, Offload};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const PEER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9);
const FAR: Ipv6Addr = Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1);
const MAC: Mac = Mac([2, 0, 0, 0, 0, 0]);
const PEER_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const UDP: u8 = 17;

struct Host {
    ipv6: Ipv6,
    link: Ethernet,
    wire: Wire,
}

impl Host {
    /// A host without an address.
    fn bare(port: MemoryPort) -> Self {
        let (port, wire) = port.split();
        Self {
            ipv6: Ipv6::new(testing::large(6), 1),
            link: Ethernet::new(Box::new(port)),
            wire,
        }
    }

    /// A host that has had its address for a while, and knows the peer.
    fn new(port: MemoryPort) -> Self {
        let mut host = Self::bare(port);
        let network = Prefix::new(OURS, 64).unwrap();
        assert!(host.ipv6.add_address(network, Detect::Later, at(0)));
        host.poll(0);
        host.poll(5000);
        host.discover(PEER, OURS, nd::solicit(OURS, Some(PEER_MAC)));
        host.sent();
        host
    }

    fn plain() -> Self {
        Self::new(MemoryPort::new("net"))
    }

    fn write(&mut self, packet: Packet<Ipv6Addr>, payload: &[u8]) -> Result<(), Unsent> {
        let fill = |place: &mut [u8]| {
            place.copy_from_slice(payload);
            Filled::new(payload.len())
        };
        self.ipv6
            .write(&mut self.link, packet, payload.len(), fill, at(5000))
    }

    fn poll(&mut self, ms: u64) -> Vec<(Ipv6Addr, Message)> {
        self.ipv6.poll(&mut self.link, at(ms));
        self.messages()
    }

    /// Packets that were sent since the last time, without their Ethernet headers.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        self.link.flush();
        self.wire
            .sent()
            .iter()
            .map(|frame| frame[14..].to_vec())
            .collect()
    }

    /// Messages of Neighbour Discovery that were sent: to whom, and what.
    fn messages(&mut self) -> Vec<(Ipv6Addr, Message)> {
        let read = |packet: &Vec<u8>| {
            let header = header::parse(packet).ok()?;
            let (source, destination) = (header.source, header.destination);
            let message = &packet[HEADER..];
            assert!(matches!(
                icmp::parse(source, destination, message),
                Some(super::Message::Discovery)
            ));
            let message = nd::parse(source, destination, header.hops, message, at(0))?;
            Some((destination, message))
        };
        self.sent().iter().filter_map(read).collect()
    }

    fn receive(&mut self, packet: &[u8]) -> Option<Arrived<Ipv6Addr>> {
        self.receive_to(MAC, packet)
    }

    fn receive_to(&mut self, to: Mac, packet: &[u8]) -> Option<Arrived<Ipv6Addr>> {
        let frame = [&to.0[..], &PEER_MAC.0, &[0x86, 0xdd], packet].concat();
        self.wire.arrives(&frame);
        let mut batch = Batch::new();
        self.link.receive(&mut batch);
        let frame = batch.drain().next()?;
        let arrival = self.link.accept(frame)?;
        self.ipv6.accept(&mut self.link, arrival, at(5000))
    }

    /// A message of Neighbour Discovery comes.
    fn discover(&mut self, source: Ipv6Addr, to: Ipv6Addr, message: smoltcp::wire::NdiscRepr<'_>) {
        let mut bytes = [0; 64];
        let len = nd::write(message, source, to, &mut bytes);
        self.discover_bytes(source, to, &bytes[..len]);
    }

    fn discover_bytes(&mut self, source: Ipv6Addr, to: Ipv6Addr, message: &[u8]) {
        let edit = |header: &mut Header| {
            header.source = source;
            header.destination = to;
            header.hops = 255;
            header.next = icmp::PROTOCOL;
        };
        let mac = if to.is_multicast() {
            group_mac(to)
        } else {
            MAC
        };
        assert!(self.receive_to(mac, &from_peer(edit, message)).is_none());
    }

    fn dropped(&self, reason: Dropped) -> u64 {
        self.ipv6.dropped().get(reason)
    }
}

use nd::Message;

fn udp() -> Packet<Ipv6Addr> {
    Packet::new(OURS, PEER, UDP)
}

fn received(arrived: Option<Arrived<Ipv6Addr>>) -> Received<Ipv6Addr> {
    match arrived {
        Some(Arrived::Packet(received)) => received,
        other => panic!("{other:?}"),
    }
}

/// A packet from the peer.
fn from_peer(edit: impl FnOnce(&mut Header), payload: &[u8]) -> Vec<u8> {
    let mut header = header_of(&Packet::new(PEER, OURS, UDP), UDP);
    header.payload = payload.len() as u16;
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
    assert_eq!(frame[..6], PEER_MAC.0);
    let header = header::parse(&frame[14..]).unwrap();
    assert_eq!((header.source, header.destination), (OURS, PEER));
    assert_eq!((header.payload, header.next, header.hops), (5, UDP, 64));
    assert_eq!(frame[54..], *b"hello");
}

#[test]
fn a_large_segment_is_cut_by_the_port() {
    let mut host = Host::new(MemoryPort::new("net").with_tso());
    let largest = Version::largest(&host.ipv6, &host.link, PEER, at(0));
    assert_eq!(largest, 65_495);
    let fill = |size| {
        move |place: &mut [u8]| {
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
                        kind: GsoKind::TcpV6,
                        size,
                        header: 20,
                        ecn: false,
                    }),
                },
            }
        }
    };
    let packet = Packet::new(OURS, PEER, 6);
    let Host { ipv6, link, .. } = &mut host;
    assert_eq!(ipv6.write(link, packet, largest, fill(1440), at(0)), Ok(()));
    assert_eq!(
        ipv6.write(link, packet, largest, fill(1441), at(0)),
        Err(Unsent::TooBig)
    );
    let sent = host.sent();
    assert_eq!(sent.len(), 46);
    assert!(sent.iter().all(|packet| header::parse(packet).is_ok()));
}

#[test]
fn a_packet_without_a_route_or_room_is_not_sent() {
    let mut host = Host::plain();
    assert_eq!(
        host.write(Packet::new(OURS, FAR, UDP), b""),
        Err(Unsent::NoRoute)
    );
    assert_eq!(
        host.write(Packet::new(OURS, OURS, UDP), b""),
        Err(Unsent::NoRoute)
    );
    assert_eq!(host.write(udp(), &[0; 1461]), Err(Unsent::TooBig));
    assert_eq!(host.write(udp(), &[0; 1460]), Ok(()));
    let cut = Packet {
        fragment: true,
        ..udp()
    };
    assert_eq!(host.write(cut, &[0; 65_535]), Ok(()));
    assert_eq!(host.write(cut, &[0; 65_536]), Err(Unsent::TooBig));
    let mut narrow = Host::new(MemoryPort::new("net").with_mtu(1000));
    assert_eq!(
        narrow.write(udp(), b""),
        Err(Unsent::TooBig),
        "no link for IPv6"
    );
}

#[test]
fn an_unknown_neighbour_is_asked_for_and_the_packet_waits() {
    let mut host = Host::plain();
    let other = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0xab, 0xcdef);
    assert_eq!(host.write(Packet::new(OURS, other, UDP), b"hello"), Ok(()));
    let group = "ff02::1:ffab:cdef".parse().unwrap();
    let question = Message::Solicit {
        target: other,
        mac: Some(MAC),
    };
    assert_eq!(host.messages(), [(group, question)]);
    host.discover(other, OURS, nd::advertise(other, PEER_MAC, (true, false)));
    assert_eq!(host.sent()[0][HEADER..], *b"hello");
}

#[test]
fn a_solicitation_for_our_address_is_answered() {
    let mut host = Host::plain();
    let answer = |solicited| Message::Advertise {
        target: OURS,
        mac: Some(MAC),
        solicited,
        replaces: true,
    };
    host.discover(PEER, OURS, nd::solicit(OURS, Some(PEER_MAC)));
    assert_eq!(host.messages(), [(PEER, answer(true))]);
    // Somebody wants to have it.
    let group = "ff02::1:ff00:1".parse().unwrap();
    host.discover(Ipv6Addr::UNSPECIFIED, group, nd::solicit(OURS, None));
    assert_eq!(host.messages(), [(nd::ALL_NODES, answer(false))]);
    assert!(host.ipv6.is_usable(OURS));
    host.discover(PEER, OURS, nd::solicit(FAR, Some(PEER_MAC)));
    assert_eq!(host.messages(), []);
}

#[test]
fn an_address_that_somebody_has_is_not_taken() {
    let group = "ff02::1:ff00:1".parse().unwrap();
    for probe in [true, false] {
        let mut host = Host::bare(MemoryPort::new("net"));
        let network = Prefix::new(OURS, 64).unwrap();
        host.ipv6.add_address(network, Detect::First, at(0));
        let due = Version::<Ethernet>::deadline(&host.ipv6).unwrap();
        host.ipv6.poll(&mut host.link, due);
        assert_eq!(
            host.messages(),
            [(
                group,
                Message::Solicit {
                    target: OURS,
                    mac: None
                }
            )]
        );
        if probe {
            host.discover(Ipv6Addr::UNSPECIFIED, group, nd::solicit(OURS, None));
        } else {
            host.discover(
                OURS,
                nd::ALL_NODES,
                nd::advertise(OURS, PEER_MAC, (false, false)),
            );
        }
        assert!(host.ipv6.is_lost(OURS) && !host.ipv6.is_usable(OURS));
    }
}

/// A router's advertisement: lifetime in seconds, an MTU, and 2001:db8:1::/64.
fn advertisement(lifetime: u16, mtu: u32, valid: u32) -> Vec<u8> {
    let mut message = vec![134, 0, 0, 0, 64, 0];
    message.extend(lifetime.to_be_bytes());
    message.extend([0; 8]);
    message.extend([1, 1, 2, 0, 0, 0, 0, 2]);
    message.extend([5, 1, 0, 0]);
    message.extend(mtu.to_be_bytes());
    message.extend([3, 4, 64, 0xc0]);
    message.extend(valid.to_be_bytes());
    message.extend(valid.to_be_bytes());
    message.extend([0; 4]);
    message.extend([0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    icmp::complete(ROUTER, nd::ALL_NODES, &mut message);
    message
}

#[test]
fn vlans_of_one_port_have_addresses_of_their_own() {
    let mut host = Host::bare(MemoryPort::new("net"));
    host.ipv6.on_vlan(100);
    host.ipv6.autoconfigure(MAC, Detect::Later, at(0));
    let local: Ipv6Addr = "fe80::6400:0".parse().unwrap();
    let chosen: Vec<_> = host.ipv6.addresses().map(|own| own.address()).collect();
    assert_eq!(chosen, [local]);
}

#[test]
fn a_host_configures_itself_from_what_a_router_tells() {
    let mut host = Host::bare(MemoryPort::new("net"));
    host.ipv6.autoconfigure(MAC, Detect::First, at(0));
    let local: Ipv6Addr = "fe80::ff:fe00:0".parse().unwrap();
    assert!(!host.ipv6.is_usable(local));
    let mut asked = 0;
    for _ in 0..4 {
        let due = Version::<Ethernet>::deadline(&host.ipv6).unwrap();
        host.ipv6.poll(&mut host.link, due);
        asked += host
            .sent()
            .iter()
            .filter(|packet| packet[HEADER] == 133)
            .count();
    }
    assert!(asked > 0 && host.ipv6.is_usable(local));

    host.discover_bytes(ROUTER, nd::ALL_NODES, &advertisement(1800, 1400, 3600));
    let own: Ipv6Addr = "2001:db8:1::ff:fe00:0".parse().unwrap();
    while !host.ipv6.is_usable(own) {
        let due = Version::<Ethernet>::deadline(&host.ipv6).unwrap();
        host.ipv6.poll(&mut host.link, due);
        host.sent();
    }
    assert_eq!(host.ipv6.addresses().count(), 2);
    assert_eq!(
        Version::<Ethernet>::source(&host.ipv6, FAR, at(5000)),
        Some(own)
    );
    assert_eq!(host.ipv6.mtu(&host.link, FAR, at(5000)), 1400);
    // To far away by the router, whose link address it told.
    assert_eq!(host.write(Packet::new(own, FAR, UDP), b"hello"), Ok(()));
    host.link.flush();
    assert_eq!(host.wire.sent()[0][..6], PEER_MAC.0);
    // Again, and gone.
    host.discover_bytes(ROUTER, nd::ALL_NODES, &advertisement(0, 100, 3600));
    assert_eq!(host.ipv6.addresses().count(), 2);
    assert_eq!(
        host.ipv6.mtu(&host.link, FAR, at(5000)),
        1400,
        "no link for IPv6 is that narrow"
    );
    assert_eq!(
        host.write(Packet::new(own, FAR, UDP), b""),
        Err(Unsent::NoRoute)
    );
    host.poll(5000 + 3_600_000);
    assert_eq!(host.ipv6.addresses().count(), 1);
}

#[test]
fn floods_of_discovery_are_bounded() {
    let mut host = Host::plain();
    for n in 0..3000_u32 {
        let source = Ipv6Addr::from_bits(PEER.to_bits() + 10 + u128::from(n));
        host.discover(source, OURS, nd::solicit(OURS, Some(PEER_MAC)));
        let mut prefix = advertisement(1800, 1400, 3600);
        let at = prefix.len() - 10;
        prefix[at..at + 2].copy_from_slice(&(n as u16).to_be_bytes());
        prefix[2..4].fill(0);
        icmp::complete(ROUTER, nd::ALL_NODES, &mut prefix);
        host.discover_bytes(ROUTER, nd::ALL_NODES, &prefix);
        host.sent();
    }
    assert!(host.ipv6.discovery.neighbours.len() <= crate::neighbour::UNPROVEN_MAX + 2);
    assert_eq!(host.ipv6.addresses().count(), 1);
    assert_eq!(host.write(udp(), b"hello"), Ok(()));
    assert_eq!(host.sent().len(), 1, "the peer is known still");
}

#[test]
fn a_received_packet_goes_up_without_headers_and_padding() {
    let mut host = Host::plain();
    let mut payload = vec![UDP, 0, 1, 4, 0, 0, 0, 0];
    payload.extend(b"hello");
    let mut packet = from_peer(|header| (header.next, header.class) = (60, 3), &payload);
    packet.extend([0; 9]);
    let mut up = received(host.receive(&packet));
    assert_eq!((up.source, up.destination, up.protocol), (PEER, OURS, UDP));
    assert_eq!(
        (up.unicast, up.class, up.frame.bytes()),
        (true, 3, &b"hello"[..])
    );
    up.frame.push_front(up.header).unwrap();
    assert_eq!(up.frame.bytes(), &packet[..53]);
}

#[test]
fn each_packet_that_is_not_for_us_has_its_reason() {
    let mut host = Host::plain();
    let to = |to: &str| from_peer(|header| header.destination = to.parse().unwrap(), b"");
    assert!(host.receive(&to("2001:db8::9")).is_none());
    assert!(host.receive(&to("ff02::5")).is_none());
    assert_eq!(host.dropped(Dropped::NotOurs), 2);
    assert!(
        host.receive_to(Mac([0x33; 6]), &to("2001:db8::1"))
            .is_none()
    );
    assert_eq!(host.dropped(Dropped::Broadcast), 1);
    for source in [Ipv6Addr::UNSPECIFIED, OURS] {
        assert!(
            host.receive(&from_peer(|header| header.source = source, b""))
                .is_none()
        );
    }
    assert_eq!(host.dropped(Dropped::Source), 2);
    let group = "ff02::5".parse().unwrap();
    assert!(host.ipv6.join(group, at(0)) && !host.ipv6.join(PEER, at(0)));
    assert!(!received(host.receive(&to("ff02::5"))).unicast);
    host.ipv6.leave(group, at(0));
    assert!(host.receive(&to("ff02::5")).is_none());
    let bad = from_peer(|header| header.next = icmp::PROTOCOL, &[135, 0, 0, 0]);
    assert!(host.receive(&bad).is_none());
    assert_eq!(host.dropped(Dropped::Icmp), 1);
}

#[test]
fn an_echo_of_65000_bytes_comes_back() {
    for size in [0, 56, 65_000] {
        let mut host = Host::plain();
        let mut message = vec![0; 8 + size];
        message[0] = 128;
        icmp::complete(PEER, OURS, &mut message);
        let pieces = message.chunks(1400).count();
        for (n, bytes) in message.chunks(1400).enumerate() {
            let piece = Piece {
                id: 7,
                offset: (n * 1400) as u16,
                more: n + 1 < pieces,
            };
            let mut payload = vec![0; 8];
            piece.emit(icmp::PROTOCOL, payload.first_chunk_mut().unwrap());
            payload.extend(bytes);
            let packet = from_peer(|header| header.next = header::FRAGMENT, &payload);
            assert!(host.receive(&packet).is_none());
        }
        let mut answer = Vec::new();
        for packet in host.sent() {
            let header = header::parse(&packet).unwrap();
            let chain = header::walk(header.next, &packet[HEADER..]).unwrap();
            let offset = chain.piece.map_or(0, |piece| piece.offset);
            assert_eq!(
                (usize::from(offset), chain.protocol),
                (answer.len(), icmp::PROTOCOL)
            );
            answer.extend(&packet[HEADER + chain.len..]);
        }
        assert_eq!((answer.len(), answer[0]), (8 + size, 129));
        assert!(icmp::parse(OURS, PEER, &answer).is_some());
        assert_eq!(host.ipv6.large.free(), 6);
    }
}

#[test]
fn a_refused_packet_is_quoted_and_errors_are_limited() {
    let mut host = Host::plain();
    let packet = from_peer(|_| {}, &[7; 1400]);
    for _ in 0..100 {
        let up = received(host.receive(&packet));
        host.ipv6.refuse(&mut host.link, up, Refusal::Port, at(0));
    }
    let sent = host.sent();
    assert_eq!(sent.len() as u32, ERRORS_BURST);
    assert_eq!((sent[0].len(), sent[0][40], sent[0][41]), (1280, 1, 4));
    assert_eq!(sent[0][48..], packet[..1232]);
    assert!(icmp::parse(OURS, PEER, &sent[0][40..]).is_some());
}

#[test]
fn an_error_about_our_packet_goes_up_and_may_narrow_the_path() {
    let mut host = Host::plain();
    host.write(udp(), &[7; 100]).unwrap();
    let mut message = vec![2, 0, 0, 0, 0, 0, 5, 0x14];
    message.extend(host.sent().remove(0));
    icmp::complete(PEER, OURS, &mut message);
    let packet = from_peer(|header| header.next = icmp::PROTOCOL, &message);
    let Some(Arrived::Report(report)) = host.receive(&packet) else {
        panic!()
    };
    assert_eq!(report.kind, Kind::TooBig { mtu: 1300 });
    assert_eq!(host.ipv6.too_big(&host.link, &report, false, at(0)), None);
    assert_eq!(
        host.ipv6.too_big(&host.link, &report, true, at(0)),
        Some(1300)
    );
    assert_eq!(host.write(udp(), &[0; 1261]), Err(Unsent::TooBig));
    assert_eq!(host.ipv6.largest(&host.link, PEER, at(0)), 1260);
}

#[test]
fn a_packet_that_does_not_become_whole_is_told_of() {
    let mut host = Host::plain();
    let mut payload = vec![UDP, 0, 0, 1, 0, 0, 0, 7];
    payload.extend([9; 80]);
    host.receive(&from_peer(
        |header| header.next = header::FRAGMENT,
        &payload,
    ));
    assert_eq!(Version::<Ethernet>::deadline(&host.ipv6), Some(at(65_000)));
    host.ipv6.poll(&mut host.link, at(65_000));
    // The neighbour is stale by now, and used.
    let error = host.sent().remove(0);
    assert_eq!((error[40], error[41]), (3, 1));
    assert_eq!(error[48 + 40..], [9; 80]);
}

proptest! {
    #[test]
    fn what_is_cut_is_put_together_in_any_order(
        payload in proptest::collection::vec(any::<u8>(), 1..6000),
        mtu in 1280usize..1500,
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
            let mut header = header::parse(packet).unwrap();
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
            (
                prop::sample::select(vec![0u8, 6, 17, 43, 44, 58, 59, 60]),
                proptest::collection::vec(0u8..70, 0..80),
            ),
            1..20,
        ),
    ) {
        let mut host = Host::plain();
        for (next, payload) in packets {
            let packet = from_peer(|header| header.next = next, &payload);
            if let Some(Arrived::Packet(up)) = host.receive(&packet) {
                host.ipv6.refuse(&mut host.link, up, Refusal::Protocol, at(0));
            }
        }
        host.ipv6.poll(&mut host.link, at(100_000));
        prop_assert_eq!(host.ipv6.large.free(), 6);
    }
}

/// A router, and a host at the other end of its cable, which has asked for routers.
struct Advertising {
    router: Host,
    host: Host,
}

impl Advertising {
    fn new() -> Self {
        let [mut router, mut host] = [0, 5].map(|n| {
            let mut host = Host::bare(MemoryPort::new("net").with_index(n));
            let mac = host.link.mac();
            host.ipv6.autoconfigure(mac, Detect::Later, at(0));
            host
        });
        let own = Prefix::new(OURS, 64).unwrap();
        router.ipv6.add_address(own, Detect::Later, at(0));
        let servers = [OURS].into_iter().collect();
        assert!(router.ipv6.advertise(Advertised { servers }, at(0)));
        host.ipv6.poll(&mut host.link, at(1000));
        Self { router, host }
    }

    /// Both have their turns at this moment until nothing is sent; the packets of the router.
    fn pass(&mut self, ms: u64) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let before = all.len();
            for _ in 0..2 {
                let Self { router, host } = self;
                router.ipv6.poll(&mut router.link, at(ms));
                router.link.flush();
                for frame in router.wire.sent() {
                    host.wire.arrives(&frame);
                    all.push(frame[14..].to_vec());
                }
                core::mem::swap(router, host);
            }
            for host in [&mut self.router, &mut self.host] {
                let mut batch = Batch::new();
                host.link.receive(&mut batch);
                for frame in batch.drain() {
                    if let Some(arrival) = host.link.accept(frame) {
                        host.ipv6.accept(&mut host.link, arrival, at(ms));
                    }
                }
            }
            if all.len() == before {
                return all;
            }
        }
    }
}

#[test]
fn our_own_host_learns_networks_and_route_from_our_router() {
    let mut both = Advertising::new();
    let sent = both.pass(1000);
    let told: Vec<_> = sent.iter().filter(|packet| packet[HEADER] == 134).collect();
    assert_eq!(told.len(), 1);
    // RDNSS (RFC 8106, 5.1): for half an hour.
    let option = [&[25, 3, 0, 0, 0, 0, 7, 8][..], &OURS.octets()].concat();
    assert!(told[0].ends_with(&option));
    let host = &mut both.host;
    let chosen: Ipv6Addr = "2001:db8::ff:fe00:5".parse().unwrap();
    assert!(host.ipv6.is_usable(chosen));
    let router = "fe80::ff:fe00:0".parse().unwrap();
    assert_eq!(host.ipv6.discovery.next_hop(FAR, at(1000)), Some(router));
    assert_eq!(host.ipv6.discovery.next_hop(PEER, at(1000)), Some(PEER));
    assert_eq!(host.ipv6.discovery.mtu, 1500);
    // Who is asked for its link address says that it is a router.
    host.ipv6.discovery.neighbours = crate::neighbour::Neighbours::default();
    assert_eq!(host.write(Packet::new(chosen, FAR, UDP), b"far"), Ok(()));
    let sent = both.pass(5000);
    let answer = sent.iter().find(|packet| packet[HEADER] == 136).unwrap();
    assert_eq!(answer[HEADER + 4], 0xe0, "a router, asked, and sure");
}

#[test]
fn a_router_takes_no_route_from_another_one() {
    let mut router = Advertising::new().router;
    router.discover_bytes(ROUTER, nd::ALL_NODES, &advertisement(1800, 1400, 9999));
    assert_eq!(router.ipv6.discovery.next_hop(FAR, at(5000)), None);
    assert_eq!(router.ipv6.addresses().count(), 2);
    assert_eq!(router.ipv6.discovery.mtu, usize::MAX);
    // It asks for none either.
    router.ipv6.poll(&mut router.link, at(5000));
    assert!(router.sent().iter().all(|packet| packet[HEADER] != 133));
}
