//! Macvtaps: the wire of a real interface, taken over for the guest (mode passthru: all frames of
//! the parent go to it, and its parent can be used by nobody else).

use super::{Headers, Opened, Reason};
use linux::interface::Interfaces;
use linux::netlink::{self, Netlink};
use linux::tap::{self, Tap};
use rustix::fs::{FileType, Mode, OFlags, makedev, mknodat};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// The one interface that is always there, and never a parent.
const LOOPBACK: &str = "lo";

/// Name of the `position`-th macvtap of the tender with this process id.
pub(super) fn link_name(tender: u32, position: usize) -> String {
    format!("ob{tender}n{position}")
}

/// A macvtap of ours, removed when dropped.
#[derive(Debug)]
pub(super) struct Macvtap(String);

impl Macvtap {
    /// Makes a macvtap over `parent`.
    pub(super) fn add(parent: &str, position: usize) -> Result<Self, Reason> {
        let name = link_name(std::process::id(), position);
        let refused = |error: netlink::Error| Reason::Macvtap(parent.to_owned(), error.cause);
        let mut netlink = Netlink::open().map_err(refused)?;
        if netlink.index(parent).is_err() {
            let others = super::interfaces(|link| !link.is_tap && link.name != LOOPBACK);
            return Err(Reason::NoParent(parent.to_owned(), others));
        }
        netlink.add_macvtap(&name, parent).map_err(refused)?;
        Ok(Self(name))
    }

    /// Brings it up and opens its character device. Also gives its MAC address, the parent's.
    pub(super) fn open(&self, headers: Headers) -> Result<(Opened, [u8; 6]), Reason> {
        let system = |step| move |error| Reason::System(step, error);
        let name = &self.0;
        let interfaces = Interfaces::here().map_err(system("no socket"))?;
        interfaces
            .bring_up(name)
            .map_err(system("the macvtap cannot be set up"))?;
        let device = self
            .open_device()
            .map_err(system("no device of the macvtap"))?;
        let tap = Tap::from_macvtap(device, headers.wanted()).map_err(system("no macvtap"))?;
        let flags = headers.agree(tap.as_fd(), headers.wanted());
        let flags = flags.map_err(system("no offloads"))?;
        let mtu = interfaces.mtu(name).map_err(system("no MTU"))?;
        let mac = interfaces.mac(name).map_err(system("no MAC address"))?;
        Ok((
            Opened {
                fd: tap.into_fd(),
                mtu,
                flags,
            },
            mac,
        ))
    }

    /// Opens `/dev/tapN`. Where `/dev` is no devtmpfs, as in containers, nobody makes that node:
    /// then a node of our own does, for as long as it takes to open it.
    fn open_device(&self) -> io::Result<OwnedFd> {
        let index = Netlink::open().and_then(|netlink| netlink.index(&self.0));
        let node = format!("tap{}", index.map_err(io::Error::other)?);
        if let Ok(fd) = self.open_node(&Path::new("/dev").join(&node)) {
            return Ok(fd);
        }
        let attribute = format!("/sys/class/net/{}/macvtap/{node}/dev", self.0);
        let numbers = fs::read_to_string(attribute)?;
        let device = device(&numbers).ok_or(io::ErrorKind::InvalidData)?;
        let private = format!("/dev/.{}", self.0);
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(
            rustix::fs::CWD,
            &private,
            FileType::CharacterDevice,
            mode,
            device,
        )?;
        let opened = self.open_node(Path::new(&private));
        fs::remove_file(&private)?;
        opened
    }

    /// Opens a node and makes sure that it leads to this macvtap.
    fn open_node(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        if tap::interface(fd.as_fd())?.name != self.0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(fd)
    }
}

impl Drop for Macvtap {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a macvtap. Best effort: it may have gone with its parent.
pub(super) fn remove(name: &str) {
    let _: Result<(), netlink::Error> = Netlink::open().and_then(|mut n| n.delete(name));
}

/// `major:minor`, as `/sys` writes it.
fn device(numbers: &str) -> Option<u64> {
    let (major, minor) = numbers.trim_end().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use linux::tap::NAME_BYTES_MAX;

    #[test]
    fn names_fit_an_interface() {
        assert_eq!(link_name(1, 0), "ob1n0");
        // The kernel's largest process id is 2^22; a manifest has 63 devices.
        assert!(link_name(4_194_304, 62).len() <= NAME_BYTES_MAX);
    }

    #[test]
    fn device_numbers_are_read() {
        assert_eq!(device("239:1\n"), Some(makedev(239, 1)));
        assert_eq!(device("239"), None);
        assert_eq!(device("a:b"), None);
    }
}
