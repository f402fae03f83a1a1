//! Verdicts and translations that are looked up.

use super::frame::{tcp, udp};
use super::*;
use crate::key::protocol::{TCP, UDP};
use std::format;
use std::string::String;

/// A table with a chain at the hook `forward`, and what else is in it.
fn forward(rules: &str, besides: &str) -> String {
    let hook = "type filter hook forward priority 0";
    format!("table inet t {{\n{besides}\nchain c {{\n{hook}\n{rules}\n}}\n}}\n")
}

fn passes(bench: &mut Bench, port: u16) -> bool {
    let question = tcp([1000, port], 1, 0, 2);
    bench.pass(0, (CLIENT, SERVER), TCP, question).is_ok()
}

#[test]
fn a_verdict_is_looked_up() {
    let text = forward(
        "tcp dport vmap { 22 : drop, 80-90 : accept, 443 : jump tls, 444 : goto tls, 8080 : return }
        counter drop",
        "chain tls { counter; }",
    );
    let mut bench = Bench::new(&text);
    let ports = [21, 22, 80, 90, 91, 443, 444, 8080];
    let passed = ports.map(|port| passes(&mut bench, port));
    assert_eq!(passed, [false, false, true, true, false, false, true, true]);
    // In order: what came to the other chain, was found in the map, and was not; the policy.
    assert_eq!(bench.counts.0, [2, 6, 3, 2]);
    // With a counter in front of it, each packet counts.
    let mut bench = Bench::new(&forward("counter tcp dport vmap { 22 : drop }", ""));
    assert_eq!([22, 23].map(|port| passes(&mut bench, port)), [false, true]);
    assert_eq!(bench.counts.0[0], 2);
}

#[test]
fn a_named_map_has_verdicts() {
    let map = "map m {
        type inet_service : verdict
        flags interval
        elements = { 22 : drop,
            80-90 : jump web }
    }
    chain web { drop; }";
    let mut bench = Bench::new(&forward("tcp dport vmap @m\nudp dport vmap @m", map));
    let passed = [22, 23, 85].map(|port| passes(&mut bench, port));
    assert_eq!(passed, [false, true, false]);
    let question = udp([1, 22], b"");
    assert!(bench.pass(0, (CLIENT, SERVER), UDP, question).is_err());
    let of_ports = "type inet_service : verdict";
    for (lines, why) in [
        (format!("{of_ports}; elements = {{ 1-5 : drop }}\n"), "a "),
        (
            "type ipv4_addr : verdict; elements = { 1.2.3.4 : drop }\n".into(),
            "expected a port",
        ),
        (
            "type inet_service : ipv4_addr;".into(),
            "a named map of something else",
        ),
        ("elements = { 1 : drop }\n".into(), "expected a map with"),
        (
            format!("{of_ports}; flags timeout;"),
            "a map that rules change",
        ),
    ] {
        let map = format!("map m {{ {lines} }}");
        let said = load(&forward("tcp dport vmap @m", &map)).unwrap_err();
        let said = std::string::ToString::to_string(&said);
        assert!(said.starts_with(why), "{map}: {said}");
    }
}

#[test]
fn states_are_looked_up() {
    let text = forward(
        "ct state vmap { established : accept, related : accept, invalid : drop }
        iifname vmap { private : accept, \"nobody\" : accept }
        drop",
        "",
    );
    let mut bench = Bench::new(&text);
    let answer = || udp([53, 9], b"");
    assert!(bench.pass(1, (SERVER, CLIENT), UDP, answer()).is_err());
    bench
        .pass(0, (CLIENT, SERVER), UDP, udp([9, 53], b""))
        .unwrap();
    bench.pass(1, (SERVER, CLIENT), UDP, answer()).unwrap();
    assert_eq!(bench.counts.0, [1, 1, 1, 0]);
}

#[test]
fn translations_are_looked_up() {
    let text = nat(
        "prerouting",
        "dnat ip to tcp dport map { 80 : 10.0.0.3 . 8080, 443 : 10.0.0.4 . 8443 }",
    );
    let mut bench = Bench::new(&text);
    for (port, address, called) in [(80, OTHER, 8080), (443, "10.0.0.4", 8443)] {
        let question = tcp([1000, port], 1, 0, 2);
        let left = bench.pass(1, (SERVER, OUTSIDE), TCP, question).unwrap();
        assert_eq!(ends(&left), (ip(SERVER), ip(address), [1000, called]));
    }
    let question = tcp([1000, 81], 1, 0, 2);
    let left = bench.pass(1, (SERVER, OUTSIDE), TCP, question).unwrap();
    assert_eq!(ends(&left).1, ip(OUTSIDE));
    let text = nat(
        "postrouting",
        "snat ip to ip saddr map { 10.0.0.0/24 : 192.0.2.7 }",
    );
    let mut bench = Bench::new(&text);
    let question = udp([9, 53], b"");
    let left = bench.pass(0, (CLIENT, SERVER), UDP, question).unwrap();
    assert_eq!(ends(&left).0, ip("192.0.2.7"));
}

#[test]
fn networks_are_called_by_their_prefix() {
    for rule in [
        "snat ip prefix to ip saddr map { 10.0.0.0/24 : 198.51.100.0/24 }",
        "ip saddr 10.0.0.0/24 snat ip prefix to 198.51.100.0/24",
    ] {
        let mut bench = Bench::new(&nat("postrouting", rule));
        for (own, called) in [(CLIENT, "198.51.100.2"), (OTHER, "198.51.100.3")] {
            let question = udp([9, 53], b"");
            let left = bench.pass(0, (own, SERVER), UDP, question).unwrap();
            assert_eq!(ends(&left).0, ip(called));
            let answer = udp([53, 9], b"");
            let left = bench.pass(1, (SERVER, called), UDP, answer).unwrap();
            assert_eq!(ends(&left).1, ip(own));
        }
    }
}
