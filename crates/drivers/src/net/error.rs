//! Why a driver cannot use its device.

use crate::said;
use crate::virtio;
use core::fmt;
use hw::OutOfDma;

/// Why a driver cannot use its device; the same for all drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// BAR 0 has fewer bytes than the registers need.
    Bar {
        /// Bytes that the driver needs.
        wanted: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// Registers read all ones: the device has been unplugged or is without power.
    Gone,
    /// It did not do in time what the datasheet says that it does.
    Timeout(&'static str),
    /// The address in its EEPROM is none that a station can have.
    Mac([u8; 6]),
    /// It cannot be set up for frames of this size.
    Mtu(usize),
    /// Tags are to be taken off frames that are for others.
    VlanStrip,
    /// The pool's buffers are too small for what the device may write.
    BufferSize {
        /// Bytes that the device may write.
        wanted: usize,
        /// Bytes of a buffer.
        found: usize,
    },
    /// The pool has too few buffers to fill the ring, or none that devices can reach.
    Buffers,
    /// DMA memory is used up.
    Dma(OutOfDma),
    /// What is wrong with a virtio device that is not about networks.
    Virtio(virtio::Error),
}

impl From<OutOfDma> for Error {
    fn from(out: OutOfDma) -> Self {
        Self::Dma(out)
    }
}

impl From<virtio::Error> for Error {
    fn from(error: virtio::Error) -> Self {
        Self::Virtio(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bar { wanted, found } => {
                said::short(f, format_args!("BAR 0"), 0, [*found, *wanted])
            }
            Self::Gone => said::gone(f),
            Self::Timeout(what) => said::late(f, what),
            Self::Mac(mac) => write!(
                f,
                "its EEPROM holds no address of a station: {mac:02x?}; use another card, or write \
                 an address into the EEPROM"
            ),
            Self::Mtu(mtu) => write!(
                f,
                "it has no frames of MTU {mtu}; give it another one, as with --mtu of services"
            ),
            Self::VlanStrip => f.write_str(
                "frames that are for others would lose their tags: leave vlan_strip off, or filter \
                 frames",
            ),
            Self::BufferSize { wanted, found } => write!(
                f,
                "buffers of {found} bytes are too small, the device may write {wanted}; make a \
                 pool of larger buffers"
            ),
            Self::Buffers => f.write_str(
                "the pool has too few buffers of DMA memory for its ring; make a larger pool, in \
                 a DmaArena",
            ),
            Self::Dma(out) => out.fmt(f),
            Self::Virtio(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}
