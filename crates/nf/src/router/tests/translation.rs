//! Translations as the kernel does them.

use super::frame::{frame, icmp, packet, part, summed, tcp, udp};
use super::*;
use crate::conntrack::Refused;
use crate::key::protocol::{ICMP, TCP, UDP};

const SYN: u8 = 2;

#[test]
fn a_port_that_is_free_is_kept() {
    let mut bench = Bench::new(&nat("postrouting", "oifname public masquerade"));
    let out = bench
        .pass(0, (CLIENT, SERVER), UDP, udp([4000, 53], b"?"))
        .unwrap();
    assert_eq!(ends(&out), (ip(OUTSIDE), ip(SERVER), [4000, 53]));
    let back = bench
        .pass(1, (SERVER, OUTSIDE), UDP, udp([53, 4000], b"!"))
        .unwrap();
    assert_eq!(ends(&back), (ip(SERVER), ip(CLIENT), [53, 4000]));
    // Another client with the same port gets another one, of the same class.
    let out = bench
        .pass(0, (OTHER, SERVER), UDP, udp([4000, 53], b"?"))
        .unwrap();
    let (source, _, [port, _]) = ends(&out);
    assert_eq!(source, ip(OUTSIDE));
    assert!(port >= 1024 && port != 4000);
    let back = bench
        .pass(1, (SERVER, OUTSIDE), UDP, udp([53, port], b"!"))
        .unwrap();
    assert_eq!(ends(&back), (ip(SERVER), ip(OTHER), [53, 4000]));
    // To another server, the first one is free.
    let out = bench
        .pass(0, (OTHER, "192.0.2.81"), UDP, udp([4000, 53], b"?"))
        .unwrap();
    assert_eq!(ends(&out).2, [4000, 53]);
}

#[test]
fn ports_stay_in_their_class() {
    for (port, class) in [(500, 1..=511), (700, 600..=1023), (520, 600..=1023)] {
        let mut bench = Bench::new(&nat("postrouting", "masquerade random"));
        let out = bench
            .pass(0, (CLIENT, SERVER), TCP, tcp([port, 80], 1, 0, SYN))
            .unwrap();
        assert!(class.contains(&ends(&out).2[0]), "{port}");
    }
}

#[test]
fn a_range_of_ports_may_be_exhausted() {
    let rules = "meta l4proto udp snat ip to 192.0.2.9:2000-2002";
    let mut bench = Bench::new(&nat("postrouting", rules));
    let mut seen = Vec::new();
    for port in 1..=3 {
        let out = bench
            .pass(0, (CLIENT, SERVER), UDP, udp([port, 53], b""))
            .unwrap();
        let (source, _, [port, _]) = ends(&out);
        assert_eq!(source, ip("192.0.2.9"));
        seen.push(port);
    }
    seen.sort_unstable();
    assert_eq!(seen, [2000, 2001, 2002]);
    let out = bench.pass(0, (CLIENT, SERVER), UDP, udp([4, 53], b""));
    assert_eq!(out, Err(Stop::Refused(Refused::Ports)));
    // Those that have one keep it.
    bench
        .pass(0, (CLIENT, SERVER), UDP, udp([1, 53], b""))
        .unwrap();
    bench.now += 31 * SECOND;
    bench.connections.table.expire(bench.now);
    bench
        .pass(0, (CLIENT, SERVER), UDP, udp([4, 53], b""))
        .unwrap();
}

#[test]
fn a_destination_is_another_one() {
    let rules = "iifname public tcp dport 8080 dnat ip to 10.0.0.2:80";
    let mut bench = Bench::new(&nat("prerouting", rules));
    let ports = [5000, 8080];
    let into = bench
        .pass(1, (SERVER, OUTSIDE), TCP, tcp(ports, 1, 0, SYN))
        .unwrap();
    assert_eq!(ends(&into), (ip(SERVER), ip(CLIENT), [5000, 80]));
    let answer = tcp([80, 5000], 9, 2, SYN | 16);
    let back = bench.pass(0, (CLIENT, SERVER), TCP, answer).unwrap();
    assert_eq!(ends(&back), (ip(OUTSIDE), ip(SERVER), [8080, 5000]));
    // Rules are asked once.
    bench
        .pass(1, (SERVER, OUTSIDE), TCP, tcp(ports, 2, 10, 16))
        .unwrap();
    assert_eq!(bench.counts.0, [1, 0]);
}

