//! Sets of tuples: which of them the fields of a frame are.
//!
//! Tuples of single values are hashed. Others become rules of their own, one for each tuple, and
//! the decision structure finds the first one that holds ([`crate::ruleset`]).

use crate::fields::Slot;
use crate::ir::{
    Base, Chain, Condition, Joint, Outcome, Program, Rule, Statement, Values, lacks, normal,
};
use crate::lookup::NONE;
use crate::nft::ast::{ChainKind, Family, Hook};
use crate::rule::Verdict;
use crate::ruleset::RuleSet;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Words of a tuple at most: what a kernel has room for (NFT_DATA_VALUE_MAXLEN).
pub(crate) const WORDS_MAX: usize = 16;
/// Slots of the hash table that a look-up visits at most. Tuples that need more are no hash table.
const PROBES_MAX: usize = 128;
/// 2^64 divided by the golden ratio, odd.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A tuple of values as words, the rest of them 0.
pub(crate) type Words = [u32; WORDS_MAX];

/// Fields whose values are a tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    slots: Box<[Slot]>,
    words: usize,
}

impl Layout {
    pub(crate) fn new(slots: Box<[Slot]>) -> Self {
        let words = slots.iter().map(|slot| words_of(*slot)).sum();
        Self { slots, words }
    }

    /// Number of words, of which a tuple has at most [`WORDS_MAX`].
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// The values that a frame has; none if it lacks one.
    #[inline]
    pub(crate) fn read(&self, values: &Values<'_>) -> Option<Words> {
        let mut words = [0; WORDS_MAX];
        let mut free = words.iter_mut();
        for slot in &self.slots {
            if slot.is_narrow() {
                *free.next()? = values.narrow(*slot as u8);
            } else {
                let value = values.wide(*slot);
                for part in 0..words_of(*slot) {
                    *free.next()? = (value >> (32 * part)) as u32;
                }
            }
        }
        Some(words)
    }

    /// The same; none as well if the frame has another number of some field than it holds.
    #[inline]
    pub(crate) fn read_whole(&self, values: &Values<'_>) -> Option<Words> {
        match lacks(&self.slots, values) {
            true => None,
            false => self.read(values),
        }
    }

    /// The same of values that stand in a file.
    pub(crate) fn of(&self, values: impl Iterator<Item = u128>) -> Words {
        let mut words = [0; WORDS_MAX];
        let mut free = words.iter_mut();
        for (slot, value) in self.slots.iter().zip(values) {
            for (part, word) in (0..words_of(*slot)).zip(&mut free) {
                *word = (value >> (32 * part)) as u32;
            }
        }
        words
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.slots)
    }
}

/// Words of a value: the narrower of two fields in one slot has as many.
const fn words_of(slot: Slot) -> usize {
    match slot {
        slot if slot.is_narrow() => 1,
        Slot::EtherSource | Slot::EtherDestination => 2,
        _ => 4,
    }
}

/// Tuples, to look up.
#[derive(Debug)]
pub(crate) struct Tuples {
    layout: Layout,
    index: Index,
}

#[derive(Debug)]
enum Index {
    Hashed(Hashed),
    /// A rule for each tuple, in order.
    Rules(Box<RuleSet>),
}

/// Single tuples, each in a slot.
#[derive(Debug)]
struct Hashed {
    /// The tuple in each slot.
    keys: Box<[u32]>,
    /// Its number, or [`NONE`].
    numbers: Box<[u32]>,
    /// Bits of a hash that are no slot.
    shift: u32,
}

impl Tuples {
    pub(crate) fn new(joint: &Joint) -> Self {
        let layout = Layout::new(joint.slots.clone());
        let single = joint.bounds.iter().all(|(low, high)| low == high);
        let hashed = match single {
            true => Hashed::new(&layout, joint),
            false => None,
        };
        let index = match hashed {
            Some(hashed) => Index::Hashed(hashed),
            None => Index::Rules(Box::new(rules(joint).compile())),
        };
        Self { layout, index }
    }

