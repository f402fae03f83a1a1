//! From resolved rules to the structure that judges frames; [`crate::ruleset`] says what that is.
//!
//! Which slot a node looks up is chosen by what it leaves to be scanned: the entries that do not
//! name a value, and those that share one. Entries are copied into several leaves only within
//! [`COPIES_PER_ENTRY`], so that memory grows with the rules, whatever they are.

use crate::census::Census;
use crate::changing::Changing;
use crate::conntrack::Zone;
use crate::fields::{NARROW, SLOTS, Slot};
use crate::ir::{Condition, Intervals, Outcome, Program, Statement};
use crate::limit::Limit;
use crate::lookup::{NONE, Set, Table};
use crate::mark::SetMark;
use crate::quota::Quota;
use crate::ruleset::{Ask, Cursor, ENTRY, Entry, Extra, Gate, Kind, Node, RuleSet, Step, Test};
use crate::tuples::Tuples;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Intervals in which an entry may stand in one table. With more, the table passes it over.
const SEGMENTS_MAX: usize = 16;
/// Copies of entries in leaves, for each entry of a chain.
const COPIES_PER_ENTRY: usize = 8;
/// Entries that a look-up must save from being scanned, to be worth its time.
const SAVED_MIN: usize = 8;
/// The part of the entries that it must save at least: one of so many. It bounds the number of
/// look-ups one behind the other by the logarithm of the entries.
const SAVED_PART: usize = 8;
/// Entries behind one whose check fails that are looked at for whether they can hold.
const AHEAD_MAX: u32 = 16;

/// Intervals, of a set.
type Values = [(u128, u128)];

impl Program {
    /// Makes the structure that judges frames.
    pub fn compile(mut self) -> RuleSet {
        let tracks = self.tracks();
        let uses = core::mem::take(&mut self.uses).into();
        let mut changing = core::mem::take(&mut self.changing);
        changing.iter_mut().for_each(Changing::anew);
        let maps = core::mem::take(&mut self.maps);
        let joints = self.joints.iter().map(Tuples::new).collect();
        let first_named = self.first_named();
        let named = core::mem::take(&mut self.named).into();
        let quotas = self.quotas.iter().map(Quota::anew).collect();
        let fibs = core::mem::take(&mut self.fibs).into();
        let timeouts = core::mem::take(&mut self.timeouts).into();
        let limits = self.limits.iter().map(Limit::anew).collect();
        let censuses = self.censuses.iter().map(Census::anew).collect();
        let mut compiler = Compiler::new(&self.sets);
        let chains: Vec<Cursor> = self
            .chains
            .iter()
            .map(|chain| compiler.chain(&self, chain.rules.clone()))
            .collect();
        let mut set = RuleSet {
            entries: compiler.entries.into(),
            starts: compiler.starts.into(),
            steps: compiler.steps.into(),
            base: chains[self.bases[0].chain],
            chains: chains.into(),
            nodes: compiler.nodes.into(),
            leaves: compiler.leaves.into(),
            sets: compiler.sets.narrow.into(),
            wide_sets: compiler.sets.wide.into(),
            tables: compiler.tables.into(),
            wide_tables: compiler.wide_tables.into(),
            extras: compiler.extras.into(),
            maps: maps.into(),
            joints,
            limits,
            censuses,
            uses,
            changing: changing.into(),
            fibs,
            quotas,
            timeouts,
            named,
            first_named,
            rules: self.rules.len(),
            policy: self.bases[0].policy,
            tracks,
            settled: None,
        };
        set.settled = set.settle(set.base);
        set
    }
}

/// What an entry does besides holding.
#[derive(Default)]
struct Effects {
    counts: bool,
    log: Option<Box<str>>,
    named: Vec<u32>,
    marks: Vec<SetMark>,
    timeouts: Option<u32>,
    untracks: bool,
    zone: Option<Zone>,
    gate: Option<Ask>,
}

impl Effects {
    fn any(&self) -> bool {
        self.counts
            || !self.named.is_empty()
            || self.log.is_some()
            || !self.marks.is_empty()
            || self.timeouts.is_some()
            || self.untracks
            || self.zone.is_some()
    }
}

/// What must hold for an entry.
#[derive(Default)]
struct Checks {
    conditions: Vec<Condition>,
    /// Those on several fields at once.
    joints: Vec<Test>,
}

/// What has been made so far.
struct Compiler<'a> {
    source: &'a [Intervals],
    entries: Vec<Entry>,
    starts: Vec<u32>,
    steps: Vec<Step>,
    /// What the checks of entries are made of, and where those of each entry begin.
    conditions: Vec<Condition>,
    firsts: Vec<u32>,
    nodes: Vec<Node>,
    leaves: Vec<u32>,
    sets: Sets,
    tables: Vec<Table<u32>>,
    wide_tables: Vec<Table<u128>>,
    extras: Vec<Extra>,
}

