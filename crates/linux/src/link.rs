//! Links between images (see [`abi::link`]): the descriptors that each end is given.

use crate::{event, memory};
use abi::link::file_bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_setfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// What one end of a link is given, in the order of the tender's `--link:NAME=`. Whoever keeps it
/// can start the end again: what it holds outlives the image.
#[derive(Debug)]
pub struct Side {
    /// The memory that this end alone writes.
    pub own: OwnedFd,
    /// The other end's memory, open to be read.
    pub peer: OwnedFd,
    /// What wakes this end up.
    pub bell: OwnedFd,
    /// What wakes the other end up.
    pub peer_bell: OwnedFd,
}

impl Side {
    /// The numbers of its descriptors.
    pub fn descriptors(&self) -> [i32; 4] {
        [&self.own, &self.peer, &self.bell, &self.peer_bell].map(AsRawFd::as_raw_fd)
    }

    /// Has programs that are started inherit the descriptors.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn inherit(&self) -> io::Result<()> {
        for descriptor in [&self.own, &self.peer, &self.bell, &self.peer_bell] {
            fcntl_setfd(descriptor, FdFlags::empty())?;
        }
        Ok(())
    }

    /// The value of the option that gives this end to a tender that inherits the descriptors.
    pub fn value(&self) -> String {
        let [own, peer, bell, peer_bell] = self.descriptors();
        format!("{own},{peer},{bell},{peer_bell}")
    }
}

/// A new link whose ends have so many slots, which is what both images ask for.
///
/// # Errors
/// What the kernel says.
pub fn make(slots: [usize; 2]) -> io::Result<[Side; 2]> {
    let end = |slots| -> io::Result<_> {
        let own = memory::sealed("link", file_bytes(slots))?;
        let read = reopen(&own)?;
        Ok((own, read, event::new()?))
    };
    let (left, left_read, left_bell) = end(slots[0])?;
    let (right, right_read, right_bell) = end(slots[1])?;
    let left = Side {
        own: left,
        peer: right_read,
        bell: left_bell.try_clone()?,
        peer_bell: right_bell.try_clone()?,
    };
    let right = Side {
        own: right,
        peer: left_read,
        bell: right_bell,
        peer_bell: left_bell,
    };
    Ok([left, right])
}

/// The same file, open to be read: nobody makes a mapping of it writable.
fn reopen(file: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use std::os::fd::AsFd;

    #[test]
    fn each_end_writes_its_own_memory_and_reads_the_others() {
        let [a, b] = make([1, 2]).unwrap();
        rustix::io::pwrite(&a.own, b"hello", 4096).unwrap();
        let mut bytes = [0; 5];
        rustix::io::pread(&b.peer, &mut bytes, 4096).unwrap();
        assert_eq!(&bytes, b"hello");
        assert_eq!(rustix::io::pwrite(&b.peer, b"x", 0), Err(Errno::BADF));
        let sizes = [&a.own, &a.peer].map(|file| memory::sealed_bytes(file.as_fd()));
        assert_eq!(sizes, [Some(file_bytes(1)), Some(file_bytes(2))]);
        rustix::io::write(&a.peer_bell, &1u64.to_ne_bytes()).unwrap();
        let mut count = [0; 8];
        rustix::io::read(&b.bell, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
