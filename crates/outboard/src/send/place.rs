//! Where the tap of a port is now. It may have been moved to another network namespace since the
//! guest was started, and only the descriptor that the tender holds knows where to.

use linux::tap;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;
use std::{fs, io};

/// What a descriptor of a tap was opened from.
const CLONE_DEVICE: &str = "/dev/net/tun";

/// The inode by which a network namespace is told from others.
pub(super) fn inode(namespace: impl AsFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(namespace)?.st_ino)
}

/// The network namespace of the tap `interface` that the tender under `monitor` holds; `None` if it
/// holds none of this name, or several. Then the one in the namespace `started` is meant, if there
/// is one.
///
/// # Errors
/// The tender is another user's, or ends at this moment.
pub(super) fn find(
    interface: &str,
    started: Option<u64>,
    monitor: u32,
) -> io::Result<Option<OwnedFd>> {
    let children = fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children"))?;
    let mut found = Vec::new();
    for child in children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
    {
        found.extend(namespaces(interface, child)?);
    }
    let there = |namespace: &OwnedFd| started.is_some() && inode(namespace).ok() == started;
    let meant = match found.len() {
        0 | 1 => found.pop(),
        _ => found.into_iter().find(there),
    };
    Ok(meant)
}

/// Those of all taps of this name that a process holds.
fn namespaces(interface: &str, process: i32) -> io::Result<Vec<OwnedFd>> {
    let pid = Pid::from_raw(process).ok_or(io::Error::from(Errno::SRCH))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let entry = entry?;
        let is_tap = match fs::read_link(entry.path()) {
            // It was closed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            file => file? == Path::new(CLONE_DEVICE),
        };
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse::<RawFd>().ok());
        let Some(number) = number.filter(|_| is_tap) else {
            continue;
        };
        let copy = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty())?;
        // The interface of a descriptor may have been deleted.
        if tap::interface(copy.as_fd()).is_ok_and(|tap| tap.name == interface) {
            found.push(tap::namespace(copy.as_fd())?);
        }
    }
    Ok(found)
}
