//! A disk that notices when a block holds other bytes than were written to it: a checksum for each.
//!
//! ```text
//! 0 ...            blocks, as many as the disk is said to have
//! behind them      tables: each one block, with the checksums of as many blocks as fit
//! the last block   a mark: the disk has been prepared
//! ```
//!
//! An entry of a table holds two checksums. A write stores the new one beside the old one first,
//! and then the bytes: whoever is cut off in between leaves bytes that one of the two is of. Once
//! the bytes are written, the old one is forgotten, on the disk with the next table that is written
//! or the next flush. So a write that the disk has lost is noticed as well. A disk that reorders
//! writes, and loses power before it is flushed, may leave blocks that neither is of. Those are
//! damaged until they are written again: nobody was promised any of their bytes. So is a block at
//! which two writes in a row were cut off, and one whose first write was.
//!
//! A checksum is SipHash-1-3 with a key that everybody knows, over the number of the block and its
//! bytes: it finds what happens by itself, such as a block that was written to another place, and
//! stops nobody who wants to deceive. A table ends with a checksum of its own. Tables of zeroes are
//! those of blocks that were never written, of which nothing is known: any bytes are right. A disk
//! that loses a write together with both writes of its checksum is believed, as is one that was put
//! back to what it was some time ago.

use super::{BlockDevice, BlockError, Limits};
use alloc::vec;
use alloc::vec::Vec;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;

/// What the last block begins with.
const MARK: [u8; 8] = *b"OBSUMS\x01\0";
/// Bytes of a checksum, and of an entry.
const SUM: usize = 8;
const ENTRY: usize = 2 * SUM;

/// A disk with checksums.
pub struct Integrity<D> {
    disk: D,
    /// Blocks that there are for others.
    blocks: u64,
    size: usize,
    /// The table that was used last, as it is on the disk, and its number.
    table: Vec<u8>,
    number: Option<u64>,
    /// Whether old checksums in it were forgotten, but not on the disk.
    is_dirty: bool,
    damaged: u64,
}

/// Why a disk has no checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The disk is too small, or has blocks too small or too large.
    Size,
    /// It was not prepared, or with blocks of another size, or is another one's.
    NotPrepared,
    /// It fails.
    Disk(BlockError),
}

impl core::fmt::Display for OpenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Size => write!(f, "the disk is too small for checksums"),
            Self::NotPrepared => write!(
                f,
                "the disk has no checksums: prepare it, which loses \
                                            nothing but what lies at its end"
            ),
            Self::Disk(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for OpenError {}

impl From<BlockError> for OpenError {
    fn from(error: BlockError) -> Self {
        Self::Disk(error)
    }
}

impl<D: BlockDevice> Integrity<D> {
    /// A disk that was prepared.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(disk: D) -> Result<Self, OpenError> {
        let mut opened = Self::of(disk)?;
        let mut mark = vec![0; opened.size];
        let last = opened.disk.capacity() - opened.size as u64;
        opened.disk.read(last, &mut mark)?;
        match mark == opened.mark() {
            true => Ok(opened),
            false => Err(OpenError::NotPrepared),
        }
    }

    /// Prepares a disk: of what it holds now, nothing is known, and its end is overwritten.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn prepare(disk: D) -> Result<Self, OpenError> {
        let mut prepared = Self::of(disk)?;
        let size = prepared.size as u64;
        let start = prepared.blocks * size;
        let last = prepared.disk.capacity() - size;
        prepared.disk.write_zeroes(start, last - start)?;
        let mark = prepared.mark();
        prepared.disk.write(last, &mark)?;
        match prepared.disk.flush() {
            Ok(()) | Err(BlockError::Unsupported) => Ok(prepared),
            Err(error) => Err(error.into()),
        }
    }

    fn of(disk: D) -> Result<Self, OpenError> {
        let size = disk.block_size();
        let entries = (size / ENTRY).saturating_sub(1) as u64;
        let all = disk.capacity() / size.max(1) as u64;
        // Of each table and its blocks, all but one; and one is the mark.
        let rest = all.saturating_sub(1);
        let blocks = match entries {
            0 => 0,
            entries => rest - rest.div_ceil(entries + 1),
        };
        if blocks == 0 {
            return Err(OpenError::Size);
        }
        Ok(Self {
            disk,
            blocks,
            size,
            table: vec![0; size],
            number: None,
            is_dirty: false,
            damaged: 0,
        })
    }

    /// The last block: mark, size of a block, number of blocks.
    fn mark(&self) -> Vec<u8> {
        let mut mark = vec![0; self.size];
        mark[..8].copy_from_slice(&MARK);
        mark[8..16].copy_from_slice(&(self.size as u64).to_le_bytes());
        mark[16..24].copy_from_slice(&self.blocks.to_le_bytes());
        mark
    }

    /// Blocks that were read and found damaged.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Entries of a table: the last one's place is for the checksum of the table.
    fn entries(&self) -> u64 {
        (self.size / ENTRY - 1) as u64
    }

    /// Where the table of this number is.
    fn place(&self, number: u64) -> u64 {
        (self.blocks + number) * self.size as u64
    }

    /// Reads the table of a block, unless it is there; whether it is what was written.
    fn load(&mut self, number: u64) -> Result<bool, BlockError> {
        if self.number == Some(number) {
            return Ok(true);
        }
        if self.is_dirty {
            self.store()?;
        }
        self.number = None;
        let place = self.place(number);
        self.disk.read(place, &mut self.table)?;
        let (body, end) = self.table.split_at(self.size - ENTRY);
        let is_new = self.table.iter().all(|byte| *byte == 0);
        let is_whole = is_new || end[..SUM] == sum(place, body);
        if is_whole {
            self.number = Some(number);
        }
        Ok(is_whole)
    }

    /// Writes the table that is there.
    fn store(&mut self) -> Result<(), BlockError> {
        let Some(number) = self.number.take() else {
            return Ok(());
        };
        let place = self.place(number);
        let (body, end) = self.table.split_at_mut(self.size - ENTRY);
        end[..SUM].copy_from_slice(&sum(place, body));
        self.is_dirty = false;
        self.disk.write(place, &self.table)?;
        self.number = Some(number);
        Ok(())
    }

    /// The tables of the blocks in `range`: number of each, and which of those blocks it has.
    fn tables(&self, offset: u64, length: u64) -> impl Iterator<Item = (u64, u64, u64)> + use<D> {
        let (size, entries) = (self.size as u64, self.entries());
        let (first, end) = (offset / size, (offset + length) / size);
        let numbers = first / entries..end.div_ceil(entries);
        numbers.map(move |number| {
            let start = (number * entries).max(first);
            (number, start, ((number + 1) * entries).min(end))
        })
    }

    /// Has `change` change the entries of the blocks from `start` to `end` in the table of this
    /// number.
    fn entries_of(
        &mut self,
        (number, start, end): (u64, u64, u64),
        mut change: impl FnMut(u64, &mut [u8]),
    ) -> Result<(), BlockError> {
        if !self.load(number)? {
            // Nothing is known of its other blocks any more but that they are damaged.
            self.table.fill(u8::MAX);
            self.number = Some(number);
        }
        let first = number * self.entries();
        for block in start..end {
            let at = (block - first) as usize * ENTRY;
            change(block, &mut self.table[at..at + ENTRY]);
        }
        Ok(())
    }
}

