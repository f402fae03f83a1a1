//! Numbers that look random, from a seed: for delays, faults and what peers should not guess
//! easily. They are no secrets: initial sequence numbers need a keyed function (RFC 6528).

use core::time::Duration;

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`; zero if that is zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(limit)) >> 64) as u64
    }

    /// A time between none and `limit`.
    pub fn within(&mut self, limit: Duration) -> Duration {
        let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.below(nanoseconds))
    }
}

/// Spreads every bit of `number` over all of the result.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        // From the reference implementation with seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.number(), 6_457_827_717_110_365_317);
        assert_eq!(random.number(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_below_their_limit() {
        let mut random = Random::new(1);
        let numbers: alloc::vec::Vec<_> = (0..100).map(|_| random.below(3)).collect();
        assert!((0..3).all(|n| numbers.contains(&n)) && numbers.iter().all(|n| *n < 3));
        assert_eq!(random.below(0), 0);
    }
}
