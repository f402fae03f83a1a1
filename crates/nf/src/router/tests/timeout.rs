//! How long connections stay that rules say so of.

use super::frame::{tcp, udp};
use super::*;
use crate::conntrack::{Entry, TIMEOUTS_MAX};
use crate::key::protocol::{TCP, UDP};
use std::string::{String, ToString};

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Each timeout is another one.
const TEXT: &str = "table inet t {
    ct timeout web {
        protocol tcp
        policy = { syn_sent : 10, syn_recv : 20, established : 900, fin_wait : 40, close_wait : 50,
            last_ack : 60, time_wait : 70, close : 80, syn_sent2 : 90, retrans : 100, unack : 110 }
    }
    ct timeout names {
        protocol udp; l3proto ip
        policy = { unreplied : 5, replied : 50 }
    }
    chain c {
        type filter hook prerouting priority filter
        tcp dport 80 ct timeout set \"web\"
        udp dport 53 ct timeout set \"names\"
    }
}";

/// The connections, and whole seconds for which each stays.
fn left(bench: &Bench) -> Vec<(u16, u32)> {
    let mut all = Vec::new();
    let mut take = |entry: &Entry| {
        all.push((entry.name.ports[1], entry.left / 1000));
        true
    };
    bench.connections.table.list(0, bench.now, &mut take);
    all.sort_unstable();
    all
}

#[test]
fn each_state_has_its_own() {
    let mut bench = Bench::new(TEXT);
    let steps = [
        (0, SYN, 0, 0, 10),
        (1, SYN | ACK, 0, 1, 20),
        (0, ACK, 1, 1, 900),
        (0, FIN | ACK, 1, 1, 40),
        (1, ACK, 1, 2, 50),
        (1, FIN | ACK, 1, 2, 60),
        (0, ACK, 2, 2, 70),
    ];
    for (from, flags, seq, ack, expected) in steps {
        let ends = [(CLIENT, SERVER), (SERVER, CLIENT)][usize::from(from)];
        for port in [80, 22] {
            let ports = [[9, port], [port, 9]][usize::from(from)];
            bench
                .pass(from, ends, TCP, tcp(ports, seq, ack, flags))
                .unwrap();
        }
        let stays = left(&bench);
        assert_eq!(stays[1], (80, expected), "{flags:#x}");
        assert_ne!(stays[0].1, expected, "the other has those of Linux");
    }
}

#[test]
fn datagrams_have_theirs() {
    let mut bench = Bench::new(TEXT);
    let ask = |bench: &mut Bench, from, port| {
        let ends = [(CLIENT, SERVER), (SERVER, CLIENT)][usize::from(from)];
        let ports = [[9, port], [port, 9]][usize::from(from)];
        bench.pass(from, ends, UDP, udp(ports, b"")).unwrap();
    };
    // Of TCP to this port there are timeouts, and of UDP there are none.
    for (from, later, expected) in [(0, 0, 5), (1, 0, 5), (1, 3, 50)] {
        bench.now += later * SECOND;
        for port in [53, 80] {
            ask(&mut bench, from, port);
        }
        assert_eq!(left(&bench)[0], (53, expected));
    }
    bench.now += 52 * SECOND;
    bench.connections.table.expire(bench.now);
    assert_eq!(left(&bench), [(80, 68)]);
}

#[test]
fn they_stay_with_other_rules_and_begin_with_a_connection_alone() {
    let mut bench = Bench::new(TEXT);
    let pass = |bench: &mut Bench, source, port, flags| {
        let ports = [source, port];
        bench
            .pass(0, (CLIENT, SERVER), TCP, tcp(ports, 0, 0, flags))
            .unwrap();
    };
    pass(&mut bench, 9, 80, SYN);
    let other = TEXT
        .replace("dport 80", "dport 81")
        .replace("syn_sent : 10", "syn_sent : 11");
    bench.rules = load(&other).unwrap();
    bench.connections.rules_changed();
    bench.now += SECOND;
    pass(&mut bench, 10, 81, SYN);
    assert_eq!(left(&bench), [(80, 9), (81, 11)]);
    // A connection that goes on has what it began with, whatever rules say.
    bench.rules = load(TEXT).unwrap();
    pass(&mut bench, 10, 81, SYN);
    assert_eq!(left(&bench), [(80, 9), (81, 11)]);
}

