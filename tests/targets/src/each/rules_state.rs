//! Rules that ask for connections, and questions and answers of few hosts: compiled rules do what a
//! walk through the same rules does. And other rules, by which connections are judged anew
//! (`--revalidate`): one ends, at its next packet, if and only if these would not let it begin.
//! Input: bytes that choose rules, and then bytes that choose frames and when the rules change.

use nf::conntrack::{Conntrack, Entry, Sought};
use nf::nft::Limits;
use nf::{Key, Program, RuleSet, Verdict, Way};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

const PORTS: [&str; 2] = ["private", "public"];
/// Hosts, of which those with an even number are behind the first port.
const HOSTS: u8 = 8;
/// More flows than hosts and ports have names, so that none makes room for another.
const FLOWS: usize = 1024;
const RULES_MAX: u8 = 8;
const FRAMES_MAX: usize = 64;

/// Source and destination, as numbers of hosts, and their ports.
type Name = (u8, u8, [u16; 2]);

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

    fn one<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[usize::from(self.below(all.len() as u8))]
    }

    fn condition(&mut self) -> String {
        let number = self.below(HOSTS);
        let direction = self.one(&["original", "reply"]);
        let end = self.one(&["saddr", "daddr"]);
        match self.below(10) {
            0 => format!("ct state {}", self.one(&["new", "established", "invalid"])),
            1 => format!("ct state {}", self.one(&["new,established", "related"])),
            2 => format!("ct direction {direction}"),
            3 => format!("ct mark {number}"),
            4 => format!("ct {direction} ip {end} 10.0.0.{number}"),
            5 => format!("ct original packets < {number}"),
            6 => format!("ct status {}", self.one(&["seen-reply", "! seen-reply"])),
            7 => format!("iifname {}", self.one(&PORTS)),
            8 => format!("ip {end} 10.0.0.{number}"),
            _ => format!("udp {} {}", self.one(&["sport", "dport"]), number % 4),
        }
    }

    /// A rule; one of the base chain may jump to the other one.
    fn rule(&mut self, is_base: bool) -> String {
        let mut rule = String::new();
        for _ in 0..self.below(3) {
            let _ = write!(rule, "{} ", self.condition());
        }
        let number = self.below(4);
        let last = match self.below(8) {
            0 | 1 => "accept".to_owned(),
            2 => "drop".to_owned(),
            3 => "return".to_owned(),
            4 if is_base => "jump other".to_owned(),
            5 => "ct timeout set \"short\"".to_owned(),
            _ => format!("ct mark set {number}"),
        };
        rule + &last
    }

    fn rules(&mut self) -> Rules {
        let mut text = "table bridge t {\n".to_owned();
        text += "ct timeout short { protocol udp; policy = { unreplied : 5 }; }\n";
        for (name, is_base) in [("other", false), ("forward", true)] {
            let _ = writeln!(text, "chain {name} {{");
            if is_base {
                let policy = self.one(&["accept", "drop"]);
                let _ = writeln!(text, "type filter hook forward priority 0; policy {policy}");
            }
            for _ in 0..self.below(RULES_MAX) {
                let _ = writeln!(text, "{}", self.rule(is_base));
            }
            text += "}\n";
        }
        Rules::new(text + "}\n")
    }

    /// Hosts on both sides, and ports.
    fn name(&mut self) -> Name {
        let (source, other) = (self.below(HOSTS), self.below(HOSTS));
        let destination = (other & !1) | (1 - (source & 1));
        let ports = [0, 1].map(|_| u16::from(self.below(2)));
        (source, destination, ports)
    }
}

struct Rules {
    text: String,
    walked: Program,
    compiled: RuleSet,
}

impl Rules {
    fn new(text: String) -> Self {
        let walked = Program::load(&text, &PORTS, &Limits::DEFAULT);
        let walked = walked.unwrap_or_else(|error| panic!("{}", error.render("input", &text)));
        let compiled = nf::load(&text, &PORTS, &Limits::DEFAULT).expect("it was just accepted");
        Self {
            text,
            walked,
            compiled,
        }
    }

    /// What becomes of a datagram, by both; `anew` if its connection is to be judged anew.
    fn judge(&self, table: &mut Conntrack, name: Name, anew: bool) -> Verdict {
        let frame = frame(name);
        let key = Key::parse(&frame).expect("it is a datagram");
        let from = name.0 & 1;
        let way = Way { from, to: 1 - from };
        let mut is_first = anew;
        let judged = table.judge(&key, &frame, Sought::NOTHING, 0, |connection| {
            // Judged anew, it is another packet that rules see first.
            let walked = match core::mem::take(&mut is_first) {
                true => None,
                false => Some(self.walked.explain(&key, way, Some(connection))),
            };
            let found = self.compiled.verdict_within(&key, way, connection, &mut ());
            if let Some((verdict, steps)) = walked {
                let rule = steps.last().map(|step| step.rule);
                assert_eq!((found.0, Some(found.1)), (verdict, rule), "{}", self.text);
            }
            found
        });
        judged.expect("there is room").0
    }
}

fn turned((source, destination, [first, second]): Name) -> Name {
    (destination, source, [second, first])
}

fn frame((source, destination, ports): Name) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([10, 0, 0, source, 10, 0, 0, destination]);
    let sum: u32 = packet
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(ports.map(u16::to_be_bytes).concat());
    packet.extend([0, 8, 0, 0]);
    frame.extend(packet);
    frame
}

/// Names of the connections of a table.
fn listed(table: &Conntrack) -> Vec<Name> {
    let mut all = Vec::new();
    let mut from = 0;
    let host = |address| match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => panic!("nobody has sent one"),
    };
    loop {
        let mut take = |entry: &Entry| {
            let name = entry.name;
            all.push((host(name.source), host(name.destination), name.ports));
            true
        };
        from = table.list(from, 0, &mut take);
        if from == 0 {
            all.sort_unstable();
            return all;
        }
    }
}

pub fn feed(input: &[u8]) {
    let mut choices = Choices(input);
    let both = [choices.rules(), choices.rules()];
    let (mut rules, mut other) = (&both[0], &both[1]);
    let mut table = Conntrack::new(FLOWS, &[5; 16]);
    // Whether each connection is to be judged anew.
    let mut expected: BTreeMap<Name, bool> = BTreeMap::new();
    let mut revoked = 0;
    for _ in 0..FRAMES_MAX {
        if choices.0.is_empty() {
            break;
        }
        if choices.below(8) == 0 {
            table.rules_changed();
            table.revalidate();
            (rules, other) = (other, rules);
            expected.values_mut().for_each(|anew| *anew = true);
        }
        let name = choices.name();
        let known = [name, turned(name)]
            .into_iter()
            .find(|name| expected.contains_key(name));
        let ends = known.is_some_and(|known| {
            let nothing = &mut Conntrack::new(FLOWS, &[5; 16]);
            expected[&known] && rules.judge(nothing, known, false) == Verdict::Drop
        });
        let anew = known.is_some_and(|known| expected[&known]);
        let verdict = rules.judge(&mut table, name, anew);
        match known {
            Some(known) if ends => {
                assert_eq!(verdict, Verdict::Drop, "{}", rules.text);
                expected.remove(&known);
                revoked += 1;
            }
            Some(known) => {
                expected.insert(known, false);
            }
            None if verdict == Verdict::Accept => {
                expected.insert(name, false);
            }
            None => {}
        }
        let expected: Vec<Name> = expected.keys().copied().collect();
        assert_eq!(listed(&table), expected, "{}", rules.text);
        assert_eq!(table.counts().revoked, revoked);
    }
}
