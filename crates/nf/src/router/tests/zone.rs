//! Zones: connections that are apart although their addresses are the same.

use super::frame::{icmp, packet, udp};
use super::*;
use crate::conntrack::{Entry, Name, Refused};
use crate::key::protocol::{ICMP, UDP};
use std::string::{String, ToString};

/// What each port sends is another tenant's.
const TEXT: &str = "table inet t {
    define FIRST = 5
    chain early {
        type filter hook prerouting priority raw
        iifname private ct zone set $FIRST ct zone set 7 notrack
        ct zone 5 ct state new counter
        iifname public notrack ct zone set 65535
    }
    chain forward {
        type filter hook forward priority 0
        ct zone 5 counter
        ct zone 65535 ct original zone 65535 ct reply zone 65535 counter
        ct state established counter
    }
}";

fn listed(bench: &Bench) -> Vec<(Name, Name)> {
    let mut all = Vec::new();
    let mut take = |entry: &Entry| {
        assert_eq!(entry.status & 0xc0, 0);
        all.push((entry.name, entry.reply));
        true
    };
    bench.connections.table.list(0, bench.now, &mut take);
    all.sort_unstable();
    all
}

#[test]
fn the_same_addresses_are_several_connections() {
    let mut bench = Bench::new(TEXT);
    let ends = [(CLIENT, SERVER), (SERVER, CLIENT)];
    let ports = [[9, 53], [53, 9]];
    // To each tenant, the other's question is none that it has an answer to.
    for (from, way) in [(0, 0), (1, 1), (0, 0), (1, 0), (0, 1), (1, 0)] {
        bench
            .pass(from, ends[way], UDP, udp(ports[way], b""))
            .unwrap();
    }
    let zones: Vec<_> = listed(&bench)
        .iter()
        .map(|(name, reply)| [name.zone, reply.zone])
        .collect();
    assert_eq!(zones, [[5, 5], [65535, 65535]]);
    let counts = &bench.counts.0;
    // Before there is a connection, there is none whose zone could be told.
    assert_eq!([counts[1], counts[3], counts[4], counts[5]], [0, 3, 3, 3]);
    // One is ended by its name, and the other one goes on.
    let (name, _) = listed(&bench)[0];
    assert!(bench.connections.table.end(&name, bench.now));
    assert!(!bench.connections.table.end(&name, bench.now));
    assert_eq!(listed(&bench).len(), 1);
}

#[test]
fn who_asks_is_in_a_zone_and_answers_are_in_none() {
    let text = "table inet t {
        chain early {
            type filter hook prerouting priority raw
            ip saddr 10.0.0.0/24 iifname private ct original zone set 1
            ip saddr 10.0.0.0/24 iifname public ct original zone set 2
        }
        chain late {
            type nat hook postrouting priority srcnat
            ip saddr 10.0.0.0/24 snat ip to 198.51.100.9
        }
        chain forward {
            type filter hook forward priority 0
            ct original zone 1 ct reply zone 0 ct state established counter
        }
    }";
    let mut bench = Bench::new(text);
    let mut called = Vec::new();
    for from in [0, 1] {
        let left = bench
            .pass(from, (CLIENT, SERVER), UDP, udp([9, 53], b""))
            .unwrap();
        let (source, _, ports) = ends(&left);
        assert_eq!(source, ip("198.51.100.9"));
        called.push(ports[0]);
    }
    assert_eq!(called[0], 9);
    assert_ne!(called[1], 9, "outside, both are in one zone");
    for (from, port) in [(1, called[0]), (0, called[1])] {
        let answer = udp([53, port], b"");
        let left = bench
            .pass(from, (SERVER, "198.51.100.9"), UDP, answer)
            .unwrap();
        let (_, destination, ports) = ends(&left);
        assert_eq!((destination, ports), (ip(CLIENT), [53, 9]));
    }
    // An error about what one of them has sent finds its connection.
    let sent = packet(
        ip("198.51.100.9"),
        ip(SERVER),
        UDP,
        udp([called[0], 53], b""),
    );
    let error = icmp(3, 3, [0; 4], &sent);
    let left = bench
        .pass(1, (SERVER, "198.51.100.9"), ICMP, error)
        .unwrap();
    assert_eq!(ends(&left).1, ip(CLIENT));
    let zones: Vec<_> = listed(&bench)
        .iter()
        .map(|(name, reply)| [name.zone, reply.zone])
        .collect();
    assert_eq!(zones, [[1, 0], [2, 0]]);
    assert_eq!(bench.counts.0[3], 1);
    // Its end is found, too.
    bench.now += 100 * SECOND;
    bench.connections.table.expire(bench.now);
    assert!(listed(&bench).is_empty());
}

