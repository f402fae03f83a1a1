//! Rules and frames of few values, so that they meet: the compiled rules must do what a walk
//! through the same rules does. Input: bytes that choose rules, then bytes that choose frames.

use nf::nft::Limits;
use nf::{Addresses, Fields, Fragment, Key, L4, Program, RuleIndex, Tally, Way};
use std::fmt::Write;

const PORTS: [&str; 2] = ["private", "public"];
/// Values of fields, and chains besides the base chain.
const VALUES: u8 = 16;
const CHAINS: usize = 4;
const FRAMES_MAX: usize = 16;

/// What a walk counted and logged.
#[derive(Debug, Default, PartialEq)]
struct Notes(Vec<(RuleIndex, Option<String>)>);

impl Tally for Notes {
    fn count(&mut self, rule: RuleIndex) {
        self.0.push((rule, None));
    }
    fn log(&mut self, rule: RuleIndex, prefix: &str, _: &Key, _: Way) {
        self.0.push((rule, Some(prefix.to_owned())));
    }
}

impl Notes {
    /// A rule that counts and logs without a condition between may do either first.
    fn sorted(mut self) -> Self {
        self.0.sort();
        self
    }
}

/// Choices, taken from the input; 0 once it is used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, bound: u8) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first % bound
    }

    fn value(&mut self) -> u8 {
        self.below(VALUES)
    }

    fn operand(&mut self) -> String {
        let (a, b) = (self.value(), self.value());
        match self.below(6) {
            0 => format!("{}-{}", a.min(b), a.max(b)),
            1 => format!("!= {a}"),
            2 => format!("{{ {a}, {b}-{} }}", b + 2),
            3 => format!("> {a}"),
            _ => a.to_string(),
        }
    }

    fn address(&mut self) -> String {
        let (a, b) = (self.value(), self.value());
        match self.below(6) {
            0 => format!("0.0.0.{}-0.0.0.{}", a.min(b), a.max(b)),
            1 => format!("!= 0.0.0.{a}"),
            2 => format!("{{ 0.0.0.{a}, 0.0.0.{} }}", (a + 1 + b) % VALUES),
            3 => format!("0.0.0.{a}/{}", 24 + b / 2),
            4 => "@s".to_owned(),
            _ => format!("0.0.0.{a}"),
        }
    }

    /// A rule of the base chain, 0, or of another one, which may jump to those behind it.
    fn rule(&mut self, chain: usize) -> String {
        // One protocol of each layer, or the rule would be refused; tags come before addresses.
        let (ip6, transport) = (self.below(3) == 0, self.below(3));
        let mut rule = String::new();
        if self.below(8) == 0 {
            let _ = write!(rule, "vlan id {} ", self.operand());
        }
        for _ in 0..self.below(4) {
            let _ = match (self.below(9), transport) {
                (0, _) => write!(rule, "ether saddr 00:00:00:00:00:{:02x} ", self.value()),
                (1, _) => write!(rule, "iifname {} ", PORTS[usize::from(self.below(2))]),
                (2, _) => write!(rule, "log prefix \"{}\" ", self.value()),
                (3, 0) => write!(rule, "tcp dport {} ", self.operand()),
                (3, 1) => write!(rule, "udp sport {} ", self.operand()),
                (4, 0) => {
                    let flags = ["syn", "== syn", "syn / syn,fin"][usize::from(self.below(3))];
                    write!(rule, "tcp flags {flags} ")
                }
                (4, _) => write!(rule, "meta l4proto != {} ", self.value()),
                (3, _) if ip6 => write!(rule, "icmpv6 type {} ", self.operand()),
                (3, _) => write!(rule, "icmp type {} ", self.operand()),
                (5, _) if ip6 => write!(rule, "ip6 nexthdr != {} ", self.value()),
                (5, _) => write!(rule, "ip protocol != {} ", self.value()),
                (6, _) if ip6 => write!(rule, "ip6 daddr ::{:x} ", self.value()),
                (6, _) => write!(rule, "ip daddr {} ", self.address()),
                _ if ip6 => {
                    write!(
                        rule,
                        "ip6 saddr ::{:x}/{} ",
                        self.value(),
                        124 + self.value() / 4
                    )
                }
                _ => write!(rule, "ip saddr {} ", self.address()),
            };
        }
        if self.below(2) == 0 {
            let places: Vec<usize> = rule.match_indices("log ").map(|(at, _)| at).collect();
            rule.insert_str(places.first().copied().unwrap_or(0), "counter ");
        }
        let behind = CHAINS - chain;
        let target = chain + 1 + usize::from(self.value()) % behind.max(1);
        let _ = match self.below(8) {
            0 | 1 => write!(rule, "accept"),
            2 | 3 => write!(rule, "drop"),
            4 => write!(rule, "return"),
            5 if behind > 0 => write!(rule, "jump c{target}"),
            6 if behind > 0 => write!(rule, "goto c{target}"),
            _ if rule.is_empty() => write!(rule, "accept"),
            _ => Ok(()),
        };
        rule
    }

    fn text(&mut self) -> String {
        let mut text = "table bridge t {\nset s { type ipv4_addr; elements = { ".to_owned();
        for last in (0..4).map(|block| 4 * block + self.below(4)) {
            let _ = write!(text, "0.0.0.{last}, ");
        }
        text += "0.0.1.1 }\n}\n";
        for chain in 0..=CHAINS {
            let _ = writeln!(text, "chain c{chain} {{");
            if chain == 0 {
                text += "type filter hook forward priority 0; policy drop;\n";
            }
            for _ in 0..self.below(64) {
                let _ = writeln!(text, "{}", self.rule(chain));
            }
            text += "}\n";
        }
        text + "}\n"
    }

    fn key(&mut self) -> Key {
        let (source, destination) = (self.value(), self.value());
        let (addresses, ether_type) = match self.below(3) {
            0 => (None, 0x806),
            1 => {
                let (source, destination) = (u128::from(source), u128::from(destination));
                let (source, destination) = (source.into(), destination.into());
                (
                    Some(Addresses::V6 {
                        source,
                        destination,
                    }),
                    0x86dd,
                )
            }
            _ => {
                let (source, destination) = (u32::from(source), u32::from(destination));
                let (source, destination) = (source.into(), destination.into());
                (
                    Some(Addresses::V4 {
                        source,
                        destination,
                    }),
                    0x800,
                )
            }
        };
        let (source, destination) = (self.value().into(), self.value().into());
        let (protocol, l4) = match self.below(4) {
            0 => (
                6,
                Some(L4::Tcp {
                    source,
                    destination,
                    flags: self.value(),
                }),
            ),
            1 => (
                17,
                Some(L4::Udp {
                    source,
                    destination,
                }),
            ),
            2 => (
                1,
                Some(L4::Icmp {
                    kind: self.value(),
                    code: 0,
                }),
            ),
            _ => (self.value(), None),
        };
        let tagged = self.below(4) == 0;
        let protocol = addresses.map(|_| protocol);
        Key::from(&Fields {
            destination: [0, 0, 0, 0, 0, self.value()],
            source: [0, 0, 0, 0, 0, self.value()],
            link_type: if tagged { 0x8100 } else { ether_type },
            vlan: tagged.then_some(self.value().into()),
            ether_type,
            addresses,
            next_header: protocol,
            protocol,
            fragment: Fragment::Whole,
            l4: l4.filter(|_| protocol.is_some()),
        })
    }
}

pub fn feed(input: &[u8]) {
    let mut choices = Choices(input);
    let text = choices.text();
    let program = match Program::load(&text, &PORTS, &Limits::DEFAULT) {
        Ok(program) => program,
        Err(error) => panic!("{}", error.render("input", &text)),
    };
    let rules = nf::load(&text, &PORTS, &Limits::DEFAULT).expect("it was just accepted");
    for _ in 0..FRAMES_MAX {
        let (key, from) = (choices.key(), choices.below(2));
        let way = Way { from, to: 1 - from };
        let (mut walked, mut found) = (Notes::default(), Notes::default());
        let expected = program.verdict(&key, way, &mut walked);
        let result = rules.verdict(&key, way, &mut found);
        assert_eq!(result, expected, "{text}\n{key:?}");
        assert_eq!(found.sorted(), walked.sorted(), "{text}\n{key:?}");
        if choices.0.is_empty() {
            break;
        }
    }
}
