//! The command slots of a port (AHCI 1.3.1, 4.2 and 5.3): the list of headers, a table for each
//! with the frame and the regions of its data, and which slots the device has.
//!
//! What the device has is known here alone: what its registers say is compared with it.

use super::command::{Command, FRAME_WORDS, HEADER_WORDS, RANGES, ranges};
use super::error::Lie;
use super::identify;
use super::registers::Port;
use hw::{DmaArena, DmaRing, Done, Iova, Mmio, OutOfDma};

/// Command slots of a port, at most.
pub const SLOTS: usize = 32;
/// Regions of a command's data (PRDT entries), at most: what is left of a table of 1 KiB.
pub const REGIONS_MAX: usize = (TABLE_WORDS - TABLE_REGIONS) / REGION_WORDS;
/// Bytes of a region, at most (4.2.3.3, DBC).
const REGION_BYTES_MAX: usize = 4 << 20;

/// 64-bit words of a table, where its regions begin, and of each of these (4.2.3).
const TABLE_WORDS: usize = 128;
const TABLE_REGIONS: usize = 16;
const REGION_WORDS: usize = 2;
const WORD_BYTES: usize = size_of::<u64>();
/// Words of what the disk says (4.2.1): nobody reads it here.
const RECEIVED_WORDS: usize = 32;
/// Words of 512 bytes.
const PAGE_WORDS: usize = 64;

/// Data that regions cannot describe, or that the adapter does not reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scattered;

/// What the device said of its slots.
#[derive(Debug)]
pub struct Answers {
    /// The device's word.
    pub done: Done,
    /// Slots that are over, one bit each.
    pub slots: u32,
}

/// The slots of a port, and what the device reads of them.
pub struct Slots {
    headers: DmaRing<HEADER_WORDS, SLOTS>,
    tables: DmaRing<1, { SLOTS * TABLE_WORDS }>,
    received: DmaRing<1, RECEIVED_WORDS>,
    /// What IDENTIFY DEVICE fills, and what TRIM tells.
    page: DmaRing<1, PAGE_WORDS>,
    /// Whether addresses have 64 bits.
    is_wide: bool,
    /// Slots that the device has, and those of them that it was not told of, one bit each.
    busy: u32,
    fresh: u32,
    /// Whether what it has is queued.
    is_queued: bool,
}

