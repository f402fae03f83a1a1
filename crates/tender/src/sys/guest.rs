//! The one door to the memory of a guest that runs.
//!
//! Its processor, the kernel on behalf of another thread, and later devices may change any byte at
//! any time, so no reference to it exists: bytes are copied, or the kernel reads and writes them in
//! place. Each use gives address and length, and each is checked.

use crate::memory::Gpa;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

/// An address and a length that are not wholly in memory that the guest may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The address.
    pub address: Gpa,
    /// The length, in bytes.
    pub length: u64,
}

/// What became of a transfer: how many bytes it took, or what the kernel says.
pub type Transfer = Result<Result<usize, Errno>, Outside>;

/// Memory of a guest: regions of guest-physical addresses.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    start: Gpa,
    bytes: u64,
    place: NonNull<u8>,
}

// SAFETY: a region is never unmapped, and only touched as this module does: by volatile copies and
// by the kernel, whatever other threads do to it meanwhile.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl GuestMemory {
    /// No memory yet.
    pub const fn new() -> Self {
        Self {
            regions: Vec::new(),
        }
    }

    /// Zeroed memory of its own from guest-physical address 0 on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let place = std::ptr::null_mut();
        // SAFETY: without an address and without FIXED, the kernel chooses a place where nothing
        // is.
        let place = unsafe { mmap_anonymous(place, bytes, rights, MapFlags::PRIVATE) }?;
        let place = NonNull::new(place.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut memory = Self::new();
        // SAFETY: it was mapped just now, is never unmapped, and nobody else knows of it.
        unsafe { memory.add(Gpa::new(0), place, bytes as u64) };
        Ok(memory)
    }

    /// Adds the `bytes` from `place` on, which the guest knows by the addresses from `start` on.
    ///
    /// # Safety
    /// The memory is mapped readable and writable, stays so as long as this process lives, and no
    /// reference to it exists from now on.
    pub unsafe fn add(&mut self, start: Gpa, place: NonNull<u8>, bytes: u64) {
        let region = Region {
            start,
            bytes,
            place,
        };
        self.regions.push(region);
    }

    /// Where these bytes lie in this process. They all lie in one region.
    fn locate(&self, address: Gpa, length: u64) -> Result<NonNull<u8>, Outside> {
        for region in &self.regions {
            let Some(offset) = address.checked_offset_from(region.start) else {
                continue;
            };
            if offset
                .checked_add(length)
                .is_some_and(|end| end <= region.bytes)
            {
                // SAFETY: the offset is within the region (checked above), or one past its end.
                return Ok(unsafe { region.place.add(offset as usize) });
            }
        }
        Err(Outside { address, length })
    }

    /// Whether these bytes are guest memory.
    ///
    /// # Errors
    /// They are not.
    pub fn check(&self, address: Gpa, length: u64) -> Result<(), Outside> {
        self.locate(address, length).map(drop)
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// They are no guest memory; nothing is done then.
    pub fn copy_out(&self, address: Gpa, to: &mut [u8]) -> Result<(), Outside> {
        let from = self.locate(address, size_of_val(to) as u64)?;
        for (offset, byte) in to.iter_mut().enumerate() {
            // SAFETY: `locate` found as many bytes as `to` has.
            let from = unsafe { from.add(offset) };
            // SAFETY: the byte is mapped and initialised; volatile, since others may write it.
            *byte = unsafe { from.read_volatile() };
        }
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// There is no guest memory for them; nothing is done then.
    pub fn copy_in(&self, address: Gpa, from: &[u8]) -> Result<(), Outside> {
        let to = self.locate(address, size_of_val(from) as u64)?;
        for (offset, byte) in from.iter().enumerate() {
            // SAFETY: `locate` found as many bytes as `from` has.
            let to = unsafe { to.add(offset) };
            // SAFETY: the byte is mapped writable; volatile, since others may use it.
            unsafe { to.write_volatile(*byte) };
        }
        Ok(())
    }

    /// Reads from `fd` into guest memory.
    ///
    /// # Errors
    /// There is no guest memory at this place; nothing is read then.
    pub fn read(&self, fd: impl AsFd, address: Gpa, length: u64) -> Transfer {
        let (fd, to) = (fd.as_fd().as_raw_fd(), self.locate(address, length)?);
        // SAFETY: the kernel writes at most `length` bytes, which `locate` found.
        Ok(count(unsafe {
            libc::read(fd, to.as_ptr().cast(), length as usize)
        }))
    }

    /// Writes guest memory to `fd`.
    ///
    /// # Errors
    /// It is no guest memory; nothing is written then.
    pub fn write(&self, fd: impl AsFd, address: Gpa, length: u64) -> Transfer {
        let (fd, from) = (fd.as_fd().as_raw_fd(), self.locate(address, length)?);
        // SAFETY: the kernel reads at most `length` bytes, which `locate` found.
        Ok(count(unsafe {
            libc::write(fd, from.as_ptr().cast(), length as usize)
        }))
    }

    /// Reads from `offset` of `fd` into guest memory.
    ///
    /// # Errors
    /// There is no guest memory at this place; nothing is read then.
    pub fn read_at(&self, fd: impl AsFd, offset: u64, address: Gpa, length: u64) -> Transfer {
        let (fd, to) = (fd.as_fd().as_raw_fd(), self.locate(address, length)?);
        // SAFETY: the kernel writes at most `length` bytes, which `locate` found.
        Ok(count(unsafe {
            libc::pread(
                fd,
                to.as_ptr().cast(),
                length as usize,
                offset.cast_signed(),
            )
        }))
    }

    /// Writes guest memory to `offset` of `fd`.
    ///
    /// # Errors
    /// It is no guest memory; nothing is written then.
    pub fn write_at(&self, fd: impl AsFd, offset: u64, address: Gpa, length: u64) -> Transfer {
        let (fd, from) = (fd.as_fd().as_raw_fd(), self.locate(address, length)?);
        // SAFETY: the kernel reads at most `length` bytes, which `locate` found.
        Ok(count(unsafe {
            libc::pwrite(
                fd,
                from.as_ptr().cast(),
                length as usize,
                offset.cast_signed(),
            )
        }))
    }
}

/// What a transfer returned: a count, or -1 for an error.
fn count(returned: isize) -> Result<usize, Errno> {
    usize::try_from(returned)
        .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: usize = 1 << 16;
    const SECOND: u64 = 1 << 40;

    fn memory() -> GuestMemory {
        let mut memory = GuestMemory::anonymous(FIRST).unwrap();
        let more = GuestMemory::anonymous(4096).unwrap().regions[0];
        // SAFETY: `anonymous` has mapped it for ever, and nobody else knows of it.
        unsafe { memory.add(Gpa::new(SECOND), more.place, more.bytes) };
        memory
    }

    #[test]
    fn what_goes_in_comes_out_of_each_region() {
        let memory = memory();
        for address in [0, 3, FIRST as u64 - 5, SECOND, SECOND + 4091] {
            memory.copy_in(Gpa::new(address), b"hello").unwrap();
            let mut bytes = [0; 5];
            memory.copy_out(Gpa::new(address), &mut bytes).unwrap();
            assert_eq!(&bytes, b"hello");
        }
    }

    #[test]
    fn the_kernel_reads_and_writes_in_place() {
        let memory = memory();
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let nothing = memory.read(&ours, Gpa::new(SECOND), 100).unwrap();
        assert_eq!(nothing, Err(Errno::AGAIN));
        theirs.send(b"frame").unwrap();
        assert_eq!(
            memory.read(&ours, Gpa::new(SECOND + 8), 100).unwrap(),
            Ok(5)
        );
        assert_eq!(memory.write(&ours, Gpa::new(SECOND + 9), 3).unwrap(), Ok(3));
        let mut bytes = [0; 8];
        assert_eq!(theirs.recv(&mut bytes).unwrap(), 3);
        assert_eq!(&bytes[..3], b"ram");
    }

    proptest! {
        #[test]
        fn only_whole_ranges_of_one_region_pass(
            address in prop_oneof![
                any::<u64>(), 0..2 * FIRST as u64, SECOND - 8192..SECOND + 8192,
            ],
            length in prop_oneof![any::<u64>(), 0u64..8192],
        ) {
            let end = u128::from(address) + u128::from(length);
            let first = end <= FIRST as u128;
            let second = address >= SECOND && end <= u128::from(SECOND + 4096);
            let found = memory().check(Gpa::new(address), length).is_ok();
            prop_assert_eq!(found, first || second);
        }
    }
}