/// Sets that have been made, and which of them a set of the source has become.
struct Sets {
    narrow: Vec<Set<u32>>,
    wide: Vec<Set<u128>>,
    narrow_of: Vec<u32>,
    wide_of: Vec<u32>,
}

/// Entries for which a node is to be made.
struct Work {
    node: usize,
    entries: Vec<u32>,
    /// Slots that were looked up on the way here: bit i for number i.
    used: u64,
}

/// A look-up of one slot.
struct Split {
    slot: Slot,
    bounds: Vec<u128>,
    spans: Vec<Span>,
    /// Entries that a frame is expected to leave to be scanned.
    left: usize,
    /// Copies of entries that it needs.
    copies: usize,
}

/// An entry, and where one of its intervals lies among the bounds: the first segment and the last.
#[derive(Clone, Copy)]
struct Span {
    entry: u32,
    first: usize,
    last: usize,
}

impl<'a> Compiler<'a> {
    fn new(source: &'a [Intervals]) -> Self {
        Self {
            source,
            entries: Vec::new(),
            starts: Vec::new(),
            steps: Vec::new(),
            conditions: Vec::new(),
            firsts: Vec::new(),
            nodes: Vec::new(),
            leaves: Vec::new(),
            sets: Sets {
                narrow: Vec::new(),
                wide: Vec::new(),
                narrow_of: vec![NONE; source.len()],
                wide_of: vec![NONE; source.len()],
            },
            tables: Vec::new(),
            wide_tables: Vec::new(),
            extras: Vec::new(),
        }
    }

    fn chain(&mut self, program: &Program, rules: core::ops::Range<usize>) -> Cursor {
        let first = self.entries.len() as u32;
        for rule in rules {
            let own = self.extras.len();
            self.rule(&program.rules[rule].statements, rule as u32);
            let (entry, step) = (self.entries.len() as u32, self.steps.len() as u32);
            for gate in self.extras[own..].iter_mut().flat_map(|it| &mut it.gate) {
                (gate.entry, gate.step) = (entry, step);
            }
        }
        let end = self.entries.len() as u32;
        self.step(Test::End);
        let root = self.tree(first..end);
        if root != NONE {
            let next = first;
            return Cursor { next, end, root };
        }
        let last = self.steps.len() as u32 - 1;
        self.thread(first..end, last);
        let next = self.starts.get(first as usize).copied().unwrap_or(last);
        Cursor { next, end, root }
    }

    /// One entry for each part of a rule that does something.
    fn rule(&mut self, statements: &[Statement], rule: u32) {
        let mut checks = Checks::default();
        let mut effects = Effects::default();
        for statement in statements {
            match statement {
                Statement::Match(condition) => {
                    if effects.any() {
                        self.part(&checks, rule, &mut effects);
                    }
                    checks.conditions.push(*condition);
                }
                Statement::Joint { joint, negated } => {
                    if effects.any() {
                        self.part(&checks, rule, &mut effects);
                    }
                    let (joint, negated) = (*joint, *negated);
                    checks.joints.push(Test::Joint { joint, negated });
                }
                Statement::Count => effects.counts = true,
                Statement::CountNamed(object) => effects.named.push(*object),
                Statement::Quota(quota) => {
                    effects.gate = Some(Ask::Quota(*quota));
                    self.part(&checks, rule, &mut effects);
                }
                Statement::Log(prefix) => {
                    if effects.log.is_some() {
                        self.part(&checks, rule, &mut effects);
                    }
                    effects.log = Some(prefix.clone());
                }
                Statement::Limit(limit) => {
                    effects.gate = Some(Ask::Limit(*limit));
                    self.part(&checks, rule, &mut effects);
                }
                Statement::Census(number) => {
                    effects.gate = Some(Ask::Census(*number));
                    self.part(&checks, rule, &mut effects);
                }
                Statement::Use(number) => {
                    effects.gate = Some(Ask::Use(*number));
                    self.part(&checks, rule, &mut effects);
                }
                Statement::Fib(fib) => {
                    effects.gate = Some(Ask::Fib(*fib));
                    self.part(&checks, rule, &mut effects);
                }
                Statement::Mark(set) => effects.marks.push(*set),
                Statement::Timeout(number) => self.timeouts(&checks, rule, &mut effects, *number),
                Statement::Untrack => effects.untracks = true,
                // The first one counts.
                Statement::Zone(zone) => effects.zone = effects.zone.or(Some(*zone)),
                Statement::End(outcome) => {
                    return self.entry(&checks, rule, effects, *outcome);
                }
            }
        }
        if effects.any() {
            self.entry(&checks, rule, effects, Outcome::Continue);
        }
    }

