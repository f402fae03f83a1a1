//! The DMA memory of an image.

use super::Reason;
use crate::sys::window::Window;
use abi::pci::{DMA_BASE, Dma};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use std::io;
use std::os::fd::OwnedFd;

/// DMA memory, all zero, mapped at [`DMA_BASE`].
#[derive(Debug)]
pub struct Arena {
    /// Where it is.
    pub window: Window,
    /// The I/O address of its first byte.
    pub iova: u64,
    /// What it is made of.
    pub pages: Pages,
    /// The memory itself, which others can be given.
    pub memory: OwnedFd,
}

/// What DMA memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved pages of 2 MiB.
    Huge,
    /// What the kernel gives: pages of 4 KiB, or larger ones if it likes.
    Ordinary,
}

impl Arena {
    /// `bytes` of memory, in large pages if enough are reserved.
    ///
    /// # Errors
    /// There is no such memory, or something else at its address.
    pub fn new(bytes: u64) -> Result<Self, Reason> {
        let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let made = make(bytes, huge).map(|made| (made, Pages::Huge));
        let made = made.or_else(|_| {
            let made = make(bytes, MemfdFlags::empty())?;
            // Where the kernel has large pages for shared memory, fewer entries of the IOMMU's
            // cache are needed; where not, nothing is lost.
            let _ = made.0.prefer_large_pages();
            Ok((made, Pages::Ordinary))
        });
        let no_memory = |error| Reason::Memory(bytes >> 20, error);
        let ((window, memory), pages) = made.map_err(no_memory)?;
        Ok(Self {
            window,
            iova: DMA_BASE,
            pages,
            memory,
        })
    }

    /// What the guest is told.
    pub fn told(&self) -> Dma {
        Dma {
            address: self.window.address(),
            iova: self.iova,
            bytes: self.window.bytes(),
        }
    }
}

fn make(bytes: u64, flags: MemfdFlags) -> io::Result<(Window, OwnedFd)> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = rustix::fs::memfd_create("dma", flags)?;
    rustix::fs::ftruncate(&memory, bytes)?;
    if flags.contains(MemfdFlags::HUGETLB) {
        // Now: a control group may have fewer, which the guest would learn by a signal.
        rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, bytes)?;
    }
    // Processes that are devices map it, and need not believe that it stays as long as it is. They
    // can still punch holes, which nothing forbids who may write. A hole in ordinary pages is full
    // of zeros; the next to touch one in large pages, of which none is free then, gets SIGBUS.
    let fixed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, fixed)?;
    let window = Window::map(&memory, 0, DMA_BASE, bytes)?;
    Ok((window, memory))
}
