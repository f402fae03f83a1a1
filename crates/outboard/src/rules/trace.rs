//! What rules do with one frame, step by step.

use crate::frame;
use nf::conntrack::{Conntrack, Refused, Sought};
use nf::nft::{self, Limits};
use nf::{
    Effect, Key, Listed, Listing, Malformed, Program, RuleIndex, RuleSet, Tally, Verdict, Way,
};
use serde::{Serialize, Serializer};
use std::fmt;

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Trace {
    /// The firewall cannot read it, and drops it.
    Malformed {
        /// What becomes of it: `drop`, here too, so that programs find it in one place.
        #[serde(serialize_with = "name")]
        verdict: Verdict,
        /// Why, as the counter is called.
        #[serde(serialize_with = "name")]
        reason: Malformed,
    },
    /// It cannot belong to a connection here, and is dropped.
    Refused {
        /// What becomes of it: `drop`.
        #[serde(serialize_with = "name")]
        verdict: Verdict,
        /// Why, as the counter is called.
        #[serde(serialize_with = "name")]
        reason: Refused,
    },
    /// It is a part of a packet whose first part was judged.
    Part {
        /// What becomes of it.
        #[serde(serialize_with = "name")]
        verdict: Verdict,
        /// Who said so of the first part.
        by: Rule,
    },
    /// Rules decide.
    Judged(Judged),
}

/// The way of a frame through the rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// What was read out of the frame, in words.
    pub frame: String,
    /// What it is to its connection, if a rule asks for connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
    /// What becomes of it.
    #[serde(serialize_with = "name")]
    pub verdict: Verdict,
    /// Who says so.
    pub by: Rule,
    /// Each rule on the way there, and the deciding one last.
    pub steps: Vec<Step>,
    /// The rules that count the frame, as often as they do.
    pub counted: Vec<RuleIndex>,
}

/// A rule or the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Number of its counter.
    pub number: RuleIndex,
    /// Its chain.
    pub chain: String,
    /// Its line, from 1.
    pub line: usize,
    /// It, as the language prints it.
    pub text: String,
}

impl Rule {
    fn of(number: RuleIndex, listing: &Listing) -> Self {
        let listed = listing.get(number);
        let text = |field: fn(&Listed) -> &String| listed.map(field).cloned().unwrap_or_default();
        Self {
            number,
            chain: text(|listed| &listed.chain),
            line: listed.map_or(0, |listed| listed.line),
            text: text(|listed| &listed.text),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            chain,
            line,
            text,
        } = self;
        write!(f, "{number}, line {line} of chain {chain}: {text}")
    }
}

/// What one rule did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
    /// Number of jumps that are open.
    pub depth: usize,
    /// What came of it: `mismatch`, `continue`, `return`, `jump`, `goto`, `accept` or `drop`.
    pub effect: &'static str,
    /// The field of the condition that did not hold.
    pub mismatch: Option<&'static str>,
    /// Whether its counter counts the frame.
    pub counted: bool,
    /// What its `log` statement puts in front of the line, if it is reached.
    pub log: Option<String>,
}

impl Trace {
    /// What the rules in `text` do with a frame that comes into the port number `from` of `ports`
    /// and would leave by the other one. It is the first one that comes.
    ///
    /// # Errors
    /// The text is no rules.
    pub fn new(
        text: &str,
        ports: [&str; 2],
        frame: &[u8],
        from: usize,
    ) -> Result<Self, nft::Error> {
        Ok(Conversation::new(text, ports)?.trace(frame, from))
    }
}

/// Flows that a conversation may have.
const FLOWS_MAX: usize = 1024;

/// Frames that come one after the other, at once, to rules that were just loaded.
pub struct Conversation {
    program: Program,
    rules: RuleSet,
    listing: Listing,
    connections: Conntrack,
}

impl Conversation {
    /// One that has not begun.
    ///
    /// # Errors
    /// The text is no rules.
    pub fn new(text: &str, ports: [&str; 2]) -> Result<Self, nft::Error> {
        let load = || Program::load(text, &ports, &Limits::DEFAULT);
        Ok(Self {
            program: load()?,
            rules: load()?.compile(),
            listing: Listing::new(text, &Limits::DEFAULT)?,
            // Nobody else has a part in it, and nothing in it is secret.
            connections: Conntrack::new(FLOWS_MAX, &[0; 16]),
        })
    }

    /// What becomes of the next frame, which comes into the port number `from`.
    pub fn trace(&mut self, frame: &[u8], from: usize) -> Trace {
        let key = match Key::parse(frame) {
            Ok(key) => key,
            Err(reason) => {
                let verdict = Verdict::Drop;
                return Trace::Malformed { verdict, reason };
            }
        };
        let way = Way {
            from: u8::from(from != 0),
            to: u8::from(from == 0),
        };
        let Self {
            program,
            rules,
            listing,
            connections,
        } = self;
        let mut judged = None;
        let mut judge = |connection: Option<&nf::conntrack::Connection<'_>>| {
            let (verdict, steps) = program.explain(&key, way, connection);
            let mut notes = Notes::default();
            // Counted as the firewall does it, and not as the interpreter would.
            let (_, decider) = match connection {
                Some(connection) => rules.verdict_within(&key, way, connection, &mut notes),
                None => rules.verdict(&key, way, &mut notes),
            };
            let steps = steps
                .iter()
                .map(|step| step_of(*step, listing, &notes))
                .collect();
            judged = Some(Judged {
                frame: frame::summary(&key),
                connection: connection.map(Connection::of),
                verdict,
                by: Rule::of(decider, listing),
                steps,
                counted: notes.counted,
            });
            (verdict, decider)
        };
        let fate = match rules.tracks() {
            true => connections.judge(&key, frame, Sought::NOTHING, 0, |connection| {
                judge(Some(connection))
            }),
            false => Ok(judge(None)),
        };
        match (judged, fate) {
            (Some(judged), _) => Trace::Judged(judged),
            (None, Ok((verdict, rule))) => Trace::Part {
                verdict,
                by: Rule::of(rule, listing),
            },
            (None, Err(reason)) => Trace::Refused {
                verdict: Verdict::Drop,
                reason,
            },
        }
    }
}

