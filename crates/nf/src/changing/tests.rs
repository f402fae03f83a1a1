//! Sets that change, by rules and against a model of them.

use super::*;
use crate::fields::Slot;
use crate::key::{Addresses, Fields, Fragment, Key, L4};
use crate::nft::Limits;
use crate::rule::{RuleIndex, Tally, Verdict, Way};
use crate::ruleset::RuleSet;
use core::cell::Cell;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::format;
use std::vec::Vec;

const SECOND: u64 = 1_000_000_000;
const SECRET: [u8; 16] = [7; 16];

/// A clock, for frames of 100 bytes.
struct Clock(u64);

impl Tally for Clock {
    fn count(&mut self, _: RuleIndex) {}
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
    fn moment(&mut self) -> Moment {
        Moment {
            now: self.0,
            bytes: 100,
        }
    }
}

fn rules(set: &str, rules: &str) -> RuleSet {
    let text = format!(
        "table bridge t {{\n\tset s {{ {set}; }}\n\tchain c {{\n\
         \ttype filter hook forward priority 0; policy accept;\n{rules}\n}}\n}}\n"
    );
    let mut rules = match crate::load(&text, &["private", "public"], &Limits::DEFAULT) {
        Ok(rules) => rules,
        Err(error) => panic!("{}", error.render("rules", &text)),
    };
    rules.begin(&SECRET, 0, None);
    rules
}

/// TCP from an address.
fn from(source: u32, port: u16) -> Key {
    Key::from(&Fields {
        destination: [0; 6],
        source: [0; 6],
        link_type: 0x800,
        vlan: None,
        ether_type: 0x800,
        addresses: Some(Addresses::V4 {
            source: source.into(),
            destination: 1.into(),
        }),
        next_header: Some(6),
        protocol: Some(6),
        fragment: Fragment::Whole,
        l4: Some(L4::Tcp {
            source: 999,
            destination: port,
            flags: 2,
        }),
    })
}

/// Whether rules accept it at this second.
fn passes(rules: &RuleSet, source: u32, second: u64) -> bool {
    let way = Way { from: 0, to: 1 };
    let now = second * SECOND;
    rules.verdict(&from(source, 22), way, &mut Clock(now)).0 == Verdict::Accept
}

#[test]
fn each_source_has_a_limit_of_its_own() {
    let set = "type ipv4_addr; flags dynamic, timeout; timeout 1m";
    let rules = rules(
        set,
        "tcp dport 22 update @s { ip saddr limit rate over 3/minute burst 2 packets } drop",
    );
    let rules = &rules;
    let at = |source| move |second| passes(rules, source, second);
    assert_eq!([0, 0, 0, 1].map(at(5)), [true, true, false, false]);
    assert_eq!([1, 1, 1].map(at(6)), [true, true, false]);
    assert_eq!([21, 22, 41].map(at(5)), [true, false, true]);
    // What is silent for a minute is forgotten, and begins with a full bucket.
    assert_eq!([102, 102, 102].map(at(5)), [true, true, false]);
}

/// The kernel does the same (`nft_lookup_eval`).
#[test]
fn a_look_up_takes_of_a_limit_too() {
    let rules = rules(
        "type ipv4_addr; flags dynamic",
        "ip saddr @s drop\nadd @s { ip saddr limit rate 1/week burst 3 packets }",
    );
    let at = |source| passes(&rules, source, 0);
    assert_eq!([5; 5].map(at), [true, false, false, true, true]);
}

#[test]
fn elements_expire_and_are_refreshed_by_update_alone() {
    for (kind, left) in [("add", false), ("update", true)] {
        let text = format!(
            "ip saddr 5 {kind} @s {{ ip daddr timeout 10s }}\nip saddr 6 ip daddr != @s drop"
        );
        let text = text
            .replace("saddr 5", "saddr 0.0.0.5")
            .replace("saddr 6", "saddr 0.0.0.6");
        let rules = rules("type ipv4_addr; flags dynamic, timeout", &text);
        assert!(!passes(&rules, 6, 0));
        assert!(passes(&rules, 5, 1));
        assert!(passes(&rules, 6, 10));
        assert!(passes(&rules, 5, 10));
        assert_eq!(passes(&rules, 6, 12), left, "{kind}");
        assert!(!passes(&rules, 6, 21), "{kind}");
    }
}

