//! Frames written by hand, one for each reason and each kind; and frames written by etherparse.

use super::*;
use crate::nft::Limits;
use crate::{Listing, RuleSet, Verdict};
use etherparse::{PacketBuilder, PacketHeaders, TransportHeader};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// The rules that the firewall comes with.
const RULES: &str = include_str!("../../../../unikernels/firewall/rules/default.nft");

fn default_rules() -> RuleSet {
    crate::load(RULES, &["private", "public"], &Limits::DEFAULT).unwrap()
}

/// The way of every frame here.
const WAY: crate::Way = crate::Way { from: 0, to: 1 };

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

/// An Ethernet frame: the words of `types` in front of `payload`.
pub(crate) fn ethernet(types: &[u16], payload: &[u8]) -> Vec<u8> {
    let types = types.iter().flat_map(|word| word.to_be_bytes());
    MACS.into_iter()
        .chain(types)
        .chain(payload.iter().copied())
        .collect()
}

/// Stores the IPv4 header checksum by the definition.
pub(crate) fn seal(packet: &mut [u8]) {
    let size = 4 * usize::from(packet[0] & 0xf);
    packet[10..12].fill(0);
    let words = packet[..size]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
}

/// An IPv4 packet; `fragment` is the word of flags and offset.
fn ipv4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![
        0x45, 0, 0, 0, 0, 9, 0, 0, 64, protocol, 0, 0, 10, 10, 0, 100,
    ];
    packet.extend([10, 10, 0, 200]);
    packet.extend(payload);
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    seal(&mut packet);
    packet
}

/// An IPv6 packet.
fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, len[0], len[1], next, 64];
    packet.extend([0xfd; 16]);
    packet.extend([0xfe; 16]);
    packet.extend(payload);
    packet
}

/// A TCP header of 20 bytes.
fn tcp(source: u16, destination: u16) -> Vec<u8> {
    let mut header = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    header.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x12, 0, 0, 0, 0, 0, 0]);
    header
}

/// A UDP header of 8 bytes.
fn udp(source: u16, destination: u16) -> Vec<u8> {
    [source, destination, 8, 0]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect()
}

fn arp() -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.resize(28, 0);
    packet
}

/// `next` in front of `count` more destination options, then `payload`.
fn extensions(count: usize, last: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..count {
        let next = if index + 1 == count { last } else { 60 };
        bytes.extend([next, 0, 1, 4, 0, 0, 0, 0]);
    }
    bytes.extend(payload);
    bytes
}

fn fragment_header(next: u8, word: u16) -> Vec<u8> {
    let [high, low] = word.to_be_bytes();
    vec![next, 0, high, low, 0, 0, 0, 9]
}

#[test]
fn every_field_is_read() {
    let frame = ethernet(&[0x8100, 0xe007, 0x0800], &ipv4(6, 0x4000, &tcp(999, 7070)));
    let key = Key::parse(&frame).unwrap();
    let expected = Fields {
        destination: [2, 0, 0, 0, 0, 1],
        source: [2, 0, 0, 0, 0, 2],
        link_type: 0x8100,
        vlan: Some(7),
        next_header: Some(6),
        ether_type: 0x0800,
        addresses: Some(Addresses::V4 {
            source: Ipv4Addr::new(10, 10, 0, 100),
            destination: Ipv4Addr::new(10, 10, 0, 200),
        }),
        protocol: Some(6),
        fragment: Fragment::Whole,
        l4: Some(L4::Tcp {
            source: 999,
            destination: 7070,
            flags: 0x12,
        }),
    };
    assert_eq!(key.fields(), expected);
    let made = Key {
        transport: 20,
        end: 40,
        ..Key::from(&expected)
    };
    assert_eq!(made, key);
}

