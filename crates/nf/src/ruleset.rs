//! Rules as a decision structure: what judges frames.
//!
//! A rule becomes one entry, or one for each part that counts, logs or has a limit in front of a
//! condition: all
//! of an entry's checks must hold for its effects to happen. To judge a frame is to find the next
//! entry of the chain that holds, to do what it says, and to go on behind it, until one ends it.
//!
//! A short chain is scanned, step by step: a check that fails leads to the next entry that can
//! hold at all, behind those of its checks that are known to. Of a long chain [`crate::compile`]
//! makes a tree: a node looks one slot of the key up, which leads to the few entries that name
//! this value, and to the node of those that do not name it (any other condition on the slot is
//! left to the entries' own checks). The lowest entry of both that holds is the next one. An entry
//! may be in several leaves, within a budget; where the budget ends or a look-up would save too
//! little, a leaf is scanned. In any set of rules, a search thus visits at most all nodes and all
//! copies of entries once.

use crate::census::Census;
use crate::changing::{Changing, Use};
use crate::conntrack::{Connection, First, State, Timeouts, Trial, Zone};
use crate::fib::Fib;
use crate::fields::{SLOTS, Slot};
use crate::ir::{JUMPS_MAX, Map, Named, Outcome, Values, lacks};
use crate::key::Key;
use crate::limit::Limit;
use crate::lookup::{NONE, Set, Table};
use crate::mark::SetMark;
use crate::quota::Quota;
use crate::router::Rejection;
use crate::rule::{RuleIndex, Tally, Verdict, Way};
use crate::tuples::Tuples;
use alloc::boxed::Box;
use arrayvec::ArrayVec;
use core::cell::Cell;

/// Rules that judge frames.
#[derive(Debug)]
pub struct RuleSet {
    pub(crate) entries: Box<[Entry]>,
    /// The first step of each entry.
    pub(crate) starts: Box<[u32]>,
    /// Of each entry, its checks and then [`Test::Hit`]; at the end of a chain, [`Test::End`].
    pub(crate) steps: Box<[Step]>,
    pub(crate) chains: Box<[Cursor]>,
    pub(crate) nodes: Box<[Node]>,
    /// Entries of leaves, ascending in each.
    pub(crate) leaves: Box<[u32]>,
    pub(crate) sets: Box<[Set<u32>]>,
    pub(crate) wide_sets: Box<[Set<u128>]>,
    pub(crate) tables: Box<[Table<u32>]>,
    pub(crate) wide_tables: Box<[Table<u128>]>,
    pub(crate) extras: Box<[Extra]>,
    pub(crate) maps: Box<[Map]>,
    pub(crate) joints: Box<[Tuples]>,
    pub(crate) limits: Box<[Limit]>,
    pub(crate) censuses: Box<[Census]>,
    pub(crate) uses: Box<[Use]>,
    pub(crate) changing: Box<[Changing]>,
    pub(crate) fibs: Box<[Fib]>,
    pub(crate) quotas: Box<[Quota]>,
    pub(crate) timeouts: Box<[(u8, Timeouts)]>,
    pub(crate) named: Box<[Named]>,
    /// The place among the counters of the first object that has a name.
    pub(crate) first_named: RuleIndex,
    /// The base chain.
    pub(crate) base: Cursor,
    pub(crate) rules: RuleIndex,
    pub(crate) policy: Verdict,
    pub(crate) tracks: bool,
    /// What the base chain says of frames of open connections.
    pub(crate) settled: Option<Settled>,
}

/// What a chain says of every frame whose connection is established, because it asks for nothing
/// else before it says so, and does nothing else either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    rule: RuleIndex,
    counts: bool,
    verdict: Verdict,
}

impl Settled {
    /// Whether it lets the frame pass.
    pub(crate) fn accepts(&self) -> bool {
        self.verdict == Verdict::Accept
    }

    /// What it says, which is counted if the rule counts.
    #[inline(always)]
    pub fn say(&self, tally: &mut impl Tally) -> (Verdict, RuleIndex) {
        if self.counts {
            tally.count(self.rule);
        }
        (self.verdict, self.rule)
    }
}

