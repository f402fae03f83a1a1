//! Connections that began under other rules, and how they were translated.

use super::frame::{tcp, udp};
use super::*;
use crate::key::protocol::{TCP, UDP};

const SYN: u8 = 2;
const ACK: u8 = 16;
const NAT: &str = "
table ip nat {
	chain dstnat {
		type nat hook prerouting priority dstnat;
		iifname public tcp dport 8080 dnat to 10.0.0.2:80
	}
	chain srcnat {
		type nat hook postrouting priority srcnat;
		oifname public masquerade
	}
}
";

/// A router's file, with rules about what begins.
fn file(rules: &str) -> std::string::String {
    std::format!(
        "table inet filter {{
            chain p {{
                type filter hook prerouting priority mangle; policy accept;
                iifname public tcp dport 9999 drop
            }}
            chain f {{
                type filter hook forward priority filter; policy drop;
                ct state established,related accept
                {rules}
            }}
        }}
        {NAT}"
    )
}

const PERMITS: &str = "iifname private oifname public ip saddr 10.0.0.2 accept
    ct status dnat ip daddr 10.0.0.2 tcp dport 80 accept";

/// A client inside that talks to a server, and a client outside that talks to one inside.
struct Open {
    bench: Bench,
    /// What the first one's port is called outside.
    port: u16,
}

impl Open {
    fn new() -> Self {
        let mut bench = Bench::new(&file(PERMITS));
        let out = tcp([4000, 80], 0, 0, SYN);
        let out = bench.pass(0, (CLIENT, SERVER), TCP, out).unwrap();
        let port = ends(&out).2[0];
        let mut open = Self { bench, port };
        open.back(SYN | ACK, 0).unwrap();
        open.out().unwrap();
        open.bench
            .pass(1, (SERVER, OUTSIDE), TCP, tcp([5000, 8080], 0, 0, SYN))
            .unwrap();
        open.bench
            .pass(0, (CLIENT, SERVER), TCP, tcp([80, 5000], 0, 1, SYN | ACK))
            .unwrap();
        open.inward().unwrap();
        open
    }

    fn load(&mut self, rules: &str) {
        self.load_all(&file(rules));
    }

    fn load_all(&mut self, text: &str) {
        self.bench.rules = load(text).unwrap();
        self.bench.counts = Counts(vec![0; self.bench.rules.counters()]);
        self.bench.connections.rules_changed();
        self.bench.connections.table.revalidate();
    }

    fn out(&mut self) -> Result<Vec<u8>, Stop> {
        let out = tcp([4000, 80], 1, 1, ACK);
        self.bench.pass(0, (CLIENT, SERVER), TCP, out)
    }

    fn back(&mut self, flags: u8, seq: u32) -> Result<Vec<u8>, Stop> {
        let back = tcp([80, self.port], seq, 1, flags);
        self.bench.pass(1, (SERVER, OUTSIDE), TCP, back)
    }

    fn inward(&mut self) -> Result<Vec<u8>, Stop> {
        let data = tcp([5000, 8080], 1, 1, ACK);
        self.bench.pass(1, (SERVER, OUTSIDE), TCP, data)
    }

    fn outward(&mut self) -> Result<Vec<u8>, Stop> {
        let data = tcp([80, 5000], 1, 1, ACK);
        self.bench.pass(0, (CLIENT, SERVER), TCP, data)
    }

    fn revoked(&self) -> u64 {
        self.bench.connections.table.counts().revoked
    }
}

#[test]
fn what_is_permitted_keeps_its_translation() {
    for replies_first in [false, true] {
        let mut open = Open::new();
        open.load(PERMITS);
        if replies_first {
            assert_eq!(ends(&open.back(ACK, 1).unwrap()).1, ip(CLIENT));
            assert_eq!(ends(&open.outward().unwrap()).0, ip(OUTSIDE));
        }
        let (source, _, [port, _]) = ends(&open.out().unwrap());
        assert_eq!((source, port), (ip(OUTSIDE), open.port));
        let (_, destination, [_, port]) = ends(&open.inward().unwrap());
        assert_eq!((destination, port), (ip(CLIENT), 80));
        assert_eq!(open.revoked(), 0);
        let begun = crate::conntrack::TAKEN.get();
        open.back(ACK, 1).unwrap();
        assert_eq!(crate::conntrack::TAKEN.get() - begun, 1, "judged once");
    }
}