/// The checksum of these bytes at this place; never that of nothing.
fn sum(place: u64, bytes: &[u8]) -> [u8; SUM] {
    let mut hasher = SipHasher13::new();
    hasher.write_u64(place);
    hasher.write(bytes);
    hasher.finish().max(1).to_le_bytes()
}

impl<D: BlockDevice> BlockDevice for Integrity<D> {
    fn capacity(&self) -> u64 {
        self.blocks * self.size as u64
    }

    fn limits(&self) -> Limits {
        Limits {
            // Each block has a checksum of its own to be written.
            write_zeroes: false,
            ..self.disk.limits()
        }
    }

    /// All blocks are read, and then looked at: one that is damaged leaves the others readable, by
    /// reads of their own.
    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits().check(self.capacity(), offset, length)?;
        self.disk.read(offset, blocks)?;
        let (size, first) = (self.size as u64, offset / self.size as u64);
        let mut damaged = 0;
        for (number, start, end) in self.tables(offset, length) {
            if !self.load(number)? {
                damaged += end - start;
                continue;
            }
            for block in start..end {
                let entry = (block % self.entries()) as usize * ENTRY;
                let entry = &self.table[entry..entry + ENTRY];
                let at = ((block - first) * size) as usize;
                let found = sum(block, &blocks[at..at + size as usize]);
                let is_known = entry[..SUM] != [0; SUM];
                let is_right = entry.chunks(SUM).any(|sum| sum == found);
                damaged += u64::from(is_known && !is_right);
            }
        }
        self.damaged += damaged;
        match damaged {
            0 => Ok(()),
            _ => Err(BlockError::Damaged),
        }
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits()
            .check_change(self.capacity(), offset, length)?;
        let (size, first) = (self.size, offset / self.size as u64);
        for table in self.tables(offset, length) {
            let (_, start, end) = table;
            let place = |block: u64| (block - first) as usize * size;
            self.entries_of(table, |block, entry| {
                let bytes = &blocks[place(block)..place(block) + size];
                entry.copy_within(..SUM, SUM);
                entry[..SUM].copy_from_slice(&sum(block, bytes));
            })?;
            self.store()?;
            let bytes = &blocks[place(start)..place(end)];
            self.disk.write(start * size as u64, bytes)?;
            self.entries_of(table, |_, entry| entry[SUM..].fill(0))?;
            self.is_dirty = true;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        if self.is_dirty {
            self.store()?;
        }
        self.disk.flush()
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        self.limits()
            .check_change(self.capacity(), offset, length)?;
        if !self.limits().discard {
            return Err(BlockError::Unsupported);
        }
        for table in self.tables(offset, length) {
            self.entries_of(table, |_, entry| entry.fill(0))?;
            self.store()?;
        }
        self.disk.discard(offset, length)
    }
}
