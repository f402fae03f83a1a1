//! A ring of descriptors in the driver's memory, as Intel's NICs have it: a base, a length, a head
//! that the device moves and a tail that software moves (82599, 7.1.9 and 7.2.3.3; 82574, 7.1.8 and
//! 7.2.4).

use crate::dma::{Dma, DmaFault};
use crate::settling::Settling;
use crate::violation::{Queue, Violation};

/// Bytes of a descriptor. Longer ones count as several.
pub(crate) const BYTES: usize = 16;
/// What a length can be (82599, 8.2.3.8.3; 82574, 10.2.5); the bits above are reserved.
const LENGTH_BITS: u32 = 0xf_ffff;

/// A ring, as the device sees it: descriptors from head to tail are its own.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// Whether the queue is on.
    pub(crate) enable: Settling,
    /// What software has set, and what holds while the queue is on.
    set_base: u64,
    set_bytes: u32,
    base: u64,
    descriptors: u32,
    head: u32,
    tail: u32,
    /// Descriptors from the head up to here have been fetched.
    fetched: u32,
    cache: Vec<[u64; 2]>,
    /// Nothing works until the queue is enabled again.
    pub(crate) hung: bool,
}

impl Ring {
    pub(crate) fn set_base_low(&mut self, low: u32) {
        self.set_base = self.set_base & !0xffff_ffff | u64::from(low);
    }

    pub(crate) fn set_base_high(&mut self, high: u32) {
        self.set_base = self.set_base & 0xffff_ffff | u64::from(high) << 32;
    }

    pub(crate) fn set_bytes(&mut self, bytes: u32) {
        self.set_bytes = bytes & LENGTH_BITS;
    }

    /// The queue is switched on or off. It begins with what was fetched forgotten.
    pub(crate) fn switch(&mut self, on: bool) {
        if on != self.enable.is_wanted() {
            self.enable.want(on);
            let descriptors = self.set_bytes / BYTES as u32;
            if self.head >= descriptors || self.tail >= descriptors {
                (self.head, self.tail) = (0, 0);
            }
            self.begin();
        }
    }

    /// What software has set holds from now on, and what was fetched is forgotten. A ring that head
    /// or tail lie outside of has no descriptors.
    pub(crate) fn begin(&mut self) {
        self.hung = false;
        self.base = self.set_base;
        self.descriptors = self.set_bytes / BYTES as u32;
        if self.head >= self.descriptors || self.tail >= self.descriptors {
            self.descriptors = 0;
        }
        self.fetched = self.head;
        self.cache.clear();
        self.cache.resize(self.descriptors as usize, [0; 2]);
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.enable.is_wanted() && !self.hung && self.descriptors > 0
    }

    /// Whether software has set a length.
    pub(crate) fn has_place(&self) -> bool {
        self.set_bytes != 0
    }

