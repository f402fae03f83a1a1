//! Rings of descriptors in the driver's memory: each says itself whose it is, and where the ring
//! ends (datasheet, chapter 6, C+ mode descriptors).

use super::descriptor::{BYTES, END_OF_RING, OWN, RING_MAX};
use crate::dma::{Dma, DmaFault};

/// A ring, as far as the device is with it.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    pub(crate) base: u64,
    index: u64,
    /// Nothing works any more until a reset.
    pub(crate) hung: bool,
}

/// A descriptor that the device has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) index: u32,
    pub(crate) words: [u64; 2],
    iova: u64,
}

impl Ring {
    /// It begins anew at this address.
    pub(crate) fn begin(&mut self, base: u64) {
        *self = Self {
            base,
            ..Self::default()
        };
    }

    /// The next descriptor, if the device has it.
    ///
    /// # Errors
    /// If it is not in the memory.
    pub(crate) fn next(&self, dma: &dyn Dma) -> Result<Option<Found>, DmaFault> {
        if self.hung {
            return Ok(None);
        }
        let iova = self.base.wrapping_add(self.index * BYTES);
        let first = dma.load(iova)?;
        if first & OWN == 0 {
            return Ok(None);
        }
        let words = [first, dma.load(iova.wrapping_add(8))?];
        let index = self.index as u32;
        Ok(Some(Found { index, words, iova }))
    }

    /// Goes on to the one behind it; `false` if the ring should have ended here.
    pub(crate) fn advance(&mut self, found: &Found) -> bool {
        let ends = found.words[0] & END_OF_RING != 0;
        let must_end = self.index + 1 >= RING_MAX;
        self.index = match ends || must_end {
            true => 0,
            false => self.index + 1,
        };
        ends || !must_end
    }
}

impl Found {
    /// Gives it back, with this in its first word.
    ///
    /// # Errors
    /// If it is not in the memory any more.
    pub(crate) fn give_back(&self, dma: &dyn Dma, status: u64) -> Result<(), DmaFault> {
        dma.store(self.iova, status | self.words[0] & END_OF_RING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::sim::arena;

    #[test]
    fn a_ring_ends_where_it_says_or_must() {
        let (_arena, memory) = arena(4096, 0x1000);
        let mut ring = Ring::default();
        ring.begin(0x1000);
        assert!(ring.next(&memory).unwrap().is_none());
        for index in 0..RING_MAX {
            memory.store(0x1000 + index * BYTES, OWN).unwrap();
        }
        memory.store(0x1000 + 3 * BYTES, OWN | END_OF_RING).unwrap();
        let step = |ring: &mut Ring| {
            let found = ring.next(&memory).unwrap().unwrap();
            (found.index, ring.advance(&found))
        };
        let steps = [0; 5].map(|_| step(&mut ring));
        assert_eq!(
            steps,
            [(0, true), (1, true), (2, true), (3, true), (0, true)]
        );
        memory.store(0x1000 + 3 * BYTES, OWN).unwrap();
        let ends: Vec<u32> = (0..RING_MAX)
            .map(|_| step(&mut ring))
            .filter(|(_, well)| !well)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(ends, [63]);
        ring.begin(0x2000);
        assert!(ring.next(&memory).is_err());
    }

    #[test]
    fn a_ring_that_hangs_is_not_read() {
        let (_arena, memory) = arena(4096, 0x1000);
        let mut ring = Ring::default();
        ring.begin(0x2000);
        ring.hung = true;
        assert!(ring.next(&memory).unwrap().is_none());
    }
}
