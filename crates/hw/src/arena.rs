//! The DMA memory of an image.

use crate::buf::DmaBuf;
use crate::iova::Iova;
use crate::ring::DmaRing;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;

/// Descriptor rings begin at multiples of this, in bytes: a page suits every device.
const RING_ALIGN: usize = 4096;

/// DMA memory, handed out piece by piece and never taken back: drivers take what they need when
/// they start, and reuse it.
pub struct DmaArena {
    start: NonNull<u8>,
    iova: u64,
    len: usize,
    used: usize,
}

/// The DMA memory is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfDma {
    /// Bytes that were asked for.
    pub wanted: usize,
    /// Bytes that are left.
    pub left: usize,
}

impl fmt::Display for OutOfDma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes of DMA memory are wanted and {} are left: enlarge dma_size in manifest.json",
            self.wanted, self.left
        )
    }
}

impl core::error::Error for OutOfDma {}

impl DmaArena {
    /// # Safety
    /// The `len` bytes from `start` on, which is aligned to a page, are initialised, mapped for
    /// ever, and used by nobody else but devices; those find them at `iova` and behind.
    pub unsafe fn new(start: NonNull<u8>, len: usize, iova: u64) -> Self {
        Self {
            start,
            iova,
            len,
            used: 0,
        }
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.len - self.used
    }

    fn take(&mut self, bytes: usize, align: usize) -> Result<(NonNull<u8>, Iova), OutOfDma> {
        let start = self.used.next_multiple_of(align);
        let end = start.checked_add(bytes).filter(|end| *end <= self.len);
        let out = OutOfDma {
            wanted: bytes,
            left: self.left(),
        };
        self.used = end.ok_or(out)?;
        // SAFETY: `start` is not past the end (checked).
        let place = unsafe { self.start.add(start) };
        Ok((place, Iova(self.iova + start as u64)))
    }

    /// A buffer of `len` bytes, aligned to `align` bytes, a power of two up to a page.
    ///
    /// # Errors
    /// If less is left.
    ///
    /// # Panics
    /// If `align` is no power of two up to 4096.
    pub fn buf(&mut self, len: usize, align: usize) -> Result<DmaBuf, OutOfDma> {
        assert!(align.is_power_of_two() && align <= RING_ALIGN);
        let (start, iova) = self.take(len, align)?;
        // SAFETY: the memory is as the caller of `new` promised, and each byte is handed out once.
        Ok(unsafe { DmaBuf::new(start, len, iova) })
    }

    /// A ring of descriptors, all of them zero.
    ///
    /// # Errors
    /// If less is left.
    pub fn ring<const WORDS: usize, const N: usize>(
        &mut self,
    ) -> Result<DmaRing<WORDS, N>, OutOfDma> {
        let (start, iova) = self.take(DmaRing::<WORDS, N>::BYTES, RING_ALIGN)?;
        // SAFETY: initialised, aligned to a page, handed out once, and from now on touched as
        // atomics alone, by devices too.
        let words = unsafe { start.cast::<[[AtomicU64; WORDS]; N]>().as_ref() };
        let ring = DmaRing::new(words, iova);
        for index in 0..N {
            for word in 0..WORDS {
                ring.store(index, word, 0);
            }
        }
        Ok(ring)
    }
}
