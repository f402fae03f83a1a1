//! Whatever is translated, what answers it comes back to who sent it.

use super::frame::{frame, icmp, is_right, packet, tcp, udp};
use super::*;
use crate::conntrack::Refused;
use crate::key::protocol::{ICMP, ICMPV6, TCP, UDP};
use crate::key::{Addresses, Key};
use proptest::prelude::*;
use std::string::String;

/// Files that translate every source, and some destinations.
fn rules() -> impl Strategy<Value = String> {
    let sources = proptest::sample::select(vec![
        "",
        "masquerade random",
        "masquerade fully-random,persistent",
        "snat ip to 192.0.2.7-192.0.2.9",
        "snat ip to 192.0.2.7-192.0.2.9 persistent",
        "meta l4proto tcp snat ip to 192.0.2.7:1000-1003",
        "snat ip6 to fd00::7-fd00::9",
    ]);
    let destinations = proptest::sample::select(vec![
        "",
        "dnat ip to 198.51.100.1",
        "dnat ip to 198.51.100.1-198.51.100.4",
        "udp dport 1-1000 dnat ip to 198.51.100.1:53",
        "tcp dport 1-1000 dnat ip6 to [fd02::1]:80",
    ]);
    (sources, destinations).prop_map(|(source, destination)| {
        let source = std::format!("{source}\nmasquerade");
        nat("prerouting", destination) + &nat("postrouting", &source)
    })
}

/// What a client sends.
#[derive(Clone, Copy, Debug)]
struct Sent {
    is_ip6: bool,
    client: u8,
    server: u8,
    ports: [u16; 2],
    protocol: u8,
    /// What comes back is an error.
    is_error: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let port = || proptest::sample::select(vec![1u16, 53, 600, 1000, 4000, 4001, 65_535]);
    let parts = (
        any::<bool>(),
        2..5u8,
        1..4u8,
        port(),
        port(),
        0..4u8,
        any::<bool>(),
    );
    parts.prop_map(
        |(is_ip6, client, server, from, to, protocol, is_error)| Sent {
            is_ip6,
            client,
            server,
            ports: [from, to],
            protocol: match (protocol, is_ip6) {
                (0, _) => TCP,
                (1, _) => UDP,
                (2, false) => ICMP,
                (2, true) => ICMPV6,
                _ => 47,
            },
            is_error,
        },
    )
}

impl Sent {
    fn ends(self) -> (IpAddr, IpAddr) {
        let Self { client, server, .. } = self;
        match self.is_ip6 {
            false => (
                IpAddr::from([10, 0, 0, client]),
                IpAddr::from([203, 0, 113, server]),
            ),
            true => {
                let address =
                    |net: u16, host: u8| IpAddr::from([0xfd0a, net, 0, 0, 0, 0, 0, host.into()]);
                (address(0, client), address(1, server))
            }
        }
    }

    fn payload(self) -> Vec<u8> {
        let [high, low] = self.ports[0].to_be_bytes();
        match self.protocol {
            TCP => tcp(self.ports, 1, 0, 2),
            UDP => udp(self.ports, b"question"),
            ICMP => icmp(8, 0, [high, low, 0, 1], b"question"),
            ICMPV6 => icmp(128, 0, [high, low, 0, 1], b"question"),
            _ => vec![1, 2, 3, 4, 5],
        }
    }

    fn packet(self) -> Vec<u8> {
        let (client, server) = self.ends();
        packet(client, server, self.protocol, self.payload())
    }
}

/// Source and destination of a frame.
fn called(frame: &[u8]) -> (IpAddr, IpAddr) {
    match Key::parse(frame).unwrap().fields().addresses.unwrap() {
        Addresses::V4 {
            source,
            destination,
        } => (source.into(), destination.into()),
        Addresses::V6 {
            source,
            destination,
        } => (source.into(), destination.into()),
    }
}

fn header(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { 20 } else { 40 }
}

/// What answers a packet.
fn answer(left: &[u8], protocol: u8) -> Vec<u8> {
    let (source, destination) = called(left);
    let mut payload = left[14 + header(&left[14..])..].to_vec();
    match protocol {
        TCP => {
            payload = [&payload[2..4], &payload[..2], &payload[4..]].concat();
            payload[8..12].copy_from_slice(&[0, 0, 0, 2]);
            payload[13] = 18;
        }
        UDP => payload = [&payload[2..4], &payload[..2], &payload[4..]].concat(),
        ICMP => payload[0] = 0,
        ICMPV6 => payload[0] = 129,
        _ => {}
    }
    frame(&packet(destination, source, protocol, payload))
}

/// An error about a packet, from somebody on the way.
fn error(left: &[u8], is_ip6: bool) -> Vec<u8> {
    let (source, _) = called(left);
    let (from, number, kind) = match is_ip6 {
        false => (ip("198.18.0.1"), ICMP, 3),
        true => (ip("fdff::1"), ICMPV6, 1),
    };
    frame(&packet(
        from,
        source,
        number,
        icmp(kind, 1, [0; 4], &left[14..]),
    ))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_answers_comes_back(text in rules(), all in proptest::collection::vec(sent(), 1..40)) {
        let mut bench = Bench::new(&text);
        for sent in all {
            let original = frame(&sent.packet());
            let left = match bench.forward(0, original.clone(), false) {
                Ok(left) => left,
                Err(Stop::Refused(Refused::Ports)) => continue,
                Err(why) => return Err(TestCaseError::fail(std::format!("{why:?}"))),
            };
            prop_assert!(is_right(&left));
            let (source, _) = called(&left);
            let inside = match source {
                IpAddr::V4(source) => source.octets()[0] == 10,
                IpAddr::V6(source) => source.segments()[0] == 0xfd0a,
            };
            prop_assert!(!inside, "an inside address leaves");
            if sent.is_error {
                let back = bench.forward(1, error(&left, sent.is_ip6), false).unwrap();
                prop_assert!(is_right(&back));
                let quote = 14 + header(&back[14..]) + 8;
                prop_assert_eq!(&back[quote..], &original[14..]);
                prop_assert_eq!(called(&back).1, sent.ends().0);
            } else {
                let back = bench.forward(1, answer(&left, sent.protocol), false).unwrap();
                prop_assert!(is_right(&back));
                prop_assert_eq!(back, answer(&original, sent.protocol));
            }
        }
    }
}