    /// The number of the first tuple that the frame has.
    #[inline(never)]
    pub(crate) fn find(&self, values: &Values<'_>) -> Option<usize> {
        match &self.index {
            Index::Hashed(hashed) => {
                let words = self.layout.words;
                hashed.find(self.layout.read(values)?.get(..words)?)
            }
            Index::Rules(rules) => rules.first(values),
        }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        self.layout.slots()
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        let index = match &self.index {
            Index::Hashed(hashed) => size_of_val(&*hashed.keys) + size_of_val(&*hashed.numbers),
            Index::Rules(rules) => size_of::<RuleSet>() + rules.memory(),
        };
        self.layout.memory() + index
    }
}

impl Hashed {
    /// Puts tuples into slots, at most half of them; none if that needs too many probes. Of
    /// equal ones, the first one counts.
    fn new(layout: &Layout, joint: &Joint) -> Option<Self> {
        let words = layout.words;
        let fields = layout.slots.len().max(1);
        let count = joint.bounds.len() / fields;
        let slots = (count * 2).next_power_of_two().max(2);
        let mut hashed = Self {
            keys: vec![0; (slots + PROBES_MAX) * words].into(),
            numbers: vec![NONE; slots + PROBES_MAX].into(),
            shift: u64::BITS - slots.ilog2(),
        };
        for (number, tuple) in (0..).zip(joint.bounds.chunks_exact(fields)) {
            let key = layout.of(tuple.iter().map(|(low, _)| *low));
            let key = key.get(..words)?;
            if hashed.find(key).is_some() {
                continue;
            }
            let home = hashed.home(key);
            let mut near = home..home + PROBES_MAX;
            let free = near.find(|slot| hashed.numbers[*slot] == NONE)?;
            hashed.numbers[free] = number;
            hashed.keys[free * words..][..words].copy_from_slice(key);
        }
        Some(hashed)
    }

    #[inline]
    fn home(&self, key: &[u32]) -> usize {
        let hash = key.iter().fold(0u64, |hash, word| {
            (hash.rotate_left(29) ^ u64::from(*word)).wrapping_mul(MULTIPLIER)
        });
        (hash >> self.shift) as usize
    }

    #[inline]
    fn find(&self, key: &[u32]) -> Option<usize> {
        let home = self.home(key);
        for slot in home..home + PROBES_MAX {
            let number = self.numbers[slot];
            if number == NONE {
                return None;
            }
            if self.keys[slot * key.len()..][..key.len()] == *key {
                return Some(number as usize);
            }
        }
        None
    }
}

/// A rule for each tuple.
fn rules(joint: &Joint) -> Program {
    let mut sets = Vec::new();
    let mut known = BTreeMap::new();
    let mut number = |bounds: (u128, u128)| {
        *known.entry(bounds).or_insert_with(|| {
            sets.push(normal(vec![bounds]));
            sets.len() as u32 - 1
        })
    };
    let accepts = Outcome::Verdict(Verdict::Accept);
    let rules: Vec<Rule> = joint
        .bounds
        .chunks_exact(joint.slots.len().max(1))
        .map(|tuple| {
            let fields = joint.slots.iter().zip(tuple);
            let conditions = fields.map(|(slot, bounds)| {
                let (slot, set) = (*slot, number(*bounds));
                Statement::Match(Condition::new(slot, set))
            });
            let end = core::iter::once(Statement::End(accepts));
            Rule {
                statements: conditions.chain(end).collect(),
            }
        })
        .collect();
    let base = Base {
        chain: 0,
        policy: Verdict::Drop,
        family: Family::Bridge,
        kind: ChainKind::Filter,
        hook: Hook::Forward,
        priority: 0,
    };
    Program {
        chains: vec![Chain {
            rules: 0..rules.len(),
        }],
        rules,
        sets,
        bases: vec![base],
        ..Program::default()
    }
}
