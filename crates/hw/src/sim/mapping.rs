//! Memory of a file, as a software device has it: of another process, or of a driver in this one.

use super::View;
use super::sigbus::Watched;
use core::ffi::c_void;
use core::ptr::NonNull;
use rustix::fs::fstat;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::BorrowedFd;

/// A mapped part of a file, whose only owner this is.
pub(super) struct Mapping {
    start: NonNull<c_void>,
    len: usize,
    /// What notes that a page of it went away, if somebody else can take one.
    watched: Option<Watched>,
}

// SAFETY: the mapping belongs to the process and not to a thread, and goes where its owner goes.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on.
    fn new(file: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let mut rights = ProtFlags::READ;
        rights.set(ProtFlags::WRITE, writable);
        let anywhere = core::ptr::null_mut();
        // SAFETY: the kernel chooses addresses that nothing else has.
        let start = unsafe { mmap(anywhere, len, rights, MapFlags::SHARED, file, offset) }?;
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        let watched = None;
        Ok(Self {
            start,
            len,
            watched,
        })
    }

    /// Where it begins: at a page.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start.cast()
    }

    /// Its size in bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Its addresses may be another mapping's next.
        self.watched = None;
        if cfg!(miri) {
            // The driver of `shared` has it as well.
            return;
        }
        // SAFETY: `new` mapped these bytes, and what was borrowed of them has ended with `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}

/// `len` bytes of zeros, whole pages, mapped twice: for a driver, for ever, and for a device.
#[cfg(not(miri))]
pub(super) fn shared(len: usize) -> io::Result<(NonNull<u8>, Mapping)> {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;
    let file = memfd_create("outboard-dma", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, len as u64)?;
    let drivers = core::mem::ManuallyDrop::new(Mapping::new(file.as_fd(), 0, len, true)?);
    Ok((drivers.start(), Mapping::new(file.as_fd(), 0, len, true)?))
}

/// The same where there are no files: both have one allocation.
#[cfg(miri)]
pub(super) fn shared(len: usize) -> io::Result<(NonNull<u8>, Mapping)> {
    use alloc::alloc::{Layout, alloc_zeroed};
    let layout = Layout::from_size_align(len, super::PAGE).map_err(io::Error::other)?;
    // SAFETY: callers ask for a page or more.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::NOMEM)?;
    let mapping = Mapping {
        start: start.cast(),
        len,
        watched: None,
    };
    Ok((start, mapping))
}

impl View {
    /// `len` bytes of a file from `offset` on, as devices find them at `iova`.
    ///
    /// The file may come from another process, which may want to do harm. Pages of it can go away
    /// (see [`is_lost`](Self::is_lost)), by the end of it if it is not sealed against shrinking.
    ///
    /// # Errors
    /// `EINVAL` if the range is no whole number of pages within it, or what the kernel says.
    pub fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        iova: u64,
        writable: bool,
    ) -> io::Result<Self> {
        let stat = fstat(file)?;
        // What memory files name as size of a block is that of their pages, which may be large.
        let page = u64::try_from(stat.st_blksize)
            .unwrap_or(0)
            .max(super::PAGE as u64);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let inside = offset.checked_add(len).is_some_and(|end| end <= size);
        let whole = [offset, len].iter().all(|n| n.is_multiple_of(page));
        let addressable =
            iova.checked_add(len).is_some() && iova.is_multiple_of(super::PAGE as u64);
        let len = usize::try_from(len).unwrap_or(0);
        if !inside || !whole || !addressable || len == 0 {
            return Err(Errno::INVAL.into());
        }
        let mut mapping = Mapping::new(file, offset, len, writable)?;
        // Pages of files are no larger than the address space.
        let watched = Watched::new(mapping.start.addr().get(), len, page as usize)?;
        mapping.watched = Some(watched);
        Ok(Self {
            mapping,
            iova,
            writable,
        })
    }

    /// Whether a page of the memory went away, since who shares it has taken it. What was in it is
    /// lost, and whatever is written to it reaches nobody.
    pub fn is_lost(&self) -> bool {
        self.mapping.watched.as_ref().is_some_and(Watched::is_lost)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    use std::os::fd::{AsFd, OwnedFd};

    const PAGE: u64 = 4096;
    const IOVA: u64 = 1 << 40;

    fn file(pages: u64, seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("test", flags).unwrap();
        ftruncate(&file, pages * PAGE).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn two_views_of_a_file_are_of_the_same_bytes() {
        let file = file(3, SealFlags::SHRINK);
        let ours = View::of_file(file.as_fd(), PAGE, PAGE, IOVA, true).unwrap();
        let theirs = View::of_file(file.as_fd(), 0, 3 * PAGE, 0, false).unwrap();
        drop(file);
        ours.write(IOVA + 9, b"abc").unwrap();
        ours.store(IOVA + 16, 7).unwrap();
        let mut read = [0; 3];
        theirs.read(PAGE + 9, &mut read).unwrap();
        assert_eq!((&read, theirs.load(PAGE + 16).unwrap()), (b"abc", 7));
        // What is only to be read is not written.
        assert!(theirs.write(0, &[1]).is_err() && theirs.store(0, 1).is_err());
        assert!(theirs.store16(0, 1).is_err());
        assert!(ours.read(IOVA + PAGE - 1, &mut read).is_err());
    }

    /// A page that is gone when it is touched: as if a file of huge pages had a hole, and no huge
    /// page were left to fill it.
    #[test]
    fn memory_that_goes_away_is_lost_and_nothing_else() {
        let whole = file(1, SealFlags::SHRINK);
        let other = View::of_file(whole.as_fd(), 0, PAGE, IOVA, true).unwrap();
        let cut = file(3, SealFlags::GROW);
        let view = View::of_file(cut.as_fd(), 0, 3 * PAGE, IOVA, true).unwrap();
        view.write(IOVA, b"kept").unwrap();
        ftruncate(&cut, PAGE).unwrap();
        assert!(!view.is_lost());
        let mut read = [1; 8];
        view.read(IOVA + 2 * PAGE - 4, &mut read).unwrap();
        assert_eq!((read, view.is_lost()), ([0; 8], true));
        view.store(IOVA + PAGE, 5).unwrap();
        assert_eq!(view.load(IOVA + PAGE).unwrap(), 5);
        view.read(IOVA, &mut read[..4]).unwrap();
        assert_eq!(&read[..4], b"kept");
        assert!(!other.is_lost());
        drop(view);
        let again = View::of_file(whole.as_fd(), 0, PAGE, IOVA, true).unwrap();
        assert!(!again.is_lost());
    }

    #[test]
    fn what_is_no_memory_is_refused() {
        let (pipe, _) = std::io::pipe().unwrap();
        assert!(View::of_file(pipe.as_fd(), 0, PAGE, IOVA, true).is_err());
    }

    #[test]
    fn only_whole_pages_within_the_file_are_mapped() {
        let file = file(2, SealFlags::SHRINK);
        for (offset, len, iova) in [
            (0, 0, IOVA),
            (0, 1, IOVA),
            (1, PAGE, IOVA),
            (0, 3 * PAGE, IOVA),
            (PAGE, 2 * PAGE, IOVA),
            (u64::MAX - PAGE + 1, PAGE, IOVA),
            (0, u64::MAX - PAGE + 1, IOVA),
            (0, PAGE, IOVA + 1),
            (0, 2 * PAGE, u64::MAX - PAGE + 1),
        ] {
            let view = View::of_file(file.as_fd(), offset, len, iova, true);
            assert!(view.is_err(), "{offset:#x} {len:#x} {iova:#x}");
        }
    }
}
