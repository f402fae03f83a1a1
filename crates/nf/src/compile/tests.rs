//! The structure against the interpreter, on rules and frames of few values, so that they meet.

use super::*;
use crate::changing::{Shape, Use, What};
use crate::fields::Type;
use crate::ir::{self, Joint, Rule, complement, normal};
use crate::key::{Addresses, Fields, Fragment, Key, L4};
use crate::limit::{Limit, Period, Rate, Unit};
use crate::nft::ast::{ChainKind, Family, Hook};
use crate::nft::ast::{ChangeKind, ElementPart};
use crate::rule::{RuleIndex, Tally, Verdict, Way};
use crate::tuples::Layout;
use proptest::prelude::*;
use std::string::{String, ToString};

/// Values of each field are below this one.
const VALUES: u8 = 24;

/// What a walk counted and logged, in order.
#[derive(Debug, Default, PartialEq)]
struct Notes {
    counts: Vec<RuleIndex>,
    logs: Vec<(RuleIndex, String)>,
}

impl Tally for Notes {
    fn count(&mut self, rule: RuleIndex) {
        self.counts.push(rule);
    }
    fn log(&mut self, rule: RuleIndex, prefix: &str, _: &Key, _: Way) {
        self.logs.push((rule, prefix.to_string()));
    }
}

fn sets() -> impl Strategy<Value = Vec<Intervals>> {
    let value = || 0..u128::from(VALUES);
    let set = prop_oneof![
        4 => value().prop_map(|value| normal(vec![(value, value)])),
        2 => (value(), value()).prop_map(|(a, b)| normal(vec![(a.min(b), a.max(b))])),
        1 => prop::collection::vec(value(), 0..20)
            .prop_map(|values| normal(values.into_iter().map(|v| (v, v)).collect())),
        1 => value().prop_map(|value| complement(&[(value, value)], 0xff)),
        1 => value().prop_map(|value| normal(vec![(value, 0xff)])),
    ];
    prop::collection::vec(set, 40)
}

/// The first chain, where a bridge asks rules.
fn base(accept: bool) -> ir::Base {
    ir::Base {
        chain: 0,
        policy: match accept {
            true => Verdict::Accept,
            false => Verdict::Drop,
        },
        family: Family::Bridge,
        kind: ChainKind::Filter,
        hook: Hook::Forward,
        priority: 0,
    }
}

/// Lets so many frames pass, or all but those.
fn limit(burst: u32) -> Limit {
    Limit::new(rate(burst))
}

fn rate(burst: u32) -> Rate {
    Rate {
        amount: 1,
        unit: Unit::Packets,
        period: Period::Week,
        burst,
        over: burst.is_multiple_of(2),
    }
}

/// What rules do with two sets of few elements.
fn uses() -> Vec<Use> {
    let slots = [
        Slot::Ip4Source,
        Slot::Ip4Destination,
        Slot::SourcePort,
        Slot::EtherSource,
        Slot::Ip6Source,
    ];
    let changes = ChangeKind::ALL.map(|kind| What::Changes { kind, timeout: 0 });
    let asks = [false, true, false].map(|negated| What::Asks { negated });
    let whats = changes.into_iter().chain(asks);
    let each = whats.flat_map(|what| slots.map(|slot| (what, slot)));
    each.map(|(what, slot)| Use {
        // Those of one word in the first set.
        set: (!slot.is_narrow()).into(),
        layout: Layout::new([slot].into()),
        what,
    })
    .collect()
}

fn changing() -> Vec<Changing> {
    let shape = |kind, parts: Box<[ElementPart]>| Shape {
        name: "s".into(),
        kinds: [kind].into(),
        timeout: 0,
        size: 7,
        parts,
        elements: Box::new([]),
    };
    let limit = ElementPart::Limit(rate(3));
    let sets = [
        shape(Type::Ipv4, [limit, ElementPart::Counter].into()),
        shape(Type::Ipv6, [ElementPart::Counter].into()),
    ];
    sets.into_iter().map(Changing::new).collect()
}

/// Tuples of one value for each field, or of any.
fn joint() -> impl Strategy<Value = Joint> {
    let of_frames = Slot::ALL
        .into_iter()
        .filter(|slot| !slot.is_of_connection());
    let slots = prop::sample::subsequence(of_frames.collect::<Vec<_>>(), 2..4);
    (slots, any::<bool>()).prop_flat_map(|(slots, single)| {
        let value = 0..u128::from(VALUES);
        let bounds = (value.clone(), value).prop_map(move |(a, b)| match single {
            true => (a, a),
            false => (a.min(b), a.max(b)),
        });
        let count = slots.len();
        let tuple = prop::collection::vec(bounds, count);
        prop::collection::vec(tuple, 0..40).prop_map(move |tuples| Joint {
            slots: slots.clone().into(),
            bounds: tuples.into_iter().flatten().collect(),
        })
    })
}