#[test]
fn transport_headers_are_found_where_they_are() {
    let http = L4::Tcp {
        source: 1,
        destination: 80,
        flags: 0x12,
    };
    let dns = L4::Udp {
        source: 2,
        destination: 53,
    };
    let mut with_options = ipv4(17, 0, &[&[1; 40][..], &udp(2, 53)].concat());
    with_options[0] = 0x4f;
    seal(&mut with_options);
    // Two units of four bytes beyond the first eight.
    let ah = [&[6, 2, 0, 0][..], &[9; 12], &tcp(1, 80)].concat();
    type Case = (u16, Vec<u8>, Option<u8>, Fragment, Option<L4>);
    let cases: [Case; 17] = [
        (
            0x0800,
            ipv4(6, 0, &tcp(1, 80)),
            Some(6),
            Fragment::Whole,
            Some(http),
        ),
        (
            0x0800,
            ipv4(17, 0, &udp(2, 53)),
            Some(17),
            Fragment::Whole,
            Some(dns),
        ),
        (0x0800, with_options, Some(17), Fragment::Whole, Some(dns)),
        (
            0x0800,
            ipv4(1, 0, &[8, 3, 0, 0]),
            Some(1),
            Fragment::Whole,
            Some(L4::Icmp { kind: 8, code: 3 }),
        ),
        (
            0x0800,
            ipv4(58, 0, &[8, 3, 0, 0]),
            Some(58),
            Fragment::Whole,
            Some(L4::Icmpv6 { kind: 8, code: 3 }),
        ),
        (0x0800, ipv4(47, 0, &[]), Some(47), Fragment::Whole, None),
        (
            0x0800,
            ipv4(17, 0x2000, &udp(2, 53)),
            Some(17),
            Fragment::First,
            Some(dns),
        ),
        (
            0x0800,
            ipv4(17, 0x2001, &udp(2, 53)),
            Some(17),
            Fragment::Later,
            None,
        ),
        (
            0x0800,
            ipv4(17, 0x0001, &[]),
            Some(17),
            Fragment::Later,
            None,
        ),
        (
            0x86dd,
            ipv6(58, &[135, 0, 0, 0]),
            Some(58),
            Fragment::Whole,
            Some(L4::Icmpv6 { kind: 135, code: 0 }),
        ),
        (
            0x86dd,
            ipv6(1, &[8, 3, 0, 0]),
            Some(1),
            Fragment::Whole,
            Some(L4::Icmp { kind: 8, code: 3 }),
        ),
        (0x86dd, ipv6(59, &[]), Some(59), Fragment::Whole, None),
        (
            0x86dd,
            ipv6(60, &extensions(8, 6, &tcp(1, 80))),
            Some(6),
            Fragment::Whole,
            Some(http),
        ),
        (0x86dd, ipv6(51, &ah), Some(51), Fragment::Whole, None),
        (
            0x86dd,
            ipv6(44, &[fragment_header(17, 1), udp(2, 53)].concat()),
            Some(17),
            Fragment::First,
            Some(dns),
        ),
        (
            0x86dd,
            ipv6(44, &[fragment_header(60, 8), udp(2, 53)].concat()),
            None,
            Fragment::Later,
            None,
        ),
        (
            0x86dd,
            ipv6(44, &[fragment_header(51, 8), udp(2, 53)].concat()),
            None,
            Fragment::Later,
            None,
        ),
    ];
    for (ether_type, packet, protocol, fragment, l4) in cases {
        let key = Key::parse(&ethernet(&[ether_type], &packet))
            .unwrap()
            .fields();
        assert_eq!(
            (key.protocol, key.fragment, key.l4),
            (protocol, fragment, l4),
            "{packet:x?}"
        );
    }
}

#[test]
fn the_length_of_an_authentication_header_is_there() {
    for packet in [ipv6(51, &[]), ipv6(60, &extensions(1, 51, &[6]))] {
        let read = Key::parse(&ethernet(&[0x86dd], &packet));
        assert_eq!(read, Err(Malformed::TruncatedExtension), "{packet:x?}");
    }
    let key = Key::parse(&ethernet(&[0x86dd], &ipv6(51, &[6, 4]))).unwrap();
    assert_eq!(key.fields().protocol, Some(51));
    let fragment = [&fragment_header(51, 8)[..], &[6]].concat();
    let key = Key::parse(&ethernet(&[0x86dd], &ipv6(44, &fragment))).unwrap();
    assert_eq!(key.fields().protocol, None);
}

#[test]
fn a_first_fragment_may_end_among_tcp_options() {
    let mut header = tcp(1, 80);
    header[12] = 0xf0;
    let frame = ethernet(&[0x0800], &ipv4(6, 0x2000, &header));
    let key = Key::parse(&frame).unwrap().fields();
    assert!(matches!(
        key.l4,
        Some(L4::Tcp {
            destination: 80,
            ..
        })
    ));
}