/// How the rules of a chain end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Verdict(Verdict),
    /// With a translation, by its number.
    Nat(u32),
    /// The packet goes no further, and its sender is told.
    Reject(Rejection),
}

/// What is done with a frame on which all checks hold.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) rule: u32,
    /// What else it does, which few entries do, or [`NONE`].
    pub(crate) extra: u32,
    pub(crate) counts: bool,
    pub(crate) outcome: Outcome,
}

/// What few entries do.
#[derive(Debug)]
pub(crate) struct Extra {
    /// The prefix of a log statement.
    pub(crate) log: Option<Box<str>>,
    /// Objects that count, by their number.
    pub(crate) named: Box<[u32]>,
    /// Marks that it gives, one after the other.
    pub(crate) marks: Box<[SetMark]>,
    /// How long the connection stays, by number.
    pub(crate) timeouts: Option<u32>,
    /// Whether there is to be no connection.
    pub(crate) untracks: bool,
    /// The zone that the frame is in.
    pub(crate) zone: Option<Zone>,
    /// What the frame must pass, or else the rule does no more.
    pub(crate) gate: Option<Gate>,
}

/// A limit or a question in front of the rest of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) ask: Ask,
    /// The entry behind the rule, and the step behind it.
    pub(crate) entry: u32,
    pub(crate) step: u32,
}

/// What a gate asks, by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Limit(u32),
    Census(u32),
    Fib(u32),
    Quota(u32),
    /// What is looked up in a set that rules change, or done with it.
    Use(u32),
}

/// A step of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) test: Test,
    /// Where a scan goes on if a check fails; if it holds, that is the step behind.
    pub(crate) otherwise: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// A check: the narrow slot of the frame is `low`, or up to `span` above it.
    Range { slot: u8, low: u32, span: u32 },
    /// The same of its way or its connection.
    Around { slot: u8, low: u32, span: u32 },
    /// A check: the narrow slot is in a set.
    Set { slot: u8, set: u32 },
    /// A check: the narrow slot, under a mask, is in a set.
    Masked { slot: u8, set: u32, mask: u32 },
    /// A check: the wide slot is in a set.
    Wide { slot: Slot, set: u32 },
    /// A check: the frame has one of these tuples, or none of them.
    Joint { joint: u32, negated: bool },
    /// All checks of this entry hold. The next entry begins behind.
    Hit(u32),
    /// No entry is left.
    End,
}

/// Where a walk stands in a chain; to begin with, at its first entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The next entry that may hold; or, if the chain is scanned, its first step.
    pub(crate) next: u32,
    /// Behind the last entry.
    pub(crate) end: u32,
    /// The node at the root of the chain's tree, or [`NONE`] if it is scanned.
    pub(crate) root: u32,
}

/// A node of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The lowest entry below.
    pub(crate) lowest: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Entries to scan: where in `leaves`.
    Leaf { first: u32, end: u32 },
    /// A look-up of `slot`, one of the frame's, and the place of the entries that it does not
    /// lead to.
    Split { slot: Slot, table: u32, rest: u32 },
}

/// A place in a tree is the number of a node; or, with this bit, that of a single entry. [`NONE`]
/// is an entry behind all others.
pub(crate) const ENTRY: u32 = 1 << 31;

/// Nodes that wait for their turn in a search. A search goes down by a look-up at most once for
/// each slot, and one node waits for each time.
const PENDING_MAX: usize = SLOTS;

impl RuleSet {
    /// The verdict on a frame that is not tracked, and who gave it: the index of a rule, or
    /// [`Self::len`] for the policy. Counts and logs on the way go to `tally`.
    ///
    /// It does not allocate, and needs less than a kilobyte of stack.
    #[inline]
    pub fn verdict(&self, key: &Key, way: Way, tally: &mut impl Tally) -> (Verdict, RuleIndex) {
        let connection = None;
        let values = Values {
            key,
            way,
            connection,
            mark: &Cell::new(0),
        };
        self.judge(&values, tally)
    }

