//! A router between ports in memory, whose networks the tests keep in hand.

use crate::{Ports, Router, Vlans};
use abi::manifest::Device;
use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use device::memory::{MemoryPort, Wire};
use device::{HEADROOM, Netif, Pool, checksum};
use filter::Gate;
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::forwarding::Dropped;
use net::ip::Ip;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::options::Options;
use net::stack::Stack;
use net::tcp::Config;
use net::tcp::host::Tcp;
use net::tcp::identity::Secret;
use net::version::Addresses;
use ports::Instant;
use ports::puppet::Setup;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OURS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 9)];
const INSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);
const OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const OURS6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9),
];
/// What the link addresses of the router and of the stations on each side end with.
const ROUTER_MAC: [u8; 2] = [1, 2];
const STATION_MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x11], [2, 0, 0, 0, 0, 0x12]];
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

const OPEN: &str = "table inet t { chain c { type filter hook forward priority 0; }; }";
const MASQUERADE: &str = "table ip t {
    chain c {
        type nat hook postrouting priority srcnat;
        oifname public masquerade
    }
}";

const REJECT: &str = "table inet t {
    chain c {
        type filter hook prerouting priority 0
        meta l4proto tcp reject with tcp reset
        meta l4proto != icmpv6 reject
    }
}";

/// A router, and the wire of each of its ports: private, public.
struct Bench {
    router: Router,
    wires: [Wire; 2],
    ms: u64,
}

impl Bench {
    fn new(rules: &str) -> Self {
        Self::with_mtu(rules, 1500)
    }

    /// The public port has this MTU.
    fn with_mtu(rules: &str, mtu: usize) -> Self {
        Self::of(rules, mtu, |_| {})
    }

    /// The same; `change` is done to its stack.
    fn of(rules: &str, mtu: usize, change: impl FnOnce(&mut Stack<Ipv4, Ipv6>)) -> Self {
        let device = |last| Device::Net {
            mac: [2, 0, 0, 0, 0, last],
            mtu: 1500,
        };
        let setup = Setup {
            devices: vec![("private", device(1), 0), ("public", device(2), 0)],
            rules: true,
            ..Setup::default()
        };
        let gate = Gate::start(setup.start().runtime, &[], ["", rules], || Some([7; 32])).unwrap();
        let private = MemoryPort::new("private").with_index(1).split();
        let public = MemoryPort::new("public")
            .with_mtu(mtu)
            .with_index(2)
            .split();
        let wires = [private.1, public.1];
        let ports: Vec<Box<dyn Netif>> = vec![Box::new(private.0), Box::new(public.0)];
        let ports = Ports::new(ports, gate);
        let mut stack = stack(ports.of_stack());
        change(&mut stack);
        let stack = Rc::new(RefCell::new(stack));
        Self {
            router: Router::new(ports, stack),
            wires,
            ms: 0,
        }
    }

    /// Frames come in by a port, and the router has its turn.
    fn takes(&mut self, port: usize, frames: &[Vec<u8>]) {
        frames
            .iter()
            .for_each(|frame| self.wires[port].arrives(frame));
        self.ms += 1;
        self.router.receive(at(self.ms));
        self.router.send();
    }

    /// The stations on both sides have been spoken to: the router knows where they are.
    fn met() -> Self {
        Self::met_with(Self::new(OPEN))
    }

    fn met_with(mut bench: Self) -> Self {
        let stations = [(INSIDE, INSIDE6), (OUTSIDE, OUTSIDE6)];
        for (port, (own, own6)) in stations.into_iter().enumerate() {
            bench.takes(port, &[arp(port, own), solicit(port, own6)]);
        }
        bench.sent();
        bench
    }

    /// What has left by each port.
    fn sent(&mut self) -> [Vec<Vec<u8>>; 2] {
        [self.wires[0].sent(), self.wires[1].sent()]
    }

    fn dropped(&self, reason: Dropped) -> u64 {
        use net::counts::Reason;
        let mut count = 0;
        self.router.counts(&mut |name, value| {
            count += if name == reason.name() { value } else { 0 };
        });
        count
    }
}

