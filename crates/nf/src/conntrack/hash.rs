//! The hash that finds a flow, under a secret key.
//!
//! An attacker chooses names of flows, and wants many of them in one bucket. The words of a name
//! are multiplied in pairs and added up, each under a word of the key: NH (Black, Halevi, Krawczyk,
//! Krovetz and Rogaway, "UMAC: Fast and Secure Message Authentication", 1999), which gives any
//! two names of a family the same 128 bits with a probability of 2^-64. So whoever does not learn
//! what collides has no better way than chance, whatever he sends. What is left could be solved for
//! the key by somebody who learns its bits, for it is linear. They are folded for that reason: one
//! more product of its halves, under two further words of the key, whose own halves are added
//! without carry.
//!
//! This is no pseudorandom function that anybody has looked at for long, as SipHash is, which the
//! kernel takes and which costs five times as much. All that leaves here is how long a packet
//! takes: whether one or two more flows stand in its bucket, a few nanoseconds among all others on
//! a busy port. Should somebody yet find a bucket, it is looked at up to a bound and no further;
//! and each image has another key.

use siphasher::sip::SipHasher13;

/// Pairs of words of the longest name.
const PAIRS_MAX: usize = 3;

/// A hash under a secret key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash {
    pairs: [[u64; 2]; PAIRS_MAX],
    fold: [u64; 2],
}

impl Hash {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        let hasher = SipHasher13::new_with_key(key);
        let word = |number: usize| hasher.hash(&[number as u8]);
        let pair = |number| [word(2 * number), word(2 * number + 1)];
        Self {
            pairs: [pair(0), pair(1), pair(2)],
            fold: pair(PAIRS_MAX),
        }
    }

    /// Of a name in so many pairs of words, which is the same number for all names of a table.
    #[inline(always)]
    pub(super) fn of<const PAIRS: usize>(&self, name: [[u64; 2]; PAIRS]) -> u32 {
        const { assert!(PAIRS <= PAIRS_MAX) };
        let mut sum = 0;
        for (name, key) in name.iter().zip(&self.pairs) {
            let [first, second] = [0, 1].map(|at| u128::from(name[at].wrapping_add(key[at])));
            sum = first.wrapping_mul(second).wrapping_add(sum);
        }
        let halves = [sum as u64 ^ self.fold[0], (sum >> 64) as u64 ^ self.fold[1]];
        let [low, high] = halves.map(u128::from);
        let folded = low.wrapping_mul(high);
        (folded ^ (folded >> 64)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Names that a scan makes, in as many buckets as a table has for them: no bucket has many more
    /// than chance gives it.
    fn longest(names: impl Iterator<Item = [u64; 2]>, key: u8) -> u32 {
        let (hash, names) = (Hash::new(&[key; 16]), names.collect::<Vec<_>>());
        let mut buckets = vec![0; (2 * names.len()).next_power_of_two()];
        let mask = buckets.len() as u32 - 1;
        for name in names {
            buckets[(hash.of([name]) & mask) as usize] += 1;
        }
        buckets.into_iter().max().unwrap_or_default()
    }

    #[test]
    fn neighbours_are_spread() {
        for key in 0..8 {
            let ports = |number: u64| [7, number | 80 << 16 | 6 << 48];
            assert!(longest((0..1 << 16).map(ports), key) <= 10);
            let addresses = |number: u64| [7 | number << 32, 1024 | 80 << 16 | 6 << 48];
            assert!(longest((0..1 << 16).map(addresses), key) <= 10);
            let high = |number: u64| [number.reverse_bits(), 6 << 48];
            assert!(longest((0..1 << 16).map(high), key) <= 10);
            let both = |number: u64| [number & 0xff, (number >> 8) << 16];
            assert!(longest((0..1 << 16).map(both), key) <= 10);
        }
    }

    #[test]
    fn keys_give_other_hashes() {
        let hashes = (0..64).map(|key| Hash::new(&[key; 16]).of([[1, 2], [3, 4], [5, 0]]));
        let mut hashes: Vec<_> = hashes.collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 64);
    }

    /// Each word of a name counts.
    #[test]
    fn words_count() {
        let hash = Hash::new(&[3; 16]);
        let name = [[1, 2], [3, 4], [5, 0]];
        for word in 0..5 {
            for bit in 0..64 {
                let mut other = name;
                other[word / 2][word % 2] ^= 1 << bit;
                assert_ne!(hash.of(name), hash.of(other), "{word} {bit}");
            }
        }
    }
}
