//! What a file of rules says in vain.

use nf::fields::Type;
use nf::nft::ast::{
    Chain, ChainItem, Family, File, Item, Joint, Match, Operand, Rule, Span, Spanned, Statement,
    Table, TableItem, Value, Verdict, VerdictMap, Verdicts,
};
use rule_files::Gathered;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Something that is right and has no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Warning {
    /// Its line, from 1.
    pub line: usize,
    /// What has no effect, and why.
    pub message: String,
}

impl Warning {
    /// Says so on standard error, with its file and its line there.
    pub(super) fn print(&self, gathered: &Gathered) {
        let (file, line) = gathered.whole.line(self.line);
        eprintln!("{file}:{line}: warning: {}", self.message);
    }
}

/// Rules that no frame meets, and names that are none of `ports`, in the order of the file.
pub(super) fn find(file: &File, text: &str, ports: &[&str]) -> Vec<Warning> {
    let mut finder = Finder {
        ports,
        has_vlans: false,
        found: Vec::new(),
    };
    for item in &file.items {
        if let Item::Table(table) = item {
            finder.table(table);
        }
    }
    finder.found.sort_by_key(|(span, _)| span.start);
    let mut lines = Lines {
        text,
        at: 0,
        line: 1,
    };
    let found = finder.found.into_iter();
    found
        .map(|(span, message)| Warning {
            line: lines.line_of(span),
            message,
        })
        .collect()
}

/// Lines of places in ascending order: the text is walked once.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn line_of(&mut self, span: Span) -> usize {
        let passed = self.text.as_bytes().get(self.at..span.start as usize);
        let passed = passed.unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count();
        self.at += passed.len();
        self.line
    }
}

struct Finder<'a> {
    ports: &'a [&'a str],
    /// Whether ports can have VLANs that are ports: a router's can.
    has_vlans: bool,
    found: Vec<(Span, String)>,
}

impl Finder<'_> {
    fn table(&mut self, table: &Table) {
        self.has_vlans = table.family.node != Family::Bridge;
        let chains = table.items.iter().filter_map(|item| match item {
            TableItem::Chain(chain) => Some(chain),
            _ => None,
        });
        for item in &table.items {
            if let TableItem::Set(set) = item {
                let keys: Vec<Type> = set.keys.iter().map(|key| key.node).collect();
                set.elements.iter().for_each(|it| self.element(&keys, it));
            }
        }
        let by_name: BTreeMap<&str, &Chain> = chains
            .clone()
            .map(|chain| (chain.name.node, chain))
            .collect();
        let maps: BTreeMap<&str, &Verdicts> = table
            .items
            .iter()
            .filter_map(|item| match item {
                TableItem::Map(map) => Some((map.name.node, &map.elements)),
                _ => None,
            })
            .collect();
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&Chain> = chains
            .clone()
            .filter(|chain| chain.base.is_some())
            .collect();
        while let Some(chain) = next.pop() {
            if reached.insert(chain.name.node) {
                let mut targets = rules(chain).flat_map(|rule| targets(&rule.node, &maps));
                next.extend(targets.by_ref().filter_map(|name| by_name.get(name)));
            }
        }
        for chain in chains {
            if !reached.contains(chain.name.node) {
                let message = format!(
                    "no rule that a frame meets leads to chain {}",
                    chain.name.node
                );
                self.found.push((chain.name.span, message));
            }
            self.chain(chain);
        }
    }

    fn chain(&mut self, chain: &Chain) {
        let mut ended = false;
        for rule in rules(chain) {
            if ended {
                let message = "no frame meets this rule: the one before it ends the chain";
                self.found.push((rule.span, message.to_owned()));
                break;
            }
            ended = ends(&rule.node);
            for statement in &rule.node.statements {
                match &statement.node {
                    Statement::Match(condition) => self.condition(condition),
                    Statement::Joint(joint) => self.joint(joint),
                    _ => {}
                }
            }
        }
    }

    fn joint(&mut self, joint: &Joint) {
        let fields = joint.fields.iter();
        let keys: Vec<Type> = fields.map(|field| field.node.value_type()).collect();
        if let Operand::Set(elements) = &joint.operand {
            elements.node.iter().for_each(|it| self.element(&keys, it));
        }
    }

    fn condition(&mut self, condition: &Match) {
        if condition.field.node.value_type() != Type::InterfaceName {
            return;
        }
        match &condition.operand {
            Operand::Value(value) => self.name(value),
            Operand::Set(elements) => elements.node.iter().for_each(|element| self.name(element)),
            Operand::Named(_) => {}
        }
    }

    /// Whether it is what a VLAN of a port is called: `PORT.ID`. Which there are, the image's
    /// options say.
    fn is_vlan(&self, name: &str) -> bool {
        let (port, id) = name.rsplit_once('.').unwrap_or((name, ""));
        let is_id = id == "*" || id.parse().is_ok_and(|id: u16| (1..=4094).contains(&id));
        is_id && self.ports.contains(&port)
    }

    /// Names of interfaces in an element of a set.
    fn element(&mut self, keys: &[Type], element: &Spanned<Value>) {
        let parts = match &element.node {
            Value::Joined(parts) => parts,
            _ => core::slice::from_ref(element),
        };
        for (part, _) in parts
            .iter()
            .zip(keys)
            .filter(|(_, key)| **key == Type::InterfaceName)
        {
            self.name(part);
        }
    }

    /// The name of an interface, perhaps with `*`.
    fn name(&mut self, value: &Spanned<Value>) {
        let (Value::Word(name) | Value::Text(name)) = value.node else {
            return;
        };
        let known = match name.strip_suffix('*') {
            Some(prefix) => self.ports.iter().any(|port| port.starts_with(prefix)),
            None => self.ports.contains(&name),
        };
        let known = known || self.has_vlans && self.is_vlan(name);
        if !known {
            let message = format!(
                "no port is called {}; there is {}",
                name.escape_debug(),
                self.ports.join(" and ")
            );
            self.found.push((value.span, message));
        }
    }
}

