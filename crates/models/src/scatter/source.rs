//! A received frame on its way into the driver's memory, which may be several buffers.

use crate::dma::Dma;

/// Where a frame's bytes come from: some parts of it, one after the other.
pub(crate) type Parts<'a> = [&'a [u8]; 3];

/// Bytes of a frame that are still to be written.
pub(crate) struct Source<'a> {
    parts: Parts<'a>,
    part: usize,
    at: usize,
}

impl<'a> Source<'a> {
    /// All bytes of these parts.
    #[inline]
    pub(crate) fn new(parts: Parts<'a>) -> Self {
        Self {
            parts,
            part: 0,
            at: 0,
        }
    }

    /// The next bytes that lie together, at most `most` of them; none in the end.
    #[inline]
    fn next(&mut self, most: usize) -> &'a [u8] {
        while let Some(part) = self.parts.get(self.part) {
            let rest = &part[self.at..];
            if !rest.is_empty() {
                let piece = &rest[..rest.len().min(most)];
                self.at += piece.len();
                return piece;
            }
            (self.part, self.at) = (self.part + 1, 0);
        }
        &[]
    }

    /// Writes the next `len` bytes to a buffer. A write that goes astray is lost, as on a bus: it
    /// was reported when the descriptor was fetched.
    #[inline]
    pub(crate) fn write(&mut self, len: usize, iova: u64, dma: &dyn Dma) {
        let mut written = 0;
        while written < len {
            let piece = self.next(len - written);
            if piece.is_empty() {
                break;
            }
            let _lost = dma.write(iova.wrapping_add(written as u64), piece);
            written += piece.len();
        }
    }

    /// Copies the next bytes, as many as `to` has room for.
    pub(crate) fn copy(&mut self, to: &mut [u8]) {
        let mut copied = 0;
        while copied < to.len() {
            let piece = self.next(to.len() - copied);
            if piece.is_empty() {
                break;
            }
            to[copied..copied + piece.len()].copy_from_slice(piece);
            copied += piece.len();
        }
    }
}
