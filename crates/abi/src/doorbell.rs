//! The page of doorbells: Outboard's addition to vfio-user, a contract of guest and device.
//!
//! The page is a region of the device's own. It holds registers of BAR 0 of which only the last
//! write matters, and which the device may read at any later time: doorbells. No page of real
//! registers is shared, since writes to mapped memory trap nothing and lose their order. All other
//! registers are reached by message. The device looks at its doorbells before it obeys a message,
//! so a doorbell keeps its order with messages; only among each other do doorbells lose it.
//!
//! The page consists of 64-bit words: [`MAGIC_WORD`], [`ASLEEP_WORD`], and from [`FIRST_WORD`] on
//! two for each doorbell, its offset in BAR 0 and its value. The device writes the offsets once,
//! before the page is mapped, and a value when another register has changed it; the driver writes
//! values. Before the device sleeps it sets the word [`ASLEEP_WORD`] and looks once more. A driver
//! that finds it set, behind a fence after its write, sends `vfio_user::RegisterRead::wake`, a
//! message of which only the arrival matters.

/// Type of the region: that of a PCI vendor (Linux `vfio.h`), with the number that no vendor has.
pub const REGION_KIND: u32 = 1 << 31 | 0xffff;
/// Subtype of the region, "OBDB".
pub const REGION_SUBTYPE: u32 = u32::from_le_bytes(*b"OBDB");
/// Size of the page in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Words of the page.
pub const WORDS: usize = PAGE_BYTES / 8;
/// Holds [`magic`].
pub const MAGIC_WORD: usize = 0;
/// Holds 1 while the device does not look at the page.
pub const ASLEEP_WORD: usize = 1;
/// Offset of the first doorbell.
pub const FIRST_WORD: usize = 2;
/// Most doorbells.
pub const COUNT_MAX: usize = (WORDS - FIRST_WORD) / 2;

/// What the first word of a page of `count` doorbells holds.
pub const fn magic(count: usize) -> u64 {
    (count as u64) << 32 | REGION_SUBTYPE as u64
}

/// How many doorbells a page has that begins with this word.
pub const fn count(word: u64) -> Option<usize> {
    let count = (word >> 32) as usize;
    if word as u32 == REGION_SUBTYPE && count <= COUNT_MAX {
        Some(count)
    } else {
        None
    }
}

/// The word that holds the offset of doorbell `n`.
pub const fn offset_word(n: usize) -> usize {
    FIRST_WORD + 2 * n
}

/// The word that holds the value of doorbell `n`.
pub const fn value_word(n: usize) -> usize {
    FIRST_WORD + 2 * n + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_how_many_doorbells_it_has() {
        for n in [0, 1, COUNT_MAX] {
            assert_eq!(count(magic(n)), Some(n));
        }
        assert_eq!(count(magic(COUNT_MAX + 1)), None);
        assert_eq!(count(0), None);
        assert!(value_word(COUNT_MAX - 1) < WORDS);
    }
}