/// A router to which who is asked from outside answers in zone 6, and which has this rule of NAT.
fn with_reply_zone(nat: &str) -> Bench {
    Bench::new(&std::format!(
        "table inet t {{
            chain early {{
                type filter hook prerouting priority raw
                iifname public ct reply zone set 6
            }}
            chain late {{
                type nat hook postrouting priority srcnat
                {nat}
            }}
        }}"
    ))
}

/// Of what is called the same in one zone, there is one.
#[test]
fn who_answers_in_another_zone_does_not_begin_what_is_there() {
    let mut bench = with_reply_zone("iifname private masquerade");
    let asked = bench
        .pass(0, (CLIENT, SERVER), UDP, udp([9, 53], b""))
        .unwrap();
    assert_eq!(ends(&asked), (ip(OUTSIDE), ip(SERVER), [9, 53]));
    // It is not found in zone 6, and has the name of what the question is answered by.
    let answered = bench.pass(1, (SERVER, OUTSIDE), UDP, udp([53, 9], b""));
    assert_eq!(answered, Err(Stop::Refused(Refused::Ports)));
    assert_eq!(listed(&bench).len(), 1);
    // Nobody has asked from this port.
    bench
        .pass(1, (SERVER, OUTSIDE), UDP, udp([54, 9], b""))
        .unwrap();
    assert_eq!(listed(&bench).len(), 2);
}

/// The kernel calls neither end otherwise, so that there is no room for the second one.
#[test]
fn who_answers_a_question_in_a_reply_zone_is_not_translated() {
    let mut bench = with_reply_zone("");
    bench
        .pass(1, (SERVER, CLIENT), UDP, udp([9, 53], b""))
        .unwrap();
    let answered = bench.pass(0, (CLIENT, SERVER), UDP, udp([53, 9], b""));
    assert_eq!(answered, Err(Stop::Refused(Refused::Ports)));
    assert_eq!(listed(&bench).len(), 1);
}

#[test]
fn zones_are_said_where_connections_are_not_known_yet() {
    let said =
        |from: &str, to: &str| -> String { load(&TEXT.replace(from, to)).unwrap_err().to_string() };
    for (from, to, expected) in [
        (
            "priority raw",
            "priority filter",
            "`ct zone set` in this chain has no effect",
        ),
        (
            "zone set 65535",
            "zone set 65536",
            "the number of a zone is at most 65535",
        ),
        (
            "zone set 65535",
            "zone set mark",
            "a zone that depends on something else",
        ),
        (
            "zone set 65535",
            "zone set 5 ct zone 5",
            "a condition behind a change",
        ),
        (
            "zone set 65535",
            "zone set $NONE",
            "there is no such variable",
        ),
        (
            "zone 65535 ct",
            "zone a ct",
            "expected the number of a zone",
        ),
    ] {
        assert!(said(from, to).contains(expected), "{}", said(from, to));
    }
    let bridge = TEXT
        .replace("inet", "bridge")
        .replace("prerouting", "forward")
        .replace("priority raw", "priority 0");
    let bridge = crate::load(&bridge, &PORTS, &Limits::DEFAULT).unwrap_err();
    assert!(
        bridge
            .to_string()
            .starts_with("a zone for frames of a bridge"),
        "{bridge}"
    );
}
