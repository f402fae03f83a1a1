//! Mount namespaces. Keep open: `mount_namespaces(7)`.

use crate::namespace::unshare;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::UnshareFlags;
use std::io;

/// Moves this thread into a new mount namespace: what it mounts is seen there alone. Threads that
/// it starts are in it too.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`.
pub fn unshare_mounts() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(mount_change("/", private)?)
}