    /// The same of a frame whose connection is known: what [`crate::conntrack::Conntrack::judge`]
    /// asks for.
    #[inline]
    pub fn verdict_within(
        &self,
        key: &Key,
        way: Way,
        connection: &Connection<'_>,
        tally: &mut impl Tally,
    ) -> (Verdict, RuleIndex) {
        if let Some(first) = connection.first() {
            return self.verdict_on_first(first, way, connection, tally);
        }
        let connection = Some(connection);
        let values = Values {
            key,
            way,
            connection,
            mark: &Cell::new(0),
        };
        self.judge(&values, tally)
    }

    /// What would become of the packet that begins a connection. It is counted if it is dropped.
    #[inline(never)]
    fn verdict_on_first(
        &self,
        first: &First,
        way: Way,
        connection: &Connection<'_>,
        tally: &mut impl Tally,
    ) -> (Verdict, RuleIndex) {
        let values = Values {
            key: &first.key,
            way: if first.is_reply { way.back() } else { way },
            connection: Some(connection),
            mark: &Cell::new(0),
        };
        let (verdict, rule) = self.judge(&values, &mut Trial(tally));
        if verdict == Verdict::Drop {
            tally.count(rule);
        }
        (verdict, rule)
    }

    /// What the rules say of every frame whose connection is established, if they ask for nothing
    /// else before they say it, and do nothing else.
    #[inline]
    pub fn settled(&self) -> Option<&Settled> {
        self.settled.as_ref()
    }

    #[inline(always)]
    fn judge(&self, values: &Values<'_>, tally: &mut impl Tally) -> (Verdict, RuleIndex) {
        if let Some(settled) = self.settled
            && values.state() == State::Established
        {
            return settled.say(tally);
        }
        match self.walk(self.base, values, tally) {
            Some((End::Verdict(verdict), rule)) => (verdict, rule),
            // A bridge's rules translate and reject nothing.
            Some((End::Nat(_), rule)) => (Verdict::Accept, rule),
            Some((End::Reject(_), rule)) => (Verdict::Drop, rule),
            None => {
                tally.count(self.rules);
                (self.policy, self.rules)
            }
        }
    }

    /// What a chain says of each frame whose connection is established, if it asks for nothing else
    /// before it ends.
    pub(crate) fn settle(&self, chain: Cursor) -> Option<Settled> {
        let first = match chain.root {
            NONE => chain.next,
            _ => *self.starts.get(chain.next as usize)?,
        };
        let state = State::Established as u32;
        let (mut fails, mut asks) = (false, false);
        for step in self.steps.get(first as usize..)? {
            match step.test {
                Test::Range { slot, low, span } | Test::Around { slot, low, span }
                    if slot == Slot::CtState as u8 =>
                {
                    fails |= state.wrapping_sub(low) > span;
                }
                Test::Set { slot, set } if slot == Slot::CtState as u8 => {
                    fails |= !self.sets[set as usize].contains(state);
                }
                Test::Range { .. }
                | Test::Around { .. }
                | Test::Set { .. }
                | Test::Masked { .. }
                | Test::Wide { .. }
                | Test::Joint { .. } => asks = true,
                Test::Hit(_) if fails => (fails, asks) = (false, false),
                Test::Hit(_) if asks => return None,
                Test::Hit(entry) => return self.settled_by(&self.entries[entry as usize]),
                Test::End => return None,
            }
        }
        None
    }

    /// What an entry says, if it does nothing else.
    fn settled_by(&self, entry: &Entry) -> Option<Settled> {
        match entry.outcome {
            Outcome::Verdict(verdict) if entry.extra == NONE => Some(Settled {
                rule: entry.rule as RuleIndex,
                counts: entry.counts,
                verdict,
            }),
            _ => None,
        }
    }