impl Slots {
    /// Slots that no device has yet.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena, is_wide: bool) -> Result<Self, OutOfDma> {
        Ok(Self {
            headers: arena.ring()?,
            tables: arena.ring()?,
            received: arena.ring()?,
            page: arena.ring()?,
            is_wide,
            busy: 0,
            fresh: 0,
            is_queued: false,
        })
    }

    /// Makes them what a device finds that has been reset.
    pub fn clear(&mut self) {
        (self.busy, self.fresh) = (0, 0);
    }

    /// Where the device finds the list, and where it writes what the disk says; `None` if it does
    /// not reach all of that.
    pub fn places(&self) -> Option<[Iova; 2]> {
        let ends = [
            self.end(self.headers.iova(), HEADER_WORDS * SLOTS),
            self.end(self.tables.iova(), SLOTS * TABLE_WORDS),
            self.end(self.received.iova(), RECEIVED_WORDS),
            self.end(self.page.iova(), PAGE_WORDS),
        ];
        let reached = ends.into_iter().all(|end| self.reaches(end));
        reached.then_some([self.headers.iova(), self.received.iova()])
    }

    fn end(&self, start: Iova, words: usize) -> u64 {
        start.raw() + (words * WORD_BYTES) as u64
    }

    #[inline]
    fn reaches(&self, end: u64) -> bool {
        self.is_wide || end <= 1 << 32
    }

    /// A slot below `depth` for a command.
    #[inline]
    pub fn free(&self, depth: usize) -> Option<usize> {
        let slot = self.busy.trailing_ones() as usize;
        (slot < depth).then_some(slot)
    }

    /// Slots that the device has, one bit each.
    #[inline]
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// Whether the device has a command that is alone.
    #[inline]
    pub fn is_alone(&self) -> bool {
        self.busy != 0 && !self.is_queued
    }

    /// Describes the parts of a slot's data, address and length of each: how many regions that is.
    ///
    /// # Errors
    /// [`Scattered`], if an address or a length is odd, a part is empty or larger than a region, or
    /// there are too many.
    #[inline]
    pub fn describe(
        &self,
        slot: usize,
        parts: impl Iterator<Item = (u64, usize)>,
    ) -> Result<usize, Scattered> {
        let mut regions = 0;
        for (start, bytes) in parts {
            let end = start.checked_add(bytes as u64).ok_or(Scattered)?;
            let is_even = start.is_multiple_of(2) && bytes.is_multiple_of(2);
            let fits = (1..=REGION_BYTES_MAX).contains(&bytes) && regions < REGIONS_MAX;
            if !is_even || !fits || !self.reaches(end) {
                return Err(Scattered);
            }
            let at = slot * TABLE_WORDS + TABLE_REGIONS + regions * REGION_WORDS;
            self.tables.store(at, 0, start);
            self.tables.store(at + 1, 0, (bytes as u64 - 1) << 32);
            regions += 1;
        }
        Ok(regions)
    }

    /// Describes the 512 bytes of this driver as a slot's data: one region.
    fn describe_page(&self, slot: usize) -> usize {
        let page = (self.page.iova().raw(), PAGE_WORDS * WORD_BYTES);
        self.describe(slot, [page].into_iter()).unwrap_or(0)
    }

    /// Tells of blocks that nobody needs, as a slot's data. No other command may use these 512
    /// bytes meanwhile: TRIM is alone.
    pub fn describe_ranges(&self, slot: usize, block: u64, blocks: u64) -> usize {
        const { assert!(RANGES == PAGE_WORDS) };
        for (index, range) in ranges(block, blocks).enumerate() {
            self.page.store(index, 0, range);
        }
        self.describe_page(slot)
    }

    /// Has the disk say what it is like.
    pub fn identify(&mut self, bar: &Mmio, port: &Port) {
        // Or an answer without one would be the one before.
        (0..PAGE_WORDS).for_each(|index| self.page.store(index, 0, 0));
        let regions = self.describe_page(0);
        self.put(0, &Command::identify(), regions);
        self.ring(bar, port);
    }

    /// What it said, read once: it may change that at any time.
    pub fn identity(&self) -> [u16; identify::WORDS] {
        let mut words = [0; identify::WORDS];
        for (index, four) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let word = self.page.load(index, 0);
            *four = [0, 16, 32, 48].map(|shift| (word >> shift) as u16);
        }
        words
    }

    /// Writes a command for a free slot, whose data are so many regions; the device is told by
    /// [`Self::ring`].
    #[inline]
    pub fn put(&mut self, slot: usize, command: &Command, regions: usize) {
        let at = slot * TABLE_WORDS;
        let frame: [u64; FRAME_WORDS] = command.frame(slot);
        for (index, word) in frame.into_iter().enumerate() {
            self.tables.store(at + index, 0, word);
        }
        let table = self.tables.iova().raw() + (at * WORD_BYTES) as u64;
        let header = command.header(regions, table);
        for (index, word) in header.into_iter().enumerate() {
            self.headers.store(slot, index, word);
        }
        self.busy |= 1 << slot;
        self.fresh |= 1 << slot;
        self.is_queued = command.is_queued;
    }

    /// Tells the device of all that was put (5.3.2.1: PxSACT before PxCI, for queued ones).
    #[inline]
    pub fn ring(&mut self, bar: &Mmio, port: &Port) {
        if self.fresh != 0 {
            if self.is_queued {
                bar.write(port.active, self.fresh);
            }
            bar.doorbell(port.issue, self.fresh);
            self.fresh = 0;
        }
    }

    /// The slots that seem to be over, one bit each: neither adapter nor disk has them any more. Of
    /// those that failed the slots stay as they are (6.1.9). Those of a port that something else
    /// has reset look alike: see [`vouches`](super::init::vouches), and then [`Self::take`].
    ///
    /// # Errors
    /// If the device has what it was not given. It must be reset.
    #[inline]
    pub fn over(&self, bar: &Mmio, port: &Port) -> Result<u32, Lie> {
        let has = match self.is_queued {
            // A command is told to the disk before the adapter is rid of it.
            true => bar.read(port.issue) | bar.read(port.active),
            false => bar.read(port.issue),
        };
        if has & !self.busy != 0 {
            return Err(Lie::NotIssued(has & !self.busy));
        }
        Ok(self.busy & !has)
    }

    /// Takes these slots back, on the device's word that they are over.
    #[inline]
    pub fn take(&mut self, bar: &Mmio, port: &Port, slots: u32) -> Option<Answers> {
        let said = match self.is_queued {
            true => port.active,
            false => port.issue,
        };
        let done = match slots {
            0 => None,
            _ => bar.shows(said, slots, 0),
        }?;
        self.busy &= !slots;
        Some(Answers { done, slots })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::sim;

    const AT: u64 = 0xffff_f000;

    fn slots(is_wide: bool) -> (DmaArena, sim::View, Slots) {
        let (mut arena, view) = sim::arena(16 * 4096, AT);
        let slots = Slots::new(&mut arena, is_wide).unwrap();
        (arena, view, slots)
    }

    #[test]
    fn regions_lie_where_the_table_says() {
        let (_arena, view, slots) = slots(true);
        let parts = [(0x1_0000_0002, 512), (0x3000, 4 << 20)];
        assert_eq!(slots.describe(31, parts.into_iter()), Ok(2));
        let table = slots.tables.iova().raw() + 31 * 1024 + 0x80;
        let words: [u64; 4] = core::array::from_fn(|n| view.load(table + 8 * n as u64).unwrap());
        assert_eq!(
            words,
            [0x1_0000_0002, 511 << 32, 0x3000, ((4 << 20) - 1) << 32]
        );
    }

    #[test]
    fn what_regions_cannot_describe_is_refused() {
        let (_arena, _view, narrow) = slots(false);
        for parts in [
            &[(1, 512)][..],
            &[(0, 511)],
            &[(0, 0)],
            &[(0, REGION_BYTES_MAX + 2)],
            &[(u64::MAX - 1, 4)],
            &[(0xffff_ff00, 0x102)],
            &[(0, 512); REGIONS_MAX + 1],
        ] {
            let parts = parts.iter().copied();
            assert_eq!(narrow.describe(0, parts), Err(Scattered));
        }
        let last = [(0, 512); REGIONS_MAX];
        assert_eq!(narrow.describe(31, last.into_iter()), Ok(REGIONS_MAX));
        assert_eq!(narrow.places(), None, "beyond 4 GiB");
    }
}