/// The statement that these numbers stand for.
fn meant((kind, slot, set): (i32, usize, u32), limits: &mut Vec<Limit>) -> Statement {
    match kind {
        0 => Statement::Match(Condition::new(Slot::ALL[slot], set)),
        1 => Statement::Count,
        3 => {
            limits.push(limit(set));
            Statement::Limit(limits.len() as u32 - 1)
        }
        5 => Statement::Use(set),
        4 => Statement::Joint {
            joint: set / 2,
            negated: set % 2 == 1,
        },
        _ => Statement::Log("x".into()),
    }
}

/// Every set is one of any field.
fn program() -> impl Strategy<Value = Program> {
    let statement = || {
        prop_oneof![
            6 => (0..SLOTS, 0u32..40).prop_map(|(field, set)| (0, field, set)),
            1 => Just((1, 0, 0)),
            1 => Just((2, 0, 0)),
            1 => (1u32..20).prop_map(|burst| (3, 0, burst)),
            2 => (0u32..20).prop_map(|joint| (4, 0, joint)),
            2 => (0u32..30).prop_map(|number| (5, 0, number)),
        ]
    };
    let rule = (
        prop::collection::vec(statement(), 0..4),
        0u8..10,
        any::<u32>(),
    );
    let chains = prop::collection::vec(prop::collection::vec(rule, 0..70), 1..5);
    let joints = prop::collection::vec(joint(), 10);
    let parts = (sets(), chains, joints, any::<bool>());
    parts.prop_map(|(sets, chains, joints, accept)| {
        let mut program = Program {
            sets,
            joints,
            uses: uses(),
            changing: changing(),
            bases: vec![base(accept)],
            ..Program::default()
        };
        let count = chains.len();
        for (chain, rules) in chains.into_iter().enumerate() {
            let first = program.rules.len();
            for (statements, outcome, target) in rules {
                let behind = (count - chain - 1) as u32;
                let target = chain as u32 + 1 + target % behind.max(1);
                let outcome = match outcome {
                    0 | 1 => Outcome::Verdict(Verdict::Accept),
                    2 | 3 => Outcome::Verdict(Verdict::Drop),
                    4 => Outcome::Return,
                    5 | 6 if behind > 0 => Outcome::Jump(target),
                    7 if behind > 0 => Outcome::Goto(target),
                    _ => Outcome::Continue,
                };
                let counter = statements.iter().position(|(kind, ..)| *kind == 1);
                let once = |(at, (kind, ..)): &(usize, (i32, usize, u32))| {
                    *kind != 1 || Some(*at) == counter
                };
                let statements = statements.into_iter().enumerate().filter(once);
                let limits = &mut program.limits;
                let statements = statements.map(|(_, drawn)| meant(drawn, limits));
                let end = Statement::End(outcome);
                let statements = statements.chain([end]).collect();
                program.rules.push(Rule { statements });
            }
            let rules = first..program.rules.len();
            program.chains.push(ir::Chain { rules });
        }
        program
    })
}

fn key() -> impl Strategy<Value = (Key, Way)> {
    prop::array::uniform16(0..VALUES).prop_map(|v| {
        let mac = |last| [0, 0, 0, 0, 0, last];
        let (addresses, l4) = if v[15] % 2 == 0 {
            let (source, destination) = (u32::from(v[0]).into(), u32::from(v[1]).into());
            (
                Addresses::V4 {
                    source,
                    destination,
                },
                v[2],
            )
        } else {
            let (source, destination) = (u128::from(v[0]).into(), u128::from(v[1]).into());
            (
                Addresses::V6 {
                    source,
                    destination,
                },
                v[2],
            )
        };
        let (source, destination) = (v[3].into(), v[4].into());
        let l4 = match l4 % 4 {
            0 => Some(L4::Tcp {
                source,
                destination,
                flags: v[5],
            }),
            1 => Some(L4::Udp {
                source,
                destination,
            }),
            2 => Some(L4::Icmp {
                kind: v[5],
                code: 0,
            }),
            _ => None,
        };
        let key = Key::from(&Fields {
            destination: mac(v[6]),
            source: mac(v[7]),
            link_type: v[8].into(),
            vlan: (v[9] < 12).then_some(v[9].into()),
            ether_type: v[10].into(),
            addresses: (v[14] < 20).then_some(addresses),
            next_header: Some(v[11]),
            protocol: (v[12] < 20).then_some(v[12]),
            fragment: Fragment::Whole,
            l4,
        });
        (
            key,
            Way {
                from: v[13] % 3,
                to: v[13] / 8,
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn compiled_rules_do_what_interpreted_ones_do(
        program in program(),
        keys in prop::collection::vec(key(), 40),
    ) {
        let expected: Vec<_> = keys
            .iter()
            .map(|(key, way)| {
                let mut notes = Notes::default();
                let result = program.verdict(key, *way, &mut notes);
                (result, notes)
            })
            .collect();
        let rules = program.compile();
        for ((key, way), expected) in keys.iter().zip(expected) {
            let mut notes = Notes::default();
            let result = rules.verdict(key, *way, &mut notes);
            prop_assert_eq!((result, notes), expected);
        }
    }
}
