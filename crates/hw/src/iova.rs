//! Addresses as devices use them.

use core::fmt;

/// An I/O address: what a device is given to read from or write to. It means something to the
/// IOMMU alone; neither a pointer nor a guest address is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub(crate) u64);

impl Iova {
    /// The number, for a register or a descriptor.
    #[inline]
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The low and high halves, for devices that take two registers.
    #[inline]
    pub fn halves(self) -> (u32, u32) {
        (self.0 as u32, (self.0 >> 32) as u32)
    }
}

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iova {:#x}", self.0)
    }
}
