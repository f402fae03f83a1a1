//! Sets that rules change: elements that packets add, refresh and delete, each with a timeout, a
//! limit and a counter of its own if rules say so.
//!
//! All memory is taken when rules are loaded. An element is a record of words in a slab of as many
//! records as the set has elements at most; a hash table under a secret key leads to chains of
//! them. What has expired is none, and its record is free once a sweep has come by: each addition
//! sweeps a few records, and more if the set is full. If it still is, nothing is added, as in the
//! kernel (`nft_dynset_new` of `net/netfilter/nft_dynset.c`), and the statement does not match.
//!
//! One thread changes them. Words are atomic so that rules can be shared, and each is a plain load
//! or store.

use crate::census;
use crate::conntrack::Connection;
use crate::fields::Type;
use crate::ir::Values;
use crate::limit::{Limit, Rate};
use crate::lookup::NONE;
use crate::nft::ast::{ChangeKind, ElementPart};
use crate::rule::Moment;
use crate::tuples::{Layout, WORDS_MAX, Words};
use alloc::boxed::Box;
use core::hash::Hasher;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use siphasher::sip::SipHasher13;

/// Records that an addition sweeps, and one to a full set.
const SWEPT: u32 = 2;
const SWEPT_IF_FULL: u32 = 64;
/// Records of a chain that a look-up visits at most. Under a secret key, no chain is as long.
const CHAIN_MAX: usize = 32;

/// When a record's element expires: this one has no element.
const FREE: u64 = u64::MAX;
/// This one never does.
const NEVER: u64 = 0;

/// What a set is, apart from its elements.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Of its table and its own, as the file has them.
    pub(crate) name: Box<str>,
    pub(crate) kinds: Box<[Type]>,
    /// Nanoseconds that an element stays if nothing else is said, or 0.
    pub(crate) timeout: u64,
    pub(crate) size: u32,
    /// What each element has of its own.
    pub(crate) parts: Box<[ElementPart]>,
    /// Those that the file has.
    pub(crate) elements: Box<[Words]>,
}

/// What a rule does with a set. It matches if there is, or then is, an element for the frame.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// The set's number.
    pub(crate) set: u32,
    pub(crate) layout: Layout,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Asks whether the frame has an element, or has none.
    Asks { negated: bool },
    /// Changes it. The timeout is in nanoseconds; 0 for the set's.
    Changes { kind: ChangeKind, timeout: u64 },
}

/// What is known of an element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) words: Words,
    /// Nanoseconds that it stays, and those that are left of them; 0 if it stays for ever.
    pub(crate) timeout: u64,
    pub(crate) left: u64,
    pub(crate) counted: [u64; 2],
}

/// A set at work.
#[derive(Debug)]
pub(crate) struct Changing {
    pub(crate) shape: Shape,
    hasher: SipHasher13,
    /// The limit of each element, to copy.
    limit: Option<Limit>,
    /// Words of 64 bits of a key, and of a record.
    key: usize,
    stride: usize,
    records: Box<[AtomicU64]>,
    /// The first record of each chain, a power of two of them.
    heads: Box<[AtomicU32]>,
    /// The record behind each: in its chain, or in the list of free ones.
    links: Box<[AtomicU32]>,
    free: AtomicU32,
    /// Where the sweep goes on.
    hand: AtomicU32,
}

/// Places in a record, behind the key.
const EXPIRES: usize = 0;
const TIMEOUT: usize = 1;
const OWN: usize = 2;

/// Words of 64 bits for what an element has of its own.
fn words_of_part(part: &ElementPart) -> usize {
    match part {
        ElementPart::Limit(_) | ElementPart::Counter => 2,
        ElementPart::Count(count) => count.words(),
    }
}

/// The same for all of it.
fn words_of_parts(parts: &[ElementPart]) -> usize {
    parts.iter().map(words_of_part).sum()
}