    /// Of two in a rule, the second one counts, and the first one has an entry of its own for it.
    fn timeouts(&mut self, checks: &Checks, rule: u32, effects: &mut Effects, number: u32) {
        if effects.timeouts.is_some() {
            self.part(checks, rule, effects);
        }
        effects.timeouts = Some(number);
    }

    /// An entry for what a rule has done so far, behind which the rule goes on.
    fn part(&mut self, checks: &Checks, rule: u32, effects: &mut Effects) {
        self.entry(checks, rule, core::mem::take(effects), Outcome::Continue);
    }

    fn entry(&mut self, checks: &Checks, rule: u32, effects: Effects, outcome: Outcome) {
        self.starts.push(self.steps.len() as u32);
        self.firsts.push(self.conditions.len() as u32);
        for condition in &checks.conditions {
            let check = self.sets.check(*condition, self.source);
            self.step(check);
            self.conditions.push(*condition);
        }
        // What costs more comes last.
        checks.joints.iter().for_each(|check| self.step(*check));
        self.step(Test::Hit(self.entries.len() as u32));
        let Effects {
            counts,
            log,
            named,
            marks,
            timeouts,
            untracks,
            zone,
            gate,
        } = effects;
        let mut extra = NONE;
        let acts = log.is_some() || !named.is_empty() || !marks.is_empty();
        let acts = acts || timeouts.is_some() || untracks || zone.is_some();
        if acts || gate.is_some() {
            extra = self.extras.len() as u32;
            self.extras.push(Extra {
                log,
                named: named.into(),
                marks: marks.into(),
                timeouts,
                untracks,
                zone,
                // Where the rule ends is not known yet.
                gate: gate.map(|ask| Gate {
                    ask,
                    entry: NONE,
                    step: NONE,
                }),
            });
        }
        self.entries.push(Entry {
            rule,
            extra,
            counts,
            outcome,
        });
    }

    fn step(&mut self, test: Test) {
        let otherwise = NONE;
        self.steps.push(Step { test, otherwise });
    }

    fn conditions(&self, entry: u32) -> &[Condition] {
        let entry = entry as usize;
        let end = self.firsts.get(entry + 1).map(|next| *next as usize);
        &self.conditions[self.firsts[entry] as usize..end.unwrap_or(self.conditions.len())]
    }

    /// Says for each check of a chain that is scanned where the scan goes on if it fails.
    fn thread(&mut self, entries: core::ops::Range<u32>, last: u32) {
        for entry in entries.clone() {
            for held in 0..self.conditions(entry).len() {
                let otherwise = self.otherwise(entry..entries.end, held);
                let step = self.starts[entry as usize] as usize + held;
                self.steps[step].otherwise = otherwise.unwrap_or(last);
            }
            // Of checks on several fields, nothing is known.
            let next = self.starts.get(entry as usize + 1).copied().unwrap_or(last);
            let behind = self.starts[entry as usize] as usize + self.conditions(entry).len();
            let joints = self.steps[behind..].iter_mut();
            for step in joints.take_while(|step| matches!(step.test, Test::Joint { .. })) {
                step.otherwise = next;
            }
        }
    }

    /// The step for a frame on which so many conditions of the first of these entries hold, and the
    /// next one does not. Other entries that cannot hold either are passed over, and checks of
    /// what is known.
    fn otherwise(&self, mut entries: core::ops::Range<u32>, held: usize) -> Option<u32> {
        let (held, failed) = self.conditions(entries.next()?).split_at(held);
        let failed = failed.first()?;
        let ahead = entries.start.saturating_add(AHEAD_MAX).min(entries.end);
        for entry in entries.start..ahead {
            let conditions = self.conditions(entry);
            let refuted = conditions.iter().any(|condition| {
                self.implies(condition, failed)
                    || held.iter().any(|known| self.excludes(known, condition))
            });
            if refuted {
                continue;
            }
            let known = conditions
                .iter()
                .take_while(|condition| held.iter().any(|known| self.implies(known, condition)));
            return Some(self.starts[entry as usize] + known.count() as u32);
        }
        (ahead < entries.end).then(|| self.starts[ahead as usize])
    }

