//! From what a file says to what it means: names are looked up, values get their types, and what
//! nft implies is made explicit (`context`).

mod change;
mod context;
mod define;
mod fib;
mod joint;
mod map;
mod mark;
mod nat;
mod object;
mod reject;
mod zone;

use crate::census::Census;
use crate::changing::{Shape, What};
use crate::fields::{Field, Header, Slot, Type};
use crate::ir::{
    self, Chain, Condition, Intervals, JUMPS_MAX, Outcome, Program, Rule, Statement, normal,
};
use crate::limit::Limit;
use crate::nft::ast::{
    self, ChainItem, Family, File, Item, Operand, Operator, Span, Spanned, TableItem,
};
use crate::nft::{self, Error, ErrorKind, Limits, Refusal};
use crate::rule::Verdict;
use crate::values::{self, Scope};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use context::{Context, Protocols};

/// The number of no set of single fields.
const NO_SET: u32 = u32::MAX;
/// Rules that one frame may have to pass, each as often as jumps lead to it. Without a bound,
/// sixteen chains of a few jumps each would take hours to walk through.
const WALK_MAX: usize = 1 << 20;

const SECOND_BASE: Refusal = Refusal {
    what: "a second chain at a hook",
    why: "is not supported: one chain decides",
    instead: Some("jump to it from the first one"),
};
const OF_LINK: Refusal = Refusal {
    what: "a field of the link layer",
    why: "is not supported in a router's table: its packets change their link",
    instead: Some("match `iifname`, `oifname` or addresses of IP"),
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
        resolve(&nft::parse(text, limits)?, ports, limits, Role::Bridge)
    }
}

/// Who asks the rules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A bridge: there is one chain at a hook.
    Bridge,
    /// A router.
    Router,
}

/// What the rules of a file mean.
///
/// # Errors
/// The first thing that has no meaning, or one that is not supported.
pub(crate) fn resolve(
    file: &File<'_>,
    ports: &[&str],
    limits: &Limits,
    role: Role,
) -> Result<Program, Error> {
    let mut resolver = Resolver {
        scope: Scope {
            ports,
            limits,
            variables: BTreeMap::new(),
            elements: 0,
        },
        program: Program::default(),
        role,
        family: Family::Bridge,
        single: BTreeMap::new(),
        sets: BTreeMap::new(),
        tuples: BTreeMap::new(),
        changed: BTreeMap::new(),
        shapes: Vec::new(),
        counted_bytes: 0,
        table: "",
        maps: BTreeMap::new(),
        chains: BTreeMap::new(),
        defined: Vec::new(),
        made_of: BTreeSet::new(),
        block: 0,
        flowtables: Vec::new(),
        objects: BTreeMap::new(),
        jumps: Vec::new(),
        nats: Vec::new(),
        early: Vec::new(),
        rejects: Vec::new(),
        fibs: Vec::new(),
        flows: Vec::new(),
    };
    let mut tables: Vec<&ast::Table<'_>> = Vec::new();
    for item in &file.items {
        match item {
            Item::FlushRuleset(_) => {}
            Item::Define(define) => resolver.define(define)?,
            Item::Undefine(name) => resolver.undefine(*name)?,
            Item::Table(table) => {
                let first = tables
                    .iter()
                    .find(|it| it.family == table.family && it.name == table.name);
                if let Some(first) = first {
                    let (span, first) = (table.name.span, first.name.span);
                    return Err(duplicate("table of this name", span, first));
                }
                tables.push(table);
                resolver.table(table)?;
            }
        }
    }
    if resolver.program.bases.is_empty() {
        let span = tables.first().map(|table| table.name.span);
        return Err(Error::new(span.unwrap_or_default(), ErrorKind::NoBaseChain));
    }
    resolver.check_jumps()?;
    resolver.begin_sets()?;
    resolver.check_nats()?;
    Ok(resolver.program)
}

