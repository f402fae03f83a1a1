//! Files and DMA memory without a copy between: a software device hands ranges of the memory to the
//! kernel, which reads or fills them.
//!
//! Others write that memory at any time, so that no reference to it may exist: what the kernel gets
//! are addresses. Bytes that change meanwhile are the affair of who changes them.

use super::{Outside, View};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr::NonNull;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Most ranges of one call, beside those that are not DMA memory; far fewer than the kernel takes.
pub const SPANS_MAX: usize = 32;
/// Parts in front of them.
const PARTS_MAX: usize = 2;

/// A range of DMA memory that a device may read.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    start: NonNull<u8>,
    len: usize,
    view: PhantomData<&'a View>,
}

/// A range of DMA memory that a device may write.
#[derive(Clone, Copy, Debug)]
pub struct SpanMut<'a>(Span<'a>);

impl View {
    /// A range to be read.
    ///
    /// # Errors
    /// If it is not all in the memory.
    #[inline]
    pub fn span(&self, iova: u64, bytes: usize) -> Result<Span<'_>, Outside> {
        Ok(Span {
            start: self.place(iova, bytes)?,
            len: bytes,
            view: PhantomData,
        })
    }

    /// A range to be written.
    ///
    /// # Errors
    /// If it is not all in the memory, or this is only to be read.
    #[inline]
    pub fn span_mut(&self, iova: u64, bytes: usize) -> Result<SpanMut<'_>, Outside> {
        self.writable(iova, bytes)?;
        Ok(SpanMut(self.span(iova, bytes)?))
    }
}

impl Span<'_> {
    /// Bytes of it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the first bytes out, as many as both have.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        let len = self.len.min(bytes.len());
        // SAFETY: `len` bytes lie within both: `span` has checked this one, and its view is
        // borrowed as long. They do not overlap, for no reference to the view's mapping exists; no
        // other thread of this process writes it, for a view is in one (`sim`, 1. and 2.).
        unsafe {
            self.start
                .copy_to_nonoverlapping(NonNull::from(bytes).cast(), len);
        }
        len
    }

    fn part(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.start.as_ptr().cast(),
            iov_len: self.len,
        }
    }
}

impl<'a> SpanMut<'a> {
    /// The same range, to be read.
    pub fn as_span(&self) -> Span<'a> {
        self.0
    }
}

/// Parts for the kernel, on the stack.
struct Parts {
    parts: [libc::iovec; PARTS_MAX + SPANS_MAX],
    used: usize,
}

impl Parts {
    fn new() -> Self {
        let none = libc::iovec {
            iov_base: core::ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            parts: [none; PARTS_MAX + SPANS_MAX],
            used: 0,
        }
    }

    fn push(&mut self, part: libc::iovec) -> io::Result<()> {
        let place = self.parts.get_mut(self.used);
        *place.ok_or(io::ErrorKind::InvalidInput)? = part;
        self.used += 1;
        Ok(())
    }
}

fn result(moved: isize) -> io::Result<usize> {
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

/// Reads from a file: first into `front`, and what is more into `spans`.
///
/// # Errors
/// What the kernel says; `EINVAL` for more than [`SPANS_MAX`] spans.
pub fn read(file: BorrowedFd<'_>, front: &mut [u8], spans: &[SpanMut<'_>]) -> io::Result<usize> {
    let mut parts = Parts::new();
    parts.push(libc::iovec {
        iov_base: front.as_mut_ptr().cast::<c_void>(),
        iov_len: front.len(),
    })?;
    for span in spans {
        parts.push(span.0.part())?;
    }
    // SAFETY: `parts` has `used` parts. The first is borrowed for writing, alone, until the call
    // returns. The others lie within mappings whose views are borrowed as long, and may be written
    // (`span_mut` has checked both); no reference to any of them exists (`sim`, 1.).
    result(unsafe { libc::readv(file.as_raw_fd(), parts.parts.as_ptr(), parts.used as i32) })
}

/// Writes to a file: `front`, one part after the other, and `spans` behind it.
///
/// # Errors
/// What the kernel says; `EINVAL` for more than [`SPANS_MAX`] spans.
pub fn write(
    file: BorrowedFd<'_>,
    front: [&[u8]; PARTS_MAX],
    spans: &[Span<'_>],
) -> io::Result<usize> {
    let mut parts = Parts::new();
    for part in front {
        parts.push(libc::iovec {
            iov_base: part.as_ptr().cast_mut().cast::<c_void>(),
            iov_len: part.len(),
        })?;
    }
    for span in spans {
        parts.push(span.part())?;
    }
    // SAFETY: `parts` has `used` parts, and writing to a file only reads them. The first ones are
    // borrowed until the call returns; the others lie within mappings whose views are borrowed as
    // long (`span` has checked).
    result(unsafe { libc::writev(file.as_raw_fd(), parts.parts.as_ptr(), parts.used as i32) })
}

/// Reads from a place in a file into `spans`.
///
/// # Errors
/// What the kernel says; `EINVAL` for more than [`SPANS_MAX`] spans, or a place that is too far.
pub fn read_at(file: BorrowedFd<'_>, at: u64, spans: &[SpanMut<'_>]) -> io::Result<usize> {
    let at = i64::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut parts = Parts::new();
    for span in spans {
        parts.push(span.0.part())?;
    }
    let (file, count) = (file.as_raw_fd(), parts.used as i32);
    // SAFETY: `parts` has `used` parts. They lie within mappings whose views are borrowed until
    // this returns, and may be written (`span_mut` has checked both); no reference to any of them
    // exists (`sim`, 1.).
    result(unsafe { libc::preadv(file, parts.parts.as_ptr(), count, at) })
}

