//! Rules with every name resolved: what [`crate::interpret`] walks and [`crate::compile`] turns
//! into a decision structure.
//!
//! Each condition is one field and the set of values it may have; what nft implies (`ip saddr` asks
//! for IPv4) is a condition of its own. A condition on a field that the frame lacks never holds,
//! whatever it asks for.

use crate::census::Census;
use crate::changing::{Changing, Use};
use crate::conntrack::{Connection, State, Timeouts, Zone};
use crate::fib::Fib;
use crate::fields::{ABSENT, NARROW_OF_FRAME, Slot};
use crate::key::Key;
use crate::limit::Limit;
use crate::mark::SetMark;
use crate::nft::ast::{ChainKind, Family, Hook};
use crate::quota::Quota;
use crate::router::Rejection;
use crate::rule::{RuleIndex, Verdict, Way};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;

/// Jumps that may be open at once: NFT_JUMP_STACK_SIZE of the kernel.
pub(crate) const JUMPS_MAX: usize = 16;

/// What rules look at: a frame, its way, and its connection.
pub(crate) struct Values<'a> {
    pub(crate) key: &'a Key,
    pub(crate) way: Way,
    /// None if the frame is not tracked.
    pub(crate) connection: Option<&'a Connection<'a>>,
    /// `meta mark`.
    pub(crate) mark: &'a Cell<u32>,
}

impl Values<'_> {
    /// The value of a narrow field that is none of the connection's, by its number.
    #[inline]
    pub(crate) fn narrow_of_frame(&self, slot: u8) -> u32 {
        match slot {
            Self::INPUT => self.way.from.into(),
            Self::OUTPUT => self.way.to.into(),
            _ => self.key.narrow(slot),
        }
    }

    /// The value of a narrow field, by its number.
    #[inline]
    pub(crate) fn narrow(&self, slot: u8) -> u32 {
        match slot {
            Self::STATE => self.state() as u32,
            _ if usize::from(slot) < NARROW_OF_FRAME => self.narrow_of_frame(slot),
            _ => self.of_no_key(slot),
        }
    }

    #[inline(always)]
    pub(crate) fn state(&self) -> State {
        self.connection.map_or(State::Untracked, Connection::state)
    }

    #[cold]
    fn of_no_key(&self, slot: u8) -> u32 {
        let slot = Slot::ALL[usize::from(slot)];
        if slot == Slot::Mark {
            return self.mark.get();
        }
        self.connection
            .map_or(ABSENT, |connection| connection.narrow(slot))
    }

    /// The value of a wide field.
    #[inline]
    pub(crate) fn wide(&self, slot: Slot) -> u128 {
        match slot.is_of_connection() {
            true => self
                .connection
                .map_or(0, |connection| connection.wide(slot)),
            false => self.key.wide(slot),
        }
    }

    const INPUT: u8 = Slot::Input as u8;
    const OUTPUT: u8 = Slot::Output as u8;
    const STATE: u8 = Slot::CtState as u8;

    /// The value of any field.
    pub(crate) fn get(&self, slot: Slot) -> u128 {
        if slot.is_narrow() {
            self.narrow(slot as u8).into()
        } else {
            self.wide(slot)
        }
    }
}

/// Values, as ascending intervals with both ends included, of which no two touch.
pub(crate) type Intervals = Box<[(u128, u128)]>;

/// Sorts intervals and joins those that overlap or touch.
pub(crate) fn normal(mut intervals: Vec<(u128, u128)>) -> Intervals {
    intervals.sort_unstable();
    intervals.dedup_by(|next, last| {
        let joined = last.1.checked_add(1).is_none_or(|behind| next.0 <= behind);
        if joined {
            last.1 = last.1.max(next.1);
        }
        joined
    });
    intervals.into()
}

/// All values from 0 to `max` that are not in `intervals`.
pub(crate) fn complement(intervals: &[(u128, u128)], max: u128) -> Intervals {
    let mut out = Vec::with_capacity(intervals.len() + 1);
    let mut next = Some(0);
    for &(low, high) in intervals {
        if let Some(start) = next.filter(|start| *start < low) {
            out.push((start, low - 1));
        }
        next = high.checked_add(1);
    }
    if let Some(start) = next.filter(|start| *start <= max) {
        out.push((start, max));
    }
    out.into()
}