#[test]
fn what_is_not_ends_whichever_side_sends_next() {
    // Which rule drops each.
    let cases = [
        ("iifname public accept", [true, false]),
        (
            "iifname private ip saddr 10.0.0.3 accept\nct status dnat accept",
            [true, false],
        ),
        ("ip daddr 192.0.2.80 accept", [false, true]),
        (
            "tcp dport 8080 accept\ntcp sport 4000 accept",
            [false, true],
        ),
        (
            "ip daddr 192.0.2.1 reject with tcp reset\naccept",
            [false, false],
        ),
        (
            "ip saddr 192.0.2.80 reject with tcp reset\naccept",
            [false, true],
        ),
    ];
    for (rules, ended) in cases {
        for replies_first in [false, true] {
            let mut open = Open::new();
            open.load(rules);
            let passed = match replies_first {
                false => [open.out(), open.inward()],
                true => [open.back(ACK, 1), open.outward()],
            };
            let stopped = passed.map(|passed| passed.is_err());
            assert_eq!(stopped, ended, "{rules} {replies_first}");
            let counted = ended.iter().filter(|ended| **ended).count() as u64;
            assert_eq!(open.revoked(), counted, "{rules}");
        }
    }
}

#[test]
fn whose_destination_was_dropped_before_it_was_translated() {
    let mut open = Open::new();
    let rules = file(PERMITS).replace("dport 9999", "dport 8080");
    open.bench.rules = load(&rules).unwrap();
    open.bench.connections.table.revalidate();
    assert!(
        open.outward().is_err(),
        "the first packet was for port 8080"
    );
    assert!(open.out().is_ok());
    assert_eq!(open.revoked(), 1);
}

/// What the router itself has begun, and what was begun with it.
#[test]
fn connections_of_the_router_are_judged_by_its_own_hooks() {
    let own = |input: &str, output: &str| {
        std::format!(
            "table inet own {{
                chain i {{
                    type filter hook input priority 0; policy drop;
                    ct state established accept
                    {input}
                }}
                chain o {{
                    type filter hook output priority 0; policy drop;
                    ct state established accept
                    {output}
                }}
            }}"
        )
    };
    let arrival = |port| Arrival {
        port,
        local: Local::default(),
        partial: false,
    };
    let arrives = |bench: &mut Bench, port: u8, from: &str, to: &str, ports| {
        let packet = packet(ip(from), ip(to), UDP, udp(ports, b"data"));
        let mut frame = frame::frame(&packet);
        let mut passage = Passage::new();
        let mut hooks = bench.hooks();
        hooks.prerouting(&mut passage, &mut frame, arrival(port))?;
        hooks.input(&mut passage, &mut frame)
    };
    let sends = |bench: &mut Bench, port: u8, from: &str, to: &str, ports| {
        let packet = packet(ip(from), ip(to), UDP, udp(ports, b"data"));
        let mut frame = frame::frame(&packet);
        let mut passage = Passage::new();
        let mut hooks = bench.hooks();
        hooks.output(&mut passage, &mut frame, port, false)?;
        hooks.postrouting(&mut passage, &mut frame, port, Local::default())
    };
    let permits = own(
        "iifname private udp dport 53 accept",
        "oifname public udp dport 53 accept",
    );
    let mut bench = Bench::new(&permits);
    let talk = |bench: &mut Bench| {
        [
            arrives(bench, 0, CLIENT, INSIDE, [5000, 53]).is_ok(),
            sends(bench, 0, INSIDE, CLIENT, [53, 5000]).is_ok(),
            sends(bench, 1, OUTSIDE, SERVER, [6000, 53]).is_ok(),
            arrives(bench, 1, SERVER, OUTSIDE, [53, 6000]).is_ok(),
        ]
    };
    assert_eq!(talk(&mut bench), [true; 4]);
    let replies = |bench: &mut Bench| {
        [
            sends(bench, 0, INSIDE, CLIENT, [53, 5000]).is_ok(),
            arrives(bench, 1, SERVER, OUTSIDE, [53, 6000]).is_ok(),
        ]
    };
    bench.connections.table.revalidate();
    assert_eq!(replies(&mut bench), [true; 2]);
    let others = own(
        "iifname public udp dport 53 accept",
        "oifname private udp dport 53 accept",
    );
    bench.rules = load(&others).unwrap();
    bench.connections.table.revalidate();
    assert_eq!(replies(&mut bench), [false; 2]);
    assert_eq!(bench.connections.table.counts().revoked, 2);
    assert!(!talk(&mut bench)[0]);
}

/// A connection that begins would have the mark that one chain gives it at the next one.
#[test]
fn marks_are_those_that_the_new_rules_give() {
    let marking = |forward: &str| {
        let drops = "iifname public tcp dport 9999 drop";
        file(forward).replace(drops, "iifname private ct state new ct mark set 1")
    };
    let mut open = Open::new();
    open.load_all(&marking("ct mark 1 accept"));
    assert!(open.out().is_ok());
    open.load_all(&marking(&std::format!("ct mark 1 drop\n{PERMITS}")));
    assert!(open.out().is_err());
    // It has the mark 1 now, and would begin without one.
    let mut open = Open::new();
    open.load_all(&marking("ct mark 1 accept").replace("ct state new ct mark", "ct mark"));
    assert!(open.out().is_ok());
    open.load("ct mark 1 accept");
    assert!(open.out().is_err());
}
