//! The DMA memory of an image.

use super::Reason;
use super::iova::Iova;
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
    pub iova: Iova,
    /// What it is made of.
    pub pages: Pages,
    /// The memory itself, which others can be given.
    pub memory: OwnedFd,
}

/// What DMA memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved pages of 1 GiB.
    OneGib,
    /// Reserved pages of 2 MiB.
    TwoMib,
    /// What the kernel gives: pages of 4 KiB, or larger ones if it likes.
    Ordinary,
}

impl Pages {
    /// All that `bytes` of memory, a multiple of [`abi::pci::DMA_GRANULE`], can be made of, the
    /// largest first.
    fn for_bytes(bytes: u64) -> impl Iterator<Item = Self> {
        let whole = bytes.is_multiple_of(1 << 30);
        let largest = whole.then_some(Self::OneGib);
        largest.into_iter().chain([Self::TwoMib, Self::Ordinary])
    }

    fn flags(self) -> MemfdFlags {
        match self {
            Self::OneGib => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
            Self::TwoMib => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
            Self::Ordinary => MemfdFlags::empty(),
        }
    }
}

impl Arena {
    /// `bytes` of memory, in the largest pages of which enough are reserved and free.
    ///
    /// # Errors
    /// There is no such memory, or something else at its address.
    pub fn new(bytes: u64) -> Result<Self, Reason> {
        let (pages, window, memory) = largest(bytes, |pages| make(bytes, pages.flags()))
            .map_err(|error| Reason::Memory(bytes >> 20, error))?;
        if pages == Pages::Ordinary {
            // Where the kernel has large pages for shared memory, fewer entries of the IOMMU's
            // cache are needed; where not, nothing is lost.
            let _ = window.prefer_large_pages();
        }
        Ok(Self {
            window,
            iova: Iova::new(DMA_BASE),
            pages,
            memory,
        })
    }

    /// What the guest is told.
    pub fn info(&self) -> Dma {
        Dma {
            address: self.window.address(),
            iova: self.iova.number(),
            bytes: self.window.bytes(),
        }
    }
}

/// Makes memory with the first kind of pages for which `make` succeeds. The error is that of the
/// last kind.
fn largest<W, M>(
    bytes: u64,
    mut make: impl FnMut(Pages) -> io::Result<(W, M)>,
) -> io::Result<(Pages, W, M)> {
    let mut result = Err(io::ErrorKind::Unsupported.into());
    for pages in Pages::for_bytes(bytes) {
        result = make(pages).map(|(window, memory)| (pages, window, memory));
        if result.is_ok() {
            break;
        }
    }
    result
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

#[cfg(test)]
mod tests {
    use super::*;
    use Pages::{OneGib, Ordinary, TwoMib};

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    /// What is tried for so many bytes, and what is taken where only `free` pages are free.
    fn tried(bytes: u64, free: Pages) -> (Vec<Pages>, Pages) {
        let mut tried = Vec::new();
        let made = largest(bytes, |pages| {
            tried.push(pages);
            if pages == free {
                Ok(((), ()))
            } else {
                Err(io::ErrorKind::OutOfMemory.into())
            }
        });
        (tried, made.unwrap().0)
    }

    #[test]
    fn the_largest_pages_that_are_free_are_taken() {
        assert_eq!(tried(2 * GIB, OneGib), (vec![OneGib], OneGib));
        assert_eq!(tried(2 * GIB, TwoMib), (vec![OneGib, TwoMib], TwoMib));
        let all = vec![OneGib, TwoMib, Ordinary];
        assert_eq!(tried(GIB, Ordinary), (all, Ordinary));
    }

    #[test]
    fn memory_that_is_no_whole_gib_has_none_of_these() {
        for bytes in [16 * MIB, GIB - 2 * MIB, GIB + 2 * MIB] {
            assert_eq!(tried(bytes, TwoMib), (vec![TwoMib], TwoMib));
        }
    }

    #[test]
    fn the_error_is_that_of_ordinary_pages() {
        let made = largest(GIB, |pages| match pages {
            Ordinary => Err::<((), ()), _>(io::ErrorKind::StorageFull.into()),
            _ => Err(io::ErrorKind::OutOfMemory.into()),
        });
        assert_eq!(made.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    /// The kernel's own answer: where it has no such page free, memory is made of others.
    #[test]
    fn memory_can_be_had_whatever_is_reserved() {
        let arena = Arena::new(GIB).unwrap();
        assert_eq!(arena.window.bytes(), GIB);
        assert_eq!(arena.info().bytes, GIB);
    }
}