/// Tables whose names are resolved.
#[derive(Debug, Default)]
pub struct Program {
    /// Base chains are among them.
    pub(crate) chains: Vec<Chain>,
    /// Of all chains, in the order of the file.
    pub(crate) rules: Vec<Rule>,
    /// What conditions refer to by number.
    pub(crate) sets: Vec<Intervals>,
    /// In the order of the file. A bridge has one.
    pub(crate) bases: Vec<Base>,
    /// What outcomes refer to by number. A bridge has no translations.
    pub(crate) nats: Vec<Nat>,
    pub(crate) maps: Vec<Map>,
    /// What statements and maps refer to by number.
    pub(crate) joints: Vec<Joint>,
    /// What statements refer to by number.
    pub(crate) limits: Vec<Limit>,
    pub(crate) censuses: Vec<Census>,
    pub(crate) uses: Vec<Use>,
    /// What uses refer to by number.
    pub(crate) changing: Vec<Changing>,
    pub(crate) fibs: Vec<Fib>,
    pub(crate) quotas: Vec<Quota>,
    /// What statements refer to by number: the protocol, and how long its connections stay.
    pub(crate) timeouts: Vec<(u8, Timeouts)>,
    /// Objects that are counted, in the order of the file.
    pub(crate) named: Vec<Named>,
}

/// A counter or a quota that has a name. Its counter stands behind those of rules and policies.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Its family, table, kind and name.
    pub(crate) name: Box<str>,
}

/// A chain at a hook.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    /// Its number.
    pub(crate) chain: usize,
    /// What becomes of packets that no rule decides on.
    pub(crate) policy: Verdict,
    pub(crate) family: Family,
    pub(crate) kind: ChainKind,
    pub(crate) hook: Hook,
    pub(crate) priority: i32,
}

/// Rules that run one after the other.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) rules: core::ops::Range<RuleIndex>,
}

/// Statements that run from left to right until one does not match. One of them is
/// [`Statement::Count`].
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) statements: Box<[Statement]>,
}

#[derive(Debug)]
pub(crate) enum Statement {
    Match(Condition),
    /// What several fields have together is in a set of tuples, by its number; or in none of them.
    Joint {
        joint: u32,
        negated: bool,
    },
    Count,
    /// A counter that has a name counts.
    CountNamed(u32),
    Log(Box<str>),
    /// The frame must pass this limit.
    Limit(u32),
    /// So many connections there must be.
    Census(u32),
    /// Looks a set up that rules change, or changes it: what it says must hold.
    Use(u32),
    /// The frame must pass this quota.
    Quota(u32),
    /// A router's routes must say this.
    Fib(u32),
    /// The packet or its connection gets a mark. No condition on that mark stands before it if one
    /// follows.
    Mark(SetMark),
    /// The connection has these timeouts, if it begins.
    Timeout(u32),
    /// The packet has no connection, unless it has one already. No condition follows.
    Untrack,
    /// The packet is in this zone, unless it has a connection or a zone already. No condition
    /// follows.
    Zone(Zone),
    /// The last one, if there is one.
    End(Outcome),
}

/// The field must have one of the set's values; of a mark, its bits under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Condition {
    pub(crate) slot: Slot,
    pub(crate) set: u32,
    /// Of a mark; all bits otherwise.
    pub(crate) mask: u32,
}

impl Condition {
    /// Without a mask.
    pub(crate) const fn new(slot: Slot, set: u32) -> Self {
        Self {
            slot,
            set,
            mask: u32::MAX,
        }
    }

    /// What it looks at.
    pub(crate) fn read(&self, values: &Values<'_>) -> u128 {
        match self.mask {
            u32::MAX => values.get(self.slot),
            mask => values.get(self.slot) & u128::from(mask),
        }
    }
}

/// How a rule that matched ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// With the next rule.
    Continue,
    Verdict(Verdict),
    /// Behind the last jump, or with the policy.
    Return,
    /// To a chain, and back behind this rule.
    Jump(u32),
    /// To a chain, and back to where this chain goes back to.
    Goto(u32),
    /// With this translation of the connection.
    Nat(u32),
    /// As this map says. None of its outcomes is another map.
    Map(u32),
    /// The packet goes no further, and its sender is told.
    Reject(Rejection),
}

/// How rules end by what a field has, or several.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) keys: Keys,
    /// Whether the rule counts what is found, for it has no `counter`.
    pub(crate) counts: bool,
}

/// What is looked up in a map.
#[derive(Debug)]
pub(crate) enum Keys {
    /// A field, among ascending intervals of which no two overlap.
    One(Slot, Box<[(u128, u128, Outcome)]>),
    /// Several fields, among tuples by their number, and how rules end by each of those.
    Joint(u32, Box<[Outcome]>),
}

