//! From what a file says to what it means: names are looked up, values get their types, and what
//! nft implies is made explicit.
//!
//! A field of a header asks for the protocols in front of it, as `nft --debug=netlink` shows: `ip
//! saddr` for `meta protocol ip`, `tcp dport` for `meta l4proto tcp`, `vlan id` for `ether type
//! vlan`, unless the rule has asked for them. `icmp type` asks for `ether type ip`, which no tagged
//! frame has, unless the rule has asked for a protocol before.

use crate::fields::{Header, Slot, Symbols};
use crate::ir::{
    self, Chain, Condition, Intervals, JUMPS_MAX, Outcome, Program, Rule, Statement, normal,
};
use crate::key::{ether_type, protocol};
use crate::nft::ast::{self, ChainItem, File, Item, Operand, Operator, Span, Spanned, TableItem};
use crate::nft::{self, Error, ErrorKind, Limits, Refusal};
use crate::rule::Verdict;
use crate::values::{self, Scope};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Rules that one frame may have to pass, each as often as jumps lead to it. Without a bound,
/// sixteen chains of a few jumps each would take hours to walk through.
const WALK_MAX: usize = 1 << 20;

const SECOND_TABLE: Refusal = Refusal {
    what: "a second table",
    why: "is not supported: the rules of one table decide",
    instead: Some("put its chains into the first one"),
};
const SECOND_BASE: Refusal = Refusal {
    what: "a second chain at a hook",
    why: "is not supported: one chain decides",
    instead: Some("jump to it from the first one"),
};
const COUNTER_START: Refusal = Refusal {
    what: "a counter that starts from another number than 0",
    why: "is not supported: counters begin when the rules are loaded",
    instead: Some("`counter`; `nft -s list ruleset` prints it so"),
};

impl Program {
    /// Reads a text of rules. `ports` are the names of the network devices, for `iifname` and
    /// `oifname`; a frame's [`crate::Way`] refers to them by position.
    ///
    /// # Errors
    /// The first thing in the text that is not accepted.
    pub fn load(text: &str, ports: &[&str], limits: &Limits) -> Result<Self, Error> {
        resolve(&nft::parse(text, limits)?, ports, limits)
    }
}

/// What the rules of a file mean.
///
/// # Errors
/// The first thing that has no meaning, or one that is not supported.
pub(crate) fn resolve(file: &File<'_>, ports: &[&str], limits: &Limits) -> Result<Program, Error> {
    let mut resolver = Resolver {
        scope: Scope {
            ports,
            limits,
            variables: BTreeMap::new(),
            elements: 0,
        },
        program: Program::default(),
        single: BTreeMap::new(),
        sets: BTreeMap::new(),
        chains: BTreeMap::new(),
        jumps: Vec::new(),
    };
    let mut table = None;
    for item in &file.items {
        match item {
            Item::FlushRuleset(_) => {}
            Item::Define(define) => resolver.define(define)?,
            Item::Table(second) if table.is_some() => {
                let kind = ErrorKind::Refused(&SECOND_TABLE);
                return Err(Error::new(second.name.span, kind));
            }
            Item::Table(only) => {
                table = Some(only.name.span);
                resolver.table(only)?;
            }
        }
    }
    let span = table.unwrap_or_default();
    if table.is_none() {
        return Err(Error::new(span, ErrorKind::NoBaseChain));
    }
    resolver.check_jumps()?;
    Ok(resolver.program)
}

/// What is known of a file.
struct Resolver<'f, 'a> {
    scope: Scope<'f, 'a>,
    program: Program,
    /// Sets of one interval that exist.
    single: BTreeMap<(u128, u128), u32>,
    /// Named sets: their declaration, and the number of their set.
    sets: BTreeMap<&'a str, (&'f ast::Set<'a>, u32)>,
    /// Chains and their numbers.
    chains: BTreeMap<&'a str, (Span, u32)>,
    /// Of each chain, the jumps in it: whereto, from which place, and whether they come back.
    jumps: Vec<Vec<Jump>>,
}

#[derive(Clone, Copy)]
struct Jump {
    target: u32,
    span: Span,
}