impl Shape {
    /// Words of 64 bits of a key.
    fn key(&self) -> usize {
        let words: usize = self.kinds.iter().map(|kind| words_of(*kind)).sum();
        words.div_ceil(2)
    }

    /// Bytes that the set takes at work.
    pub(crate) fn memory(&self) -> usize {
        let record = (self.key() + OWN + words_of_parts(&self.parts)) * size_of::<u64>();
        let size = self.size as usize;
        size * (record + size_of::<u32>()) + size.next_power_of_two() * size_of::<u32>()
    }
}

/// Words of 32 bits of a value.
pub(crate) fn words_of(kind: Type) -> usize {
    match u128::BITS - kind.max().leading_zeros() {
        ..=32 => 1,
        33..=64 => 2,
        _ => 4,
    }
}

impl Changing {
    /// Takes the memory of a set, and begins it under no secret key at the time 0.
    pub(crate) fn new(shape: Shape) -> Self {
        let size = shape.size.max(1);
        let key = shape.key();
        let stride = key + OWN + words_of_parts(&shape.parts);
        let words = stride * size as usize;
        let none = |count: u32| (0..count).map(|_| AtomicU32::new(NONE)).collect();
        let mut set = Self {
            hasher: SipHasher13::new(),
            limit: rate_of(&shape.parts).map(Limit::new),
            key,
            stride,
            records: (0..words).map(|_| AtomicU64::new(0)).collect(),
            heads: none(size.next_power_of_two()),
            links: none(size),
            free: AtomicU32::new(0),
            hand: AtomicU32::new(0),
            shape,
        };
        set.anew();
        set
    }

    /// The set as the file has it, from this time on. The key is secret: whoever knows it can make
    /// packets that find no place.
    pub(crate) fn begin(&mut self, secret: &[u8; 16], now: u64) {
        self.hasher = SipHasher13::new_with_key(secret);
        self.heads.iter().for_each(|head| head.store(NONE, Relaxed));
        for record in self.all() {
            let next = record + 1;
            let next = if self.all().contains(&next) {
                next
            } else {
                NONE
            };
            self.links[record as usize].store(next, Relaxed);
            self.own(record, EXPIRES).store(FREE, Relaxed);
        }
        self.free.store(0, Relaxed);
        self.hand.store(0, Relaxed);
        for element in &self.shape.elements {
            if self.find(element, now).is_none() {
                self.insert(element, self.shape.timeout, now, None);
            }
        }
    }

    /// As it was when it was made.
    pub(crate) fn anew(&mut self) {
        self.begin(&[0; 16], 0);
    }

    /// Takes the elements of another set over that are left at this time, as far as there is room.
    /// What they have of their own goes on if it is the same.
    pub(crate) fn take_over(&self, other: &Self, now: u64) {
        let same = self.shape.parts == other.shape.parts;
        for record in other.all() {
            if !other.is_left(record, now) {
                continue;
            }
            let words = other.words(record);
            let found = self.find(&words, now);
            let Some(mine) = found.or_else(|| self.insert(&words, 0, now, None)) else {
                continue;
            };
            let own = match same {
                true => words_of_parts(&self.shape.parts),
                false => 0,
            };
            for place in 0..OWN + own {
                let value = other.own(record, place).load(Relaxed);
                self.own(mine, place).store(value, Relaxed);
            }
        }
    }

    /// How many records there are.
    pub(crate) fn places(&self) -> u32 {
        self.links.len() as u32
    }

    /// What is known of a record at this time, unless it has no element.
    pub(crate) fn standing(&self, record: u32, now: u64) -> Option<Standing> {
        if !self.is_left(record, now) {
            return None;
        }
        let expires = self.own(record, EXPIRES).load(Relaxed);
        let mut standing = Standing {
            words: self.words(record),
            timeout: 0,
            left: 0,
            counted: [0; 2],
        };
        if expires != NEVER {
            standing.timeout = self.own(record, TIMEOUT).load(Relaxed);
            standing.left = expires - now;
        }
        let mut place = OWN;
        for part in &self.shape.parts {
            if *part == ElementPart::Counter {
                standing.counted = [0, 1].map(|at| self.own(record, place + at).load(Relaxed));
            }
            place += words_of_part(part);
        }
        Some(standing)
    }

