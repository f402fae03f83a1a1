//! Rules in which much hangs on what nft concludes from conditions on protocols: sets of them in
//! braces, with ranges, by way of variables, by number, and asked for twice.
//!
//! nft refuses many of these rules. So they come a few to a file: one that is refused tells little
//! about the others in its file.

use crate::source::{Chain, Rule, Source};
use crate::values::Values;
use fastrand::Rng;
use nf::fields::Type;

/// Most of these rules in a file.
const RULES_MAX: usize = 2;
/// Most conditions of a rule.
const CONDITIONS_MAX: usize = 4;
/// Most elements of a set of protocols.
const ELEMENTS_MAX: usize = 3;

/// Fields that say which header follows.
const PROTOCOLS: [(&str, Type); 5] = [
    ("ether type", Type::EtherType),
    ("meta protocol", Type::EtherType),
    ("meta l4proto", Type::Protocol),
    ("ip protocol", Type::Protocol),
    ("ip6 nexthdr", Type::Protocol),
];

/// Which protocols a rule is about, so that nft sees no contradiction too often.
struct Topic {
    /// EtherTypes that fit.
    links: &'static [u128],
    transport: u128,
    /// Fields of headers that such a frame has.
    fields: &'static [(&'static str, Type)],
}

const TOPICS: [Topic; 4] = [
    Topic {
        links: &[0x0800, 0x8100],
        transport: 6,
        fields: &[("ip saddr", Type::Ipv4), ("tcp dport", Type::Service)],
    },
    Topic {
        links: &[0x0800, 0x8100, 0x86dd],
        transport: 1,
        fields: &[("icmp type", Type::IcmpType)],
    },
    Topic {
        links: &[0x86dd, 0x8100],
        transport: 58,
        fields: &[("ip6 daddr", Type::Ipv6), ("icmpv6 type", Type::Icmpv6Type)],
    },
    Topic {
        links: &[0x8100, 0x8100, 0x88a8, 0x0800],
        transport: 17,
        fields: &[("vlan id", Type::VlanId), ("udp sport", Type::Service)],
    },
];

/// A file of such rules.
pub fn generate(rng: &mut Rng) -> Source {
    let mut source = Source {
        reads_l4: true,
        ..Source::default()
    };
    let count = rng.usize(1..=RULES_MAX);
    let rules = (0..count).map(|_| rule(&mut source.defines, rng)).collect();
    source.chains.push(Chain {
        name: "forward".to_owned(),
        head: "type filter hook forward priority 0; policy drop;".to_owned(),
        rules,
    });
    source
}

fn rule(defines: &mut Vec<String>, rng: &mut Rng) -> Rule {
    // Behind a condition, nft may count after what it has joined to it.
    let mut statements = vec!["counter".to_owned()];
    // Of two inequalities on neighbouring fields, nft makes one.
    let mut negated = false;
    let topic = &TOPICS[rng.usize(0..TOPICS.len())];
    for _ in 0..rng.usize(2..=CONDITIONS_MAX) {
        let (field, operand) = if rng.bool() {
            // The last two ask for an IP themselves.
            let likely = [2, 3, 3, 3, PROTOCOLS.len()][rng.usize(0..5)];
            let (field, kind) = PROTOCOLS[rng.usize(0..likely)];
            (field, protocols(kind, topic, defines, rng))
        } else {
            let fields = match rng.u8(0..8) {
                0 => TOPICS[rng.usize(0..TOPICS.len())].fields,
                _ => topic.fields,
            };
            let (field, kind) = fields[rng.usize(0..fields.len())];
            (field, kind.text(kind.value(rng), rng))
        };
        let operator = match rng.u8(0..10) {
            0 if !negated => {
                negated = true;
                "!= "
            }
            1 => "== ",
            _ => "",
        };
        statements.push(format!("{field} {operator}{operand}"));
    }
    statements.push("accept".to_owned());
    Rule {
        statements,
        joint: " ",
        tail: "\n".to_owned(),
    }
}

/// A protocol, a set of them, or a variable for one of both.
fn protocols(kind: Type, topic: &Topic, defines: &mut Vec<String>, rng: &mut Rng) -> String {
    let operand = match rng.u8(0..8) {
        0..=3 => protocol(kind, topic, rng),
        4 => range(kind, topic, rng),
        _ => set(kind, topic, defines, rng),
    };
    match rng.u8(0..5) {
        0 => variable(operand, defines),
        _ => operand,
    }
}

fn variable(operand: String, defines: &mut Vec<String>) -> String {
    let name = format!("P{}", defines.len());
    defines.push(format!("define {name} = {operand}"));
    format!("${name}")
}

fn set(kind: Type, topic: &Topic, defines: &mut Vec<String>, rng: &mut Rng) -> String {
    let elements: Vec<String> = (0..rng.usize(1..=ELEMENTS_MAX))
        .map(|_| match rng.u8(0..8) {
            0..=1 => range(kind, topic, rng),
            2 => {
                let element = match rng.u8(0..3) {
                    0 => protocol(kind, topic, rng),
                    1 => range(kind, topic, rng),
                    _ => format!(
                        "{{ {}, {} }}",
                        protocol(kind, topic, rng),
                        protocol(kind, topic, rng)
                    ),
                };
                variable(element, defines)
            }
            _ => protocol(kind, topic, rng),
        })
        .collect();
    format!("{{ {} }}", elements.join(", "))
}

fn range(kind: Type, topic: &Topic, rng: &mut Rng) -> String {
    let (a, b) = (value(kind, topic, rng), value(kind, topic, rng));
    format!(
        "{} - {}",
        kind.text(a.min(b), rng),
        kind.text(a.max(b), rng)
    )
}

fn protocol(kind: Type, topic: &Topic, rng: &mut Rng) -> String {
    kind.text(value(kind, topic, rng), rng)
}

/// Mostly a protocol that fits the topic.
fn value(kind: Type, topic: &Topic, rng: &mut Rng) -> u128 {
    match (rng.u8(0..4), kind) {
        (0, _) => kind.value(rng),
        (_, Type::EtherType) => topic.links[rng.usize(0..topic.links.len())],
        _ => topic.transport,
    }
}