impl<'f, 'a> Resolver<'f, 'a> {
    fn define(&mut self, define: &'f ast::Define<'a>) -> Result<(), Error> {
        let name = define.name;
        if let Some((first, _)) = self.scope.variables.get(name.node) {
            return Err(duplicate("definition of this variable", name.span, *first));
        }
        let variable = (name.span, &define.value);
        self.scope.variables.insert(name.node, variable);
        Ok(())
    }

    /// Forgets the variables that `names` define: their block ends.
    fn forget(&mut self, names: Vec<&'a str>) {
        for name in names {
            self.scope.variables.remove(name);
        }
    }

    fn table(&mut self, table: &'f ast::Table<'a>) -> Result<(), Error> {
        let mut base = None;
        for item in &table.items {
            if let TableItem::Chain(chain) = item {
                let number = self.chains.len() as u32;
                let name = chain.name;
                if let Some((first, _)) = self.chains.insert(name.node, (name.span, number)) {
                    return Err(duplicate("chain of this name", name.span, first));
                }
                if let Some(hook) = &chain.base {
                    if base.replace(number).is_some() {
                        let kind = ErrorKind::Refused(&SECOND_BASE);
                        return Err(Error::new(hook.span, kind));
                    }
                    self.program.policy = match hook.node.policy.map(|policy| policy.node) {
                        Some(ast::Policy::Drop) => Verdict::Drop,
                        Some(ast::Policy::Accept) | None => Verdict::Accept,
                    };
                }
            }
        }
        let missing = Error::new(table.name.span, ErrorKind::NoBaseChain);
        self.program.base = base.ok_or(missing)? as usize;
        // Sets may be used before they are declared, but variables may not: two passes, each of
        // which defines the table's variables in the order of the file.
        self.table_items(table, |resolver, item| match item {
            TableItem::Set(set) => resolver.set(set),
            _ => Ok(()),
        })?;
        self.table_items(table, |resolver, item| match item {
            TableItem::Chain(chain) => resolver.chain(chain),
            _ => Ok(()),
        })
    }

    fn table_items(
        &mut self,
        table: &'f ast::Table<'a>,
        mut each: impl FnMut(&mut Self, &'f TableItem<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut defined = Vec::new();
        for item in &table.items {
            if let TableItem::Define(define) = item {
                self.define(define)?;
                defined.push(define.name.node);
            }
            each(self, item)?;
        }
        self.forget(defined);
        Ok(())
    }

    fn set(&mut self, set: &'f ast::Set<'a>) -> Result<(), Error> {
        let values = self.scope.set(set)?;
        let number = self.push(values);
        let name = set.name;
        match self.sets.insert(name.node, (set, number)) {
            Some((first, _)) => Err(duplicate("set of this name", name.span, first.name.span)),
            None => Ok(()),
        }
    }

    fn push(&mut self, set: Intervals) -> u32 {
        self.program.sets.push(set);
        (self.program.sets.len() - 1) as u32
    }

    /// The number of a set; of one interval, the same one each time.
    fn number(&mut self, set: Intervals) -> u32 {
        let [pair] = *set else {
            return self.push(set);
        };
        if let Some(number) = self.single.get(&pair) {
            return *number;
        }
        let number = self.push(set);
        self.single.insert(pair, number);
        number
    }

    fn chain(&mut self, chain: &'f ast::Chain<'a>) -> Result<(), Error> {
        let first = self.program.rules.len();
        self.jumps.push(Vec::new());
        let mut defined = Vec::new();
        for item in &chain.items {
            match item {
                ChainItem::Define(define) => {
                    self.define(define)?;
                    defined.push(define.name.node);
                }
                ChainItem::Rule(rule) => {
                    let rule = self.rule(&rule.node)?;
                    self.program.rules.push(rule);
                }
            }
        }
        self.forget(defined);
        let rules = first..self.program.rules.len();
        self.program.chains.push(Chain { rules });
        Ok(())
    }

    fn rule(&mut self, rule: &'f ast::Rule<'a>) -> Result<Rule, Error> {
        let mut out = Vec::with_capacity(rule.statements.len() + 2);
        let mut known = Known::default();
        let counter = |statement: &Spanned<ast::Statement<'_>>| {
            matches!(statement.node, ast::Statement::Counter { .. })
        };
        let counts = rule.statements.iter().any(counter);
        for statement in &rule.statements {
            match &statement.node {
                ast::Statement::Match(condition) => {
                    self.condition(condition, &mut known, &mut out)?
                }
                ast::Statement::TcpFlags(flags) => {
                    self.ask(known.implied(Header::Tcp, statement.span)?, &mut out);
                    let held = values::flags(flags.mask, &flags.values, flags.negated);
                    let set = self.number(held);
                    let slot = Slot::TcpFlags;
                    out.push(Statement::Match(Condition { slot, set }));
                }
                ast::Statement::Counter {
                    packets: 0,
                    bytes: 0,
                } => out.push(Statement::Count),
                ast::Statement::Counter { .. } => {
                    let kind = ErrorKind::Refused(&COUNTER_START);
                    return Err(Error::new(statement.span, kind));
                }
                ast::Statement::Log { prefix } => {
                    let prefix = prefix.map_or("", |prefix| prefix.node);
                    out.push(Statement::Log(prefix.into()));
                }
                ast::Statement::Verdict(verdict) => {
                    if !counts {
                        out.push(Statement::Count);
                    }
                    let outcome = self.outcome(*verdict)?;
                    out.push(Statement::End(outcome));
                }
            }
        }
        if !counts && !matches!(out.last(), Some(Statement::End(_))) {
            out.push(Statement::Count);
        }
        Ok(Rule {
            statements: out.into(),
        })
    }