#[test]
fn one_tag_is_looked_through_and_a_second_is_not() {
    let packet = ipv4(17, 0, &udp(2, 53));
    let cases: [(&[u16], Option<u16>, u16, bool); 6] = [
        (&[0x0800], None, 0x0800, true),
        (&[0x8100, 0x0000, 0x0800], Some(0), 0x0800, true),
        (&[0x8100, 0xffff, 0x0800], Some(0xfff), 0x0800, true),
        (&[0x8100, 5, 0x8100, 6, 0x0800], Some(5), 0x8100, false),
        (&[0x88a8, 7, 0x0800], Some(7), 0x0800, true),
        (&[0x88a8, 5, 0x8100, 6, 0x0800], Some(5), 0x8100, false),
    ];
    for (types, vlan, ether_type, is_ip) in cases {
        let key = Key::parse(&ethernet(types, &packet)).unwrap().fields();
        assert_eq!((key.vlan, key.ether_type), (vlan, ether_type), "{types:x?}");
        assert_eq!(
            key.protocol.is_some() && key.l4.is_some(),
            is_ip,
            "{types:x?}"
        );
    }
}

#[test]
fn padding_is_no_header() {
    let mut frame = ethernet(&[0x0800], &ipv4(17, 0, &udp(2, 53)[..7]));
    frame.resize(60, 0);
    assert_eq!(Key::parse(&frame), Err(Malformed::TruncatedL4));
    let mut frame = ethernet(&[0x0800], &ipv4(17, 0, &udp(2, 53)));
    frame.resize(60, 0);
    assert!(Key::parse(&frame).unwrap().fields().l4.is_some());
}

/// `packet` with one byte changed, and sealed again if it is IPv4.
fn edited(mut packet: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    packet[at] = byte;
    if packet[0] >> 4 == 4 && packet[0] & 0xf >= 5 {
        seal(&mut packet);
    }
    packet
}

#[test]
fn each_malformed_frame_has_its_reason() {
    let tcp4 = || ipv4(6, 0, &tcp(1, 80));
    let tcp6 = || ipv6(6, &tcp(1, 80));
    let mut bad_checksum = tcp4();
    bad_checksum[11] ^= 1;
    let mut short_options = ipv4(6, 0, &[0; 3]);
    short_options[0] = 0x46;
    let cases: [(Malformed, u16, Vec<u8>); 24] = [
        (Malformed::TruncatedVlan, 0x8100, vec![0, 7, 8]),
        (Malformed::TruncatedArp, 0x0806, arp()[..7].to_vec()),
        (Malformed::TruncatedArp, 0x0806, arp()[..27].to_vec()),
        (Malformed::TruncatedIp, 0x0800, tcp4()[..19].to_vec()),
        (Malformed::TruncatedIp, 0x0800, short_options),
        (Malformed::TruncatedIp, 0x86dd, tcp6()[..39].to_vec()),
        (Malformed::BadIpHeader, 0x0800, edited(tcp4(), 0, 0x65)),
        (Malformed::BadIpHeader, 0x0800, edited(tcp4(), 0, 0x44)),
        (Malformed::BadIpHeader, 0x0800, tcp6()),
        (
            Malformed::BadIpHeader,
            0x86dd,
            tcp4().into_iter().chain([0; 20]).collect(),
        ),
        (Malformed::BadIpLength, 0x0800, edited(tcp4(), 3, 19)),
        (Malformed::BadIpLength, 0x0800, edited(tcp4(), 3, 41)),
        (Malformed::BadIpLength, 0x86dd, edited(tcp6(), 5, 21)),
        (Malformed::BadIpChecksum, 0x0800, bad_checksum),
        (
            Malformed::TruncatedExtension,
            0x86dd,
            ipv6(60, &[6, 0, 1, 4, 0, 0, 0]),
        ),
        (
            Malformed::TruncatedExtension,
            0x86dd,
            ipv6(60, &[6, 1, 1, 4, 0, 0, 0, 0]),
        ),
        (
            Malformed::TruncatedExtension,
            0x86dd,
            ipv6(44, &fragment_header(6, 1)[..7]),
        ),
        (
            Malformed::TooManyExtensions,
            0x86dd,
            ipv6(60, &extensions(9, 6, &tcp(1, 80))),
        ),
        (
            Malformed::TruncatedL4,
            0x0800,
            ipv4(6, 0, &tcp(1, 80)[..19]),
        ),
        // A tiny first fragment that leaves the flags to the next one (RFC 1858).
        (
            Malformed::TruncatedL4,
            0x0800,
            ipv4(6, 0x2000, &tcp(1, 80)[..8]),
        ),
        (Malformed::TruncatedL4, 0x0800, edited(tcp4(), 32, 0x60)),
        (Malformed::TruncatedL4, 0x0800, ipv4(1, 0, &[8, 0, 0])),
        (Malformed::TruncatedL4, 0x86dd, ipv6(58, &[135, 0, 0])),
        (Malformed::BadL4Header, 0x0800, edited(tcp4(), 32, 0x40)),
    ];
    assert_eq!(Key::parse(&MACS), Err(Malformed::Runt));
    let mut seen = vec![Malformed::Runt];
    for (reason, ether_type, packet) in cases {
        let frame = ethernet(&[ether_type], &packet);
        assert_eq!(
            Key::parse(&frame),
            Err(reason),
            "{ether_type:#x} {packet:x?}"
        );
        seen.push(reason);
    }
    assert!(
        Malformed::ALL.iter().all(|reason| seen.contains(reason)),
        "each has a case"
    );
}

