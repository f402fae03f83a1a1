//! Physical region pages (Base 2.0, 4.1.1): how a command says where its data lie.
//!
//! The first entry may begin within a page; all others are whole pages. Where more than two are
//! needed, the second one says where the list of the others lies. Each slot has a list of its own,
//! which never crosses a page, so that lists need not be chained.

use super::queue::SLOTS;
use hw::{DmaArena, DmaRing, OutOfDma};

/// Bytes of a page, as CC.MPS says.
pub const PAGE: usize = 4096;
/// Where the data of a command may begin: at a multiple of so many bytes (4.1.1).
pub const ALIGNMENT: usize = 4;
/// Entries of a list.
const LIST: usize = 64;
/// Most bytes of a transfer: as many pages as a list has, wherever in the first one it begins.
pub const TRANSFER_BYTES_MAX: usize = LIST * PAGE;
/// Entries of all lists.
const ENTRIES: usize = SLOTS * LIST;
const WORD_BYTES: usize = size_of::<u64>();

/// Data that pages cannot describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scattered;

/// The lists of all slots.
pub struct Lists {
    entries: DmaRing<1, ENTRIES>,
}

impl Lists {
    /// Lists for the slots of a queue.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        const { assert!(PAGE.is_multiple_of(LIST * WORD_BYTES)) };
        let entries = arena.ring()?;
        Ok(Self { entries })
    }

    /// Where the device finds the list of a slot.
    #[inline]
    fn list(&self, slot: usize) -> u64 {
        self.entries.iova().raw() + (slot * LIST * WORD_BYTES) as u64
    }

    /// Describes the parts, address and length of each: what the command says of them.
    ///
    /// # Errors
    /// [`Scattered`], if a part but the first does not begin at a page, one but the last does not
    /// end at a page, the first does not begin at a multiple of [`ALIGNMENT`], or there are more
    /// pages than a list has.
    #[inline]
    pub fn describe(
        &self,
        slot: usize,
        parts: impl Iterator<Item = (u64, usize)>,
    ) -> Result<[u64; 2], Scattered> {
        let (mut first, mut second, mut listed) = (0, 0, 0);
        // Where the part before ended.
        let mut end = 0;
        for (number, (start, bytes)) in parts.enumerate() {
            let page = PAGE as u64;
            let fits = match number {
                0 => start.is_multiple_of(ALIGNMENT as u64),
                _ => start.is_multiple_of(page) && end % page == 0,
            };
            end = start.checked_add(bytes as u64).ok_or(Scattered)?;
            if !fits || bytes == 0 {
                return Err(Scattered);
            }
            let mut at = start;
            if number == 0 {
                first = start;
                at = (start | (page - 1)).wrapping_add(1);
            }
            while at < end {
                if listed == LIST {
                    return Err(Scattered);
                }
                second = at;
                self.entries.store(slot * LIST + listed, 0, at);
                listed += 1;
                at += page;
            }
        }
        Ok(match listed {
            0 => [first, 0],
            1 => [first, second],
            _ => [first, self.list(slot)],
        })
    }

    /// Puts two words where the list of a slot lies, for a command that has no data but these.
    pub fn place(&self, slot: usize, words: [u64; 2]) -> u64 {
        for (index, word) in words.into_iter().enumerate() {
            self.entries.store(slot * LIST + index, 0, word);
        }
        self.list(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use hw::sim;
    use proptest::prelude::*;

    const AT: u64 = 0x10_0000;

    fn lists() -> (DmaArena, sim::View, Lists) {
        let (mut arena, view) = sim::arena(ENTRIES * WORD_BYTES, AT);
        let lists = Lists::new(&mut arena).unwrap();
        (arena, view, lists)
    }

    /// What a device makes of it: pieces that lie in one page each.
    fn walk(view: &sim::View, [first, second]: [u64; 2], bytes: usize) -> Vec<(u64, usize)> {
        let in_first = bytes.min(PAGE - first as usize % PAGE);
        let mut pieces = Vec::from([(first, in_first)]);
        let mut left = bytes - in_first;
        let is_list = left > PAGE;
        let mut entry = 0;
        while left > 0 {
            let at = match is_list {
                true => view.load(second + 8 * entry).unwrap(),
                false => second,
            };
            assert_eq!(at % PAGE as u64, 0);
            pieces.push((at, left.min(PAGE)));
            left -= left.min(PAGE);
            entry += 1;
        }
        pieces
    }

    proptest! {
        #[test]
        fn a_device_finds_every_byte_of_one_part(
            start in 0u64..4 * PAGE as u64,
            bytes in 1usize..=TRANSFER_BYTES_MAX,
            slot in 0..SLOTS,
        ) {
            let (_arena, view, lists) = lists();
            let start = start & !3;
            let pages = lists.describe(slot, [(start, bytes)].into_iter()).unwrap();
            let mut at = start;
            for (piece, len) in walk(&view, pages, bytes) {
                prop_assert_eq!(piece, at);
                at += len as u64;
            }
            prop_assert_eq!(at, start + bytes as u64);
        }
    }

    #[test]
    fn parts_that_are_whole_pages_are_one_transfer() {
        let (_arena, view, lists) = lists();
        let parts = [(0x7e00, 0x200), (0x3000, 0x2000), (0x9000, 0x200)];
        let pages = lists.describe(31, parts.into_iter()).unwrap();
        let expected = [
            (0x7e00, 0x200),
            (0x3000, 4096),
            (0x4000, 4096),
            (0x9000, 0x200),
        ];
        assert_eq!(walk(&view, pages, 0x2400), expected);
        assert_eq!(pages[1], AT + 31 * 512);
    }

    #[test]
    fn what_pages_cannot_describe_is_refused() {
        let (_arena, _view, lists) = lists();
        for parts in [
            &[(2, 512)][..],
            &[(0, 512), (4096, 512)],
            &[(0, 4096), (4100, 512)],
            &[(0, 4096), (8192, 0)],
            &[(4, TRANSFER_BYTES_MAX + 4096)],
            &[(u64::MAX - 3, 4096)],
        ] {
            let parts = parts.iter().copied();
            assert_eq!(lists.describe(0, parts), Err(Scattered));
        }
    }
}