/// Writes `spans` to a place in a file.
///
/// # Errors
/// As for [`read_at`].
pub fn write_at(file: BorrowedFd<'_>, at: u64, spans: &[Span<'_>]) -> io::Result<usize> {
    let at = i64::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut parts = Parts::new();
    for span in spans {
        parts.push(span.part())?;
    }
    let (file, count) = (file.as_raw_fd(), parts.used as i32);
    // SAFETY: `parts` has `used` parts, and writing to a file only reads them; they lie within
    // mappings whose views are borrowed until the call returns (`span` has checked).
    result(unsafe { libc::pwritev(file, parts.parts.as_ptr(), count, at) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::arena;
    use std::os::fd::AsFd;

    const IOVA: u64 = 0x10_0000;

    #[test]
    #[cfg_attr(miri, ignore = "the kernel fills memory behind its back")]
    fn bytes_cross_a_file_by_way_of_memory() {
        let (_arena, view) = arena(4096, IOVA);
        view.write(IOVA + 100, b"payload, in two pieces").unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let spans = [(100, 9), (109, 13)].map(|(at, len)| view.span(IOVA + at, len).unwrap());
        let sent = write(writer.as_fd(), [b"head", b"er: "], &spans).unwrap();
        assert_eq!(sent, 30);
        let mut front = [0; 8];
        let places =
            [(1000, 4), (3000, 100)].map(|(at, len)| view.span_mut(IOVA + at, len).unwrap());
        assert_eq!(read(reader.as_fd(), &mut front, &places).unwrap(), 30);
        assert_eq!(&front, b"header: ");
        let mut bytes = [0; 18];
        view.read(IOVA + 1000, &mut bytes[..4]).unwrap();
        assert_eq!(places[1].as_span().copy_to(&mut bytes[4..]), 14);
        assert_eq!(&bytes, b"payload, in two pi");
    }

    #[test]
    #[cfg_attr(miri, ignore = "the kernel fills memory behind its back")]
    fn bytes_go_to_a_place_in_a_file_and_come_back() {
        use rustix::fs::{MemfdFlags, memfd_create};
        let (_arena, view) = arena(4096, IOVA);
        view.write(IOVA, b"abcdef").unwrap();
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let spans = [(0, 2), (4, 2)].map(|(at, len)| view.span(IOVA + at, len).unwrap());
        assert_eq!(write_at(file.as_fd(), 3, &spans).unwrap(), 4);
        let places = [(100, 3), (200, 9)].map(|(at, len)| view.span_mut(IOVA + at, len).unwrap());
        assert_eq!(read_at(file.as_fd(), 2, &places).unwrap(), 5);
        let mut bytes = [0; 3];
        view.read(IOVA + 100, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0ab");
        view.read(IOVA + 200, &mut bytes).unwrap();
        assert_eq!(&bytes, b"ef\0");
        let many = [view.span_mut(IOVA, 1).unwrap(); SPANS_MAX + PARTS_MAX + 1];
        assert!(read_at(file.as_fd(), 0, &many).is_err());
        assert!(read_at(file.as_fd(), u64::MAX, &many[..1]).is_err());
        let many = [view.span(IOVA, 1).unwrap(); SPANS_MAX + PARTS_MAX + 1];
        assert!(write_at(file.as_fd(), 0, &many).is_err());
        assert!(write_at(file.as_fd(), u64::MAX, &many[..1]).is_err());
    }

    #[test]
    fn no_span_leaves_the_memory_and_no_call_has_too_many() {
        let (_arena, view) = arena(4096, IOVA);
        for (iova, bytes) in [
            (IOVA - 1, 1),
            (IOVA + 4096, 1),
            (IOVA + 1, 4096),
            (u64::MAX, 2),
        ] {
            assert!(view.span(iova, bytes).is_err() && view.span_mut(iova, bytes).is_err());
        }
        let (reader, writer) = std::io::pipe().unwrap();
        let many = [view.span(IOVA, 1).unwrap(); SPANS_MAX + 1];
        let error = write(writer.as_fd(), [b"", b""], &many).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let many = [view.span_mut(IOVA, 1).unwrap(); SPANS_MAX + 2];
        let error = read(reader.as_fd(), &mut [0], &many).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