#[test]
fn the_default_rules_decide() {
    let cases: [(u16, Vec<u8>, &str); 18] = [
        (0x0806, arp(), "ether type arp counter accept"),
        (
            0x0800,
            ipv4(1, 0, &[8, 0, 0, 0]),
            "ip protocol icmp counter accept",
        ),
        (
            0x0800,
            ipv4(6, 0, &tcp(999, 7070)),
            "ether type ip tcp dport $SERVICE counter accept",
        ),
        (
            0x0800,
            ipv4(6, 0, &tcp(7070, 999)),
            "ether type ip tcp sport $SERVICE counter accept",
        ),
        (
            0x0800,
            ipv4(6, 0, &tcp(7070, 7070)),
            "ether type ip tcp dport $SERVICE counter accept",
        ),
        (0x0800, ipv4(6, 0, &tcp(999, 1234)), "policy drop"),
        (
            0x0800,
            ipv4(17, 0, &udp(1, 2)),
            "ip protocol udp counter accept",
        ),
        (0x0800, ipv4(132, 0, &tcp(7070, 7070)), "policy drop"),
        // The first fragment has ports; in later ones the same bytes are payload.
        (
            0x0800,
            ipv4(6, 0x2000, &tcp(999, 7070)),
            "ether type ip tcp dport $SERVICE counter accept",
        ),
        (0x0800, ipv4(6, 0x0010, &tcp(999, 7070)), "policy drop"),
        (
            0x0800,
            ipv4(17, 0x2000, &udp(1, 2)),
            "ip protocol udp counter accept",
        ),
        (
            0x0800,
            ipv4(17, 0x0010, &[0; 3]),
            "ip protocol udp counter accept",
        ),
        (
            0x0800,
            ipv4(1, 0x0010, &[0; 3]),
            "ip protocol icmp counter accept",
        ),
        // IPv6 has no rule.
        (0x86dd, ipv6(6, &tcp(999, 7070)), "policy drop"),
        (0x86dd, ipv6(17, &udp(1, 2)), "policy drop"),
        (0x86dd, ipv6(58, &[135, 0, 0, 0]), "policy drop"),
        (0x86dd, ipv6(1, &[8, 0, 0, 0]), "policy drop"),
        (0x88cc, vec![], "policy drop"),
    ];
    let rules = default_rules();
    let listing = Listing::new(RULES, &Limits::DEFAULT).unwrap();
    let describe = |rule| listing.get(rule).map_or("", |listed| listed.text.as_str());
    for (ether_type, packet, expected) in cases {
        let accepted = expected.ends_with("accept");
        // In nft, the EtherType of a tagged frame is the tag's.
        let tagged = if expected.starts_with("ether type") {
            "policy drop"
        } else {
            expected
        };
        for (types, described) in [
            (vec![ether_type], expected),
            (vec![0x8100, 7, ether_type], tagged),
            (vec![0x8100, 7, 0x8100, 8, ether_type], "policy drop"),
        ] {
            let key = Key::parse(&ethernet(&types, &packet)).unwrap();
            let (verdict, decider) = rules.verdict(&key, WAY, &mut ());
            assert_eq!(describe(decider), described, "{types:x?} {packet:x?}");
            assert_eq!(
                verdict == Verdict::Accept,
                accepted && described == expected
            );
        }
    }
    assert_eq!(listing.iter().len(), rules.len() + 1);
    assert_eq!(describe(5), "policy drop");
}

