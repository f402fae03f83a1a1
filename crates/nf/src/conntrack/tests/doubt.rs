//! Connections that began under other rules than those in force.

use super::*;
use crate::nft::Limits;
use crate::rule::{Moment, Tally, Way};
use crate::ruleset::RuleSet;
use std::string::String;

const PORTS: [&str; 2] = ["private", "public"];
const OUT: Way = Way { from: 0, to: 1 };
const BACK: Way = Way { from: 1, to: 0 };

fn text(rules: &str) -> String {
    std::format!(
        "table bridge t {{
            set seen {{ type ipv4_addr; flags dynamic; }}
            chain c {{
                type filter hook forward priority 0; policy drop;
                ct state established accept
                {rules}
            }}
        }}"
    )
}

/// How often each rule counted, at this time.
struct Counted {
    rules: Vec<u64>,
    now: u64,
}

impl Tally for Counted {
    fn count(&mut self, rule: RuleIndex) {
        self.rules[rule] += 1;
    }
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {
        panic!("nothing is logged");
    }
    fn moment(&mut self) -> Moment {
        Moment {
            now: self.now,
            bytes: 40,
        }
    }
}

/// A bridge whose rules can be replaced.
struct Bridge {
    bench: Bench,
    rules: RuleSet,
    counted: Counted,
}

impl Bridge {
    fn new(rules: &str) -> Self {
        let mut bridge = Self {
            bench: Bench::new(64),
            rules: crate::load(&text(""), &PORTS, &Limits::DEFAULT).unwrap(),
            counted: Counted {
                rules: Vec::new(),
                now: 0,
            },
        };
        bridge.load(rules);
        bridge
    }

    /// Other rules are in force from now on.
    fn load(&mut self, rules: &str) {
        let mut rules = crate::load(&text(rules), &PORTS, &Limits::DEFAULT).unwrap();
        rules.begin(&KEY, self.bench.now, None);
        self.counted.rules = vec![0; rules.counters()];
        self.counted.now = self.bench.now;
        self.rules = rules;
        self.bench.table.rules_changed();
    }

    /// The same, and connections are judged anew.
    fn revalidate(&mut self, rules: &str) {
        self.load(rules);
        self.bench.table.revalidate();
    }

    fn passes(&mut self, frame: &[u8], way: Way) -> bool {
        let table = &mut self.bench.table;
        let now = self.bench.now;
        let sought = match table.goes_on(frame, now) {
            Ok(()) => return true,
            Err(sought) => sought,
        };
        let key = Key::parse(frame).expect("a frame of this test");
        let counted = &mut self.counted;
        let rules = &self.rules;
        let judged = table.judge(&key, frame, sought, now, |connection| {
            rules.verdict_within(&key, way, connection, counted)
        });
        judged.expect("there is room").0 == Verdict::Accept
    }

    /// A connection to port 80 that both sides have confirmed.
    fn open(&mut self, port: u16) {
        assert!(self.passes(&seg(port, false, SYN, 1000, 0, 0), OUT));
        assert!(self.passes(&seg(port, true, SYN | ACK, 5000, 1001, 0), BACK));
        assert!(self.passes(&seg(port, false, ACK, 1001, 5001, 0), OUT));
    }

    fn revoked(&self) -> u64 {
        self.bench.table.counts().revoked
    }
}

const PERMITS: &str = "iifname private tcp flags & (syn|ack|rst|fin) == syn ct state new accept";

fn data(port: u16, reply: bool) -> (Vec<u8>, Way) {
    match reply {
        false => (seg(port, false, ACK, 1001, 5001, 10), OUT),
        true => (seg(port, true, ACK, 5001, 1001, 10), BACK),
    }
}

#[test]
fn a_connection_goes_on_where_rules_would_let_it_begin() {
    for reply in [false, true] {
        let mut bridge = Bridge::new(PERMITS);
        bridge.open(1);
        bridge.revalidate(PERMITS);
        let (frame, way) = data(1, reply);
        let sought = bridge.bench.table.goes_on(&frame, bridge.bench.now);
        assert!(sought.is_err(), "it is judged");
        assert!(bridge.passes(&frame, way), "{reply}");
        assert_eq!(
            bridge.counted.rules,
            [1, 0, 0],
            "only the packet is counted"
        );
        let sought = bridge.bench.table.goes_on(&frame, bridge.bench.now);
        assert!(sought.is_ok(), "it was judged once");
        assert_eq!(bridge.revoked(), 0);
    }
}

