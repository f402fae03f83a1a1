//! The MTU of an interface, wherever it is, and when it may have changed.

use crate::interface::Interfaces;
use crate::{namespace, tap};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use rustix::fs::fstat;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The group of those who hear of interfaces (`RTMGRP_LINK`).
const LINKS: u32 = 1;
/// Messages that are thrown away at a time.
const DRAINS_MAX: usize = 1024;
/// Room for one: what it says is not looked at.
const BYTES: usize = 64;

/// Watches an interface. Its descriptor is readable when an interface near it has changed.
#[derive(Debug)]
pub struct Watch {
    name: String,
    interfaces: Interfaces,
    changes: Socket,
}

impl Watch {
    /// Watches the interface of this name, which need not be there yet, in this thread's namespace.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(name: &str) -> io::Result<Self> {
        let mut changes = Socket::new(NETLINK_ROUTE)?;
        changes.bind(&SocketAddr::new(0, LINKS))?;
        changes.set_non_blocking(true)?;
        Ok(Self {
            name: name.to_owned(),
            interfaces: Interfaces::here()?,
            changes,
        })
    }

    /// Watches the tap behind a descriptor, in whatever namespace it is.
    ///
    /// # Errors
    /// What the kernel says; `EPERM` if its namespace may not be entered.
    pub fn of_tap(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let name = tap::interface(fd)?.name;
        beside(fd, || Self::new(&name))
    }

    /// The MTU by now, in bytes. Changes from now on make the descriptor readable again.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface.
    pub fn mtu(&self) -> io::Result<i32> {
        for _ in 0..DRAINS_MAX {
            // A message that was lost (ENOBUFS) is one that nobody needs.
            match rustix::io::read(&self.changes, &mut [0; BYTES]) {
                Ok(_) | Err(rustix::io::Errno::NOBUFS | rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        self.interfaces.mtu(&self.name)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

/// Does `work` in the network namespace of the interface behind `fd`, which need not be ours.
///
/// # Errors
/// Those of `work`; the namespace may not be entered, or not left again.
pub fn beside<T>(fd: BorrowedFd<'_>, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // Without the right to ask, and on a macvtap, the interface can only be one of ours.
    let Ok(theirs) = tap::namespace(fd) else {
        return work();
    };
    let ours = namespace::network().map_err(io::Error::other)?;
    let [here, there] = [fstat(&ours)?, fstat(&theirs)?];
    if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino) {
        return work();
    }
    namespace::enter_network(theirs.as_fd()).map_err(io::Error::other)?;
    let done = work();
    namespace::enter_network(ours.as_fd()).map_err(io::Error::other)?;
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_an_mtu_and_what_is_not_there_has_none() {
        assert!(Watch::new("lo").unwrap().mtu().unwrap() > 0);
        let error = Watch::new("none-such").unwrap().mtu().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