fn at(ms: u64) -> Instant {
    Instant::PAST + Duration::from_secs(1000) + Duration::from_millis(ms)
}

/// The router's stack over these ports.
fn stack(ports: Vec<Box<dyn Netif>>) -> Stack<Ipv4, Ipv6> {
    let size = HEADROOM + 40 + 65_535;
    let large = Pool::new(vec![0; 4 * size].leak(), size);
    let mut ips = ports.into_iter().enumerate().map(|(number, port)| {
        let (mut v4, mut v6) = (Ipv4::new(large, 1), Ipv6::new(large, 1));
        let own = Prefix::new(OURS[number], 24).unwrap();
        v4.add_address(own, Detect::Later, at(0));
        let own = Prefix::new(OURS6[number], 64).unwrap();
        v6.add_address(own, Detect::Later, at(0));
        Ip::new(Ethernet::new(port), v4, v6)
    });
    let tcp = Tcp::new(Config::default(), Secret::new([0; 16]), [0; 16], 1000);
    let mut stack = Stack::new(ips.next().unwrap(), tcp, at(0));
    ips.for_each(|ip| stack.ip.add(ip));
    stack
}

/// Ethernet's header of a frame from a station on this side to the router.
fn link(port: usize, ethertype: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, ROUTER_MAC[port]];
    frame.extend(STATION_MAC[port]);
    frame.extend(ethertype.to_be_bytes());
    frame
}

/// A station asks for the router's address, and so says its own.
fn arp(port: usize, own: Ipv4Addr) -> Vec<u8> {
    let mut frame = link(port, 0x806);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(STATION_MAC[port].iter().chain(&own.octets()));
    frame.extend([0; 6].iter().chain(&OURS[port].octets()));
    frame
}

/// The same by Neighbour Discovery.
fn solicit(port: usize, own: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(OURS6[port].octets());
    message.extend([1, 1]);
    message.extend(STATION_MAC[port]);
    packet6(port, (own, OURS6[port]), (ICMPV6, 255), &message)
}

/// A packet of IPv4; `shape` has protocol, hops, and the field with flags and offset.
fn packet(
    port: usize,
    (source, destination): (Ipv4Addr, Ipv4Addr),
    (protocol, hops, fragment): (u8, u8, u16),
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = link(port, 0x800);
    frame.extend([0x45, 0]);
    frame.extend((20 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 7]);
    frame.extend(fragment.to_be_bytes());
    frame.extend([hops, protocol, 0, 0]);
    frame.extend(source.octets().iter().chain(&destination.octets()));
    checksum::complete(&mut frame, 14, 24);
    frame.extend(payload);
    frame
}

fn packet6(
    port: usize,
    (source, destination): (Ipv6Addr, Ipv6Addr),
    (protocol, hops): (u8, u8),
    payload: &[u8],
) -> Vec<u8> {
    let mut frame = link(port, 0x86dd);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend([protocol, hops]);
    frame.extend(source.octets().iter().chain(&destination.octets()));
    frame.extend(payload);
    if protocol == ICMPV6 {
        let (source, destination) = (source.into(), destination.into());
        let sum = net::address::pseudo_sum(source, destination, protocol, payload.len());
        let sum = checksum::fold(sum + checksum::sum(payload));
        frame[56..58].copy_from_slice(&(!sum).to_ne_bytes());
    }
    frame
}

/// UDP without a checksum.
fn udp(ports: [u16; 2], payload: usize) -> Vec<u8> {
    let len = 8 + payload as u16;
    let words = [ports[0], ports[1], len, 0];
    let mut datagram: Vec<u8> = words.into_iter().flat_map(u16::to_be_bytes).collect();
    datagram.resize(8 + payload, 7);
    datagram
}

/// From inside to outside.
fn out(hops: u8, fragment: u16, payload: usize) -> Vec<u8> {
    let shape = (UDP, hops, fragment);
    packet(0, (INSIDE, OUTSIDE), shape, &udp([999, 53], payload))
}

