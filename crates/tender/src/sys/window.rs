//! Memory that somebody else reaches too: registers of a device, memory that devices write.

use super::machine::Machine;
use crate::memory::Gpa;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// Whole pages that are mapped at an address of the ABI's, readable and mostly writable. They are
/// never unmapped, and no reference to them is ever made: who uses them knows that they change.
#[derive(Debug)]
pub struct Window {
    address: u64,
    bytes: u64,
    writable: bool,
}

impl Window {
    /// Maps `bytes` of `file` from `offset` on at `address`.
    ///
    /// # Errors
    /// `EEXIST` if something else lies there; `EINVAL` if a number is no multiple of the page size
    /// or of the file's; otherwise what the file's owner says.
    pub fn map(file: impl AsFd, offset: u64, address: u64, bytes: u64) -> io::Result<Self> {
        Self::of(file, offset, (address, bytes), true)
    }

    /// Maps the first `bytes` of `file` at `address`, to be read alone.
    ///
    /// # Errors
    /// As [`Self::map`].
    pub fn map_read_only(file: impl AsFd, address: u64, bytes: u64) -> io::Result<Self> {
        Self::of(file, 0, (address, bytes), false)
    }

    fn of(
        file: impl AsFd,
        offset: u64,
        (address, bytes): (u64, u64),
        writable: bool,
    ) -> io::Result<Self> {
        let place = std::ptr::with_exposed_provenance_mut(address as usize);
        let rights = match writable {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: NOREPLACE makes the kernel refuse rather than replace anything that exists, so
        // no memory that Rust knows of changes.
        let mapped = unsafe { mmap(place, bytes as usize, rights, flags, file, offset) }?;
        if mapped != place {
            // A kernel before 4.17 ignores NOREPLACE and maps elsewhere.
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        Ok(Self {
            address,
            bytes,
            writable,
        })
    }

    /// Whether it is writable.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where its first byte is.
    pub fn place(&self) -> Option<NonNull<u8>> {
        NonNull::new(std::ptr::with_exposed_provenance_mut(self.address as usize))
    }

    /// Asks the kernel for large pages.
    ///
    /// # Errors
    /// What it says: `EINVAL` if it has none.
    pub fn prefer_large_pages(&self) -> io::Result<()> {
        let place = std::ptr::with_exposed_provenance_mut(self.address as usize);
        // SAFETY: advice about pages that this window has mapped changes none of their bytes.
        unsafe { madvise(place, self.bytes as usize, Advice::LinuxHugepage) }?;
        Ok(())
    }

    /// Lends it to the guest of `machine` at the guest-physical address `physical`, in the memory
    /// slot `slot`, which nobody else has.
    ///
    /// # Errors
    /// What KVM says.
    pub fn lend(&self, machine: &Machine, slot: u32, physical: Gpa) -> io::Result<()> {
        // SAFETY: the window is never unmapped, and there is no reference to it.
        unsafe { machine.lend(slot, physical, (self.address, self.bytes), !self.writable) }
    }
}