    fn outcome(&mut self, verdict: ast::Verdict<'_>) -> Result<Outcome, Error> {
        Ok(match verdict {
            ast::Verdict::Accept => Outcome::Verdict(Verdict::Accept),
            ast::Verdict::Drop => Outcome::Verdict(Verdict::Drop),
            ast::Verdict::Return => Outcome::Return,
            ast::Verdict::Jump(name) => Outcome::Jump(self.jump(name)?),
            ast::Verdict::Goto(name) => Outcome::Goto(self.jump(name)?),
        })
    }

    fn jump(&mut self, name: ast::Name<'_>) -> Result<u32, Error> {
        let span = name.span;
        let Some((_, target)) = self.chains.get(name.node).copied() else {
            return Err(Error::new(span, ErrorKind::Unknown("chain")));
        };
        if target as usize == self.program.base {
            return Err(Error::new(span, ErrorKind::JumpToBase));
        }
        if let Some(jumps) = self.jumps.last_mut() {
            jumps.push(Jump { target, span });
        }
        Ok(target)
    }

    fn condition(
        &mut self,
        condition: &'f ast::Match<'a>,
        known: &mut Known,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        let Spanned { node: field, span } = condition.field;
        let set = self.values(condition)?;
        if let Some(header) = field.header() {
            self.ask(known.implied(header, span)?, out);
        }
        known.learn(condition, &self.program.sets[set as usize]);
        let slot = field.slot();
        out.push(Statement::Match(Condition { slot, set }));
        Ok(())
    }

    /// Adds conditions on protocols.
    fn ask(&mut self, protocols: Protocols, out: &mut Vec<Statement>) {
        for (slot, value) in protocols.into_iter().flatten() {
            let set = self.number(normal(vec![(value.into(), value.into())]));
            out.push(Statement::Match(Condition { slot, set }));
        }
    }

    /// The set of values for which a condition holds.
    fn values(&mut self, condition: &'f ast::Match<'a>) -> Result<u32, Error> {
        let kind = condition.field.node.value_type();
        let Operand::Named(name) = &condition.operand else {
            let set = self
                .scope
                .compared(kind, condition.operator, &condition.operand)?;
            return Ok(self.number(set));
        };
        let Some((set, number)) = self.sets.get(name.node).copied() else {
            return Err(Error::new(name.span, ErrorKind::Unknown("set")));
        };
        if set.key.node != kind {
            return Err(values::mismatch(kind, name.span));
        }
        match condition.operator.node {
            Operator::Equal => Ok(number),
            Operator::NotEqual => {
                let turned = ir::complement(&self.program.sets[number as usize], kind.max());
                Ok(self.number(turned))
            }
            _ => Err(Error::new(
                condition.operator.span,
                ErrorKind::Refused(&values::ORDER_OF_MANY),
            )),
        }
    }

