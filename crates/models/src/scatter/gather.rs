//! A packet on its way out, as its descriptors give it.

use super::Fragments;
use crate::dma::{Dma, DmaFault};

/// A range of the driver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Where it begins.
    pub(crate) iova: u64,
    /// Its size in bytes.
    pub(crate) bytes: usize,
}

/// A packet that is being put together. It is copied to one place; or its headers are, and it is
/// noted where the rest lies.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Has room for the longest packet, and holds what was copied.
    pub(crate) buffer: Vec<u8>,
    /// Bytes of the packet so far.
    bytes: usize,
    /// How many of them are headers, if only those are copied.
    headers: Option<usize>,
    fragments: Fragments,
}

impl Gather {
    /// Makes room for packets of up to so many bytes, and forgets what is there.
    pub(crate) fn reset(&mut self, bytes_max: usize) {
        self.buffer.resize(bytes_max, 0);
        self.bytes = 0;
        self.forget();
    }

    /// A packet begins. With `headers`, so many bytes of it are copied, all in the first fragment,
    /// and the others stay where they are.
    #[inline]
    pub(crate) fn begin(&mut self, headers: Option<usize>) {
        self.headers = headers;
    }

    /// Bytes of the packet so far.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of its headers, if only those are copied.
    #[inline]
    pub(crate) fn headers(&self) -> Option<usize> {
        self.headers
    }

    /// The next bytes of the packet. `may_stay` says that they can be read until it is sent.
    ///
    /// # Errors
    /// If they are not in the memory.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        fragment: Fragment,
        may_stay: bool,
        dma: &dyn Dma,
    ) -> Result<(), DmaFault> {
        let (start, end) = (self.bytes, self.bytes + fragment.bytes);
        if let Some(headers) = self.headers {
            if may_stay && !self.fragments.is_full() {
                self.note(headers, fragment, dma)?;
                self.bytes = end;
                return Ok(());
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let copied = self.linearize(&mut buffer[headers..], dma);
            self.buffer = buffer;
            copied?;
        }
        if let Some(place) = self.buffer.get_mut(start..end) {
            dma.read(fragment.iova, place)?;
        }
        self.bytes = end;
        Ok(())
    }

    /// Copies headers, which the first fragment begins with, and notes where the rest lies.
    fn note(&mut self, headers: usize, fragment: Fragment, dma: &dyn Dma) -> Result<(), DmaFault> {
        let Fragment { iova, bytes } = fragment;
        dma.check(iova, bytes)?;
        let skip = if self.bytes == 0 { headers } else { 0 };
        if let Some(place) = self.buffer.get_mut(..skip) {
            dma.read(iova, place)?;
        }
        if bytes > skip {
            self.fragments.push(Fragment {
                // The range was checked, so that the sum is in it.
                iova: iova.wrapping_add(skip as u64),
                bytes: bytes - skip,
            });
        }
        Ok(())
    }

    /// Copies the noted fragments to `rest`, which follows the headers in the taken buffer.
    ///
    /// # Errors
    /// If they are not in the memory any more.
    pub(crate) fn linearize(&mut self, rest: &mut [u8], dma: &dyn Dma) -> Result<(), DmaFault> {
        self.headers = None;
        let mut at = 0;
        for Fragment { iova, bytes } in self.fragments.drain(..) {
            let Some(place) = rest.get_mut(at..at + bytes) else {
                break;
            };
            dma.read(iova, place)?;
            at += bytes;
        }
        Ok(())
    }

    /// The packet is complete: its length. What was noted stays until [`forget`](Self::forget).
    #[inline]
    pub(crate) fn complete(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }

    /// The packet was sent, or dropped.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.headers = None;
        self.fragments.clear();
    }

    /// How many fragments are noted.
    pub(super) fn fragments(&self) -> usize {
        self.fragments.len()
    }

    /// Hands them over.
    pub(super) fn take_fragments(&mut self) -> impl Iterator<Item = Fragment> {
        self.fragments.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::sim::{View, arena};

    const IOVA: u64 = 0x1000;

    fn memory() -> View {
        let (_, view) = arena(4096, IOVA);
        let bytes: Vec<u8> = (0..200).collect();
        view.write(IOVA, &bytes).unwrap();
        view
    }

    fn fragment(from: u64, bytes: usize) -> Fragment {
        Fragment {
            iova: IOVA + from,
            bytes,
        }
    }

    #[test]
    fn headers_are_copied_and_fragments_noted_until_one_cannot_stay() {
        let memory = memory();
        let mut gather = Gather::default();
        gather.reset(256);
        gather.begin(Some(10));
        gather.add(fragment(0, 10), true, &memory).unwrap();
        gather.add(fragment(20, 30), true, &memory).unwrap();
        assert_eq!((gather.bytes(), gather.headers()), (40, Some(10)));
        assert_eq!(gather.fragments[..], [fragment(20, 30)]);
        assert_eq!(gather.buffer[9..12], [9, 0, 0]);
        gather.add(fragment(60, 5), false, &memory).unwrap();
        assert_eq!((gather.headers(), gather.fragments.len()), (None, 0));
        let all: Vec<u8> = (0..10).chain(20..50).chain(60..65).collect();
        assert_eq!(gather.buffer[..45], all);
        assert_eq!((gather.complete(), gather.bytes()), (45, 0));
    }

    #[test]
    fn more_fragments_than_the_kernel_takes_are_copied() {
        let memory = memory();
        let mut gather = Gather::default();
        gather.reset(256);
        gather.begin(Some(1));
        let all: Vec<u8> = (0..=2 * hw::sim::vectored::SPANS_MAX as u8).collect();
        for byte in &all {
            let fragment = fragment(u64::from(*byte), 1);
            gather.add(fragment, true, &memory).unwrap();
        }
        assert_eq!((gather.bytes(), gather.headers()), (all.len(), None));
        assert_eq!(gather.buffer[..all.len()], all);
    }

    #[test]
    fn what_is_not_in_the_memory_is_a_fault_either_way() {
        let memory = memory();
        let mut gather = Gather::default();
        gather.reset(256);
        for headers in [None, Some(10)] {
            gather.begin(headers);
            assert!(gather.add(fragment(4090, 7), true, &memory).is_err());
            gather.forget();
        }
    }
}