#[test]
fn a_range_of_ports_of_a_destination_begins_at_its_first() {
    let rules = "udp dport 53 dnat ip to 10.0.0.2:2000-2010";
    let mut bench = Bench::new(&nat("prerouting", rules));
    for (port, expected) in [(1, 2000), (2, 2000)] {
        let into = bench
            .pass(1, (SERVER, OUTSIDE), UDP, udp([port, 53], b""))
            .unwrap();
        assert_eq!(ends(&into).2, [port, expected]);
    }
}

#[test]
fn what_comes_in_is_for_the_router() {
    let rules = "tcp dport 80 redirect to :8080";
    let mut bench = Bench::new(&nat("prerouting", rules));
    let syn = packet(ip(CLIENT), ip(SERVER), TCP, tcp([5000, 80], 1, 0, SYN));
    let mut syn = frame(&syn);
    let mut passage = Passage::new();
    let arrival = Arrival {
        port: 0,
        local: Local::of(&[ip(INSIDE)]),
        partial: false,
    };
    let mut hooks = bench.hooks();
    hooks.prerouting(&mut passage, &mut syn, arrival).unwrap();
    hooks.input(&mut passage, &mut syn).unwrap();
    assert_eq!(ends(&syn), (ip(CLIENT), ip(INSIDE), [5000, 8080]));
    let answer = tcp([8080, 5000], 9, 2, SYN | 16);
    let mut answer = frame(&packet(ip(INSIDE), ip(CLIENT), TCP, answer));
    hooks.output(&mut passage, &mut answer, 0, false).unwrap();
    let local = Local::default();
    hooks
        .postrouting(&mut passage, &mut answer, 0, local)
        .unwrap();
    assert_eq!(ends(&answer), (ip(SERVER), ip(CLIENT), [80, 5000]));
    assert!(is_right(&answer));
}

#[test]
fn a_port_without_an_address_takes_none() {
    let mut bench = Bench::new(&nat("postrouting", "masquerade"));
    let mut bytes = frame(&packet(ip(CLIENT), ip(SERVER), UDP, udp([1, 2], b"")));
    let mut passage = Passage::new();
    let arrival = Arrival {
        port: 0,
        local: Local::default(),
        partial: false,
    };
    let mut hooks = bench.hooks();
    hooks.prerouting(&mut passage, &mut bytes, arrival).unwrap();
    let left = hooks.postrouting(&mut passage, &mut bytes, 1, Local::default());
    assert_eq!(left, Err(Stop::Refused(Refused::Address)));
}

#[test]
fn questions_have_identifiers() {
    let mut bench = Bench::new(&nat("postrouting", "masquerade"));
    let ask = |id: u8| icmp(8, 0, [0, id, 0, 1], b"abc");
    let out = bench.pass(0, (CLIENT, SERVER), ICMP, ask(5)).unwrap();
    assert_eq!(out[38..40], [0, 5]);
    let out = bench.pass(0, (OTHER, SERVER), ICMP, ask(5)).unwrap();
    let id = [out[38], out[39]];
    assert_ne!(id, [0, 5]);
    let answer = icmp(0, 0, [id[0], id[1], 0, 1], b"abc");
    let back = bench.pass(1, (SERVER, OUTSIDE), ICMP, answer).unwrap();
    assert_eq!(
        (back[30..34].to_vec(), [back[38], back[39]]),
        (vec![10, 0, 0, 3], [0, 5])
    );
}

#[test]
fn an_error_is_about_what_its_reader_sent() {
    let mut bench = Bench::new(&nat("postrouting", "masquerade"));
    let sent = udp([4000, 53], b"question");
    bench.pass(0, (OTHER, SERVER), UDP, sent.clone()).unwrap();
    let out = bench.pass(0, (CLIENT, SERVER), UDP, sent).unwrap();
    let error = icmp(3, 3, [0; 4], &out[14..]);
    // A router on the way says so.
    let back = bench
        .pass(1, ("198.51.100.1", OUTSIDE), ICMP, error)
        .unwrap();
    assert_eq!(back[26..34], [198, 51, 100, 1, 10, 0, 0, 2]);
    let quoted = [&[0; 14], &back[42..]].concat();
    assert_eq!(ends(&quoted), (ip(CLIENT), ip(SERVER), [4000, 53]));
    let expected = packet(ip(CLIENT), ip(SERVER), UDP, udp([4000, 53], b"question"));
    assert_eq!(quoted[14..], expected);
}

