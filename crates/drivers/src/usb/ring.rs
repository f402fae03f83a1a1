//! Rings (xHCI 1.2, 4.9): those of commands and transfers, which the driver fills, and that of
//! events, which the controller fills.
//!
//! What was put is known here alone: what the controller says of it is compared with that.

use super::registers::{EVENTS_BUSY, Places};
use super::trb::{self, CHAIN, CYCLE, Event, Trb};
use hw::{DmaArena, DmaRing, Done, Mmio, OutOfDma};

/// Blocks of a ring that the driver fills; the last one is the link back.
const BLOCKS: usize = 64;
/// Bytes of a block.
const BLOCK: u64 = 16;
/// Events that can wait.
const EVENTS: usize = 256;
/// After so many events the controller is told that they were seen.
const SEEN: usize = EVENTS / 4;

/// Blocks that belong together: from the first one on, so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    first: usize,
    count: usize,
}

/// A ring that the driver fills.
pub struct Ring {
    blocks: DmaRing<2, BLOCKS>,
    /// Bytes of each block.
    bytes: [u32; BLOCKS],
    next: usize,
    cycle: u64,
    /// Where the transfer begins that is being added.
    first: usize,
    /// The first block of what is not committed yet, and its second word.
    open: Option<(usize, u64)>,
}

impl Ring {
    /// A ring with nothing in it.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        Ok(Self {
            blocks: arena.ring()?,
            bytes: [0; BLOCKS],
            next: 0,
            cycle: CYCLE,
            first: 0,
            open: None,
        })
    }

    /// Makes it one that no controller has seen.
    pub fn clear(&mut self) {
        for index in 0..BLOCKS {
            self.blocks.store(index, 0, 0);
            self.blocks.store(index, 1, 0);
        }
        (self.next, self.cycle) = (0, CYCLE);
        (self.first, self.open) = (0, None);
    }

    /// Where the controller goes on, with the cycle that it finds there in the lowest bit.
    pub fn place(&self) -> u64 {
        self.address(self.next) | self.cycle >> 32
    }

    /// One behind the last byte.
    pub fn end(&self) -> u64 {
        self.address(BLOCKS)
    }

    fn address(&self, index: usize) -> u64 {
        self.blocks.iova().raw() + index as u64 * BLOCK
    }

    /// Adds a block, whose data have so many bytes. What is added is the controller's with
    /// [`Self::commit`].
    #[inline]
    pub fn put(&mut self, block: Trb, bytes: u32) {
        let [first, second] = block;
        self.write(first, second, bytes);
        if self.next == BLOCKS - 1 {
            let [start, link] = trb::link(self.address(0));
            // A transfer goes on behind the link (4.11.7).
            self.write(start, link | second & CHAIN, 0);
            self.next = 0;
            self.cycle ^= CYCLE;
        }
    }

    #[inline]
    fn write(&mut self, first: u64, second: u64, bytes: u32) {
        let index = self.next;
        self.bytes[index] = bytes;
        self.blocks.store(index, 0, first);
        match self.open {
            None => {
                // The other cycle: it is not the controller's yet.
                let word = second | (self.cycle ^ CYCLE);
                self.blocks.publish(index, 1, word);
                self.open = Some((index, second | self.cycle));
            }
            Some(_) => self.blocks.publish(index, 1, second | self.cycle),
        }
        self.next += 1;
    }

    /// Which blocks were added since the last time: those of one transfer.
    #[inline]
    pub fn close(&mut self) -> Span {
        let first = core::mem::replace(&mut self.first, self.next);
        let count = (self.next + BLOCKS - first) % BLOCKS;
        Span { first, count }
    }

    /// Gives the controller what was added. It may begin at once, whether or not it is told.
    #[inline]
    pub fn commit(&mut self) {
        if let Some((first, word)) = self.open.take() {
            self.blocks.publish(first, 1, word);
        }
    }

    /// The place in `span` of the block at this address.
    #[inline]
    pub fn find(&self, span: Span, pointer: u64) -> Option<usize> {
        let offset = pointer.checked_sub(self.blocks.iova().raw())?;
        let index = usize::try_from(offset / BLOCK).ok()?;
        if !offset.is_multiple_of(BLOCK) || index >= BLOCKS {
            return None;
        }
        let place = (index + BLOCKS - span.first) % BLOCKS;
        (place < span.count).then_some(place)
    }

    /// Bytes of the first `blocks` of a span.
    pub fn bytes(&self, span: Span, blocks: usize) -> u64 {
        let places = 0..blocks.min(span.count);
        let bytes = places.map(|place| self.bytes[(span.first + place) % BLOCKS]);
        bytes.map(u64::from).sum()
    }
}

