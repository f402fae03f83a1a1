//! Memory of links as a host program has it: its own end's to write, the other's to read.
//!
//! Mappings are never undone: whoever holds one has it as long as the process lives.

use crate::memory::sealed_bytes;
use abi::link::{HEAD_BYTES, is_file};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

const WORD: usize = size_of::<AtomicU64>();

/// The memory of an end that this process writes.
#[derive(Debug)]
pub struct Own {
    /// The words in front of the slots.
    pub head: &'static [AtomicU64],
    /// The slots, which the other end reads at any time.
    pub slots: &'static mut [u8],
}

/// Maps the memory of this process's end of a link, to be written. It is for one process at a time:
/// whoever gives it to two, has them write over each other's frames.
///
/// # Errors
/// `EINVAL` if it is no such memory, or its size can change; what the kernel says.
pub fn own(file: BorrowedFd<'_>) -> io::Result<Own> {
    let (place, bytes) = map(file, ProtFlags::READ | ProtFlags::WRITE)?;
    // SAFETY: `map` gives the place of `bytes` mapped bytes, a page at least and aligned to one,
    // which stay. The head lies within, for `bytes` are a file's of a link, and is touched by
    // atomics alone, here and by whoever else has the file open.
    let head = unsafe { std::slice::from_raw_parts(place.cast(), HEAD_BYTES / WORD) };
    let (first, count) = (place.wrapping_add(HEAD_BYTES), bytes - HEAD_BYTES);
    // SAFETY: these bytes lie behind the head in the same mapping, which nobody else in this
    // process has. Other processes read them, and none but this one writes them, as a link's
    // protocol has it; where one does, bytes of a frame are others, and each value of a byte is
    // one. Nothing but copies is made of them before they are checked.
    let slots = unsafe { std::slice::from_raw_parts_mut(first, count) };
    Ok(Own { head, slots })
}

/// Maps the memory of the other end of a link, to be read alone.
///
/// # Errors
/// Those of [`own`].
pub fn peer(file: BorrowedFd<'_>) -> io::Result<&'static [AtomicU64]> {
    let (place, bytes) = map(file, ProtFlags::READ)?;
    // SAFETY: `map` gives the place of `bytes` mapped bytes, aligned to a page, which stay. The
    // other end writes them at any time, and this process only loads whole words atomically,
    // which memory that cannot be written allows.
    Ok(unsafe { std::slice::from_raw_parts(place.cast(), bytes / WORD) })
}

/// Maps the whole memory of an end of a link; where it lies, and its size in bytes.
fn map(file: BorrowedFd<'_>, rights: ProtFlags) -> io::Result<(*mut u8, usize)> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let bytes = sealed_bytes(file).filter(|bytes| is_file(*bytes));
    let bytes = usize::try_from(bytes.ok_or_else(invalid)?).map_err(|_| invalid())?;
    // SAFETY: the kernel chooses a free place, so no memory that Rust knows of changes. The size is
    // sealed, so no access ever finds the end of the file.
    let place = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            rights,
            MapFlags::SHARED,
            file,
            0,
        )
    }?;
    Ok((place.cast(), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{link, memory};
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn an_end_writes_what_the_other_one_reads() {
        let [a, b] = link::make([1, 2]).unwrap();
        let ours = own(a.own.as_fd()).unwrap();
        let seen = peer(b.peer.as_fd()).unwrap();
        ours.head[8].store(7, Ordering::Relaxed);
        ours.slots[..8].copy_from_slice(&9_u64.to_ne_bytes());
        assert_eq!(seen[8].load(Ordering::Relaxed), 7);
        assert_eq!(seen[HEAD_BYTES / WORD].load(Ordering::Relaxed), 9);
        assert_eq!(seen.len() * WORD, HEAD_BYTES + ours.slots.len());
        // The kernel gives nobody who may only read it the right to write.
        let error = own(b.peer.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn other_memory_is_refused() {
        let short = memory::sealed("short", 8192).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for file in [short.as_fd(), null.as_fd()] {
            let error = peer(file).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