fn is_sound(frame: &[u8]) -> bool {
    checksum::fold(checksum::sum(&frame[14..34])) == 0xffff
}

#[test]
fn a_packet_goes_to_its_next_hop_and_has_a_hop_less() {
    let mut bench = Bench::met();
    bench.takes(0, &[out(64, 0, 4)]);
    let [back, sent] = bench.sent();
    assert_eq!((back.len(), sent.len()), (0, 1));
    let mut expected = out(63, 0, 4);
    expected[..6].copy_from_slice(&STATION_MAC[1]);
    expected[6..12].copy_from_slice(&[2, 0, 0, 0, 0, ROUTER_MAC[1]]);
    assert_eq!(sent[0], expected);
    let packet = packet6(1, (OUTSIDE6, INSIDE6), (UDP, 2), &udp([53, 999], 4));
    bench.takes(1, core::slice::from_ref(&packet));
    let [sent, _] = bench.sent();
    assert_eq!((sent[0][21], &sent[0][22..]), (1, &packet[22..]));
}

/// A frame to the first port's address, in a VLAN there.
fn tagged(vlan: u8, mut frame: Vec<u8>) -> Vec<u8> {
    frame[5] = ROUTER_MAC[0];
    frame.splice(12..12, [0x81, 0, 0, vlan]);
    frame
}

#[test]
fn packets_go_from_vlan_to_vlan_of_one_port_as_rules_say_by_their_names() {
    const RULES: &str = "table inet t { chain c { type filter hook forward priority 0; policy \
                         drop; iifname \"trunk.1\" oifname \"trunk.2\" accept; }; }";
    let device = Device::Net {
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
    };
    let setup = Setup {
        devices: vec![("trunk", device, 0)],
        rules: true,
        ..Setup::default()
    };
    let (vlans, _) = Vlans::take(["--vlan=2,1"].into_iter(), &["trunk"]).unwrap();
    let names = vlans.names();
    let (options, _) = Options::take([].into_iter(), &names).unwrap();
    let (port, wire) = MemoryPort::new("trunk").with_index(1).split();
    let mut port = Some(port);
    let opened = vlans.open(&options, |_, _| {
        let port: Box<dyn Netif> = Box::new(port.take().expect("one port"));
        Ok::<_, std::string::String>(port)
    });
    let (ports, dropped) = opened.unwrap();
    let gate = Gate::start(setup.start().runtime, &names, ["", RULES], || None).unwrap();
    let ports = Ports::new(ports, gate);
    let stack = Rc::new(RefCell::new(stack(ports.of_stack())));
    let mut router = Router::new(ports, stack).with_trunks(dropped);
    let mut sent = |frames: &[Vec<u8>], ms| {
        frames.iter().for_each(|frame| wire.arrives(frame));
        router.receive(at(ms));
        router.send();
        wire.sent()
    };
    sent(&[tagged(1, arp(0, INSIDE)), tagged(2, arp(1, OUTSIDE))], 1);
    let forth = sent(&[tagged(1, out(64, 0, 4))], 2);
    let mut expected = tagged(2, out(63, 0, 4));
    expected[..6].copy_from_slice(&STATION_MAC[1]);
    expected[6..12].copy_from_slice(&[2, 0, 0, 0, 0, ROUTER_MAC[0]]);
    assert_eq!(forth, [expected]);
    let back = packet(1, (OUTSIDE, INSIDE), (UDP, 64, 0), &udp([53, 999], 4));
    assert!(sent(&[tagged(2, back)], 3).is_empty());
    assert!(sent(&[out(64, 0, 4), tagged(3, out(64, 0, 4))], 4).is_empty());
    let mut counted = Vec::new();
    router.counts(&mut |name, value| {
        if name.starts_with("vlan_") && value > 0 {
            counted.push((name, value));
        }
    });
    assert_eq!(counted, [("vlan_untagged", 1), ("vlan_unknown", 1)]);
}