/// What is known of a file.
struct Resolver<'f, 'a> {
    scope: Scope<'f, 'a>,
    program: Program,
    role: Role,
    /// The family of the table at hand.
    family: Family,
    /// Sets of one interval that exist.
    single: BTreeMap<(u128, u128), u32>,
    /// Named sets of the table: their declaration, and the number of their set.
    sets: BTreeMap<&'a str, (&'f ast::Set<'a>, u32)>,
    /// Those of tuples.
    tuples: BTreeMap<&'a str, joint::NamedTuples>,
    /// Those that rules change.
    changed: BTreeMap<&'a str, change::Changed>,
    /// What sets of all tables are that rules change, and where they stand.
    shapes: Vec<(Shape, Span)>,
    /// Bytes for connections that rules count.
    counted_bytes: usize,
    /// The name of the table at hand.
    table: &'a str,
    /// Named maps of the table.
    maps: BTreeMap<&'a str, &'f ast::Map<'a>>,
    /// Chains of the table and their numbers.
    chains: BTreeMap<&'a str, (Span, u32)>,
    /// Variables that were given a meaning, in order, and what they meant before.
    defined: Vec<define::Defined<'f, 'a>>,
    /// Variables that others are made of.
    made_of: BTreeSet<&'a str>,
    /// Those from here on are of the block at hand.
    block: usize,
    /// Flowtables of the table.
    flowtables: Vec<&'a str>,
    /// Objects of the table that have a name.
    objects: BTreeMap<(ast::ObjectKind, &'a str), object::Known>,
    /// Of each chain, the jumps in it: whereto, from which place, and whether they come back.
    jumps: Vec<Vec<Jump>>,
    /// Translations: in which chain, and where it stands.
    nats: Vec<(usize, Spanned<ast::NatKind>)>,
    /// The same of what has no effect where connections are known, and of `reject`.
    early: Vec<(usize, Span, &'static Refusal)>,
    rejects: Vec<(usize, Span)>,
    fibs: Vec<fib::Asks>,
    flows: Vec<(usize, Span)>,
}

#[derive(Clone, Copy)]
struct Jump {
    target: u32,
    span: Span,
}

impl<'f, 'a> Resolver<'f, 'a> {
    fn table(&mut self, table: &'f ast::Table<'a>) -> Result<(), Error> {
        let Spanned { span, node: family } = table.family;
        match (self.role, family == Family::Bridge) {
            (Role::Bridge, true) | (Role::Router, false) => {}
            (Role::Bridge, false) => {
                return Err(Error::new(
                    span,
                    ErrorKind::Unsupported(&nft::NOT_OF_BRIDGE),
                ));
            }
            (Role::Router, true) => {
                return Err(Error::new(
                    span,
                    ErrorKind::Unsupported(&nft::NOT_OF_ROUTER),
                ));
            }
        }
        self.family = family;
        self.sets.clear();
        self.tuples.clear();
        self.changed.clear();
        self.table = table.name.node;
        self.maps.clear();
        self.chains.clear();
        self.objects.clear();
        self.flowtables.clear();
        for item in &table.items {
            match item {
                TableItem::Object(object) => self.object(table, object)?,
                TableItem::Flowtable(flowtable) => self.flowtable(flowtable)?,
                _ => {}
            }
        }
        let first = self.program.chains.len();
        for item in &table.items {
            if let TableItem::Chain(chain) = item {
                let number = first + self.chains.len();
                let name = chain.name;
                if let Some((first, _)) = self.chains.insert(name.node, (name.span, number as u32))
                {
                    return Err(duplicate("chain of this name", name.span, first));
                }
                if let Some(base) = &chain.base {
                    self.base(base, number)?;
                }
            }
        }
        // Sets may be used before they are declared, but variables may not: two passes, each of
        // which defines the table's variables in the order of the file.
        self.table_items(table, |resolver, item| match item {
            TableItem::Set(set) => resolver.set(set),
            TableItem::Map(map) => resolver.named_map(map),
            _ => Ok(()),
        })?;
        self.table_items(table, |resolver, item| match item {
            TableItem::Chain(chain) => resolver.chain(chain),
            _ => Ok(()),
        })
    }

    /// Takes down that a chain is at a hook.
    fn base(&mut self, base: &Spanned<ast::Base>, chain: usize) -> Result<(), Error> {
        if self.role == Role::Bridge && !self.program.bases.is_empty() {
            return Err(Error::new(base.span, ErrorKind::Refused(&SECOND_BASE)));
        }
        let ast::Base {
            kind,
            hook,
            priority,
            policy,
        } = base.node;
        self.program.bases.push(ir::Base {
            chain,
            policy: match policy.map(|policy| policy.node) {
                Some(ast::Policy::Drop) => Verdict::Drop,
                Some(ast::Policy::Accept) | None => Verdict::Accept,
            },
            family: self.family,
            kind,
            hook,
            priority,
        });
        Ok(())
    }

    fn table_items(
        &mut self,
        table: &'f ast::Table<'a>,
        mut each: impl FnMut(&mut Self, &'f TableItem<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let block = self.open();
        for item in &table.items {
            match item {
                TableItem::Define(define) => self.define(define)?,
                TableItem::Undefine(name) => self.undefine(*name)?,
                _ => {}
            }
            each(self, item)?;
        }
        self.close(block);
        Ok(())
    }

    fn set(&mut self, set: &'f ast::Set<'a>) -> Result<(), Error> {
        let name = set.name;
        self.check_name(name)?;
        if let Some(max) = set.size
            && set.elements.len() > max as usize
        {
            let (what, max) = ("elements of this set", max as usize);
            return Err(Error::new(name.span, ErrorKind::Limit { what, max }));
        }
        let number = match *set.keys {
            _ if Self::changes(set) => {
                self.changed_set(set)?;
                NO_SET
            }
            [_] => {
                let values = self.scope.set(set)?;
                self.push(values)
            }
            _ => {
                self.named_tuples(set)?;
                NO_SET
            }
        };
        self.sets.insert(name.node, (set, number));
        Ok(())
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
        let block = self.open();
        for item in &chain.items {
            match item {
                ChainItem::Define(define) => self.define(define)?,
                ChainItem::Undefine(name) => self.undefine(*name)?,
                ChainItem::Rule(rule) => {
                    let rule = self.rule(&rule.node)?;
                    self.program.rules.push(rule);
                }
            }
        }
        self.close(block);
        let rules = first..self.program.rules.len();
        self.program.chains.push(Chain { rules });
        Ok(())
    }

    fn rule(&mut self, rule: &'f ast::Rule<'a>) -> Result<Rule, Error> {
        let mut out = Vec::with_capacity(rule.statements.len() + 2);
        let mut context = Context::new(self.family);
        let counter = |statement: &Spanned<ast::Statement<'_>>| {
            matches!(statement.node, ast::Statement::Counter { .. })
        };
        let counts = rule.statements.iter().any(counter);
        let mut marks = mark::Marks::default();
        for statement in &rule.statements {
            marks.note(statement)?;
            if let Some(outcome) = self.statement(statement, &mut context, &mut out)? {
                // What is looked up counts if it is found.
                match outcome {
                    Outcome::Map(number) => self.program.maps[number as usize].counts = !counts,
                    _ if !counts => out.push(Statement::Count),
                    _ => {}
                }
                out.push(Statement::End(outcome));
            }
        }
        if !counts && !matches!(out.last(), Some(Statement::End(_))) {
            out.push(Statement::Count);
        }
        Ok(Rule {
            statements: out.into(),
        })
    }

    /// Adds what a statement means; how the rule ends, if this ends it.
    fn statement(
        &mut self,
        statement: &'f Spanned<ast::Statement<'a>>,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<Option<Outcome>, Error> {
        let span = statement.span;
        match &statement.node {
            ast::Statement::Match(condition) => self.condition(condition, context, out)?,
            ast::Statement::Change(change) => self.change(change, context, out)?,
            ast::Statement::Joint(joint) => self.joint(joint, context, out)?,
            ast::Statement::Flags(flags) => {
                if let Some(header) = flags.field.header() {
                    self.ask(context.implied(header, span)?, out);
                    self.ask_connection(header, out);
                }
                let set = self.number(values::flags(flags));
                let slot = flags.field.slot();
                out.push(Statement::Match(Condition::new(slot, set)));
            }
            ast::Statement::Masked(masked) => self.masked(masked, context, out)?,
            ast::Statement::Quota { allowance, used } => {
                out.push(self.quota(*allowance, *used, span)?);
            }
            ast::Statement::Named(kind, name) => out.push(self.named(*kind, *name)?),
            ast::Statement::Flow(name) => self.flow(*name, span)?,
            ast::Statement::Fib(fib) => out.push(self.fib(fib, span)?),
            ast::Statement::Mark(set) => self.set_mark(set, out)?,
            ast::Statement::Zone(set) => out.push(self.set_zone(set, span)?),
            ast::Statement::Notrack => {
                self.early
                    .push((self.program.chains.len(), span, &nat::UNTRACK_LATE));
                out.push(Statement::Untrack);
            }
            ast::Statement::Counter {
                packets: 0,
                bytes: 0,
            } => out.push(Statement::Count),
            ast::Statement::Counter { .. } => {
                return Err(Error::new(span, ErrorKind::Refused(&COUNTER_START)));
            }
            ast::Statement::Log { prefix } => {
                let prefix = prefix.map_or("", |prefix| prefix.node);
                out.push(Statement::Log(prefix.into()));
            }
            ast::Statement::Limit(rate) => {
                out.push(Statement::Limit(self.program.limits.len() as u32));
                self.program.limits.push(Limit::new(*rate));
            }
            ast::Statement::Count(count) => {
                self.counted_bytes += count.words() * size_of::<u64>();
                self.check_bytes(self.counted_bytes, span)?;
                out.push(Statement::Census(self.program.censuses.len() as u32));
                self.program.censuses.push(Census::new(*count));
            }
            ast::Statement::Verdict(verdict) => return self.outcome(*verdict).map(Some),
            ast::Statement::Nat(nat) => return self.nat(nat, span, context, out).map(Some),
            ast::Statement::Vmap(vmap) => return self.vmap(vmap, context, out).map(Some),
            ast::Statement::Reject(with) => {
                return self.reject(*with, span, context, out).map(Some);
            }
        }
        Ok(None)
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
        let mut bases = self.program.bases.iter();
        if bases.any(|base| base.chain == target as usize) {
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
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        let field = condition.field.node;
        let slot = field.slot();
        if let Operand::Named(name) = &condition.operand
            && self.is_changed(name.node)
        {
            let negated = match condition.operator.node {
                Operator::Equal => false,
                Operator::NotEqual => true,
                _ => {
                    let kind = ErrorKind::Refused(&values::ORDER_OF_MANY);
                    return Err(Error::new(condition.operator.span, kind));
                }
            };
            let what = What::Asks { negated };
            return self.uses(*name, &[condition.field], what, context, out);
        }
        self.check_link(condition.field)?;
        let set = self.values(condition)?;
        self.ask_header(condition.field, context, out)?;
        if condition.operator.node == Operator::Equal && context::teaches(slot) {
            let asked = self
                .scope
                .single_values(field.value_type(), &condition.operand)?;
            context.learn(slot, &asked, &self.program.sets[set as usize]);
        }
        out.push(Statement::Match(Condition::new(slot, set)));
        Ok(())
    }

    /// Refuses what no packet of a router has.
    fn check_link(&self, field: Spanned<Field>) -> Result<(), Error> {
        match self.role == Role::Router && is_of_link(field.node.slot()) {
            true => Err(Error::new(field.span, ErrorKind::Refused(&OF_LINK))),
            false => Ok(()),
        }
    }

    /// Adds the conditions that a field implies.
    fn ask_header(
        &mut self,
        field: Spanned<Field>,
        context: &mut Context,
        out: &mut Vec<Statement>,
    ) -> Result<(), Error> {
        if let Some(header) = field.node.header() {
            self.ask(context.implied(header, field.span)?, out);
            self.ask_connection(header, out);
        }
        Ok(())
    }

    /// Adds conditions on protocols.
    fn ask(&mut self, protocols: Protocols, out: &mut Vec<Statement>) {
        for (slot, value) in protocols.into_iter().flatten() {
            let set = self.number(normal(vec![(value.into(), value.into())]));
            out.push(Statement::Match(Condition::new(slot, set)));
        }
    }

    /// Adds the condition that there is a connection, if a field needs one.
    fn ask_connection(&mut self, header: Header, out: &mut Vec<Statement>) {
        use Header::{Connection, ConnectionIp, ConnectionIp6, ConnectionPorts};
        if !matches!(
            header,
            Connection | ConnectionIp | ConnectionIp6 | ConnectionPorts
        ) {
            return;
        }
        // What has a state may be in a zone only, and no connection; only one has a direction.
        let set = self.number([(0, 1)].into());
        out.push(Statement::Match(Condition::new(Slot::CtDirection, set)));
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
        let keys: Vec<Type> = set.keys.iter().map(|key| key.node).collect();
        joint::check_kinds(&[kind], &keys, name.span)?;
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

/// Whether a field is one of a frame, and not of the packet in it.
fn is_of_link(slot: Slot) -> bool {
    matches!(
        slot,
        Slot::LinkType | Slot::VlanId | Slot::EtherSource | Slot::EtherDestination
    )
}

fn duplicate(what: &'static str, span: Span, first: Span) -> Error {
    Error::new(span, ErrorKind::Duplicate { what, first })
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
