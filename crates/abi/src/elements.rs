//! Elements of sets that rules change: what an image answers to a question about them
//! ([`crate::inquiry`]), and what it is asked to change. Neither side believes the other.

use crate::inquiry::DETAILS_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Words of a key: as many as a set's types have, and zeros behind them.
pub const KEY_WORDS: usize = 16;
/// Most changes behind one question.
pub const CHANGES_MAX: usize = DETAILS_BYTES / size_of::<Change>();

/// An element. Numbers are native-endian.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Record {
    /// Its set: [`set_number`] of its family, table and name.
    pub set: u64,
    /// The values, in the order of the set's types: each has one word, or two or four if its type
    /// has more than 32 bits, the lowest ones first.
    pub key: [u32; KEY_WORDS],
    /// Milliseconds that it stays without being asked for again; 0 if it stays for ever.
    pub timeout: u64,
    /// Milliseconds that are left of them.
    pub left: u64,
    /// Packets and bytes that it has counted, if its set's elements count.
    pub counted: [u64; 2],
}

/// A change of an element.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Change {
    /// Its set, as in [`Record::set`].
    pub set: u64,
    /// As in [`Record::key`].
    pub key: [u32; KEY_WORDS],
    /// Milliseconds that it is to stay; 0 for what its set says.
    pub timeout: u64,
}

/// The number of a set in questions and answers, by `FAMILY TABLE NAME`: the hash FNV-1a, with 64
/// bits.
pub fn set_number(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_numbers_of_their_own() {
        // Of the hash's own examples.
        assert_eq!(set_number(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(set_number("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(set_number("inet t a"), set_number("ip t a"));
    }

    #[test]
    fn several_changes_fit_behind_a_question() {
        assert_eq!(size_of::<Change>(), 80);
        assert_eq!(size_of::<Record>(), 104);
        const { assert!(CHANGES_MAX >= 16) }
    }
}
