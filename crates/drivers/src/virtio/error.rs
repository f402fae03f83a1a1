//! Why a driver cannot use a virtio device.

use super::feature;
use crate::said;
use core::fmt;
use hw::OutOfDma;

/// Why a driver cannot use a virtio device; the same for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The tender has found no structures of virtio in its configuration space.
    NoCapabilities,
    /// One of its structures has fewer bytes than the driver needs, or lies in a BAR that is not
    /// mapped.
    Registers {
        /// Which.
        what: &'static str,
        /// The BAR that it lies in.
        bar: usize,
        /// Bytes that the driver needs.
        wanted: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// What is at its address is no virtio device of this kind, of version 1 or later.
    Kind,
    /// Its registers read all ones: it is gone.
    Gone,
    /// It did not report in time that it is reset.
    Timeout,
    /// It lacks these features, bits of [`feature`], without which the driver cannot use it.
    Features(u64),
    /// It does not take the features that it offered (3.1.1, step 6).
    Refused,
    /// A queue of it is too small.
    Queue {
        /// The queue.
        number: u16,
        /// Its most descriptors.
        found: u16,
    },
    /// What its configuration says of it cannot be.
    Config(&'static str),
    /// DMA memory is used up.
    Dma(OutOfDma),
}

impl From<OutOfDma> for Error {
    fn from(out: OutOfDma) -> Self {
        Self::Dma(out)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCapabilities => f.write_str(
                "it has no capabilities of virtio 1.0; start the image by outboard run, and if it \
                 is QEMU's device, set disable-legacy=on",
            ),
            Self::Registers {
                what,
                bar,
                wanted,
                found,
            } => said::short(f, format_args!("{what}"), *bar, [*found, *wanted]),
            Self::Kind => f.write_str(
                "there is no virtio device of this kind and of version 1; give the image another",
            ),
            Self::Gone => said::gone(f),
            Self::Timeout => f.write_str(
                "it did not report in time that it is reset; start the image again, and if that \
                 does not help, start the device again",
            ),
            Self::Features(missing) => write_missing(f, *missing),
            Self::Refused => f.write_str(
                "it does not take the features that it offered; give the image another device",
            ),
            Self::Queue { number, found } => write!(
                f,
                "its queue {number} has at most {found} descriptors, which are too few; give it \
                 larger queues"
            ),
            Self::Config(what) => write!(
                f,
                "its configuration says what cannot be: {what}; set that up where the device is \
                 made"
            ),
            Self::Dma(out) => out.fmt(f),
        }
    }
}

fn write_missing(f: &mut fmt::Formatter<'_>, missing: u64) -> fmt::Result {
    if missing & feature::ACCESS_PLATFORM != 0 {
        return f.write_str(
            "it does not offer VIRTIO_F_ACCESS_PLATFORM: its addresses would pass by the IOMMU; if \
             it is QEMU's device, set iommu_platform=on",
        );
    }
    if missing & feature::VERSION_1 != 0 {
        return f.write_str(
            "it does not offer VIRTIO_F_VERSION_1; if it is QEMU's device, set disable-legacy=on",
        );
    }
    write!(
        f,
        "it lacks features {missing:#x}; give the image another device"
    )
}

impl core::error::Error for Error {}