#[test]
fn what_finds_no_room_does_not_match() {
    let set = "type ipv4_addr; flags dynamic, timeout; timeout 10s; size 2";
    let rules = rules(set, "add @s { ip saddr } accept\ndrop");
    let at = |(source, second)| passes(&rules, source, second);
    let seen = [(1, 0), (2, 5), (3, 6), (1, 6), (3, 11), (1, 12)].map(at);
    assert_eq!(seen, [true, true, false, true, true, false]);
}

#[test]
fn what_is_deleted_is_gone_and_elements_of_the_file_are_there() {
    let set = "type ipv4_addr . inet_service; flags dynamic; elements = { 0.0.0.9 . 22 }";
    let rules = rules(
        set,
        "ip saddr . tcp dport @s delete @s { ip saddr . tcp dport } accept\ndrop",
    );
    assert_eq!(
        [9, 9, 8].map(|it| passes(&rules, it, 0)),
        [true, false, false]
    );
}

#[test]
fn a_load_keeps_the_elements_of_a_set_of_the_same_name_and_types() {
    let of = |set: &str, what: &str| rules(set, what);
    let set = "type ipv4_addr; flags dynamic, timeout; timeout 10s";
    let before = of(set, "add @s { ip saddr }");
    assert!(passes(&before, 5, 1));
    let asks = "ip saddr @s accept\ndrop";
    let mut same = of(set, asks);
    same.begin(&[8; 16], 2 * SECOND, Some(&before));
    assert_eq!(
        [2, 10, 11].map(|it| passes(&same, 5, it)),
        [true, true, false]
    );
    assert!(!passes(&same, 6, 2));
    let mut other = of(
        "type inet_service; flags dynamic",
        "tcp dport @s accept\ndrop",
    );
    other.begin(&[8; 16], 2 * SECOND, Some(&before));
    assert!(!passes(&other, 5, 2));
}

#[test]
fn a_value_has_as_many_words_by_its_field_as_by_its_type() {
    for field in crate::fields::Field::all().filter(|field| !field.is_of_connection()) {
        let layout = Layout::new([field.slot()].into());
        assert_eq!(layout.words(), words_of(field.value_type()), "{field}");
    }
}

/// What a set is to hold: when each element expires, in order of addition.
#[derive(Default)]
struct Model(BTreeMap<u32, u64>);

impl Model {
    fn has(&self, source: u32, now: u64) -> bool {
        self.0.get(&source).is_some_and(|expires| now < *expires)
    }
}

proptest! {
    #[test]
    fn a_set_does_what_its_model_does(
        steps in prop::collection::vec((0u32..40, 0u8..4, 0u64..5), 1..400),
    ) {
        const TIMEOUT: u64 = 20;
        // As many as there are sources: whether there is room depends on what has been swept.
        let size = 40;
        let shape = Shape {
            name: "s".into(),
            kinds: [Type::Ipv4].into(),
            timeout: TIMEOUT,
            size,
            parts: [ElementPart::Counter].into(),
            elements: Box::new([]),
        };
        let set = Changing::new(shape);
        let layout = Layout::new([Slot::Ip4Source].into());
        let (mut model, mut now) = (Model::default(), 1);
        for (source, kind, pause) in steps {
            now += pause;
            let key = from(source, 22);
            let way = Way { from: 0, to: 1 };
            let mark = Cell::new(0);
            let values = Values { key: &key, way, connection: None, mark: &mark };
            let changes = |kind| What::Changes { kind, timeout: 0 };
            let what = match kind {
                0 => What::Asks { negated: false },
                1 => changes(ChangeKind::Add),
                2 => changes(ChangeKind::Update),
                _ => changes(ChangeKind::Delete),
            };
            let moment = Moment { now, bytes: 1 };
            let held = set.apply(&layout, what, &values, moment);
            let had = model.has(source, now);
            match kind {
                0 => prop_assert_eq!(held, had),
                1 if had => prop_assert!(held),
                1 | 2 => {
                    prop_assert!(held);
                    model.0.insert(source, now + TIMEOUT);
                }
                _ => {
                    prop_assert!(held);
                    model.0.remove(&source);
                }
            }
            let expected = model.0.iter().filter(|(_, expires)| now < **expires);
            let left = set.all().filter(|record| set.is_left(*record, now));
            let left = left.map(|it| (set.words(it)[0], set.own(it, EXPIRES).load(Relaxed)));
            let mut listed: Vec<_> = left.collect();
            listed.sort_unstable();
            let expected: Vec<_> = expected.map(|(key, end)| (*key, *end)).collect();
            prop_assert_eq!(listed, expected);
        }
    }
}
