//! Why a driver cannot use its adapter or disk, and what they said that cannot be.

use crate::said;
use core::fmt;
use hw::OutOfDma;

/// Why the driver cannot use the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// BAR 5 has fewer bytes than registers need.
    Bar {
        /// Bytes that the driver needs.
        wanted: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// Registers read all ones: it is gone.
    Gone,
    /// It did not do in time what the specification says that it does.
    Timeout(&'static str),
    /// No port has a disk.
    NoDisk,
    /// The link to the disk was lost, also if it is back by now.
    Link,
    /// The port does not run any more: something else has stopped or reset it.
    Stopped,
    /// The port says that it cannot go on, by these bits of PxIS.
    Fatal(u32),
    /// It cannot do something that the driver needs.
    Lacks(&'static str),
    /// The disk refused IDENTIFY DEVICE, by these bits of PxTFD.
    Refused(u16),
    /// What it says of itself cannot be.
    Config(&'static str),
    /// It said something of commands that cannot be.
    Lie(Lie),
    /// DMA memory is used up.
    Dma(OutOfDma),
}

impl From<OutOfDma> for Error {
    fn from(out: OutOfDma) -> Self {
        Self::Dma(out)
    }
}

impl From<Lie> for Error {
    fn from(lie: Lie) -> Self {
        Self::Lie(lie)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bar { wanted, found } => {
                said::short(f, format_args!("BAR 5"), 5, [*found, *wanted])
            }
            Self::Gone => said::gone(f),
            Self::Timeout(what) => said::late(f, what),
            Self::NoDisk => f.write_str("none of its ports has a disk; plug one in"),
            Self::Link => f.write_str("the link to the disk was lost; look at its cable"),
            Self::Stopped => f.write_str(
                "something else has reset its port; see that nothing else drives the adapter",
            ),
            Self::Fatal(bits) => write!(
                f,
                "its port says that it cannot go on (PxIS {bits:#010x}); look at the disk's cable"
            ),
            Self::Lacks(what) => write!(f, "it has {what}; use another disk"),
            Self::Refused(task) => write!(
                f,
                "it refused IDENTIFY DEVICE (PxTFD {task:#06x}); use another disk"
            ),
            Self::Config(what) => write!(f, "what it says of itself cannot be: {what}"),
            Self::Lie(lie) => write!(f, "{lie}"),
            Self::Dma(out) => out.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

/// What cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Slots are in use that were given no command, one bit each.
    NotIssued(u32),
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotIssued(slots) => write!(
                f,
                "it says that it has commands that it was not given (slots {slots:#010x})"
            ),
        }
    }
}