    /// Whether the second condition holds wherever the first one does; `false` where that is much
    /// work to say.
    fn implies(&self, first: &Condition, second: &Condition) -> bool {
        let within = |(first, second): (&Values, &Values)| {
            let inside = |(low, high): &(u128, u128)| {
                second.iter().any(|(from, to)| from <= low && high <= to)
            };
            first.iter().all(inside)
        };
        first == second || self.few(first, second).is_some_and(within)
    }

    /// Whether the conditions never hold at once; `false` where that is much work to say.
    fn excludes(&self, first: &Condition, second: &Condition) -> bool {
        let apart = |(first, second): (&Values, &Values)| {
            let apart = |(low, high): &(u128, u128)| {
                second.iter().all(|(from, to)| to < low || high < from)
            };
            first.iter().all(apart)
        };
        self.few(first, second).is_some_and(apart)
    }

    /// The values of conditions on the same slot, if they are few intervals.
    fn few(&self, first: &Condition, second: &Condition) -> Option<(&Values, &Values)> {
        let of = |condition: &Condition| &*self.source[condition.set as usize];
        let (first_values, second_values) = (of(first), of(second));
        let few = first_values.len().max(second_values.len()) <= SEGMENTS_MAX;
        let alike = first.slot == second.slot && first.mask == second.mask;
        (alike && few).then_some((first_values, second_values))
    }

    /// Makes the tree of a chain; [`NONE`] if it is better scanned.
    fn tree(&mut self, entries: core::ops::Range<u32>) -> u32 {
        let mut copies_left = COPIES_PER_ENTRY * entries.len();
        let all: Vec<u32> = entries.collect();
        if self.best_split(&all, 0, copies_left).is_none() {
            return NONE;
        }
        let mut queue = VecDeque::new();
        let root = self.place(&mut queue, all, 0);
        while let Some(work) = queue.pop_front() {
            let kind = match self.best_split(&work.entries, work.used, copies_left) {
                Some(split) => {
                    copies_left -= split.copies;
                    self.split(&mut queue, &work, split)
                }
                None => self.leaf(&work.entries),
            };
            self.nodes[work.node].kind = kind;
        }
        root
    }

    /// A place for entries that ascend.
    fn place(&mut self, queue: &mut VecDeque<Work>, entries: Vec<u32>, used: u64) -> u32 {
        let lowest = match *entries {
            [] => return NONE,
            [single] => return ENTRY | single,
            [lowest, ..] => lowest,
        };
        let node = self.nodes.len();
        let kind = Kind::Leaf { first: 0, end: 0 };
        self.nodes.push(Node { lowest, kind });
        queue.push_back(Work {
            node,
            entries,
            used,
        });
        node as u32
    }

    fn leaf(&mut self, entries: &[u32]) -> Kind {
        let first = self.leaves.len() as u32;
        self.leaves.extend_from_slice(entries);
        let end = self.leaves.len() as u32;
        Kind::Leaf { first, end }
    }

    fn split(&mut self, queue: &mut VecDeque<Work>, work: &Work, split: Split) -> Kind {
        let mut members = vec![Vec::new(); split.bounds.len() + 1];
        for span in &split.spans {
            for segment in &mut members[span.first..=span.last] {
                segment.push(span.entry);
            }
        }
        let mut named = split.spans.iter().map(|span| span.entry).peekable();
        let mut rest = Vec::new();
        for &entry in &work.entries {
            if named.peek() != Some(&entry) {
                rest.push(entry);
            }
            while named.next_if_eq(&entry).is_some() {}
        }
        let used = work.used | 1 << split.slot as u64;
        let numbers = members
            .into_iter()
            .map(|entries| self.place(queue, entries, used))
            .collect();
        let rest = self.place(queue, rest, work.used);
        let table = if split.slot.is_narrow() {
            let bounds = split.bounds.iter().map(|bound| narrow(*bound)).collect();
            self.tables.push(Table::new(bounds, numbers));
            self.tables.len() - 1
        } else {
            self.wide_tables
                .push(Table::new(split.bounds.into(), numbers));
            self.wide_tables.len() - 1
        };
        Kind::Split {
            slot: split.slot,
            table: table as u32,
            rest,
        }
    }

    /// The look-up that leaves the least to be scanned, if it is worth its time and copies. None is
    /// one of connections or marks: few rules differ in what they ask of those alone.
    fn best_split(&self, entries: &[u32], used: u64, copies: usize) -> Option<Split> {
        let saved = SAVED_MIN.max(entries.len() / SAVED_PART);
        let left_max = entries.len().checked_sub(saved)?;
        Slot::ALL
            .into_iter()
            .filter(|slot| used & 1 << *slot as u64 == 0 && slot.is_of_frame())
            .filter_map(|slot| self.split_by(slot, entries))
            .filter(|split| split.left <= left_max && split.copies <= copies)
            .min_by_key(|split| (split.left, split.copies))
    }