/// What a frame is to its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// As nft names it.
    pub state: &'static str,
    /// Whether it goes the way of the answers.
    pub is_reply: bool,
}

impl Connection {
    fn of(connection: &nf::conntrack::Connection<'_>) -> Self {
        Self {
            state: connection.state().name(),
            is_reply: connection.is_reply(),
        }
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.is_reply { ", an answer" } else { "" };
        write!(f, "{}{direction}", self.state)
    }
}

fn step_of(step: nf::Step, listing: &Listing, notes: &Notes) -> Step {
    let (effect, mismatch) = match step.effect {
        Effect::Mismatch(field) => ("mismatch", Some(field)),
        Effect::Continue => ("continue", None),
        Effect::Return => ("return", None),
        Effect::Jump => ("jump", None),
        Effect::Goto => ("goto", None),
        Effect::Verdict(nf::Verdict::Accept) => ("accept", None),
        Effect::Verdict(nf::Verdict::Drop) => ("drop", None),
    };
    let logged = notes.logged.iter().find(|(rule, _)| *rule == step.rule);
    Step {
        rule: Rule::of(step.rule, listing),
        depth: step.depth,
        effect,
        mismatch,
        counted: notes.counted.contains(&step.rule),
        log: logged.map(|(_, prefix)| prefix.clone()),
    }
}

/// What rules do besides giving a verdict.
#[derive(Default)]
struct Notes {
    counted: Vec<RuleIndex>,
    logged: Vec<(RuleIndex, String)>,
}

impl Tally for Notes {
    fn count(&mut self, rule: RuleIndex) {
        self.counted.push(rule);
    }

    fn log(&mut self, rule: RuleIndex, prefix: &str, _: &Key, _: Way) {
        self.logged.push((rule, prefix.to_owned()));
    }
}

/// Serializes what has a name as that name.
fn name<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::frame;

    pub const RULES: &str = "\
table bridge t {
    chain f {
        type filter hook forward priority 0; policy drop;
        iifname public counter jump g
        tcp dport 80 log prefix \"web \" accept
    }
    chain g {
        udp dport 53 return
        counter udp dport 5353 drop
    }
}
";

    pub fn trace(words: &str) -> Trace {
        let crafted = frame::read(words).unwrap();
        let ports = ["private", "public"];
        let from = ports
            .iter()
            .position(|port| Some(*port) == crafted.port.as_deref());
        Trace::new(RULES, ports, &crafted.bytes, from.unwrap()).unwrap()
    }

    fn judged(words: &str) -> Judged {
        match trace(words) {
            Trace::Judged(judged) => judged,
            other => panic!("{words}: {other:?}"),
        }
    }

    fn effects(judged: &Judged) -> Vec<(RuleIndex, usize, &'static str)> {
        let steps = judged.steps.iter();
        steps
            .map(|step| (step.rule.number, step.depth, step.effect))
            .collect()
    }

    #[test]
    fn each_rule_on_the_way_is_a_step() {
        let judged = judged("tcp 10.0.0.1:9 > 10.0.0.2:80 in private");
        assert_eq!(effects(&judged), [(0, 0, "mismatch"), (1, 0, "accept")]);
        assert_eq!(judged.steps[0].mismatch, Some("iifname"));
        assert_eq!(judged.steps[1].log.as_deref(), Some("web "));
        assert_eq!(
            (judged.by.number, judged.by.line, &*judged.by.chain),
            (1, 5, "f")
        );
        assert_eq!(judged.counted, [1]);
        assert!(
            judged
                .frame
                .starts_with("tcp 10.0.0.1:9 > 10.0.0.2:80 flags syn")
        );
    }

    #[test]
    fn jumps_go_there_and_back() {
        let judged = judged("udp 10.0.0.1:9 > 10.0.0.2:53 in public");
        let expected = [
            (0, 0, "jump"),
            (2, 1, "return"),
            (1, 0, "mismatch"),
            (4, 0, "drop"),
        ];
        assert_eq!(effects(&judged), expected);
        assert_eq!(judged.by.text, "policy drop");
        assert_eq!(judged.counted, [0, 2, 4]);
    }

    #[test]
    fn a_counter_counts_though_its_rule_does_not_match() {
        let judged = judged("udp 10.0.0.1:9 > 10.0.0.2:99 in public");
        let step = judged
            .steps
            .iter()
            .find(|step| step.rule.number == 3)
            .unwrap();
        assert_eq!((step.effect, step.counted), ("mismatch", true));
    }

    #[test]
    fn what_cannot_be_read_meets_no_rule() {
        let runt = trace("02:00:00:00 in private");
        assert_eq!(
            runt,
            Trace::Malformed {
                verdict: Verdict::Drop,
                reason: Malformed::Runt
            }
        );
        let json = serde_json::to_value(runt).unwrap();
        let expected = serde_json::json!({ "verdict": "drop", "reason": "runt" });
        assert_eq!(json, expected);
    }

    #[test]
    fn what_is_no_rules_is_refused() {
        assert!(Trace::new("table", ["a", "b"], &[0; 60], 0).is_err());
    }
}