    /// How the rules of a chain end, and with which of them; none if no rule ends them.
    #[inline(always)]
    pub(crate) fn walk(
        &self,
        base: Cursor,
        values: &Values<'_>,
        tally: &mut impl Tally,
    ) -> Option<(End, RuleIndex)> {
        let mut at = base;
        let mut jumps = ArrayVec::<Cursor, JUMPS_MAX>::new();
        loop {
            let Some(index) = self.find(&mut at, values) else {
                let Some(caller) = jumps.pop() else {
                    break;
                };
                at = caller;
                continue;
            };
            let entry = &self.entries[index as usize];
            let rule = entry.rule as RuleIndex;
            if entry.counts {
                tally.count(rule);
            }
            if entry.extra != NONE
                && let Some(shut) = self.do_extra(entry, values, tally)
            {
                at.next = match at.root {
                    NONE => shut.step,
                    _ => shut.entry,
                };
            }
            if let Outcome::Verdict(verdict) = entry.outcome {
                return Some((End::Verdict(verdict), rule));
            }
            let outcome = match entry.outcome {
                Outcome::Map(number) => self.look_up_outcome(number, values, rule, tally),
                outcome => outcome,
            };
            match outcome {
                Outcome::Continue | Outcome::Map(_) => {}
                Outcome::Verdict(verdict) => return Some((End::Verdict(verdict), rule)),
                Outcome::Return => at.next = NONE,
                Outcome::Jump(chain) => {
                    jumps.push(at);
                    at = self.enter(chain);
                }
                Outcome::Goto(chain) => at = self.enter(chain),
                Outcome::Nat(number) => return Some((End::Nat(number), rule)),
                Outcome::Reject(told) => return Some((End::Reject(told), rule)),
            }
        }
        None
    }

    /// Not inlined, nor are others below: what they need of `self` would be read for every frame.
    #[inline(never)]
    fn enter(&self, chain: u32) -> Cursor {
        self.chains[chain as usize]
    }

    /// How a rule ends that looks it up, and goes on with the next rule if nothing is found.
    #[inline(never)]
    fn look_up_outcome(
        &self,
        number: u32,
        values: &Values<'_>,
        rule: RuleIndex,
        tally: &mut impl Tally,
    ) -> Outcome {
        let map = &self.maps[number as usize];
        let find = |joint: u32| self.joints[joint as usize].find(values);
        let Some(outcome) = map.find(values, find) else {
            return Outcome::Continue;
        };
        if map.counts {
            tally.count(rule);
        }
        outcome
    }

    /// Does what few entries do; the gate that the frame does not pass, if there is one.
    #[cold]
    fn do_extra(
        &self,
        entry: &Entry,
        values: &Values<'_>,
        tally: &mut impl Tally,
    ) -> Option<&Gate> {
        let extra = &self.extras[entry.extra as usize];
        if let Some(prefix) = &extra.log {
            tally.log(entry.rule as RuleIndex, prefix, values.key, values.way);
        }
        let named = extra.named.iter();
        named.for_each(|object| tally.count(self.first_named + *object as usize));
        extra.marks.iter().for_each(|set| set.run(values));
        if let (Some(number), Some(connection)) = (extra.timeouts, values.connection) {
            let (protocol, timeouts) = &self.timeouts[number as usize];
            connection.set_timeouts(*protocol, timeouts);
        }
        if let (true, Some(connection)) = (extra.untracks, values.connection) {
            connection.untrack();
        }
        // Whichever came first: of what has a zone, the connection is looked up.
        if let (Some(zone), Some(connection)) = (extra.zone, values.connection) {
            connection.set_zone(zone);
        }
        let gate = extra.gate.as_ref()?;
        let passes = match gate.ask {
            Ask::Limit(number) if tally.is_trial() => self.limits[number as usize].would_pass(),
            Ask::Census(number) if tally.is_trial() => self.censuses[number as usize].would_pass(),
            Ask::Quota(number) if tally.is_trial() => self.quotas[number as usize].would_pass(),
            Ask::Use(number) if tally.is_trial() => {
                let asked = &self.uses[number as usize];
                let set = &self.changing[asked.set as usize];
                set.would_match(&asked.layout, asked.what, values, tally.moment())
            }
            Ask::Limit(number) => {
                let moment = tally.moment();
                self.limits[number as usize].passes(moment.now, moment.bytes)
            }
            Ask::Use(number) => {
                let asked = &self.uses[number as usize];
                let set = &self.changing[asked.set as usize];
                set.apply(&asked.layout, asked.what, values, tally.moment())
            }
            Ask::Census(number) => self.censuses[number as usize].passes(values.connection),
            Ask::Quota(number) => self.quotas[number as usize].ask(self.first_named, tally),
            Ask::Fib(number) => {
                self.fibs[number as usize].holds(values.key, values.way, tally.routes())
            }
        };
        (!passes).then_some(gate)
    }