#[test]
fn it_ends_at_its_next_packet_where_they_would_not() {
    let refusals = [
        // The other side's ports would permit it.
        "iifname public tcp flags syn accept",
        "tcp dport 80 drop\nct state new accept",
        "ip saddr 10.0.0.1 drop\naccept",
        "tcp sport 80 accept",
        "tcp flags ack accept",
        "ct bytes > 0 accept",
    ];
    for rules in refusals {
        for reply in [false, true] {
            let mut bridge = Bridge::new(PERMITS);
            bridge.open(1);
            bridge.open(2);
            // Without being asked, it goes on.
            bridge.load(rules);
            let (frame, way) = data(1, reply);
            assert!(bridge.passes(&frame, way));
            bridge.revalidate(rules);
            assert!(!bridge.passes(&frame, way), "{rules} {reply}");
            assert_eq!(bridge.counted.rules.iter().sum::<u64>(), 1, "{rules}");
            assert_eq!((bridge.revoked(), bridge.bench.flows()), (1, 1));
            bridge.bench.table.table4.check();
        }
    }
}

#[test]
fn what_rules_would_do_they_do_not_do() {
    const LIMITED: &str = "limit rate over 1/hour burst 1 packets drop
        ct state established drop
        add @seen { ip saddr }
        ip saddr @seen drop
        limit rate 1/hour burst 1 packets accept";
    let mut bridge = Bridge::new(PERMITS);
    for port in 1..=20 {
        bridge.open(port);
    }
    bridge.revalidate(LIMITED);
    for port in 1..=20 {
        let (frame, way) = data(port, port % 2 == 0);
        assert!(bridge.passes(&frame, way), "{port}");
    }
    assert_eq!(bridge.counted.rules[0], 20);
    assert_eq!(bridge.counted.rules[1..].iter().sum::<u64>(), 0);
}

#[test]
fn udp_questions_and_ipv6_are_judged_as_well() {
    let (a, b) = ([0xfd; 16], [0xfe; 16]);
    let asks = ip6(a, b, 58, &[128, 0, 0, 0, 0, 1, 0, 1]);
    let answers = ip6(b, a, 58, &[129, 0, 0, 0, 0, 1, 0, 1]);
    let cases: [(&str, [Vec<u8>; 2]); 3] = [
        ("udp dport 53", [udp(1, 53, false), udp(1, 53, true)]),
        (
            "icmp type echo-request",
            [icmp(A, B, 8, 1, &[]), icmp(B, A, 0, 1, &[])],
        ),
        ("icmpv6 type echo-request", [asks, answers]),
    ];
    for (rule, [out, back]) in cases {
        let permits = std::format!("iifname private {rule} accept");
        let mut bridge = Bridge::new(&permits);
        assert!(bridge.passes(&out, OUT) && bridge.passes(&back, BACK));
        bridge.revalidate(&permits);
        assert!(bridge.passes(&back, BACK), "{rule}");
        bridge.revalidate("iifname public accept");
        assert!(!bridge.passes(&back, BACK), "{rule}");
        assert_eq!(bridge.revoked(), 1);
    }
}

#[test]
fn however_often_it_is_asked_for_nobody_is_forgotten() {
    let mut bridge = Bridge::new(PERMITS);
    bridge.open(1);
    bridge.open(2);
    for turn in 0..600 {
        bridge.bench.table.revalidate();
        if turn % 7 == 0 {
            let (frame, way) = data(1, false);
            assert!(bridge.passes(&frame, way));
        }
        let (silent, _) = data(2, false);
        let goes_on = bridge.bench.table.goes_on(&silent, bridge.bench.now);
        assert!(goes_on.is_err(), "{turn}");
    }
    bridge.revalidate("drop");
    for port in [1, 2] {
        let (frame, way) = data(port, true);
        assert!(!bridge.passes(&frame, way));
    }
    assert_eq!(bridge.revoked(), 2);
}

#[test]
fn parts_of_a_packet_that_ends_its_connection_share_its_fate() {
    let mut bridge = Bridge::new("iifname private udp dport 53 accept");
    let header = udp_header(1, 53, 40);
    let first = ip(A, B, 17, 0x2000, &header);
    let later = ip(A, B, 17, 6, &[0; 8]);
    assert!(bridge.passes(&first, OUT) && bridge.passes(&later, OUT));
    bridge.revalidate("drop");
    assert!(!bridge.passes(&first, OUT) && !bridge.passes(&later, OUT));
    assert_eq!(bridge.revoked(), 1);
}