/// Whatever the rules say, nobody else sends from an address of ours.
#[test]
fn what_comes_from_our_own_addresses_is_dropped() {
    let mut bench = Bench::met_with(Bench::new(OPEN));
    for (port, source) in [(0, OURS[0]), (0, OURS[1]), (1, OURS[0])] {
        for destination in [[OUTSIDE, INSIDE][port], OURS[port]] {
            let sent = packet(
                port,
                (source, destination),
                (UDP, 64, 0),
                &udp([999, 53], 4),
            );
            bench.takes(port, &[sent]);
            assert!(
                bench.sent().iter().all(Vec::is_empty),
                "{source} {destination}"
            );
        }
    }
}

/// `fib` knows the router's own routes, addresses and networks.
#[test]
fn forged_sources_are_dropped_by_routes() {
    let rules = "table inet t {
        chain c {
            type filter hook prerouting priority raw
            icmpv6 type { 135, 136 } accept
            fib saddr . iif oif missing drop
        }
        chain f {
            type filter hook forward priority 0
            udp dport 54 fib daddr oifname private drop
            udp dport 55 fib daddr type { local, broadcast, unreachable } drop
        }
    }";
    let mut bench = Bench::met_with(Bench::new(rules));
    let mut passes = |port: usize, ends, to: u16| {
        let sent = packet(port, ends, (UDP, 64, 0), &udp([999, to], 4));
        bench.takes(port, &[sent]);
        let sent = bench.sent();
        assert!(sent[port].is_empty());
        !sent[1 - port].is_empty()
    };
    let stranger = Ipv4Addr::new(198, 51, 100, 1);
    for (port, source, expected) in [
        (0, INSIDE, true),
        (1, OUTSIDE, true),
        (0, OUTSIDE, false),
        (1, INSIDE, false),
        (0, OURS[0], false),
        (0, OURS[1], false),
        // No route leads there.
        (0, stranger, false),
    ] {
        let destination = [OUTSIDE, INSIDE][port];
        assert_eq!(
            passes(port, (source, destination), 53),
            expected,
            "{source}"
        );
    }
    assert!(passes(0, (INSIDE, OUTSIDE), 54));
    assert!(!passes(1, (OUTSIDE, INSIDE), 54));
    assert!(passes(0, (INSIDE, OUTSIDE), 55));
    let all = Ipv4Addr::new(192, 0, 2, 255);
    assert!(!passes(0, (INSIDE, all), 55));
    let forged = packet6(1, (INSIDE6, INSIDE6), (UDP, 9), &udp([53, 999], 4));
    let honest = packet6(1, (OUTSIDE6, INSIDE6), (UDP, 9), &udp([53, 999], 4));
    for (frame, expected) in [(forged, 0), (honest, 1)] {
        bench.takes(1, &[frame]);
        assert_eq!(bench.sent()[0].len(), expected);
    }
}

#[test]
fn a_packet_waits_for_the_address_of_its_next_hop() {
    let mut bench = Bench::new(OPEN);
    bench.takes(0, &[out(64, 0, 4)]);
    let [_, sent] = bench.sent();
    assert!(sent.iter().any(|frame| frame[12..14] == [8, 6]));
    assert!(sent.iter().all(|frame| frame[12..14] != [8, 0]));
    let mut answer = arp(1, OUTSIDE);
    answer[21] = 2;
    bench.takes(1, &[answer]);
    // It leaves with the next turn's, at the latest.
    bench.takes(0, &[]);
    let [_, sent] = bench.sent();
    let sent: Vec<_> = sent
        .iter()
        .filter(|frame| frame[12] == 8 && frame[13] == 0)
        .collect();
    assert_eq!((sent.len(), sent[0][22]), (1, 63));
}

