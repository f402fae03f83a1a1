//! Descriptors that driver and device both write.

use crate::flight::Done;
use crate::iova::Iova;
use core::sync::atomic::{AtomicU64, Ordering};

/// A word of a descriptor, as the device had written it when it was read.
#[derive(Clone, Copy, Debug)]
pub struct Report(u64);

impl Report {
    /// The word.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// The device's word that it is done, if the bits of `mask` are those of `wanted`: among them
    /// is the one that the device sets in the end.
    #[inline]
    pub fn shows(self, mask: u64, wanted: u64) -> Option<Done> {
        Done::shown(self.0, mask, wanted)
    }
}

/// A ring of `N` descriptors of `WORDS` 64-bit words each, in DMA memory; `N` is a power of two.
///
/// Indices are masked, so that any number is one. Words are loaded and stored whole. The device may
/// change a word at any time: load it once, check what was loaded, and never ask again. On x86 all
/// of these are plain moves; order is kept by acquiring and releasing.
///
/// A copy is the same ring, for a loop to have at hand.
#[derive(Clone, Copy)]
pub struct DmaRing<const WORDS: usize, const N: usize> {
    words: &'static [[AtomicU64; WORDS]; N],
    iova: Iova,
}

impl<const WORDS: usize, const N: usize> DmaRing<WORDS, N> {
    /// Number of descriptors.
    pub const LEN: usize = N;
    /// Size in bytes.
    pub const BYTES: usize = N * WORDS * size_of::<u64>();

    pub(crate) fn new(words: &'static [[AtomicU64; WORDS]; N], iova: Iova) -> Self {
        const { assert!(N.is_power_of_two() && WORDS > 0) };
        Self { words, iova }
    }

    /// Where the device finds the first descriptor.
    pub fn iova(&self) -> Iova {
        self.iova
    }

    #[inline]
    fn word(&self, index: usize, word: usize) -> &AtomicU64 {
        &self.words[index & (N - 1)][word]
    }

    /// Word `word` of descriptor `index`; what the device wrote before it can be read after.
    #[inline]
    pub fn load(&self, index: usize, word: usize) -> u64 {
        self.word(index, word).load(Ordering::Acquire)
    }

    /// Word `word` of descriptor `index`, as [`Self::load`], where it says whether the device is
    /// done.
    #[inline]
    pub fn report(&self, index: usize, word: usize) -> Report {
        Report(self.load(index, word))
    }

    /// Writes a word; the device may see it before or after others, until a doorbell.
    #[inline]
    pub fn store(&self, index: usize, word: usize, value: u64) {
        self.word(index, word).store(value, Ordering::Relaxed);
    }

    /// Writes a word after all that was written before: the one by which the device learns that the
    /// descriptor is its own.
    #[inline]
    pub fn publish(&self, index: usize, word: usize, value: u64) {
        self.word(index, word).store(value, Ordering::Release);
    }
}
