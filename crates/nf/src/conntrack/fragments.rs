//! Packets in parts: the first part has the transport header, so rules judge that one, and the
//! others share its fate.
//!
//! Nothing is held back or put together. A part that comes before the first one is not judged by
//! anything, and is dropped: its sender repeats the whole packet, which then comes in order.

use super::timeout::Ticks;
use crate::key::{Addresses, Fields};
use crate::rule::{RuleIndex, Verdict};
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
pub(super) struct Fragments {
    sets: [[Fate; WAYS]; SETS],
    hasher: SipHasher13,
}

/// A packet and what became of its first part. That the hashes of two packets are the same cannot
/// be brought about, for the key is secret, and is no chance to speak of.
#[derive(Clone, Copy, Debug)]
struct Fate {
    hash: u64,
    until: Ticks,
    verdict: Verdict,
    rule: RuleIndex,
}

impl Fragments {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let none = Fate {
            hash: 0,
            until: Ticks(0),
            verdict: Verdict::Drop,
            rule: 0,
        };
        Self {
            sets: [[none; WAYS]; SETS],
            hasher: SipHasher13::new_with_key(key),
        }
    }

    /// Forgets all fates: there are other rules now.
    pub(super) fn clear(&mut self) {
        for fate in self.sets.as_flattened_mut() {
            fate.until = Ticks(0);
        }
    }

    /// The number of a packet (RFC 791, 3.2; RFC 8200, 4.5).
    fn hash(&self, fields: &Fields, identification: u32) -> u64 {
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
        (fields.vlan, identification).hash(&mut hasher);
        hasher.finish()
    }

    /// What became of the first part of this packet, if it came.
    pub(super) fn find(
        &self,
        fields: &Fields,
        id: u32,
        now: Ticks,
    ) -> Option<(Verdict, RuleIndex)> {
        let hash = self.hash(fields, id);
        let set = &self.sets[hash as usize % SETS];
        let found = set
            .iter()
            .find(|fate| fate.hash == hash && fate.until > now)?;
        Some((found.verdict, found.rule))
    }

    /// Remembers what became of the first part. The fate of a packet whose first part comes twice
    /// is that of the later one.
    pub(super) fn insert(
        &mut self,
        fields: &Fields,
        id: u32,
        now: Ticks,
        (verdict, rule): (Verdict, RuleIndex),
    ) {
        let hash = self.hash(fields, id);
        let set = &mut self.sets[hash as usize % SETS];
        let same = set.iter().position(|fate| fate.hash == hash);
        let oldest = (0..WAYS).min_by_key(|way| set[*way].until);
        if let Some(way) = same.or(oldest) {
            set[way] = Fate {
                hash,
                until: now.after(Ticks::of_seconds(SECONDS)),
                verdict,
                rule,
            };
        }
    }
}