#[test]
fn everybody_inside_has_the_public_address() {
    let mut bench = Bench::met_with(Bench::new(MASQUERADE));
    bench.takes(0, &[out(64, 0, 4)]);
    let [_, sent] = bench.sent();
    assert_eq!(sent[0][26..30], OURS[1].octets());
    assert_eq!(sent[0][34..36], 999_u16.to_be_bytes());
    assert!(is_sound(&sent[0]));
    let answer = packet(1, (OUTSIDE, OURS[1]), (UDP, 64, 0), &udp([53, 999], 4));
    bench.takes(1, &[answer]);
    let [back, _] = bench.sent();
    assert_eq!(back[0][30..34], INSIDE.octets());
    assert!(is_sound(&back[0]));
    // Nobody has asked this one, and it is for the router.
    let other = packet(1, (OUTSIDE, OURS[1]), (UDP, 64, 0), &udp([53, 998], 4));
    bench.takes(1, &[other]);
    assert_eq!(bench.sent()[0].len(), 0);
}

/// Type and code of the error in a frame, and its other four bytes.
fn error(frame: &[u8], at: usize) -> (u8, u8, u32) {
    let rest = frame[at + 4..at + 8].try_into().unwrap();
    (frame[at], frame[at + 1], u32::from_be_bytes(rest))
}

#[test]
fn who_sends_what_cannot_be_sent_on_is_told() {
    const DONT_FRAGMENT: u16 = 0x4000;
    let mut bench = Bench::met_with(Bench::with_mtu(OPEN, 1400));
    let nowhere = Ipv4Addr::new(198, 51, 100, 1);
    let no_route = packet(0, (INSIDE, nowhere), (UDP, 64, 0), &udp([1, 2], 4));
    for (frame, expected, reason) in [
        (out(1, 0, 4), (11, 0, 0), Dropped::Hops),
        (no_route, (3, 0, 0), Dropped::Route),
        (out(64, DONT_FRAGMENT, 1380), (3, 4, 1400), Dropped::TooBig),
    ] {
        bench.takes(0, core::slice::from_ref(&frame));
        let [told, sent] = bench.sent();
        assert_eq!((told.len(), sent.len()), (1, 0), "{reason:?}");
        assert_eq!((told[0][23], error(&told[0], 34)), (ICMP, expected));
        assert_eq!(
            told[0][26..34],
            [OURS[0].octets(), INSIDE.octets()].concat()
        );
        // It quotes what has come.
        assert_eq!(told[0][42..70], frame[14..42]);
        assert_eq!(bench.dropped(reason), 1);
    }
    let large = packet6(0, (INSIDE6, OUTSIDE6), (UDP, 64), &udp([1, 2], 1380));
    let late = packet6(0, (INSIDE6, OUTSIDE6), (UDP, 1), &udp([1, 2], 4));
    for (frame, expected) in [(large, (2, 0, 1400)), (late, (3, 0, 0))] {
        bench.takes(0, &[frame]);
        let [told, _] = bench.sent();
        assert_eq!((told[0][20], error(&told[0], 54)), (ICMPV6, expected));
    }
    // Nobody is told of an error that is lost.
    let quoted = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &out(64, 0, 0)[14..42]].concat();
    bench.takes(0, &[packet(0, (INSIDE, OUTSIDE), (ICMP, 1, 0), &quoted)]);
    assert_eq!(bench.sent()[0].len(), 0);
}

