//! Owned bytes that devices may reach.

use crate::flight::Reachable;
use crate::iova::Iova;
use core::ptr::NonNull;

/// The I/O address of memory that no device can reach. It is no address of a byte.
const NONE: u64 = u64::MAX;

/// Bytes that one owner has. Those of DMA memory have an I/O address; plain memory has none and
/// serves where no device is concerned.
pub struct DmaBuf {
    start: NonNull<u8>,
    len: usize,
    iova: u64,
}

impl DmaBuf {
    /// Plain memory, which no device can reach.
    pub fn plain(bytes: &'static mut [u8]) -> Self {
        Self {
            len: bytes.len(),
            start: NonNull::from(bytes).cast(),
            iova: NONE,
        }
    }

    /// # Safety
    /// The `len` bytes from `start` on are initialised, mapped for ever, used by nobody else but
    /// devices, and at `iova` for those.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize, iova: Iova) -> Self {
        Self {
            start,
            len,
            iova: iova.0,
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is initialised, lives for ever and is this owner's alone (`new`,
        // `plain`). A device that behaves does not write it now, see the crate's documentation.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`, and `self` is borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Where devices find the byte at `offset`, one of the buffer's.
    #[inline]
    pub fn iova_at(&self, offset: usize) -> Option<Iova> {
        (self.iova != NONE).then(|| Iova(self.iova + offset as u64))
    }
}

impl Reachable for DmaBuf {
    #[inline]
    fn iova(&self) -> Option<Iova> {
        self.iova_at(0)
    }
}

impl core::fmt::Debug for DmaBuf {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DmaBuf")
            .field("len", &self.len)
            .field("iova", &self.iova())
            .finish_non_exhaustive()
    }
}