    /// What a look-up of `slot` would do.
    fn split_by(&self, slot: Slot, entries: &[u32]) -> Option<Split> {
        let mut named: Vec<(u32, &Values)> = entries
            .iter()
            .filter_map(|entry| Some((*entry, self.intervals(*entry, slot)?)))
            .collect();
        let all = bounds_of(&named, slot);
        named.retain(|(_, set)| segments(&all, set) <= SEGMENTS_MAX);
        if named.is_empty() {
            return None;
        }
        let bounds = bounds_of(&named, slot);
        let spans: Vec<Span> = named
            .iter()
            .flat_map(|(entry, set)| set.iter().map(|pair| span(&bounds, *entry, *pair)))
            .collect();
        let (load, expected) = load(&spans, bounds.len() + 1);
        Some(Split {
            slot,
            bounds,
            spans,
            left: entries.len() - named.len() + expected,
            copies: load - named.len(),
        })
    }

    /// The values that an entry asks of a slot, if they are few intervals.
    fn intervals(&self, entry: u32, slot: Slot) -> Option<&'a Values> {
        self.conditions(entry)
            .iter()
            .filter(|condition| condition.slot == slot)
            .map(|condition| &*self.source[condition.set as usize])
            .find(|set| (1..=SEGMENTS_MAX).contains(&set.len()))
    }
}

impl Sets {
    fn check(&mut self, condition: Condition, source: &[Intervals]) -> Test {
        let Condition { slot, set, mask } = condition;
        let number = set as usize;
        let intervals = &source[number];
        if !slot.is_narrow() {
            if self.wide_of[number] == NONE {
                self.wide_of[number] = self.wide.len() as u32;
                self.wide.push(Set::new(intervals));
            }
            let set = self.wide_of[number];
            return Test::Wide { slot, set };
        }
        let around = matches!(slot, Slot::Input | Slot::Output) || !slot.is_of_frame();
        let slot = slot as u8;
        if let ([(low, high)], u32::MAX) = (&**intervals, mask) {
            let (low, high) = (*low, *high);
            let (low, span) = (narrow(low), narrow(high - low));
            return match around {
                true => Test::Around { slot, low, span },
                false => Test::Range { slot, low, span },
            };
        }
        if self.narrow_of[number] == NONE {
            self.narrow_of[number] = self.narrow.len() as u32;
            let pairs: Vec<(u32, u32)> = intervals
                .iter()
                .map(|(low, high)| (narrow(*low), narrow(*high)))
                .collect();
            self.narrow.push(Set::new(&pairs));
        }
        let set = self.narrow_of[number];
        match mask {
            u32::MAX => Test::Set { slot, set },
            mask => Test::Masked { slot, set, mask },
        }
    }
}

/// A value of a narrow slot.
fn narrow(value: u128) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Where intervals begin, and where others begin behind them.
fn bounds_of(named: &[(u32, &Values)], slot: Slot) -> Vec<u128> {
    let max = slot.max();
    let pairs = named.iter().flat_map(|(_, set)| set.iter());
    let mut bounds: Vec<u128> = pairs
        .flat_map(|(low, high)| [Some(*low), (*high < max).then(|| high + 1)])
        .flatten()
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds
}

/// How many segments between the bounds a set covers.
fn segments(bounds: &[u128], set: &Values) -> usize {
    let spans = set.iter().map(|pair| span(bounds, 0, *pair));
    spans.map(|span| span.last - span.first + 1).sum()
}

fn span(bounds: &[u128], entry: u32, (low, high): (u128, u128)) -> Span {
    let segment = |value| bounds.partition_point(|bound| *bound <= value);
    Span {
        entry,
        first: segment(low),
        last: segment(high),
    }
}

/// Entries in all segments together, and those that a frame is expected to meet in its own, if
/// frames are as frequent as the entries that ask for them.
fn load(spans: &[Span], segments: usize) -> (usize, usize) {
    let mut steps = vec![0isize; segments + 1];
    for span in spans {
        steps[span.first] += 1;
        steps[span.last + 1] -= 1;
    }
    let (mut here, mut total, mut squares) = (0isize, 0, 0);
    for step in steps {
        here += step;
        total += here as usize;
        squares += (here as usize).pow(2);
    }
    (total, squares.div_ceil(total.max(1)))
}

const _: () = assert!(
    SLOTS <= 64 && NARROW <= 256,
    "`used` and the numbers of slots"
);

#[cfg(test)]
mod tests;
