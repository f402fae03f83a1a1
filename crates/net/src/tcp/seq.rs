//! Sequence numbers (RFC 9293, 3.4).

use core::ops::{Add, Sub};

/// A sequence number. Numbers wrap, so that one is only before or after another one within half of
/// the space (RFC 9293, 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// How far this number lies behind `other`; negative if before it.
    #[inline]
    pub fn after(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Whether this number comes before `other`.
    #[inline]
    pub fn is_before(self, other: Self) -> bool {
        self.after(other) < 0
    }

    /// The later of two.
    #[inline]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of two.
    #[inline]
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if self.is_before(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    #[inline]
    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    #[inline]
    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

impl Sub for Seq {
    type Output = u32;

    /// How many numbers lie from `earlier` to this one; 0 if it is not earlier.
    #[inline]
    fn sub(self, earlier: Self) -> u32 {
        self.after(earlier).max(0) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let (low, high) = (Seq(u32::MAX - 1), Seq(3));
        assert!(low.is_before(high) && !high.is_before(low));
        assert_eq!(high - low, 5);
        assert_eq!(low - high, 0);
        assert_eq!((low.max(high), low.min(high)), (high, low));
        assert_eq!(low + 5, high);
        assert_eq!(high - 5, low);
    }
}