    /// The next entry of the chain that holds; what may follow it is behind.
    #[inline]
    fn find(&self, at: &mut Cursor, values: &Values<'_>) -> Option<u32> {
        if at.root == NONE {
            return self.scan(&mut at.next, values);
        }
        let found = self.search(at.root, at.next, at.end, values);
        at.next = found + 1;
        (found < at.end).then_some(found)
    }

    /// The next entry that holds, by the steps from `next` on.
    #[inline]
    fn scan(&self, next: &mut u32, values: &Values<'_>) -> Option<u32> {
        while let Some(steps) = self.steps.get(*next as usize..) {
            // Up to a check that fails, one step behind the other.
            let failed = steps.iter().find(|step| {
                *next += 1;
                match step.test {
                    Test::Range { slot, low, span } => {
                        values.key.narrow(slot).wrapping_sub(low) > span
                    }
                    Test::Hit(_) | Test::End => true,
                    test => !self.check(test, values),
                }
            })?;
            match failed.test {
                Test::Hit(entry) => return Some(entry),
                Test::End => return None,
                _ => *next = failed.otherwise,
            }
        }
        None
    }

    /// Whether all checks of an entry hold.
    #[inline(never)]
    fn holds(&self, entry: u32, values: &Values<'_>) -> bool {
        let start = self.starts[entry as usize] as usize;
        for step in &self.steps[start..] {
            let held = match step.test {
                Test::Range { slot, low, span } => {
                    values.key.narrow(slot).wrapping_sub(low) <= span
                }
                Test::Hit(_) | Test::End => return true,
                test => self.check(test, values),
            };
            if !held {
                return false;
            }
        }
        false
    }

    /// Whether a check holds.
    #[inline(never)]
    fn check(&self, test: Test, values: &Values<'_>) -> bool {
        match test {
            Test::Range { slot, low, span } | Test::Around { slot, low, span } => {
                values.narrow(slot).wrapping_sub(low) <= span
            }
            Test::Set { slot, set } => self.sets[set as usize].contains(values.narrow(slot)),
            Test::Masked { slot, set, mask } => {
                self.sets[set as usize].contains(values.narrow(slot) & mask)
            }
            Test::Wide { slot, set } => self.wide_sets[set as usize].contains(values.wide(slot)),
            Test::Joint { joint, negated } => {
                let tuples = &self.joints[joint as usize];
                match negated {
                    false => tuples.find(values).is_some(),
                    true => !lacks(tuples.slots(), values) && tuples.find(values).is_none(),
                }
            }
            Test::Hit(_) | Test::End => true,
        }
    }

    /// The first rule of the base chain that holds, by its number.
    pub(crate) fn first(&self, values: &Values<'_>) -> Option<usize> {
        let mut at = self.base;
        let entry = self.find(&mut at, values)?;
        Some(self.entries[entry as usize].rule as usize)
    }

    /// The lowest entry from `next` on that holds, or `end`.
    fn search(&self, root: u32, next: u32, end: u32, values: &Values<'_>) -> u32 {
        let mut best = end;
        let mut pending = ArrayVec::<u32, PENDING_MAX>::new();
        let mut place = root;
        loop {
            let single = place & !ENTRY;
            if single != place {
                if (next..best).contains(&single) && self.holds(single, values) {
                    best = single;
                }
            } else if self.nodes[place as usize].lowest < best {
                match self.nodes[place as usize].kind {
                    Kind::Split { slot, table, rest } => {
                        if rest != NONE {
                            pending.push(rest);
                        }
                        place = self.look_up(slot, table, values);
                        continue;
                    }
                    Kind::Leaf { first, end } => {
                        let leaf = &self.leaves[first as usize..end as usize];
                        let past = leaf.partition_point(|entry| *entry < next);
                        let mut better = leaf[past..].iter().take_while(|entry| **entry < best);
                        if let Some(entry) = better.find(|entry| self.holds(**entry, values)) {
                            best = *entry;
                        }
                    }
                }
            }
            let Some(next) = pending.pop() else {
                return best;
            };
            place = next;
        }
    }

