//! Queues (Base 2.0, 3.3): rings of entries in the driver's memory.

use crate::dma::{Dma, DmaFault};
use crate::violation::Queue as Name;

/// Queues for I/O, and all of them with the admin queues.
pub(crate) const IO_QUEUES: usize = 4;
pub(crate) const QUEUES: usize = IO_QUEUES + 1;
/// Bytes of an entry: CC.IOSQES and CC.IOCQES as powers of two, and of the admin queues always.
pub(crate) const SUBMISSION_BYTES: u64 = 64;
pub(crate) const COMPLETION_BYTES: u64 = 16;
/// As powers of two.
pub(crate) const ENTRY_SIZES: (u32, u32) = (6, 4);

/// How the reports call a queue.
pub(crate) fn name(number: usize) -> Name {
    match number {
        0 => Name::Control,
        number => Name::Request(number as u8),
    }
}

/// A set of command identifiers.
#[derive(Debug)]
pub(crate) struct Identifiers(Box<[u64]>);

impl Default for Identifiers {
    fn default() -> Self {
        Self(vec![0; 1 << 10].into_boxed_slice())
    }
}

impl Identifiers {
    fn bit(id: u16) -> (usize, u64) {
        (usize::from(id >> 6), 1 << (id & 63))
    }

    /// Adds one; whether it was not there.
    pub(crate) fn insert(&mut self, id: u16) -> bool {
        let (word, bit) = Self::bit(id);
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    pub(crate) fn remove(&mut self, id: u16) {
        let (word, bit) = Self::bit(id);
        self.0[word] &= !bit;
    }
}

/// A submission queue.
#[derive(Debug)]
pub(crate) struct Submissions {
    base: u64,
    /// Entries.
    pub(crate) size: u32,
    /// The entry that is taken next.
    pub(crate) head: u32,
    /// The entry behind the last one that the driver has written.
    pub(crate) tail: u32,
    /// The entry behind the last one whose identifier was looked at.
    known: u32,
    /// Where its completions go.
    pub(crate) completions: usize,
    /// Identifiers of commands that were not answered yet.
    pub(crate) outstanding: Identifiers,
}

impl Submissions {
    pub(crate) fn new(base: u64, size: u32, completions: usize) -> Self {
        Self {
            base,
            size,
            head: 0,
            tail: 0,
            known: 0,
            completions,
            outstanding: Identifiers::default(),
        }
    }

    /// Entries that are not taken yet.
    pub(crate) fn waiting(&self) -> u32 {
        (self.tail + self.size - self.head) % self.size
    }

    fn place(&self, index: u32) -> u64 {
        self.base.wrapping_add(u64::from(index) * SUBMISSION_BYTES)
    }

    /// The identifier of the next command that was not looked at yet, and its place.
    pub(crate) fn look(&mut self, dma: &dyn Dma) -> Result<Option<(u16, u32)>, DmaFault> {
        if self.known == self.tail {
            return Ok(None);
        }
        let index = self.known;
        let first = dma.load(self.place(index))?;
        self.known = (index + 1) % self.size;
        Ok(Some(((first >> 16) as u16, index)))
    }

    /// Takes the next entry: its words and its place.
    pub(crate) fn take(&mut self, dma: &dyn Dma) -> Result<Option<([u64; 8], u32)>, DmaFault> {
        if self.head == self.tail {
            return Ok(None);
        }
        let index = self.head;
        let mut words = [0; 8];
        dma.load_all(self.place(index), &mut words)?;
        self.head = (index + 1) % self.size;
        Ok(Some((words, index)))
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Completions {
    base: u64,
    /// Entries.
    pub(crate) size: u32,
    /// The entry that the driver looks at next.
    pub(crate) head: u32,
    /// The entry that is written next.
    pub(crate) tail: u32,
    /// The phase tag of new entries: it changes with each pass (3.3.3.2.2).
    phase: bool,
    /// The vector that is raised, if any is.
    pub(crate) vector: Option<u16>,
}

impl Completions {
    pub(crate) fn new(base: u64, size: u32, vector: Option<u16>) -> Self {
        Self {
            base,
            size,
            head: 0,
            tail: 0,
            phase: true,
            vector,
        }
    }

    /// Whether one more entry would overtake the driver (3.3.1.3).
    pub(crate) fn is_full(&self) -> bool {
        (self.tail + 1) % self.size == self.head
    }

    /// Entries that the driver has not taken.
    pub(crate) fn unseen(&self) -> u32 {
        (self.tail + self.size - self.head) % self.size
    }

    /// Leaves an entry as it is.
    pub(crate) fn advance(&mut self) {
        self.tail = (self.tail + 1) % self.size;
        self.phase ^= self.tail == 0;
    }

    /// Writes an entry: its four dwords without the phase tag, which is bit 16 of the last.
    pub(crate) fn post(&mut self, dwords: [u32; 4], dma: &dyn Dma) -> Result<(), DmaFault> {
        let place = self
            .base
            .wrapping_add(u64::from(self.tail) * COMPLETION_BYTES);
        let [first, second, third, last] = dwords.map(u64::from);
        dma.store(place, first | second << 32)?;
        let tag = u64::from(self.phase) << 16;
        dma.store(
            place.wrapping_add(8),
            third | (last & !(1 << 16) | tag) << 32,
        )?;
        self.advance();
        Ok(())
    }
}
