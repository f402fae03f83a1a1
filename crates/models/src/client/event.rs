//! Events of the kernel's that a client has given.

use super::Refused;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, readlink};
use std::os::fd::{AsRawFd, OwnedFd};

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Signals an event that was [checked](check).
pub(crate) fn signal(event: &OwnedFd) {
    // A counter that is full blocks whoever adds to it; it wakes its reader anyway.
    let mut ready = [PollFd::new(event, PollFlags::OUT)];
    if matches!(poll(&mut ready, Some(&NOW)), Ok(1)) {
        let _ = rustix::io::write(event, &1u64.to_le_bytes());
    }
}

/// Whether it is an event, which a write does not block on but when its counter is full; it is made
/// not to block at all, which the client could undo, to its own harm alone.
pub(crate) fn check(event: &OwnedFd) -> Result<(), Refused> {
    let path = format!("/proc/self/fd/{}", event.as_raw_fd());
    let name = readlink(path, Vec::new()).map_err(|_| Refused::NotEvent)?;
    if name.as_bytes() != b"anon_inode:[eventfd]" {
        return Err(Refused::NotEvent);
    }
    let flags = fcntl_getfl(event).map_err(|_| Refused::NotEvent)?;
    fcntl_setfl(event, flags | OFlags::NONBLOCK).map_err(|_| Refused::NotEvent)
}

/// Takes what an event that was [checked](check) counted, so that it can be waited for again.
pub(crate) fn drain(event: &OwnedFd) {
    let _ = rustix::io::read(event, &mut [0; 8]);
}
