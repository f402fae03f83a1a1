//! Guest memory in this process: guest addresses are addresses here.

use super::fault;
use crate::core_file::CoreFile;
use crate::memory::{Gpa, Memory, Region, readable, writable_end};
use abi::GUEST_BASE;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect,
};
use std::arch::asm;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

/// Guest memory while the tender fills it: zero, readable and writable.
#[derive(Debug)]
pub struct Filling {
    end: u64,
}

/// Guest memory with the rights that the guest has; ready to be entered.
#[derive(Debug)]
pub struct Ready {
    end: u64,
    stack: Range<u64>,
    readable: Vec<Range<u64>>,
}

impl Filling {
    /// Takes all addresses from [`GUEST_BASE`] to `end`, a multiple of the page size. Processes
    /// that are copies of this one have none of it.
    ///
    /// # Errors
    /// `ENOMEM` if the machine has not enough, `EEXIST` if something else lies there, `EPERM` if
    /// `vm.mmap_min_addr` is above [`GUEST_BASE`].
    pub fn claim(end: u64) -> io::Result<Self> {
        let address = std::ptr::with_exposed_provenance_mut(GUEST_BASE as usize);
        let length = end.saturating_sub(GUEST_BASE) as usize;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: NOREPLACE makes the kernel refuse rather than replace anything that exists, so
        // no memory that Rust knows of changes.
        let claimed = unsafe { mmap_anonymous(address, length, rights, flags) }?;
        if claimed != address {
            // A kernel before 4.17 ignores NOREPLACE and maps elsewhere.
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        // SAFETY: advice about pages that were mapped just now changes none of their bytes here.
        unsafe { madvise(claimed, length, Advice::LinuxDontFork) }?;
        Ok(Self { end })
    }

    /// Gives each region its rights and, where it has one, its part of `file`.
    ///
    /// # Errors
    /// What the kernel says. `EINVAL` for a region outside of guest memory.
    pub fn finish(self, regions: &[Region], file: &File) -> io::Result<Ready> {
        for region in regions {
            self.protect(region, file)?;
        }
        Ok(Ready {
            end: self.end,
            stack: writable_end(regions),
            readable: readable(regions),
        })
    }

    fn protect(&self, region: &Region, file: &File) -> io::Result<()> {
        let addresses = &region.addresses;
        if addresses.start < GUEST_BASE || addresses.end > self.end || addresses.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let address = std::ptr::with_exposed_provenance_mut(addresses.start as usize);
        let length = (addresses.end - addresses.start) as usize;
        if let Some(offset) = region.file_offset {
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            // SAFETY: the range lies inside what `claim` mapped, of which no slice is left, since
            // each borrows the `Filling` that `finish` has consumed.
            unsafe { mmap(address, length, region.rights, flags, file.as_fd(), offset) }?;
        } else if region.rights != ProtFlags::READ | ProtFlags::WRITE {
            let rights = MprotectFlags::from_bits_retain(region.rights.bits());
            // SAFETY: as above: nothing of Rust's lies in this range.
            unsafe { mprotect(address, length, rights) }?;
        }
        Ok(())
    }
}

impl Memory for Filling {
    fn bytes(&mut self, address: Gpa, length: u64) -> Option<&mut [u8]> {
        let end = address.checked_add(length)?.number();
        let address = address.number();
        if address < GUEST_BASE || end > self.end {
            return None;
        }
        let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: (1) the range lies inside what `claim` mapped readable and writable, and only
        // `finish`, which consumes self, changes that; (2) all bytes are initialised, as the kernel
        // gives zeroes; (3) the borrow of self keeps any other such slice away.
        Some(unsafe { std::slice::from_raw_parts_mut(pointer, length as usize) })
    }
}

impl Ready {
    /// Jumps to `entry` with `boot_info` as its argument, the stack at the top of memory, and all
    /// other registers cleared. A fault is written into `core`, if the handlers are there.
    pub fn enter(self, entry: u64, boot_info: u64, core: Option<CoreFile>) -> ! {
        // SAFETY: `finish` has made these regions readable; nothing of the tender changes that, and
        // in a jail the guest cannot.
        unsafe { fault::look_within(self.stack, self.readable, core) };
        // SAFETY: control never comes back, so no promise of Rust's is left to be broken: what the
        // code at `entry` does to this process is between it and the kernel, which is what the jail
        // is for. The stack of Solo5's ABI is as after a call: a multiple of 16, less 8.
        unsafe {
            asm!(
                "mov rsp, rcx",
                "cld",
                "xor ebx, ebx",
                "xor ecx, ecx",
                "xor edx, edx",
                "xor esi, esi",
                "xor ebp, ebp",
                "xor r8d, r8d",
                "xor r9d, r9d",
                "xor r10d, r10d",
                "xor r11d, r11d",
                "xor r12d, r12d",
                "xor r13d, r13d",
                "xor r14d, r14d",
                "xor r15d, r15d",
                "jmp rax",
                in("rax") entry,
                in("rcx") self.end - 8,
                in("rdi") boot_info,
                options(noreturn)
            )
        }
    }
}
