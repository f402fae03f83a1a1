//! Events: numbers in the kernel that one process adds to and another waits for.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// An event at which nobody waits longer than he wants to: neither reading nor writing it blocks.
///
/// # Errors
/// What the kernel says.
pub fn new() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Whether a descriptor is one, as `/proc` says.
pub fn is_event(fd: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn an_event_is_known_from_other_descriptors() {
        assert!(is_event(new().unwrap().as_fd()));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!is_event(file.as_fd()));
    }
}