    #[inline]
    pub(crate) fn descriptors(&self) -> u32 {
        self.descriptors
    }

    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// Number of descriptors from `from` up to `to`.
    #[inline]
    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from {
            to - from
        } else {
            to + self.descriptors - from
        }
    }

    /// Changes the head, and begins there.
    pub(crate) fn put_head(&mut self, head: u32) {
        self.head = head;
        self.begin();
    }

    /// Changes the tail, whatever it was.
    pub(crate) fn put_tail(&mut self, tail: u32) {
        self.tail = tail;
    }

    /// Software gives descriptors to the device by moving the tail.
    #[inline]
    pub(crate) fn set_tail(&mut self, tail: u32, queue: Queue) -> Result<(), Violation> {
        if tail == self.tail {
            return Ok(());
        }
        let descriptors = self.descriptors;
        if tail >= descriptors {
            return Err(Violation::TailOutside {
                queue,
                tail,
                descriptors,
            });
        }
        let head = self.head;
        let backwards = self.distance(head, tail) < self.distance(head, self.tail);
        self.tail = tail;
        if backwards {
            self.fetched = head;
            return Err(Violation::TailPastHead { queue, tail, head });
        }
        Ok(())
    }

    /// Fetches all descriptors up to the tail, calling `each` with the new ones.
    pub(crate) fn fetch(
        &mut self,
        dma: &dyn Dma,
        mut each: impl FnMut(u32, [u64; 2]),
    ) -> Result<(), DmaFault> {
        while self.fetched != self.tail {
            let from = self.fetched;
            let to = if self.tail > from {
                self.tail
            } else {
                self.descriptors
            };
            let Some(run) = self.cache.get_mut(from as usize..to as usize) else {
                return Ok(());
            };
            let iova = self.base.wrapping_add(u64::from(from) * BYTES as u64);
            dma.load_all(iova, run.as_flattened_mut())?;
            for (index, words) in (from..).zip(&*run) {
                each(index, *words);
            }
            self.fetched = if to == self.descriptors { 0 } else { to };
        }
        Ok(())
    }

    /// Descriptors that were fetched and are not used yet.
    #[inline]
    pub(crate) fn available(&self) -> u32 {
        self.distance(self.head, self.fetched)
    }

    /// The descriptor at the head.
    #[inline]
    pub(crate) fn first(&self) -> Option<(u32, [u64; 2])> {
        if self.head == self.fetched {
            return None;
        }
        Some((self.head, *self.cache.get(self.head as usize)?))
    }

    /// A descriptor so many behind the head, if it was fetched.
    pub(crate) fn ahead(&self, number: usize) -> Option<[u64; 2]> {
        let number = u32::try_from(number).ok()?;
        if number >= self.available() {
            return None;
        }
        let index = u64::from(self.head + number) % u64::from(self.descriptors);
        self.cache.get(index as usize).copied()
    }

    /// The descriptor at the head was used.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.head += 1;
        if self.head == self.descriptors {
            self.head = 0;
        }
    }

    /// Writes a descriptor back, the word with its DD bit last.
    #[inline]
    pub(crate) fn write_back(
        &self,
        dma: &dyn Dma,
        index: u32,
        [first, second]: [u64; 2],
    ) -> Result<(), DmaFault> {
        let iova = self.base.wrapping_add(u64::from(index) * BYTES as u64);
        dma.store(iova, first)?;
        dma.store(iova + 8, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const QUEUE: Queue = Queue::Tx(0);

    fn ring(descriptors: u32) -> Ring {
        let mut ring = Ring::default();
        ring.set_bytes(descriptors * BYTES as u32);
        ring.switch(true);
        ring
    }

    #[test]
    fn a_tail_stays_in_the_ring_and_behind_the_head() {
        let mut ring = ring(8);
        assert_eq!(ring.set_tail(7, QUEUE), Ok(()));
        let tail = 8;
        let outside = Violation::TailOutside {
            queue: QUEUE,
            tail,
            descriptors: 8,
        };
        assert_eq!(ring.set_tail(8, QUEUE), Err(outside));
        let past = |tail, head| {
            Err(Violation::TailPastHead {
                queue: QUEUE,
                tail,
                head,
            })
        };
        assert_eq!(ring.set_tail(0, QUEUE), past(0, 0));
    }

    #[test]
    fn a_length_has_as_many_bits_as_its_register() {
        let mut ring = Ring::default();
        ring.set_bytes(u32::MAX);
        ring.switch(true);
        assert_eq!(ring.descriptors(), 65_535);
    }

    proptest! {
        /// Against counters that never wrap: a step forward is right if it leaves one free.
        #[test]
        fn tails_are_judged_as_numbers_without_end(
            steps in proptest::collection::vec((0u32..8, 0u32..8), 1..100),
        ) {
            let mut ring = ring(8);
            let (mut given, mut used) = (0u32, 0u32);
            for (give, take) in steps {
                let legal = given + give - used < 8;
                let result = ring.set_tail((given + give) % 8, QUEUE);
                prop_assert_eq!(result.is_ok(), legal);
                if !legal {
                    return Ok(());
                }
                given += give;
                ring.fetched = ring.tail;
                prop_assert_eq!(ring.available(), given - used);
                for _ in 0..take.min(given - used) {
                    ring.advance();
                    used += 1;
                }
            }
        }
    }
}
