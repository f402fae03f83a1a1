//! Requests as the device finds them (5.2.6): of each slot the descriptors, what is to be done,
//! and the status.
//!
//! What the device has is known here alone: of what it writes, only which slot and the status are
//! read, once, and the slot is compared with that.

use super::registers::{REQUEST_QUEUE, STATUS_NONE};
use crate::virtio::queue::{Buffer, Queue};
use crate::virtio::{Error, Lie, Transport};
use hw::{DmaArena, DmaRing, Done, OutOfDma};

/// Requests that the device has at once.
pub const SLOTS: usize = 32;
/// Parts of a request's data, at most: what is left of a slot's descriptors beside header and
/// status.
pub const PARTS_MAX: usize = SLOT_DESCRIPTORS - 2;

/// Descriptors of a slot, which begin at a multiple of that, and of the queue: as few as any known
/// device has.
const SLOT_DESCRIPTORS: usize = 4;
const DESCRIPTORS: usize = SLOTS * SLOT_DESCRIPTORS;

/// 64-bit words of what a slot has besides: type, sector; first sector of a range, its length and
/// flags; status.
const WORDS: usize = 8;
const TYPE_WORD: usize = 0;
const SECTOR_WORD: usize = 1;
const RANGE_WORD: usize = 2;
const STATUS_WORD: usize = 4;
const WORD_BYTES: u64 = size_of::<u64>() as u64;
const HEADER_BYTES: u32 = 16;
const RANGE_BYTES: u32 = 16;

/// Data that descriptors cannot describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scattered;

/// A request that was answered.
#[derive(Debug)]
pub struct Answer {
    /// The device's word.
    pub done: Done,
    /// The slot, free again.
    pub slot: usize,
    /// What became of it.
    pub status: u8,
}

/// What is to be done, but for its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its type.
    pub kind: u32,
    /// The first sector of a transfer.
    pub sector: u64,
    /// Of anything else: first sector, sectors, and flags.
    pub range: Option<(u64, u32, u32)>,
    /// Whether the device writes the data.
    pub fills: bool,
}

/// The slots, and the queue.
pub struct Slots {
    queue: Queue<DESCRIPTORS>,
    words: DmaRing<WORDS, SLOTS>,
    /// The position behind the last one that was put.
    tail: usize,
    /// Slots that the device has, one bit each.
    busy: u32,
}

impl Slots {
    /// Slots that no device has yet.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        Ok(Self {
            queue: Queue::new(arena)?,
            words: arena.ring()?,
            tail: 0,
            busy: 0,
        })
    }

    /// Gives the queue to a device that has just been reset and has accepted `features`.
    ///
    /// # Errors
    /// If the device cannot have it.
    pub fn set_up<T: Transport>(&mut self, transport: &T, features: u64) -> Result<(), Error> {
        (self.tail, self.busy) = (0, 0);
        self.queue.set_up(transport, REQUEST_QUEUE, features, false)
    }

    /// A slot for a request.
    #[inline]
    pub fn free(&self) -> Option<usize> {
        let slot = self.busy.trailing_ones() as usize;
        (slot < SLOTS).then_some(slot)
    }

    /// Slots that the device has, one bit each.
    #[inline]
    pub fn busy(&self) -> u32 {
        self.busy
    }

    /// Describes a request of a free slot, with its data's parts, address and length of each.
    ///
    /// # Errors
    /// [`Scattered`], if there are too many parts.
    #[inline]
    pub fn describe(
        &self,
        slot: usize,
        order: Order,
        parts: impl Iterator<Item = (u64, usize)>,
    ) -> Result<(), Scattered> {
        let own = self.words.iova().raw() + (slot * WORDS) as u64 * WORD_BYTES;
        let part = |address, bytes, write| Buffer {
            address,
            bytes,
            write,
        };
        let mut chain = [part(own, HEADER_BYTES, false); SLOT_DESCRIPTORS];
        let mut count = 1;
        if let Some((first, sectors, flags)) = order.range {
            self.words.store(slot, RANGE_WORD, first);
            let rest = u64::from(sectors) | u64::from(flags) << 32;
            self.words.store(slot, RANGE_WORD + 1, rest);
            let at = own + RANGE_WORD as u64 * WORD_BYTES;
            chain[count] = part(at, RANGE_BYTES, false);
            count += 1;
        }
        for (address, bytes) in parts {
            let bytes = u32::try_from(bytes).map_err(|_| Scattered)?;
            if count > PARTS_MAX {
                return Err(Scattered);
            }
            chain[count] = part(address, bytes, order.fills);
            count += 1;
        }
        chain[count] = part(own + STATUS_WORD as u64 * WORD_BYTES, 1, true);
        self.words.store(slot, TYPE_WORD, order.kind.into());
        self.words.store(slot, SECTOR_WORD, order.sector);
        self.words.store(slot, STATUS_WORD, STATUS_NONE.into());
        let first = slot * SLOT_DESCRIPTORS;
        self.queue.table().chain(first, &chain[..=count]);
        Ok(())
    }

    /// Puts what was described into the queue; the device is told by [`Self::ring`].
    #[inline]
    pub fn put(&mut self, slot: usize) {
        self.queue.put(self.tail, (slot * SLOT_DESCRIPTORS) as u8);
        self.tail = self.tail.wrapping_add(1);
        self.busy |= 1 << slot;
    }

    /// Tells the device of all that was put.
    #[inline]
    pub fn ring<T: Transport>(&mut self, transport: &T) {
        self.queue.publish(transport, self.tail);
    }

    /// The next request that was answered. What the device says that it wrote is of no importance:
    /// the status is.
    ///
    /// # Errors
    /// If the device says what cannot be. It must be reset.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Answer>, Lie> {
        let Some((done, _count)) = self.queue.used()? else {
            return Ok(None);
        };
        let position = self.queue.seen();
        let (descriptor, _bytes) = self.queue.reports().element(position);
        let descriptor = descriptor as usize;
        let slot = descriptor / SLOT_DESCRIPTORS;
        let is_first = descriptor.is_multiple_of(SLOT_DESCRIPTORS) && slot < SLOTS;
        if !is_first || self.busy & 1 << slot == 0 {
            return Err(Lie);
        }
        self.busy &= !(1 << slot);
        self.queue.saw(position.wrapping_add(1));
        let status = self.words.load(slot, STATUS_WORD) as u8;
        Ok(Some(Answer { done, slot, status }))
    }

    /// Keeps the device from interrupting: to be called now and then.
    #[inline]
    pub fn silence(&self) {
        self.queue.silence();
    }
}