#[test]
fn who_is_rejected_is_told() {
    let rules = |hook: &str, reject: &str| {
        let rule = std::format!("meta l4proto udp {reject}");
        std::format!(
            "table inet t {{ chain c {{ type filter hook {hook} priority 0; {rule}; }}; }}"
        )
    };
    let asked = |port: u16| udp([999, port], 1000);
    for hook in ["prerouting", "forward"] {
        let mut bench = Bench::met_with(Bench::new(&rules(hook, "reject")));
        let frame = packet(0, (INSIDE, OUTSIDE), (UDP, 64, 0), &asked(53));
        bench.takes(0, core::slice::from_ref(&frame));
        let [told, sent] = bench.sent();
        assert_eq!((told.len(), sent.len()), (1, 0), "{hook}");
        assert_eq!(
            told[0][..12],
            [&STATION_MAC[0][..], &[2, 0, 0, 0, 0, 1]].concat()
        );
        assert_eq!((told[0][23], error(&told[0], 34)), (ICMP, (3, 3, 0)));
        assert_eq!(
            told[0][26..34],
            [OURS[0].octets(), INSIDE.octets()].concat()
        );
        assert!(is_sound(&told[0]));
        // As the kernel does, it quotes a packet with a hop less once that was to be sent on.
        let hops = if hook == "forward" { 63 } else { 64 };
        assert_eq!(told[0][50], hops);
        let frame = packet6(1, (OUTSIDE6, INSIDE6), (UDP, 64), &asked(53));
        bench.takes(1, &[frame]);
        let [_, told] = bench.sent();
        assert_eq!((told[0][20], error(&told[0], 54)), (ICMPV6, (1, 4, 0)));
        assert_eq!(
            told[0][22..54],
            [OURS6[1].octets(), OUTSIDE6.octets()].concat()
        );
    }
    // Who asks the router is told by the address that it asked.
    let mut bench = Bench::met_with(Bench::new(&rules("input", "reject with icmp 13")));
    let frame = packet(0, (INSIDE, OURS[1]), (UDP, 64, 0), &asked(53));
    bench.takes(0, &[frame]);
    let [told, _] = bench.sent();
    assert_eq!(error(&told[0], 34), (3, 13, 0));
    assert_eq!(
        told[0][26..34],
        [OURS[1].octets(), INSIDE.octets()].concat()
    );
    // Errors are limited, and come again after a while.
    let mut bench = Bench::met_with(Bench::new(&rules("forward", "reject")));
    let frame = packet(0, (INSIDE, OUTSIDE), (UDP, 64, 0), &asked(53));
    bench.takes(0, &vec![frame.clone(); 30]);
    assert!((15..30).contains(&bench.sent()[0].len()));
    bench.ms += 1000;
    bench.takes(0, &[frame]);
    assert_eq!(bench.sent()[0].len(), 1);
}

#[test]
fn what_may_be_cut_leaves_in_fragments() {
    let mut bench = Bench::met_with(Bench::with_mtu(OPEN, 600));
    let frame = out(64, 0, 1400);
    bench.takes(0, core::slice::from_ref(&frame));
    let [_, sent] = bench.sent();
    let mut payload = Vec::new();
    for (number, piece) in sent.iter().enumerate() {
        assert!(piece.len() <= 614 && is_sound(piece));
        let field = u16::from_be_bytes([piece[20], piece[21]]);
        assert_eq!(8 * usize::from(field & 0x1fff), payload.len());
        assert_eq!(field & 0x2000 != 0, number + 1 < sent.len());
        payload.extend(&piece[34..]);
    }
    assert_eq!((sent.len(), &payload[..]), (3, &frame[34..]));
}

#[test]
fn what_is_of_one_link_stays_there() {
    let mut bench = Bench::met();
    let local = Ipv4Addr::new(169, 254, 0, 1);
    let ends = [(local, OUTSIDE), (INSIDE, Ipv4Addr::new(224, 0, 0, 9))];
    let more = [
        (INSIDE, Ipv4Addr::BROADCAST),
        (Ipv4Addr::LOCALHOST, OUTSIDE),
    ];
    for ends in ends.into_iter().chain(more) {
        bench.takes(0, &[packet(0, ends, (UDP, 64, 0), &udp([1, 2], 4))]);
    }
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 5);
    let frame = packet6(0, (local, OUTSIDE6), (UDP, 64), &udp([1, 2], 4));
    bench.takes(0, &[frame]);
    assert_eq!(bench.sent()[1].len(), 0);
}