fn rules<'a, 'f>(chain: &'a Chain<'f>) -> impl Iterator<Item = &'a Spanned<Rule<'f>>> {
    chain.items.iter().filter_map(|item| match item {
        ChainItem::Rule(rule) => Some(rule),
        ChainItem::Define(_) | ChainItem::Undefine(_) => None,
    })
}

/// The chains that a rule leads to.
fn targets<'f>(rule: &Rule<'f>, maps: &BTreeMap<&str, &Verdicts<'f>>) -> Vec<&'f str> {
    let elements = match rule.statements.last().map(|last| &last.node) {
        Some(Statement::Verdict(verdict)) => return target(verdict).into_iter().collect(),
        Some(Statement::Vmap(vmap)) => match &vmap.map {
            VerdictMap::Elements(elements) => Some(&elements.node),
            VerdictMap::Named(name) => maps.get(name.node).copied(),
        },
        _ => None,
    };
    let elements = elements.into_iter().flatten();
    elements
        .filter_map(|(_, verdict)| target(&verdict.node))
        .collect()
}

fn target<'f>(verdict: &Verdict<'f>) -> Option<&'f str> {
    match verdict {
        Verdict::Jump(name) | Verdict::Goto(name) => Some(name.node),
        _ => None,
    }
}

/// Whether no frame comes behind a rule: it has no condition and does not come back.
fn ends(rule: &Rule) -> bool {
    let conditional = rule
        .statements
        .iter()
        .any(|statement| matches!(statement.node, Statement::Match(_) | Statement::Flags(_)));
    let last = rule.statements.last().map(|statement| &statement.node);
    let leaves = matches!(
        last,
        Some(Statement::Verdict(
            Verdict::Accept | Verdict::Drop | Verdict::Return | Verdict::Goto(_)
        ))
    );
    !conditional && leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use nf::nft::{Limits, parse};

    fn found(body: &str) -> Vec<(usize, String)> {
        let text = format!(
            "table bridge t {{\n chain f {{\n type filter hook forward priority 0; policy drop;\n\
             {body}"
        );
        let file = parse(&text, &Limits::DEFAULT).unwrap_or_else(|e| {
            panic!("{}", e.render("test", &text));
        });
        let warnings = find(&file, &text, &["private", "public"]);
        warnings.into_iter().map(|w| (w.line, w.message)).collect()
    }

    #[test]
    fn names_that_are_no_ports_are_told() {
        assert_eq!(
            found("iifname private oifname \"pub*\" accept\n }\n}\n"),
            []
        );
        let strange = found("iifname eth0 accept\n oifname { private, \"wan*\" } drop\n }\n}\n");
        assert_eq!(strange.len(), 2);
        assert_eq!(strange[0].0, 4);
        assert!(strange[0].1.contains("eth0; there is private and public"));
        assert_eq!(strange[1].0, 5);
        assert!(strange[1].1.contains("wan*"));
    }

    #[test]
    fn vlans_of_a_routers_ports_are_ports() {
        let found = |family: &str, name: &str| {
            let text = format!(
                "table {family} t {{\n chain f {{\n type filter hook forward priority 0\n \
                 iifname \"{name}\" accept\n }}\n}}\n"
            );
            let file = parse(&text, &Limits::DEFAULT).unwrap();
            find(&file, &text, &["private", "public"]).len()
        };
        for (family, name, expected) in [
            ("inet", "private.100", 0),
            ("ip", "private.4094", 0),
            ("ip6", "private.*", 0),
            ("inet", "private.4095", 1),
            ("inet", "private.0", 1),
            ("inet", "private.x", 1),
            ("inet", "other.100", 1),
            ("bridge", "private.100", 1),
        ] {
            assert_eq!(found(family, name), expected, "{family} {name}");
        }
    }

    #[test]
    fn what_no_frame_meets_is_told() {
        let body = "jump a\n counter accept\n tcp dport 1 drop\n tcp dport 2 drop\n }\n\
                    chain a {\n accept\n }\n chain b {\n jump c\n }\n chain c {\n drop\n }\n}\n";
        let lines: Vec<_> = found(body).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [6, 12, 15]);
    }

    #[test]
    fn conditions_and_jumps_let_frames_through() {
        let body = "tcp dport 1 accept\n tcp flags syn drop\n jump a\n counter\n accept\n }\n\
                    chain a {\n return\n }\n}\n";
        assert_eq!(found(body), []);
    }
}
