//! Counters, quotas and limits that have a name.

use super::frame::udp;
use super::*;
use crate::key::protocol::UDP;
use std::format;
use std::string::{String, ToString};
use std::vec;

const TABLE: &str = "table inet t {
    counter web { }
    quota some {
        comment \"of bytes\"
        over 100 bytes
    }
    limit few { rate 1/week burst 2 packets; }
    chain c {
        type filter hook forward priority 0; policy accept;
        RULES
    }
    counter late { packets 0 bytes 0; }
}";

fn with(rules: &str) -> String {
    TABLE.replace("RULES", rules)
}

/// Each packet has so many bytes, for whoever asks.
#[derive(Default)]
struct Sized(Counts);

impl Tally for Sized {
    fn count(&mut self, rule: crate::RuleIndex) {
        self.0.count(rule);
    }
    fn log(&mut self, _: crate::RuleIndex, _: &str, _: &crate::Key, _: crate::Way) {}
    fn bytes(&self) -> u64 {
        40
    }
}

/// How many of so many packets pass, and what was counted.
fn passed(rules: &Rules, packets: usize) -> (Vec<bool>, Vec<u64>) {
    let mut tally = Sized(Counts(vec![0; rules.counters()]));
    let passed = (0..packets).map(|_| {
        let mut frame = frame::frame(&packet(ip(CLIENT), ip(SERVER), UDP, udp([9, 53], b"")));
        let mut hooks = Hooks {
            rules,
            connections: None,
            now: 0,
            tally: &mut tally,
        };
        let mut passage = Passage::new();
        let arrival = Arrival {
            port: 0,
            local: Local::default(),
            partial: false,
        };
        hooks.prerouting(&mut passage, &mut frame, arrival).unwrap();
        hooks.forward(&mut passage, 1).is_ok()
    });
    let passed = passed.collect();
    (passed, tally.0.0)
}

#[test]
fn a_counter_is_counted_by_each_rule_that_names_it() {
    let text = with("counter name \"web\"\nudp dport 53 counter name web counter name \"late\"");
    let rules = load(&text).unwrap();
    let (_, counts) = passed(&rules, 3);
    // Rules, the policy, and then what has a name.
    assert_eq!(counts, [3, 3, 3, 6, 0, 3]);
    let named: Vec<_> = rules.named().collect();
    let names = ["counter web", "quota some", "counter late"];
    let expected = names.iter().zip(3..);
    for ((name, place), (object, expected)) in named.into_iter().zip(expected) {
        assert_eq!((name, place), (&*format!("inet t {object}"), expected));
    }
    let listing = crate::Listing::new(&text, &Limits::DEFAULT).unwrap();
    assert_eq!(listing.iter().len(), rules.counters());
    let listed: Vec<_> = listing.iter().skip(3).collect();
    assert_eq!(listed[1].text, "quota some over 100 bytes");
    assert_eq!((&*listed[2].chain, listed[2].line), ("t", 13));
}

/// A rule that asks for TCP itself asks for it where it says so.
#[test]
fn what_stands_in_front_of_a_rejection_sees_all() {
    let rules = with("counter name web meta l4proto tcp reject with tcp reset");
    let (passes, counts) = passed(&load(&rules).unwrap(), 3);
    assert_eq!((passes, counts[2]), (vec![true; 3], 3));
    let rules = with("counter name web reject with tcp reset");
    assert_eq!(passed(&load(&rules).unwrap(), 3).1[2], 0);
}

#[test]
fn a_quota_is_used_up_by_all_rules_that_name_it() {
    let rules = load(&with("udp sport 9 quota name \"some\" drop")).unwrap();
    let (passes, counts) = passed(&rules, 4);
    assert_eq!(passes, [true, true, false, false]);
    assert_eq!(counts[3], 4, "what exceeds it is counted as well");
    // What its counter has is used.
    rules.take_up(|place| if place == 3 { 60 } else { 0 });
    assert_eq!(passed(&rules, 2).0, [true, false]);
    let twice = "quota name some\nquota name some drop";
    assert_eq!(passed(&load(&with(twice)).unwrap(), 2).0, [true, false]);
    let rules = load(&with("quota until 80 bytes accept\ndrop")).unwrap();
    assert_eq!(passed(&rules, 3).0, [true, true, false]);
}

#[test]
fn a_limit_is_shared_by_all_rules_that_name_it() {
    let rules = load(&with(
        "limit name few counter name web\nlimit name few accept\ndrop",
    ));
    let (passes, counts) = passed(&rules.unwrap(), 2);
    assert_eq!((passes, counts[4]), (vec![true, false], 1));
}

#[test]
fn what_is_no_object_is_refused() {
    for (rules, why) in [
        ("counter name other", "there is no such counter"),
        ("quota name web", "there is no such quota"),
        ("limit name some", "there is no such limit"),
        ("quota 5 bytes used 1 bytes", "a quota of which something"),
        (
            "}\ncounter web { }\nchain e {",
            "a second object of this name",
        ),
        (
            "}\ncounter e { packets 1 bytes 1; }\nchain e {",
            "a counter that starts",
        ),
        (
            "}\nquota e { }\nchain e {",
            "expected a quota with its bytes",
        ),
        ("}\nlimit e { over; }\nchain e {", "expected `rate`"),
    ] {
        let said = load(&with(rules)).unwrap_err().to_string();
        assert!(said.starts_with(why), "{rules}: {said}");
    }
}