impl Map {
    /// How the rule ends; none if the field has another value, as if a condition did not hold.
    /// `find` says which tuple of a set holds.
    pub(crate) fn find(
        &self,
        values: &Values<'_>,
        find: impl FnOnce(u32) -> Option<usize>,
    ) -> Option<Outcome> {
        let (slot, entries) = match &self.keys {
            Keys::One(slot, entries) => (slot, entries),
            Keys::Joint(joint, outcomes) => return outcomes.get(find(*joint)?).copied(),
        };
        let value = values.get(*slot);
        let behind = entries.partition_point(|(low, ..)| *low <= value);
        let (_, high, outcome) = entries.get(behind.checked_sub(1)?)?;
        (value <= *high).then_some(*outcome)
    }

    /// The field that is looked up alone.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self.keys {
            Keys::One(slot, _) => Some(slot),
            Keys::Joint(..) => None,
        }
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        match &self.keys {
            Keys::One(_, entries) => size_of_val(&**entries),
            Keys::Joint(_, outcomes) => size_of_val(&**outcomes),
        }
    }
}

/// Tuples of intervals, one for each of several fields. Of those that hold, the first one counts.
#[derive(Debug)]
pub(crate) struct Joint {
    /// Of frames, not of connections. There are at least two.
    pub(crate) slots: Box<[Slot]>,
    /// One tuple behind the other.
    pub(crate) bounds: Box<[(u128, u128)]>,
}

impl Joint {
    /// The number of the first tuple that holds.
    pub(crate) fn find(&self, values: &Values<'_>) -> Option<usize> {
        let mut tuples = self.bounds.chunks_exact(self.slots.len().max(1));
        tuples.position(|tuple| {
            let mut fields = self.slots.iter().zip(tuple);
            fields.all(|(slot, (low, high))| (low..=high).contains(&&values.get(*slot)))
        })
    }
}

/// Whether a frame lacks one of these fields. One of 32 bits it has, for it is never asked for
/// without a condition that says so.
pub(crate) fn lacks(slots: &[Slot], values: &Values<'_>) -> bool {
    let mut narrow = slots.iter().filter(|slot| slot.is_narrow());
    narrow.any(|slot| values.get(*slot) > Slot::max(*slot))
}

/// A translation of one end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nat {
    pub(crate) address: NatAddress,
    /// Lowest and highest.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) random: bool,
    pub(crate) persistent: bool,
}

/// The address that an end gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NatAddress {
    /// The one that it has.
    Kept,
    /// One from the first to the second, as numbers.
    Given(u128, u128),
    /// The one of this network, from the first address to the last, that ends as its own does.
    Network(u128, u128),
    /// That of the port that the packet came in by or goes out by.
    OfPort,
}

impl Program {
    /// Number of rules, and the index of the policy.
    pub fn len(&self) -> RuleIndex {
        self.rules.len()
    }

    /// The place among the counters of the first object that has a name.
    pub(crate) fn first_named(&self) -> RuleIndex {
        self.rules.len() + self.bases.len()
    }

    /// Whether a rule asks for connections.
    pub fn tracks(&self) -> bool {
        let mut statements = self.rules.iter().flat_map(|rule| &rule.statements);
        let mut maps = self.maps.iter();
        maps.any(|map| map.slot().is_some_and(Slot::is_of_connection))
            || statements.any(|statement| match statement {
                Statement::Match(condition) => condition.slot.is_of_connection(),
                Statement::Mark(set) => set.asks_connection(),
                Statement::Census(_) | Statement::Timeout(_) | Statement::Zone(_) => true,
                Statement::Use(number) => {
                    let set = self.uses[*number as usize].set;
                    self.changing[set as usize].counts_connections()
                }
                Statement::Joint { .. }
                | Statement::Count
                | Statement::CountNamed(_)
                | Statement::Quota(_)
                | Statement::Log(_)
                | Statement::Limit(_)
                | Statement::Fib(_)
                | Statement::Untrack
                | Statement::End(_) => false,
            })
    }

    /// Whether the policy alone decides.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn intervals_are_joined_and_turned_over() {
        let joined = normal(vec![(5, 9), (0, 2), (10, 12), (3, 3), (20, u128::MAX)]);
        assert_eq!(*joined, [(0, 3), (5, 12), (20, u128::MAX)]);
        assert_eq!(*complement(&joined, u128::MAX), [(4, 4), (13, 19)]);
        assert_eq!(*complement(&[], 255), [(0, 255)]);
        assert_eq!(*complement(&[(0, 255)], 255), []);
        assert_eq!(*complement(&[(7, 7)], 255), [(0, 6), (8, 255)]);
    }
}