    /// Looks for loops, for jumps that nest too deep, and for chains that are walked too often.
    fn check_jumps(&self) -> Result<(), Error> {
        let mut costs: Vec<Option<Cost>> = vec![None; self.jumps.len()];
        let mut path = Vec::with_capacity(JUMPS_MAX);
        for chain in 0..self.jumps.len() as u32 {
            self.cost(chain, &mut path, &mut costs)?;
        }
        Ok(())
    }

    /// What a chain costs to walk. It calls itself for the chains that it jumps to, at most
    /// [`JUMPS_MAX`] deep.
    fn cost(
        &self,
        chain: u32,
        path: &mut Vec<u32>,
        costs: &mut [Option<Cost>],
    ) -> Result<Cost, Error> {
        if let Some(cost) = costs[chain as usize] {
            return Ok(cost);
        }
        path.push(chain);
        let mut total = Cost {
            depth: 1,
            rules: self.program.chains[chain as usize].rules.len(),
        };
        for jump in &self.jumps[chain as usize] {
            let refuse = |kind| Err(Error::new(jump.span, kind));
            if path.contains(&jump.target) {
                return refuse(ErrorKind::Loop);
            }
            let depth = ErrorKind::JumpDepth { max: JUMPS_MAX - 1 };
            if path.len() == JUMPS_MAX {
                return refuse(depth);
            }
            let cost = self.cost(jump.target, path, costs)?;
            total.depth = total.depth.max(1 + cost.depth);
            if total.depth > JUMPS_MAX {
                return refuse(depth);
            }
            total.rules = total.rules.saturating_add(cost.rules);
            if total.rules > WALK_MAX {
                let (what, max) = ("rules that one frame would have to pass", WALK_MAX);
                return refuse(ErrorKind::Limit { what, max });
            }
        }
        path.pop();
        costs[chain as usize] = Some(total);
        Ok(total)
    }
}

/// What it takes to walk a chain.
#[derive(Clone, Copy)]
struct Cost {
    /// Chains that are open at once.
    depth: usize,
    /// Rules that are passed, those of the chains that it jumps to included.
    rules: usize,
}

fn duplicate(what: &'static str, span: Span, first: Span) -> Error {
    Error::new(span, ErrorKind::Duplicate { what, first })
}