    #[inline]
    fn look_up(&self, slot: Slot, table: u32, values: &Values<'_>) -> u32 {
        if slot.is_narrow() {
            self.tables[table as usize].get(values.narrow_of_frame(slot as u8))
        } else {
            self.wide_tables[table as usize].get(values.key.wide(slot))
        }
    }

    /// Number of rules, and the index of the policy.
    #[inline]
    pub fn len(&self) -> RuleIndex {
        self.rules
    }

    /// Number of counters: of rules, of policies, and of objects that have a name.
    pub fn counters(&self) -> usize {
        self.first_named + self.named.len()
    }

    /// Counters and quotas that have a name: that, with family, table and kind; and their place
    /// among the counters.
    pub fn named(&self) -> impl Iterator<Item = (&str, RuleIndex)> {
        let named = self.named.iter().zip(self.first_named..);
        named.map(|(named, index)| (&*named.name, index))
    }

    /// Quotas that have a name go on from what their counters have: `bytes` says that of a place
    /// among the counters.
    pub fn take_up(&self, bytes: impl Fn(RuleIndex) -> u64) {
        for quota in &self.quotas {
            if let Some(object) = quota.object {
                quota.set_used(bytes(self.first_named + object as usize));
            }
        }
    }

    /// Whether a rule asks for connections: else they need not be tracked.
    #[inline]
    pub fn tracks(&self) -> bool {
        self.tracks
    }

    /// Whether there are sets that rules change: then [`Self::begin`] is to be called.
    pub fn remembers(&self) -> bool {
        !self.changing.is_empty()
    }

    /// Begins the sets that rules change at this time, under a secret key: whoever knows it can
    /// make packets that find no place in them. Elements of the rules `before` stay in sets of
    /// the same name in a table of the same name, if they are of the same types.
    pub fn begin(&mut self, secret: &[u8; 16], now: u64, before: Option<&Self>) {
        for set in &mut self.changing {
            set.begin(secret, now);
            let mut others = before.into_iter().flat_map(|before| &before.changing);
            if let Some(other) = others.find(|other| set.is(other)) {
                set.take_over(other, now);
            }
        }
    }

    /// Whether the policy alone decides.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }

    /// Bytes of heap that the rules take.
    pub fn memory(&self) -> usize {
        let sets = self.sets.iter().map(Set::memory).sum::<usize>();
        let wide_sets = self.wide_sets.iter().map(Set::memory).sum::<usize>();
        let tables = self.tables.iter().map(Table::memory).sum::<usize>();
        let wide_tables = self.wide_tables.iter().map(Table::memory).sum::<usize>();
        size_of_val(&*self.entries)
            + size_of_val(&*self.starts)
            + size_of_val(&*self.steps)
            + size_of_val(&*self.chains)
            + size_of_val(&*self.nodes)
            + size_of_val(&*self.leaves)
            + size_of_val(&*self.sets)
            + size_of_val(&*self.wide_sets)
            + size_of_val(&*self.tables)
            + size_of_val(&*self.wide_tables)
            + size_of_val(&*self.extras)
            + size_of_val(&*self.maps)
            + size_of_val(&*self.limits)
            + size_of_val(&*self.censuses)
            + self.censuses.iter().map(Census::memory).sum::<usize>()
            + size_of_val(&*self.uses)
            + size_of_val(&*self.changing)
            + self.changing.iter().map(Changing::memory).sum::<usize>()
            + size_of_val(&*self.joints)
            + self.maps.iter().map(Map::memory).sum::<usize>()
            + self.joints.iter().map(Tuples::memory).sum::<usize>()
            + size_of_val(&*self.quotas)
            + size_of_val(&*self.timeouts)
            + self
                .named
                .iter()
                .map(|named| size_of_val(named) + named.name.len())
                .sum::<usize>()
            + self
                .fibs
                .iter()
                .map(|fib| size_of_val(fib) + size_of_val(&*fib.held))
                .sum::<usize>()
            + self
                .extras
                .iter()
                .map(|extra| {
                    let log = extra.log.as_ref().map_or(0, |prefix| prefix.len());
                    log + size_of_val(&*extra.marks) + size_of_val(&*extra.named)
                })
                .sum::<usize>()
            + sets
            + wide_sets
            + tables
            + wide_tables
    }
}