#[test]
fn rules_judge_what_is_for_the_router_and_what_is_its_own() {
    let echo = [8, 0, 0, 0, 0, 1, 0, 1];
    let ping = |bench: &mut Bench| {
        let mut message = echo;
        checksum::complete(&mut message, 0, 2);
        bench.takes(0, &[packet(0, (INSIDE, OURS[0]), (ICMP, 64, 0), &message)]);
        bench.sent()[0].len()
    };
    let rules = |hook: &str| {
        let rule = "icmp type { echo-request, echo-reply } drop";
        std::format!("table ip t {{ chain c {{ type filter hook {hook} priority 0; {rule}; }}; }}")
    };
    assert_eq!(ping(&mut Bench::met()), 1);
    for hook in ["input", "output", "postrouting", "prerouting"] {
        let mut bench = Bench::met_with(Bench::new(&rules(hook)));
        assert_eq!(ping(&mut bench), 0, "{hook}");
    }
    let mut bench = Bench::met_with(Bench::new(&rules("forward")));
    assert_eq!(ping(&mut bench), 1);
}

#[test]
fn what_is_lent_to_the_router_comes_before_all_rules() {
    const CLOSED: &str = "table ip t {
        chain i { type filter hook input priority 0; policy drop; }
        chain o { type filter hook output priority 0; policy drop; }
        chain c { type nat hook postrouting priority srcnat; masquerade; }
    }";
    let asks = |stack: &mut Stack<Ipv4, Ipv6>| {
        stack.ip.port(1).v4.remove_address(OURS[1]);
        stack.use_dhcp(1, 7, None).unwrap();
    };
    let mut bench = Bench::of(CLOSED, 1500, asks);
    let mut asked = Vec::new();
    for _ in 0..20 {
        bench.ms += 1000;
        bench.takes(1, &[]);
        asked.extend(bench.sent()[1].clone());
    }
    let is_asked = |frame: &Vec<u8>| frame[12..14] == [8, 0] && frame[34..38] == [0, 68, 0, 67];
    assert!(asked.iter().any(is_asked), "{asked:?}");
    // What has come to the client: it is none of its messages.
    let heard = |bench: &Bench| {
        let mut count = 0;
        bench.router.counts(&mut |name, value| {
            count += if name == "dhcp_malformed" { value } else { 0 };
        });
        count
    };
    let lent = |port: usize, to: Ipv4Addr, ports: [u16; 2]| {
        packet(port, (OUTSIDE, to), (UDP, 64, 0), &udp(ports, 9))
    };
    let everybody = Ipv4Addr::BROADCAST;
    for (frame, port, expected) in [
        (lent(1, everybody, [53, 68]), 1, 0),
        (lent(0, everybody, [67, 68]), 0, 0),
        (lent(1, INSIDE, [67, 68]), 1, 0),
    ] {
        bench.takes(port, &[frame]);
        assert_eq!(heard(&bench), expected);
    }
    let mut frame = lent(1, everybody, [67, 68]);
    frame[..6].fill(0xff);
    bench.takes(1, &[frame]);
    bench.takes(1, &[]);
    assert_eq!(heard(&bench), 1);
}

proptest! {
    // Each case has a router of its own.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever comes, there is no panic, and nothing leaves that may make no hop.
    #[test]
    fn hostile_frames_do_no_harm(
        frames in prop::collection::vec(
            (0..2_usize, prop::sample::select(vec![0x800_u16, 0x86dd, 0x806]),
             prop::collection::vec(any::<u8>(), 0..120), any::<u8>()),
            0..20,
        ),
        rules in prop::sample::select(vec![MASQUERADE, REJECT]),
    ) {
        let mut bench = Bench::met_with(Bench::with_mtu(rules, 600));
        for (port, ethertype, bytes, first) in frames {
            let mut frame = link(port, ethertype);
            frame.extend(&bytes);
            if let Some(place) = frame.get_mut(14) {
                *place = if ethertype == 0x800 { 0x40 | first & 0xf } else { 0x60 };
            }
            bench.takes(port, &[frame]);
            for sent in bench.sent().iter().flatten() {
                let hops = match sent[12..14] {
                    [8, 0] => sent[22],
                    [0x86, 0xdd] => sent[21],
                    _ => 1,
                };
                prop_assert!(hops > 0);
            }
        }
    }
}