#[test]
fn parts_are_called_what_the_first_is() {
    let text = nat("prerouting", "udp dport 53 dnat ip to 10.0.0.9:5353")
        + &nat("postrouting", "snat ip to 192.0.2.9");
    let mut bench = Bench::new(&text);
    let whole = summed(ip(CLIENT), ip(SERVER), UDP, udp([4000, 53], &[7; 2000]));
    let (first, second) = whole.split_at(1480);
    let parts = [(0x2000, first), (185, second)];
    let parts = parts.map(|(at, bytes)| frame(&part(ip(CLIENT), ip(SERVER), UDP, at, bytes)));
    let early = bench.forward(0, parts[1].clone(), false);
    assert_eq!(early, Err(Stop::Refused(Refused::Fragment)));
    let left = parts.map(|part| bench.forward(0, part, false).unwrap());
    assert_eq!(
        ends(&left[0]),
        (ip("192.0.2.9"), ip("10.0.0.9"), [4000, 5353])
    );
    let (source, destination, _) = ends(&left[1]);
    assert_eq!((source, destination), (ip("192.0.2.9"), ip("10.0.0.9")));
    let payload = [&left[0][34..], &left[1][34..]].concat();
    let expected = summed(source, destination, UDP, udp([4000, 5353], &[7; 2000]));
    assert_eq!(payload, expected);
}

#[test]
fn a_checksum_that_is_left_to_offload_stays_so() {
    let mut bench = Bench::new(&nat("postrouting", "masquerade random"));
    let partial = |source: IpAddr, ports| {
        let mut bytes = packet(source, ip(SERVER), TCP, tcp(ports, 1, 0, SYN));
        // The sum of the pseudo header, which is no checksum.
        let pseudo = summed(source, ip(SERVER), TCP, vec![0; 20]);
        let sum = !u16::from_be_bytes([pseudo[16], pseudo[17]]);
        bytes[36..38].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let left = bench
        .forward(0, frame(&partial(ip(CLIENT), [5000, 80])), true)
        .unwrap();
    let (source, _, ports) = ends(&left);
    assert_eq!(left[14..], partial(source, ports));
}

#[test]
fn udp_without_a_checksum_stays_without() {
    let mut bench = Bench::new(&nat("postrouting", "masquerade"));
    let mut bytes = packet(ip(CLIENT), ip(SERVER), UDP, udp([1, 2], b"x"));
    bytes[26..28].fill(0);
    let left = bench.forward(0, frame(&bytes), false).unwrap();
    assert_eq!(left[40..42], [0, 0]);
    assert!(is_right(&left));
}

#[test]
fn connections_go_on_in_another_table() {
    let text = nat("prerouting", "udp dport 53 dnat ip to 10.0.0.9:5353")
        + &nat("postrouting", "snat ip to 192.0.2.9");
    let mut bench = Bench::new(&text);
    let bytes = 1 << 16;
    let memory: &'static mut [u64] = vec![0; bytes / 8].leak();
    let memory = zerocopy::IntoBytes::as_mut_bytes(memory);
    let address = memory.as_ptr().addr() as u64;
    let (table, _) = Conntrack::take_up(memory, &KEY, bench.now).unwrap();
    bench.connections = Connections::of(table, &KEY);
    let left = bench
        .pass(0, (CLIENT, SERVER), UDP, udp([4000, 53], b""))
        .unwrap();
    assert_eq!(ends(&left), (ip("192.0.2.9"), ip("10.0.0.9"), [4000, 5353]));
    let mut copy = vec![0; bytes];
    let file = std::fs::File::open("/proc/self/mem").unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut copy, address).unwrap();
    let (table, taken) = Conntrack::take_up_copy(&copy, &[1; 16], bench.now).unwrap();
    assert_eq!((taken.flows, taken.refused), (1, None));
    bench.connections = Connections::of(table, &[1; 16]);
    let answer = udp([5353, 4000], b"");
    let back = bench
        .pass(1, ("10.0.0.9", "192.0.2.9"), UDP, answer)
        .unwrap();
    assert_eq!(ends(&back), (ip(SERVER), ip(CLIENT), [53, 4000]));
}