proptest! {
    /// etherparse writes the frame and reads it back; the key has the same fields.
    #[test]
    fn equals_etherparse(
        vlan in proptest::option::of(0..0x1000u16),
        is_v6: bool,
        is_tcp: bool,
        macs: ([u8; 6], [u8; 6]),
        addresses: (u128, u128),
        ports: (u16, u16),
        flags in 0..64u8,
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        padding in 0..20usize,
    ) {
        let source = addresses.0.to_be_bytes();
        let destination = addresses.1.to_be_bytes();
        let v4 = |address: [u8; 16]| -> [u8; 4] { *address.first_chunk().unwrap() };
        let link = PacketBuilder::ethernet2(macs.0, macs.1);
        let ip = match (vlan, is_v6) {
            (None, false) => link.ipv4(v4(source), v4(destination), 9),
            (None, true) => link.ipv6(source, destination, 9),
            (Some(id), false) => {
                link.single_vlan(id.try_into().unwrap()).ipv4(v4(source), v4(destination), 9)
            }
            (Some(id), true) => {
                link.single_vlan(id.try_into().unwrap()).ipv6(source, destination, 9)
            }
        };
        let mut frame = Vec::new();
        if is_tcp {
            let mut header = etherparse::TcpHeader::new(ports.0, ports.1, 1, 1);
            (header.fin, header.syn, header.rst) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            (header.psh, header.ack, header.urg) =
                (flags & 8 != 0, flags & 16 != 0, flags & 32 != 0);
            ip.tcp_header(header).write(&mut frame, &payload).unwrap();
        } else {
            ip.udp(ports.0, ports.1).write(&mut frame, &payload).unwrap();
        }
        frame.resize(frame.len() + padding, 0xff);

        let key = Key::parse(&frame).unwrap().fields();
        let read = PacketHeaders::from_ethernet_slice(&frame).unwrap();
        let l4 = match read.transport.unwrap() {
            TransportHeader::Tcp(header) => L4::Tcp {
                source: header.source_port,
                destination: header.destination_port,
                flags,
            },
            TransportHeader::Udp(header) => L4::Udp {
                source: header.source_port,
                destination: header.destination_port,
            },
            other => panic!("{other:?}"),
        };
        prop_assert_eq!(key.l4, Some(l4));
        prop_assert_eq!((key.source, key.destination), macs);
        prop_assert_eq!(key.vlan, vlan);
        prop_assert_eq!(key.protocol, Some(if is_tcp { 6 } else { 17 }));
        let expected = if is_v6 {
            Addresses::V6 { source: source.into(), destination: destination.into() }
        } else {
            Addresses::V4 { source: v4(source).into(), destination: v4(destination).into() }
        };
        prop_assert_eq!(key.addresses, Some(expected));
    }

    /// Hostile frames end in a key or a reason, and every key has a decider that can be named.
    #[test]
    fn random_bytes_never_panic(
        ether_type in prop_oneof![
            proptest::sample::select(vec![0x0800, 0x86dd, 0x0806, 0x8100]),
            any::<u16>(),
        ],
        packet in prop_oneof![
            Just(ipv4(6, 0, &tcp(1, 7070))),
            Just(ipv6(60, &extensions(3, 17, &udp(1, 2)))),
            proptest::collection::vec(any::<u8>(), 0..120),
        ],
        edits in proptest::collection::vec((0..60usize, any::<u8>()), 0..4),
        len in 0..140usize,
    ) {
        let mut frame = ethernet(&[ether_type], &packet);
        for (at, byte) in edits {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(len);
        let rules = default_rules();
        match Key::parse(&frame) {
            Ok(key) => {
                let (_, decider) = rules.verdict(&key, WAY, &mut ());
                prop_assert!(decider <= rules.len());
            }
            Err(reason) => prop_assert!(Malformed::ALL.contains(&reason)),
        }
    }

    /// An IPv4 header is refused exactly if etherparse computes another checksum.
    #[test]
    fn ipv4_checksums_are_verified(header: [u8; 20], sealed: bool) {
        let mut packet = header;
        packet[0] = 0x45;
        // etherparse does not keep the reserved flag.
        packet[6] &= 0x7f;
        packet[2..4].copy_from_slice(&20u16.to_be_bytes());
        packet[9] = 255;
        if sealed {
            seal(&mut packet);
        }
        let (parsed, _) = etherparse::Ipv4Header::from_slice(&packet).unwrap();
        let right = parsed.header_checksum == parsed.calc_header_checksum();
        let refused = Key::parse(&ethernet(&[0x0800], &packet)) == Err(Malformed::BadIpChecksum);
        prop_assert_eq!(refused, !right);
    }
}
