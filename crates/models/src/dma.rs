//! Memory as a device reaches it.

use hw::sim::View;
use hw::sim::vectored::{Span, SpanMut};
use std::fmt;

/// Memory that a device may read and write, by I/O address. Every access is checked: what lies
/// outside is the driver's mistake, and comes back as a [`DmaFault`].
///
/// It is made of mappings: to find the one that has an address is all that there is to implement.
pub trait Dma {
    /// The mapping that has an address; whether it has what follows is checked by the mapping.
    ///
    /// # Errors
    /// If there is none.
    fn view(&self, iova: u64, bytes: usize) -> Result<&View, DmaFault>;

    /// A word of a descriptor, at a multiple of 8 bytes; what was written before it can be read
    /// after.
    ///
    /// # Errors
    /// If it is not in the memory, or not aligned.
    fn load(&self, iova: u64) -> Result<u64, DmaFault> {
        Ok(self.view(iova, 8)?.load(iova)?)
    }

    /// Several such words, one after the other.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn load_all(&self, iova: u64, words: &mut [u64]) -> Result<(), DmaFault> {
        for (index, word) in (0..).zip(words) {
            *word = self.load(iova.wrapping_add(8 * index))?;
        }
        Ok(())
    }

    /// Writes a word of a descriptor, after all that was written before.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    fn store(&self, iova: u64, value: u64) -> Result<(), DmaFault> {
        Ok(self.view(iova, 8)?.store(iova, value)?)
    }

    /// 16 bits of a ring, at a multiple of 2 bytes; what was written before them can be read after.
    ///
    /// # Errors
    /// If they are not in the memory, or not aligned.
    fn load16(&self, iova: u64) -> Result<u16, DmaFault> {
        Ok(self.view(iova, 2)?.load16(iova)?)
    }

    /// Writes 16 bits of a ring, after all that was written before.
    ///
    /// # Errors
    /// As for [`load16`](Self::load16).
    fn store16(&self, iova: u64, value: u16) -> Result<(), DmaFault> {
        Ok(self.view(iova, 2)?.store16(iova, value)?)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// If they are not all in the memory.
    fn read(&self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        Ok(self.view(iova, bytes.len())?.read(iova, bytes)?)
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// If there is not room for all of them in the memory.
    fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        Ok(self.view(iova, bytes.len())?.write(iova, bytes)?)
    }

    /// A range that the kernel is to read.
    ///
    /// # Errors
    /// If it is not all in the memory.
    fn span(&self, iova: u64, bytes: usize) -> Result<Span<'_>, DmaFault> {
        Ok(self.view(iova, bytes)?.span(iova, bytes)?)
    }

    /// A range that the kernel is to fill.
    ///
    /// # Errors
    /// If there is not room for all of it in the memory.
    fn span_mut(&self, iova: u64, bytes: usize) -> Result<SpanMut<'_>, DmaFault> {
        Ok(self.view(iova, bytes)?.span_mut(iova, bytes)?)
    }

    /// Whether a range lies in the memory; nothing is touched.
    ///
    /// # Errors
    /// If it does not.
    fn check(&self, iova: u64, bytes: usize) -> Result<(), DmaFault> {
        let end = iova
            .checked_add(bytes as u64)
            .ok_or(DmaFault { iova, bytes })?;
        let view = self.view(iova, bytes)?;
        let both = view
            .read(iova, &mut [])
            .and_then(|()| view.read(end, &mut []));
        both.map_err(|_| DmaFault { iova, bytes })
    }
}

/// A range that is not in the memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaFault {
    /// Where it begins.
    pub iova: u64,
    /// How many bytes it has.
    pub bytes: usize,
}

impl fmt::Display for DmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes at {:#x} are outside of DMA memory",
            self.bytes, self.iova
        )
    }
}

impl std::error::Error for DmaFault {}

impl From<hw::sim::Outside> for DmaFault {
    fn from(outside: hw::sim::Outside) -> Self {
        Self {
            iova: outside.iova,
            bytes: outside.bytes,
        }
    }
}

impl Dma for View {
    #[inline]
    fn view(&self, _: u64, _: usize) -> Result<&View, DmaFault> {
        Ok(self)
    }
}
