//! Packets in parts: the first part has the transport header, so rules judge that one, and the
//! others share its fate.
//!
//! Nothing is held back or put together. A part that comes before the first one is not judged by
//! anything, and is dropped: its sender repeats the whole packet, which then comes in order.

use super::timeout::Ticks;
use crate::key::{Addresses, Key};
use alloc::boxed::Box;
use alloc::vec;
use core::hash::{Hash, Hasher};
use siphasher::sip::SipHasher13;

/// Seconds that the fate of a packet is remembered: as long as Linux waits for its parts
/// (`ipfrag_time`).
const SECONDS: u32 = 30;
/// Sets of packets, and packets of a set. A packet takes the place of the oldest one of its set.
const SETS: usize = 128;
const WAYS: usize = 4;

/// Fates of packets whose other parts may come.
#[derive(Debug)]
pub(crate) struct Fragments<F> {
    /// On the heap: whoever moves a table does not move them.
    sets: Box<[[Entry<F>; WAYS]]>,
    hasher: SipHasher13,
}

/// A packet and what became of its first part. That the hashes of two packets are the same cannot
/// be brought about, for the key is secret, and is no chance to speak of.
#[derive(Clone, Copy, Debug)]
struct Entry<F> {
    name: u64,
    until: Ticks,
    fate: F,
}

impl<F: Copy> Fragments<F> {
    /// Where none is known yet; `nothing` stands for what is not known.
    pub(crate) fn new(key: &[u8; 16], nothing: F) -> Self {
        let none = Entry {
            name: 0,
            until: Ticks(0),
            fate: nothing,
        };
        Self {
            sets: vec![[none; WAYS]; SETS].into(),
            hasher: SipHasher13::new_with_key(key),
        }
    }

    /// Forgets all fates: there are other rules now.
    pub(crate) fn clear(&mut self) {
        for entry in self.sets.as_flattened_mut() {
            entry.until = Ticks(0);
        }
    }

    /// What the parts of a packet have in common (RFC 791, 3.2; RFC 8200, 4.5).
    pub(crate) fn name(&self, key: &Key) -> u64 {
        let fields = key.fields();
        let mut hasher = self.hasher;
        match fields.addresses {
            Some(Addresses::V4 {
                source,
                destination,
            }) => (source, destination, fields.protocol).hash(&mut hasher),
            Some(Addresses::V6 {
                source,
                destination,
            }) => (source, destination).hash(&mut hasher),
            None => {}
        }
        (fields.vlan, key.identification()).hash(&mut hasher);
        hasher.finish()
    }

    /// What became of the first part of this packet, if it came. `now` is in nanoseconds.
    pub(crate) fn find(&self, name: u64, now: u64) -> Option<F> {
        let set = &self.sets[name as usize % SETS];
        let mut known = set.iter();
        let found = known.find(|entry| entry.name == name && entry.until > Ticks::of(now))?;
        Some(found.fate)
    }

    /// Remembers what became of the first part. The fate of a packet whose first part comes twice
    /// is that of the later one.
    pub(crate) fn insert(&mut self, name: u64, now: u64, fate: F) {
        let set = &mut self.sets[name as usize % SETS];
        let same = set.iter().position(|entry| entry.name == name);
        let oldest = (0..WAYS).min_by_key(|way| set[*way].until);
        if let Some(way) = same.or(oldest) {
            let until = Ticks::of(now).after(Ticks::of_seconds(SECONDS));
            set[way] = Entry { name, until, fate };
        }
    }
}
