//! Descriptors that came from the parent, and those that must not reach the guest.

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Makes sure that descriptors 0 to 2 are open, so that no device is taken for the console.
///
/// # Errors
/// What the kernel says about `/dev/null`.
pub fn open_standard() -> io::Result<()> {
    // The lowest free descriptor is what `open` gives: at most three turns.
    loop {
        let fd = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
        if fd.as_raw_fd() > 2 {
            return Ok(());
        }
        std::mem::forget(fd);
    }
}

/// A descriptor of our own to what the parent passed as `number`, closed at `exec` unlike that.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the descriptor is only borrowed for this call, which fails if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(rustix::io::fcntl_dupfd_cloexec(borrowed, 3)?)
}

/// Closes every descriptor but those in `keep`.
///
/// # Errors
/// `ENOSYS` before Linux 5.9.
pub fn close_all_but(keep: &mut [RawFd]) -> io::Result<()> {
    keep.sort_unstable();
    let mut first: u32 = 0;
    for fd in keep.iter().filter_map(|fd| u32::try_from(*fd).ok()) {
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: closing a descriptor frees no memory. The owners of those that go away are never used
    // again: the caller keeps what it still needs, and jumps into the guest or ends by `_exit`.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