    /// Puts an element in for so long, or for as long as the set says; whether there was room. The
    /// time of one that is there begins anew, unless it is the same one (`nft_add_set_elem`).
    pub(crate) fn put(&self, words: &Words, timeout: u64, now: u64) -> bool {
        let timeout = match timeout {
            0 => self.shape.timeout,
            timeout => timeout,
        };
        if let Some(record) = self.find(words, now) {
            if self.own(record, TIMEOUT).load(Relaxed) == timeout {
                return true;
            }
            self.own(record, EXPIRES)
                .store(end_of(timeout, now), Relaxed);
            self.own(record, TIMEOUT).store(timeout, Relaxed);
            return true;
        }
        self.insert(words, timeout, now, None).is_some()
    }

    /// Takes an element out; whether it was there.
    pub(crate) fn take_out(&self, words: &Words, now: u64) -> bool {
        let found = self.find(words, now);
        if let Some(record) = found {
            self.remove(record);
        }
        found.is_some()
    }

    /// Whether this set is the same one, of other rules.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.shape.name == other.shape.name && self.shape.kinds == other.shape.kinds
    }

    /// Does what a rule says; whether the statement matches.
    #[inline(never)]
    pub(crate) fn apply(
        &self,
        layout: &Layout,
        what: What,
        values: &Values<'_>,
        moment: Moment,
    ) -> bool {
        let Some(words) = layout.read_whole(values) else {
            return false;
        };
        let found = self.find(&words, moment.now);
        let (kind, timeout) = match what {
            // A look-up is counted and limited as well (`nft_lookup_eval`).
            What::Asks { negated: false } => {
                return found.is_some_and(|record| self.ask_parts(record, values, moment));
            }
            What::Asks { negated: true } => return found.is_none(),
            What::Changes { kind, timeout } => (kind, timeout),
        };
        let own = if timeout == 0 {
            self.shape.timeout
        } else {
            timeout
        };
        let record = match (kind, found) {
            (ChangeKind::Delete, found) => {
                if let Some(record) = found {
                    self.remove(record);
                }
                return true;
            }
            (ChangeKind::Update, Some(record)) => {
                // One that was added to stay does stay, and one that was given a time keeps it
                // where neither rule nor set has one.
                if own != 0 && self.own(record, EXPIRES).load(Relaxed) != NEVER {
                    self.own(record, EXPIRES)
                        .store(end_of(own, moment.now), Relaxed);
                }
                record
            }
            (ChangeKind::Add, Some(record)) => record,
            (ChangeKind::Add | ChangeKind::Update, None) => {
                match self.insert(&words, own, moment.now, values.connection) {
                    Some(record) => record,
                    None => return false,
                }
            }
        };
        self.ask_parts(record, values, moment)
    }

    /// Whether a statement would match, if what elements have of their own is not exceeded and the
    /// set has room.
    pub(crate) fn would_match(
        &self,
        layout: &Layout,
        what: What,
        values: &Values<'_>,
        moment: Moment,
    ) -> bool {
        let Some(words) = layout.read_whole(values) else {
            return false;
        };
        let passes = self.shape.parts.iter().all(|part| match part {
            ElementPart::Limit(rate) => !rate.over,
            ElementPart::Counter => true,
            ElementPart::Count(count) => count.would_pass(),
        });
        match what {
            What::Asks { negated } => {
                let found = self.find(&words, moment.now).is_some();
                if negated { !found } else { found && passes }
            }
            What::Changes { kind, .. } => kind == ChangeKind::Delete || passes,
        }
    }

    /// Whether the packet passes what an element has of its own, up to the first that it does not.
    fn ask_parts(&self, record: u32, values: &Values<'_>, moment: Moment) -> bool {
        let mut place = OWN;
        for part in &self.shape.parts {
            let (first, second) = (self.own(record, place), self.own(record, place + 1));
            match (part, &self.limit) {
                (ElementPart::Limit(_), Some(limit)) => {
                    if !limit.passes_from(first, second, moment.now, moment.bytes) {
                        return false;
                    }
                }
                (ElementPart::Limit(_), None) => {}
                (ElementPart::Counter, _) => {
                    first.store(first.load(Relaxed).wrapping_add(1), Relaxed);
                    let bytes = second.load(Relaxed).wrapping_add(moment.bytes);
                    second.store(bytes, Relaxed);
                }
                (ElementPart::Count(count), _) => {
                    let words = self.words_at(record, place, count.words());
                    if !count.passes(words, values.connection) {
                        return false;
                    }
                }
            }
            place += words_of_part(part);
        }
        true
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.shape.memory() + size_of_val(&*self.shape.elements)
    }

    fn all(&self) -> core::ops::Range<u32> {
        0..self.links.len() as u32
    }

    /// A word of a record, behind its key.
    #[inline]
    fn own(&self, record: u32, place: usize) -> &AtomicU64 {
        &self.records[record as usize * self.stride + self.key + place]
    }

    /// Words of a record, behind its key.
    fn words_at(&self, record: u32, place: usize, count: usize) -> &[AtomicU64] {
        let start = record as usize * self.stride + self.key + place;
        &self.records[start..start + count]
    }

    /// Whether elements count connections.
    pub(crate) fn counts_connections(&self) -> bool {
        let mut parts = self.shape.parts.iter();
        parts.any(|part| matches!(part, ElementPart::Count(_)))
    }

    fn is_left(&self, record: u32, now: u64) -> bool {
        let expires = self.own(record, EXPIRES).load(Relaxed);
        expires == NEVER || expires != FREE && now < expires
    }

    /// The key of a record.
    fn words(&self, record: u32) -> Words {
        let start = record as usize * self.stride;
        let mut words = [0; WORDS_MAX];
        let stored = self.records[start..start + self.key].iter();
        for (pair, stored) in words.chunks_exact_mut(2).zip(stored) {
            let stored = stored.load(Relaxed);
            pair.copy_from_slice(&[stored as u32, (stored >> 32) as u32]);
        }
        words
    }

    /// The chain of a key.
    #[inline]
    fn head(&self, words: &Words) -> &AtomicU32 {
        let mut hasher = self.hasher;
        for pair in words.chunks_exact(2).take(self.key) {
            hasher.write_u64(joined(pair));
        }
        let mask = self.heads.len() as u64 - 1;
        &self.heads[(hasher.finish() & mask) as usize]
    }

    #[inline]
    fn has(&self, record: u32, words: &Words) -> bool {
        let start = record as usize * self.stride;
        let stored = self.records[start..start + self.key].iter();
        let mut pairs = stored.zip(words.chunks_exact(2));
        pairs.all(|(stored, pair)| stored.load(Relaxed) == joined(pair))
    }

    /// The element of a key, unless it has expired.
    #[inline]
    fn find(&self, words: &Words, now: u64) -> Option<u32> {
        let mut record = self.head(words).load(Relaxed);
        for _ in 0..CHAIN_MAX {
            if record == NONE {
                return None;
            }
            if self.has(record, words) && self.is_left(record, now) {
                return Some(record);
            }
            record = self.links[record as usize].load(Relaxed);
        }
        None
    }

    /// A new element, if there is room.
    fn insert(
        &self,
        words: &Words,
        timeout: u64,
        now: u64,
        connection: Option<&Connection<'_>>,
    ) -> Option<u32> {
        self.sweep(SWEPT, now, connection);
        if self.free.load(Relaxed) == NONE {
            self.sweep(SWEPT_IF_FULL, now, connection);
        }
        let record = self.free.load(Relaxed);
        let link = self.links.get(record as usize)?;
        let head = self.head(words);
        if self.length(head) >= CHAIN_MAX {
            return None;
        }
        self.free.store(link.load(Relaxed), Relaxed);
        link.store(head.load(Relaxed), Relaxed);
        head.store(record, Relaxed);
        let start = record as usize * self.stride;
        let stored = self.records[start..start + self.key].iter();
        for (stored, pair) in stored.zip(words.chunks_exact(2)) {
            stored.store(joined(pair), Relaxed);
        }
        self.own(record, EXPIRES)
            .store(end_of(timeout, now), Relaxed);
        self.own(record, TIMEOUT).store(timeout, Relaxed);
        let mut place = OWN;
        for part in &self.shape.parts {
            let (first, second) = match (part, &self.limit) {
                (ElementPart::Limit(_), Some(limit)) => (limit.most(), now),
                _ => (0, 0),
            };
            self.own(record, place).store(first, Relaxed);
            self.own(record, place + 1).store(second, Relaxed);
            place += words_of_part(part);
        }
        Some(record)
    }

    fn length(&self, head: &AtomicU32) -> usize {
        let mut record = head.load(Relaxed);
        let mut length = 0;
        while record != NONE && length < CHAIN_MAX {
            record = self.links[record as usize].load(Relaxed);
            length += 1;
        }
        length
    }

    /// Frees so many of the next records whose elements have expired.
    fn sweep(&self, count: u32, now: u64, connection: Option<&Connection<'_>>) {
        let mut hand = self.hand.load(Relaxed);
        let mut looks = census::LOOKED_AT;
        for _ in 0..count {
            let expires = self.own(hand, EXPIRES).load(Relaxed);
            let has_expired = expires != NEVER && expires <= now;
            if expires != FREE && (has_expired || self.is_idle(hand, connection, &mut looks)) {
                self.remove(hand);
            }
            hand = (hand + 1) % self.links.len() as u32;
        }
        self.hand.store(hand, Relaxed);
    }

    /// Whether an element counts connections, and none is left, as far as so many looks say.
    fn is_idle(&self, record: u32, connection: Option<&Connection<'_>>, looks: &mut usize) -> bool {
        let Some(connection) = connection else {
            return false;
        };
        let mut place = OWN;
        for part in &self.shape.parts {
            let words = words_of_part(part);
            if let ElementPart::Count(_) = part {
                let words = self.words_at(record, place, words);
                return census::is_idle(words, connection, looks);
            }
            place += words;
        }
        false
    }

    /// Takes an element out of its chain.
    fn remove(&self, record: u32) {
        let mut place = self.head(&self.words(record));
        for _ in 0..CHAIN_MAX {
            let next = place.load(Relaxed);
            if next == NONE {
                return;
            }
            let link = &self.links[next as usize];
            if next == record {
                place.store(link.load(Relaxed), Relaxed);
                link.store(self.free.load(Relaxed), Relaxed);
                self.free.store(record, Relaxed);
                self.own(record, EXPIRES).store(FREE, Relaxed);
                return;
            }
            place = link;
        }
    }
}

/// When what stays for so long ends, that begins now.
fn end_of(timeout: u64, now: u64) -> u64 {
    match timeout {
        0 => NEVER,
        timeout => now.saturating_add(timeout).clamp(1, FREE - 1),
    }
}

/// Two words as one.
#[inline]
fn joined(pair: &[u32]) -> u64 {
    pair.iter()
        .rev()
        .fold(0, |joined, word| joined << 32 | u64::from(*word))
}

/// The limit that these parts have.
pub(crate) fn rate_of(parts: &[ElementPart]) -> Option<Rate> {
    parts.iter().find_map(|part| match part {
        ElementPart::Limit(rate) => Some(*rate),
        ElementPart::Counter | ElementPart::Count(_) => None,
    })
}

#[cfg(test)]
mod tests;