/// The name and the EtherType of a network protocol.
type Network = (&'static str, u16);

/// Conditions on protocols that a condition implies.
type Protocols = [Option<(Slot, u16)>; 2];

/// The protocols that a rule has asked for so far (`struct proto_ctx` of nft).
#[derive(Clone, Copy, Default)]
struct Known {
    /// `ether type vlan`: the types of the tagged frame are those behind the tag.
    tagged: bool,
    network: Option<&'static str>,
    transport: Option<&'static str>,
}

/// Protocols that decide which header a transport field is of; a rule has one of them.
const TRANSPORTS: &Symbols = &[
    ("ah", 51),
    ("comp", 108),
    ("dccp", 33),
    ("esp", 50),
    ("icmp", 1),
    ("icmpv6", 58),
    ("igmp", 2),
    ("sctp", 132),
    ("tcp", 6),
    ("udp", 17),
    ("udplite", 136),
];

/// Network protocols that decide which header a network field is of.
const NETWORKS: &Symbols = &[
    ("arp", 0x0806),
    ("ip", 0x0800),
    ("ip6", 0x86dd),
    ("vlan", 0x8100),
    ("vlan", ether_type::SERVICE_VLAN),
];

/// What a rule knows after a condition with several protocols in braces.
const SEVERAL: &str = "several";

const BEHIND_SEVERAL: Refusal = Refusal {
    what: "a header field behind a set of protocols in braces",
    why: "is not supported: nft takes one of them for all",
    instead: Some("a rule for each protocol, or only the condition on the field"),
};

/// A field of the protocol `here` in a rule that has asked for `before`.
fn conflict(before: &'static str, here: &'static str, span: Span) -> Error {
    let kind = if before == SEVERAL {
        ErrorKind::Refused(&BEHIND_SEVERAL)
    } else {
        ErrorKind::Conflict { before, here }
    };
    Error::new(span, kind)
}

impl Known {
    /// What a field of `header` asks for, apart from what is known.
    fn implied(&mut self, header: Header, span: Span) -> Result<Protocols, Error> {
        let ip = ("ip", ether_type::IPV4);
        let ip6 = ("ip6", ether_type::IPV6);
        match header {
            Header::Vlan => self.vlan(span),
            Header::Ip => self.network(ip, span),
            Header::Ip6 => self.network(ip6, span),
            Header::Tcp => self.transport(("tcp", protocol::TCP), None, span),
            Header::Udp => self.transport(("udp", protocol::UDP), None, span),
            Header::Icmp => self.transport(("icmp", protocol::ICMP), Some(ip), span),
            Header::Icmpv6 => self.transport(("icmpv6", protocol::ICMPV6), Some(ip6), span),
        }
    }

    fn vlan(&mut self, span: Span) -> Result<Protocols, Error> {
        if self.tagged {
            return Ok([None; 2]);
        }
        if let Some(before) = self.network {
            return Err(conflict(before, "vlan", span));
        }
        self.tagged = true;
        Ok([Some((Slot::LinkType, ether_type::VLAN)), None])
    }

    fn network(&mut self, (here, value): Network, span: Span) -> Result<Protocols, Error> {
        match self.network {
            Some(before) if before == here => Ok([None; 2]),
            Some(before) => Err(conflict(before, here, span)),
            None => {
                self.network = Some(here);
                Ok([Some((Slot::Protocol, value)), None])
            }
        }
    }

    /// What a field of a transport header asks for. Where the rule has not asked for a network
    /// protocol, that is `usual` too, if the transport protocol has a usual one.
    fn transport(
        &mut self,
        (here, value): (&'static str, u8),
        usual: Option<Network>,
        span: Span,
    ) -> Result<Protocols, Error> {
        match (self.transport, self.network) {
            (Some(before), _) if before == here => return Ok([None; 2]),
            (Some(before), _) => return Err(conflict(before, here, span)),
            (None, Some(before)) if !matches!(before, "ip" | "ip6" | SEVERAL) => {
                return Err(conflict(before, here, span));
            }
            _ => {}
        }
        self.transport = Some(here);
        // Of a tagged frame, nft asks for the type behind the tag instead.
        let slot = if self.tagged {
            Slot::Protocol
        } else {
            Slot::LinkType
        };
        let link = usual.filter(|_| self.network.is_none());
        let link = link.map(|(name, value)| {
            self.network = Some(name);
            (slot, value)
        });
        Ok([link, Some((Slot::L4Protocol, value.into()))])
    }

    /// What follows from a condition that holds.
    fn learn(&mut self, condition: &ast::Match<'_>, held: &Intervals) {
        // From a range, nft concludes nothing, be it of one value.
        let silent = match &condition.operand {
            Operand::Named(_) => true,
            Operand::Value(value) => matches!(value.node, ast::Value::Range(_)),
            Operand::Set(_) => false,
        };
        if condition.operator.node != Operator::Equal || silent {
            return;
        }
        let single = match **held {
            [(low, high)] if low == high => Some(low),
            _ => None,
        };
        let braced = matches!(condition.operand, Operand::Set(_));
        let learned = |table: &'static Symbols| {
            let holds = |value: u16| {
                let value = u128::from(value);
                held.iter()
                    .any(|(low, high)| (*low..=*high).contains(&value))
            };
            let known = || table.iter().find(|(_, value)| holds(*value));
            match single {
                Some(_) => known().map(|(name, _)| *name),
                None if braced => known().map(|_| SEVERAL),
                None => None,
            }
        };
        match condition.field.node.slot() {
            Slot::LinkType => {
                let network = learned(NETWORKS);
                if network == Some("vlan") {
                    self.tagged = true;
                } else if network.is_some() {
                    self.network = network;
                }
            }
            Slot::Protocol => self.network = learned(NETWORKS).or(self.network),
            Slot::NextHeader | Slot::L4Protocol => {
                self.transport = learned(TRANSPORTS).or(self.transport);
            }
            _ => {}
        }
    }
}

/// Reads a text of rules and makes of it what judges frames. `ports` are the names of the network
/// devices, for `iifname` and `oifname`; a frame's [`crate::Way`] refers to them by position.
///
/// # Errors
/// The first thing in the text that is not accepted.
pub fn load(text: &str, ports: &[&str], limits: &Limits) -> Result<crate::RuleSet, Error> {
    Ok(Program::load(text, ports, limits)?.compile())
}

#[cfg(test)]
mod tests;