/// The ring of events, of one segment.
pub struct Events {
    blocks: DmaRing<2, EVENTS>,
    /// The table of segments (6.5).
    table: DmaRing<2, 1>,
    next: usize,
    cycle: u64,
}

impl Events {
    /// A ring without events.
    ///
    /// # Errors
    /// If less DMA memory is left.
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        Ok(Self {
            blocks: arena.ring()?,
            table: arena.ring()?,
            next: 0,
            cycle: CYCLE,
        })
    }

    /// Makes it one that no controller has seen, and tells the controller where it is (4.9.4).
    pub fn begin(&mut self, bar: &Mmio, places: &Places) {
        for index in 0..EVENTS {
            self.blocks.store(index, 0, 0);
            self.blocks.store(index, 1, 0);
        }
        (self.next, self.cycle) = (0, CYCLE);
        self.table.store(0, 0, self.blocks.iova().raw());
        self.table.store(0, 1, EVENTS as u64);
        bar.write(places.segments(), 1);
        self.tell(bar, places);
        let (low, high) = self.table.iova().halves();
        let [table, table_high] = places.table();
        bar.write(table, low);
        bar.write(table_high, high);
    }

    /// One behind the last byte.
    pub fn end(&self) -> u64 {
        let table = self.table.iova().raw() + BLOCK;
        table.max(self.blocks.iova().raw() + EVENTS as u64 * BLOCK)
    }

    /// Tells the controller what was seen.
    fn tell(&self, bar: &Mmio, places: &Places) {
        let place = self.blocks.iova().raw() + self.next as u64 * BLOCK;
        let [low, high] = places.dequeue();
        bar.write(low, place as u32 | EVENTS_BUSY);
        bar.write(high, (place >> 32) as u32);
    }

    /// The next event, and the controller's word that it happened.
    #[inline]
    pub fn next(&mut self, bar: &Mmio, places: &Places) -> Option<(Event, Done)> {
        let report = self.blocks.report(self.next, 1);
        let done = report.shows(CYCLE, self.cycle)?;
        let event = Event::of([self.blocks.load(self.next, 0), report.word()]);
        self.next += 1;
        if self.next == EVENTS {
            self.next = 0;
            self.cycle ^= CYCLE;
        }
        if self.next.is_multiple_of(SEEN) {
            self.tell(bar, places);
        }
        Some((event, done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::sim;

    #[test]
    fn a_transfer_is_the_controllers_all_at_once_and_goes_on_behind_the_link() {
        let (mut arena, view) = sim::arena(4 * 4096, 0x1000);
        let mut ring = Ring::new(&mut arena).unwrap();
        let cycle = |index: u64| view.load(0x1000 + index * 16 + 8).unwrap() & CYCLE != 0;
        for _ in 0..BLOCKS - 2 {
            ring.put([7, 0], 1);
            assert_eq!(ring.close().count, 1);
            ring.commit();
        }
        assert!(cycle(0) && cycle(61) && !cycle(62));
        ring.put([8, CHAIN], 100);
        ring.put([9, 0], 10);
        assert!(!cycle(62) && cycle(63), "the first one is not given yet");
        let span = ring.close();
        ring.commit();
        assert_eq!((span.first, span.count), (62, 3));
        assert!(
            cycle(62) && !cycle(0),
            "the ring begins with the other cycle"
        );
        let link = view.load(0x1000 + 63 * 16 + 8).unwrap();
        assert_eq!(link & (CHAIN | trb::TOGGLE), CHAIN | trb::TOGGLE);
        assert_eq!(ring.find(span, 0x1000 + 62 * 16), Some(0));
        assert_eq!(ring.find(span, 0x1000), Some(2));
        for wrong in [0x1010, 0x1008, 0xff0, 0x1000 + 64 * 16, u64::MAX] {
            assert_eq!(ring.find(span, wrong), None);
        }
        assert_eq!((ring.bytes(span, 1), ring.bytes(span, 9)), (100, 110));
        assert_eq!(ring.place(), 0x1010);
    }
}
