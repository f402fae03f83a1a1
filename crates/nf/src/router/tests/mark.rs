//! Marks of packets and of connections.

use super::frame::{tcp, udp};
use super::*;
use crate::key::protocol::{TCP, UDP};

#[test]
fn a_mark_goes_with_its_packet_from_hook_to_hook() {
    let text = "table inet t {
        chain early {
            type filter hook prerouting priority raw
            tcp dport 22 meta mark set 0x12
        }
        chain middle {
            type filter hook forward priority 0
            meta mark and 0xf0 == 0x10 counter meta mark set mark and 0xf or 0x100
            meta mark 0 counter
        }
        chain late {
            type filter hook postrouting priority 0
            meta mark { 0x102, 0x200 } counter drop
        }
    }";
    let mut bench = Bench::new(text);
    let passes = |bench: &mut Bench, port| {
        let question = tcp([1000, port], 1, 0, 2);
        bench.pass(0, (CLIENT, SERVER), TCP, question).is_ok()
    };
    // The next packet, of another connection, begins at 0.
    let ports = [22, 23, 22];
    assert_eq!(
        ports.map(|port| passes(&mut bench, port)),
        [false, true, false]
    );
    assert_eq!(bench.counts.0[1..4], [2, 1, 2]);
}

#[test]
fn a_mark_is_kept_by_its_connection() {
    let text = "table inet t {
        define KEPT = 0x7
        chain early {
            type filter hook prerouting priority mangle
            meta mark set ct mark counter
            udp dport 53 ct mark set $KEPT
            meta mark 7 counter
        }
        chain late {
            type filter hook forward priority 0
            ct mark & 6 == 6 counter ct mark set ct mark xor 1
        }
    }";
    let mut bench = Bench::new(text);
    let mut ask = |from, ends, ports| bench.pass(from, ends, UDP, udp(ports, b"")).unwrap();
    for _ in 0..2 {
        ask(0, (CLIENT, SERVER), [9, 53]);
        ask(1, (SERVER, CLIENT), [53, 9]);
    }
    // A question sets 7, and the last rule turns its lowest bit round for each packet.
    let counts = &bench.counts.0;
    assert_eq!((counts[0], counts[3]), (4, 4));
    assert_eq!(counts[2], 1, "the second question found 7");
}

#[test]
fn what_has_no_connection_has_no_mark_to_copy() {
    let text = "table inet t {
        chain early {
            type filter hook prerouting priority raw
            meta mark set ct mark drop
            ct mark set 5 counter
        }
    }";
    let mut bench = Bench::new(text);
    let question = udp([9, 53], b"");
    bench.pass(0, (CLIENT, SERVER), UDP, question).unwrap();
    assert_eq!(bench.counts.0[..2], [0, 1]);
}

#[test]
fn nothing_is_asked_again_behind_a_change_of_it() {
    let rule = |rule: &str| {
        let text = std::format!(
            "table inet t {{\nchain c {{\ntype filter hook forward priority 0\n{rule}\n}}\n}}\n"
        );
        load(&text).map_err(|error| std::string::ToString::to_string(&error))
    };
    for refused in [
        "meta mark 1 meta mark set 2 tcp dport 80 accept",
        "ct mark & 3 == 1 ct mark set 2 limit rate 1/second accept",
        "meta mark 1 meta mark set 2 meta mark set ct mark",
    ] {
        let said = rule(refused).unwrap_err();
        assert!(said.starts_with("a condition behind a change"), "{said}");
    }
    for fine in [
        "meta mark set 2 tcp dport 80 meta mark 2 accept",
        "meta mark 1 meta mark set ct mark ct mark set meta mark accept",
        "meta mark 1 ct mark set 2 tcp dport 80 accept",
    ] {
        rule(fine).unwrap();
    }
    let said = rule("meta mark set $X").unwrap_err();
    assert_eq!(said, "there is no such variable");
}