#[test]
fn the_last_rule_counts_and_a_condition_behind_takes_nothing_back() {
    let rules = "ct timeout set \"web\" ct timeout set \"other\"
        ip protocol tcp ct timeout set \"names\" ip daddr 10.9.9.9 accept
        tcp dport 80 ct timeout set \"other\" ip daddr 10.9.9.9 accept";
    let text = TEXT
        .replace("tcp dport 80 ct timeout set \"web\"", rules)
        .replace(
            "ct timeout names",
            "ct timeout other { protocol tcp; policy = { syn_sent : 7s }; }\nct timeout names",
        );
    let mut bench = Bench::new(&text);
    for port in [80, 22] {
        bench
            .pass(0, (CLIENT, SERVER), TCP, tcp([9, port], 0, 0, SYN))
            .unwrap();
    }
    assert_eq!(left(&bench), [(22, 7), (80, 7)]);
}

#[test]
fn of_more_kinds_at_once_than_there_can_be_the_next_has_those_of_linux() {
    let text = |seconds: u16| TEXT.replace("syn_sent : 10", &std::format!("syn_sent : {seconds}"));
    let mut bench = Bench::new(TEXT);
    for number in 0..TIMEOUTS_MAX as u16 + 1 {
        bench.rules = load(&text(200 + number)).unwrap();
        let syn = tcp([9 + number, 80], 0, 0, SYN);
        bench.pass(0, (CLIENT, SERVER), TCP, syn).unwrap();
    }
    let mut seconds: Vec<u32> = left(&bench).iter().map(|(_, left)| *left).collect();
    seconds.sort_unstable();
    assert_eq!(seconds, [120, 200, 201, 202, 203, 204, 205, 206]);
    // Once one kind has no connections any more, another one takes its place.
    bench.now += 201 * SECOND;
    bench.connections.table.expire(bench.now);
    bench
        .pass(0, (CLIENT, SERVER), TCP, tcp([90, 80], 0, 0, SYN))
        .unwrap();
    assert_eq!(left(&bench).last(), Some(&(80, 207)));
}

#[test]
fn what_is_no_timeout_is_refused() {
    let said = |from: &str, to: &str| load(&TEXT.replace(from, to)).unwrap_err().to_string();
    let several: String = (0..TIMEOUTS_MAX)
        .map(|number| std::format!("ct timeout t{number} {{ protocol udp; }}\n"))
        .collect();
    for (from, to, expected) in [
        ("protocol udp", "protocol icmp", "expected `tcp` or `udp`"),
        (
            "protocol udp;",
            "",
            "expected timeouts with a line `protocol ...`",
        ),
        (
            "l3proto ip",
            "l3proto ipx",
            "expected `ip`, `ip6` or `inet`",
        ),
        (
            "replied : 50",
            "close : 50",
            "expected a timeout of UDP: unreplied or replied",
        ),
        (
            "replied : 50",
            "replied : 90000000",
            "a timeout is at most 17179869",
        ),
        (
            "replied : 50",
            "replied : 1500ms",
            "expected a number of seconds",
        ),
        (
            "set \"names\"",
            "set \"none\"",
            "there is no such `ct timeout`",
        ),
        ("set \"names\"", "\"names\"", "expected `set`"),
        (
            "chain c",
            &(several + "chain c"),
            "too many `ct timeout` in one file: at most 7",
        ),
    ] {
        assert_eq!(said(from, to), expected, "{to}");
    }
}
