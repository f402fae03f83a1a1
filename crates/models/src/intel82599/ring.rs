//! A ring of descriptors in the driver's memory (datasheet, 7.1.9 and 7.2.3.3).

use super::descriptor::BYTES;
use crate::dma::{Dma, DmaFault};
use crate::violation::{Queue, Violation};

/// Reads of a status bit that still find the old value: what the device does takes time, and a
/// driver must look again.
pub(crate) const SETTLE_READS: u8 = 2;
/// What a length can be (8.2.3.8.3, 8.2.3.9.7); the bits above are reserved.
const LENGTH_BITS: u32 = 0xf_ffff;

/// A bit that follows what was asked for, after a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settling {
    wanted: bool,
    is: bool,
    reads_left: u8,
    /// Software has read the bit since it is set.
    seen: bool,
}

impl Settling {
    /// Asks for a value.
    pub(crate) fn want(&mut self, wanted: bool) {
        if wanted != self.wanted {
            self.wanted = wanted;
            self.reads_left = SETTLE_READS;
            self.seen = false;
        }
    }

    /// Software reads the bit.
    pub(crate) fn read(&mut self) -> bool {
        if self.reads_left > 0 {
            self.reads_left -= 1;
        } else {
            self.is = self.wanted;
        }
        self.seen |= self.is && self.wanted;
        self.is
    }

    /// Time has passed.
    pub(crate) fn settle(&mut self) {
        self.is = self.wanted;
        self.reads_left = 0;
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether it is as it was asked for.
    pub(crate) fn is_settled(&self) -> bool {
        self.is == self.wanted
    }

    /// Whether the bit was set and software knows.
    pub(crate) fn was_seen(&self) -> bool {
        self.seen
    }
}

/// A ring, as the device sees it: descriptors from head to tail are its own.
#[derive(Debug, Default)]
pub(crate) struct Ring {
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
            self.hung = false;
            self.base = self.set_base;
            self.descriptors = self.set_bytes / BYTES as u32;
            self.fetched = self.head;
            self.cache.clear();
            self.cache.resize(self.descriptors as usize, [0; 2]);
            if self.head >= self.descriptors || self.tail >= self.descriptors {
                (self.head, self.tail, self.fetched) = (0, 0, 0);
            }
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.enable.is_wanted() && !self.hung && self.descriptors > 0
    }

    pub(crate) fn descriptors(&self) -> u32 {
        self.descriptors
    }

    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    pub(crate) fn tail(&self) -> u32 {
        self.tail
    }

    /// Number of descriptors from `from` up to `to`.
    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from {
            to - from
        } else {
            to + self.descriptors - from
        }
    }

    /// Software gives descriptors to the device by moving the tail.
    pub(crate) fn set_tail(&mut self, tail: u32, queue: Queue) -> Result<(), Violation> {
        if tail == self.tail {
            return Ok(());
        }
        if !self.enable.was_seen() {
            self.tail = tail;
            let register = match queue {
                Queue::Rx(_) => "RDT",
                Queue::Tx(_) => "TDT",
            };
            let rule = "the queue's ENABLE must read 1 first (4.6.7, 4.6.8)";
            return Err(Violation::Order { register, rule });
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
        ring.enable.settle();
        assert!(ring.enable.read());
        ring
    }

    #[test]
    fn a_bit_takes_its_time_and_must_be_read() {
        let mut bit = Settling::default();
        bit.want(true);
        assert_eq!([bit.read(), bit.read(), bit.was_seen()], [false; 3]);
        assert_eq!([bit.read(), bit.was_seen()], [true; 2]);
        bit.want(false);
        assert_eq!([bit.read(), bit.read(), bit.read()], [true, true, false]);
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
        let mut early = Ring::default();
        assert!(matches!(
            early.set_tail(1, QUEUE),
            Err(Violation::Order { .. })
        ));
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
