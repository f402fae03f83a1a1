//! `ct count`: how many connections a rule has seen.

use super::frame::tcp;
use super::*;
use crate::key::protocol::TCP;

const SYN: u8 = 2;
const ACK: u8 = 16;

fn file(rules: &str) -> std::string::String {
    std::format!(
        "table ip filter {{
            set each {{ type ipv4_addr; size 4; flags dynamic; }}
            chain f {{
                type filter hook forward priority filter; policy accept;
                ct state established accept
                {rules}
            }}
        }}"
    )
}

/// A SYN from this client's port.
fn syn(bench: &mut Bench, client: &str, port: u16) -> bool {
    let frame = tcp([port, 80], 0, 0, SYN);
    bench.pass(0, (client, SERVER), TCP, frame).is_ok()
}

/// The connection ends, from the server's side.
fn reset(bench: &mut Bench, client: &str, port: u16) {
    let frame = tcp([80, port], 0, 1, SYN | ACK);
    bench.pass(1, (SERVER, client), TCP, frame).unwrap();
    let frame = tcp([80, port], 1, 1, 4 | ACK);
    bench.pass(1, (SERVER, client), TCP, frame).unwrap();
}

#[test]
fn so_many_connections_pass_and_no_more() {
    let mut bench = Bench::new(&file("tcp dport 80 ct count over 2 drop"));
    let passed = [1, 2, 3, 4].map(|port| syn(&mut bench, CLIENT, port));
    assert_eq!(passed, [true, true, false, false]);
    // The same connection once more is none more.
    assert!(syn(&mut bench, CLIENT, 1));
    reset(&mut bench, CLIENT, 2);
    let passed = [5, 6].map(|port| syn(&mut bench, OTHER, port));
    assert_eq!(passed, [true, false]);
    // What nobody answers ends by itself.
    bench.now += 121 * SECOND;
    let passed = [7, 8, 9].map(|port| syn(&mut bench, OTHER, port));
    assert_eq!(passed, [true, true, false]);
}

#[test]
fn without_over_it_matches_up_to_the_number() {
    let mut bench = Bench::new(&file("ct count 2 accept\ntcp dport 80 drop"));
    let passed = [1, 2, 3].map(|port| syn(&mut bench, CLIENT, port));
    assert_eq!(passed, [true, true, false]);
    let mut none = Bench::new(&file("ct count over 0 drop"));
    assert!(!syn(&mut none, CLIENT, 1));
}

#[test]
fn each_element_has_its_own() {
    let rules = "tcp dport 80 add @each { ip saddr ct count over 1 } drop";
    let mut bench = Bench::new(&file(rules));
    for client in [CLIENT, OTHER] {
        let passed = [1, 2].map(|port| syn(&mut bench, client, port));
        assert_eq!(passed, [true, false], "{client}");
    }
    reset(&mut bench, CLIENT, 1);
    assert!(syn(&mut bench, CLIENT, 3) && !syn(&mut bench, OTHER, 3));
}

#[test]
fn an_element_without_connections_makes_room() {
    let rules = "add @each { ip saddr ct count over 1 } accept\ncounter";
    let mut bench = Bench::new(&file(rules));
    // In a full set, the statement does not match.
    for last in 2..12u8 {
        let client = std::format!("10.0.0.{last}");
        assert!(syn(&mut bench, &client, 1));
    }
    let full = bench.counts.0.clone();
    bench.now += 121 * SECOND;
    for last in 100..103u8 {
        let client = std::format!("10.0.0.{last}");
        assert!(syn(&mut bench, &client, 1) && syn(&mut bench, &client, 2));
    }
    // Of the first three of these, the second connection exceeds the number of its element: the
    // rule matches, as it does in a set with room alone.
    let matched = bench.counts.0[1] - full[1];
    assert_eq!(matched, 3, "{:?} {full:?}", bench.counts.0);
}

#[test]
fn what_it_costs_is_bounded() {
    let refused = load(&file("ct count over 1025 drop")).unwrap_err();
    assert!(std::format!("{refused}").contains("at most 1024"));
    let large =
        file("add @each { ip saddr ct count over 1024 } drop").replace("size 4", "size 65535");
    let refused = load(&large).unwrap_err();
    assert!(std::format!("{refused}").contains("bytes for sets"));
}
