//! Network interfaces: each driver in a folder, and one table of them.
//!
//! To add a driver, write its folder and one line of [`DRIVERS`]. All folders have the same shape:
//!
//! | file | what |
//! |---|---|
//! | `mod` | the driver: the order of its life, and [`Nic`] |
//! | `config` | how the device is to be set up |
//! | `registers` | offsets and bits, by section of the datasheet |
//! | `descriptor` | the words of descriptors, and what they say |
//! | `init` | reset and bring-up, in the datasheet's order |
//! | `link` | the link |
//! | `rx`, `tx` | the two rings |
//! | `offload` | what is left to the device: checksums, segmentation |
//! | `wait` | bounded waits while it is brought up |
//! | `stats` | what the device counts |
//! | `checkup` | what a checkup of the device looks at |
//! | `puppet` | what a puppet has to know to play the device |
//! | `tests` | the driver against puppets and liars; `tests/mod`, and a file beside it by subject |
//!
//! A file that a device has no use for is missing; its `mod` says why.

pub mod checkup;
pub mod e1000e;
mod error;
pub mod ixgbe;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
pub mod recovery;
pub mod virtio;

pub use error::Error;

use crate::virtio::Either;
use alloc::boxed::Box;
use core::fmt;
use device::{Batch, Nic, NicCounts, Pool, Sent};
use hw::{DmaArena, Mmio};

/// All drivers.
pub const DRIVERS: &[Driver] = &[e1000e::DRIVER, ixgbe::DRIVER, virtio::DRIVER];

/// A driver, and the device that it is for.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// Vendor ID in the device's PCI configuration.
    pub vendor: u16,
    /// Device ID in the device's PCI configuration.
    pub device: u16,
    /// What the driver is called.
    pub name: &'static str,
    /// Brings the device up to forward all frames that it receives.
    pub start: fn(Resources<'_>) -> Result<Started, Error>,
    /// What a checkup of the device looks at; none for one that is no card.
    pub examination: Option<checkup::Examination>,
}

/// What a driver gets for its device.
pub struct Resources<'a> {
    /// The registers of BAR 0, where the manifest maps it.
    pub bar0: Mmio,
    /// How a virtio device is reached.
    pub virtio: Option<Either>,
    /// Memory for rings and buffers.
    pub arena: &'a mut DmaArena,
    /// How many other devices are still to take memory from `arena`: the driver leaves them theirs.
    pub others: usize,
    /// Largest payload of an Ethernet frame, in bytes.
    pub mtu: usize,
    /// Monotonic time in nanoseconds.
    pub clock: &'a dyn Fn() -> u64,
}

/// The MTU of a network that knows nothing of another one.
pub const MTU: usize = 1500;

/// A device that works.
pub struct Started {
    /// Its driver.
    pub nic: Box<dyn Nic>,
    /// Where the frames come from that it receives.
    pub pool: Pool,
}

/// Brings up the device with these IDs by its driver.
///
/// # Errors
/// [`StartError`], within some seconds.
pub fn start(vendor: u16, device: u16, resources: Resources<'_>) -> Result<Started, StartError> {
    let found = DRIVERS
        .iter()
        .find(|driver| (driver.vendor, driver.device) == (vendor, device));
    let driver = found.ok_or(StartError::NoDriver { vendor, device })?;
    (driver.start)(resources).map_err(|error| StartError::Driver {
        name: driver.name,
        error,
    })
}

/// Why a device does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// There is no driver for it.
    NoDriver {
        /// Its vendor ID.
        vendor: u16,
        /// Its device ID.
        device: u16,
    },
    /// Its driver cannot use it.
    Driver {
        /// The driver's name.
        name: &'static str,
        /// Why not.
        error: Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver { vendor, device } => {
                write!(f, "no driver for {vendor:04x}:{device:04x}: there are for")?;
                for (n, driver) in DRIVERS.iter().enumerate() {
                    let and = if n == 0 { "" } else { " and" };
                    write!(f, "{and} {:04x}:{:04x}", driver.vendor, driver.device)?;
                }
                f.write_str("; give the image a card of these, or write a driver")
            }
            Self::Driver { name, error } => write!(f, "{name}: {error}"),
        }
    }
}

impl core::error::Error for StartError {}

/// The device wrote what cannot be true: the driver counts `rx_lie` and does not ask the device
/// again before it has been reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lie;

/// Drops the frames of a batch that is to be sent while the link is down, and counts them.
#[cold]
fn link_down(batch: &mut Batch, counts: &mut NicCounts) -> Sent {
    counts.tx_link_down += batch.drain().count() as u64;
    Sent::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use puppet::{Part, Puppet};

    /// Starts the virtio device that a puppet plays, in so much DMA memory.
    fn virtio_started(dma_bytes: usize, others: usize) -> Result<Started, StartError> {
        virtio_started_with(dma_bytes, others, MTU)
    }

    fn virtio_started_with(
        dma_bytes: usize,
        others: usize,
        mtu: usize,
    ) -> Result<Started, StartError> {
        let (puppet, transport, mut arena) = virtio::puppet::Puppet::new(dma_bytes);
        let resources = Resources {
            bar0: Mmio::shared(&[]),
            virtio: Some(Either::Pci(transport)),
            arena: &mut arena,
            others,
            mtu,
            clock: &puppet.clock(),
        };
        start(virtio::VENDOR, virtio::DEVICE, resources)
    }

    /// Starts the device that a puppet plays, in so much DMA memory.
    fn started<P: Part>(
        ids: (u16, u16),
        dma_bytes: usize,
        others: usize,
    ) -> Result<Started, StartError> {
        started_with::<P>(ids, dma_bytes, others, MTU)
    }

    fn started_with<P: Part>(
        ids: (u16, u16),
        dma_bytes: usize,
        others: usize,
        mtu: usize,
    ) -> Result<Started, StartError> {
        let (puppet, bar0, mut arena) = Puppet::<P>::new(dma_bytes);
        let resources = Resources {
            bar0,
            virtio: None,
            arena: &mut arena,
            others,
            mtu,
            clock: &puppet.clock(),
        };
        start(ids.0, ids.1, resources)
    }

    #[test]
    fn each_device_has_one_driver_which_brings_it_up() {
        const DMA_BYTES: usize = 8 << 20;
        for (n, driver) in DRIVERS.iter().enumerate() {
            let same =
                |other: &Driver| (other.vendor, other.device) == (driver.vendor, driver.device);
            assert_eq!(DRIVERS.iter().position(same), Some(n));
        }
        let e1000e = started::<e1000e::puppet::Intel82574>((0x8086, 0x10d3), DMA_BYTES, 0).unwrap();
        assert_eq!(e1000e.nic.mac(), e1000e::puppet::MAC);
        let ixgbe = started::<ixgbe::puppet::Intel82599>((0x8086, 0x10fb), DMA_BYTES, 0).unwrap();
        assert_eq!(ixgbe.nic.mac(), ixgbe::puppet::MAC);
        assert!(ixgbe.pool.free() > 0);
        let virtio = virtio_started(DMA_BYTES, 0).unwrap();
        assert_eq!(virtio.nic.mac(), virtio::puppet::MAC);
    }

    #[test]
    fn frames_are_coalesced_if_that_leaves_the_other_devices_their_memory() {
        use ixgbe::{BUFFER_BYTES, COALESCED_BUFFER_BYTES, COALESCED_DMA_BYTES};
        for (others, bytes) in [(0, COALESCED_BUFFER_BYTES), (1, BUFFER_BYTES)] {
            let ids = (ixgbe::VENDOR, ixgbe::DEVICE);
            let dma_bytes = COALESCED_DMA_BYTES + (1 << 20);
            let started = started::<ixgbe::puppet::Intel82599>(ids, dma_bytes, others).unwrap();
            assert_eq!(started.pool.frame_bytes_max(), bytes - device::HEADROOM);
        }
    }

    #[test]
    fn a_larger_mtu_is_set_up_or_refused() {
        const JUMBO: usize = 9000;
        let ids = (ixgbe::VENDOR, ixgbe::DEVICE);
        for dma_bytes in [ixgbe::COALESCED_DMA_BYTES, 12 << 20] {
            let others = usize::from(dma_bytes != ixgbe::COALESCED_DMA_BYTES);
            let started =
                started_with::<ixgbe::puppet::Intel82599>(ids, dma_bytes, others, JUMBO).unwrap();
            assert_eq!(started.nic.mtu(), JUMBO);
            assert!(started.pool.frame_bytes_max() > JUMBO);
        }
        let ids = (e1000e::VENDOR, e1000e::DEVICE);
        let error = started_with::<e1000e::puppet::Intel82574>(ids, 8 << 20, 0, JUMBO).err();
        let text = error.unwrap().to_string();
        assert!(text.contains("no frames of MTU 9000"), "{text}");
        for (others, mtu) in [(0, JUMBO), (1, JUMBO), (1, MTU)] {
            let started = virtio_started_with(virtio::LARGE_DMA_BYTES, others, mtu).unwrap();
            assert_eq!(started.nic.mtu(), mtu);
            assert!(started.pool.frame_bytes_max() > mtu);
        }
        for mtu in [0, 67, 65_536, usize::MAX] {
            let text = virtio_started_with(8 << 20, 0, mtu)
                .err()
                .unwrap()
                .to_string();
            assert!(text.contains(&format!("no frames of MTU {mtu};")), "{text}");
        }
    }

    #[test]
    fn frames_are_large_if_that_leaves_the_other_devices_their_memory() {
        use virtio::{BUFFER_BYTES, LARGE_BUFFER_BYTES, LARGE_DMA_BYTES};
        for (others, bytes) in [(0, LARGE_BUFFER_BYTES), (1, BUFFER_BYTES)] {
            let started = virtio_started(LARGE_DMA_BYTES + (1 << 20), others).unwrap();
            assert_eq!(started.pool.frame_bytes_max(), bytes - device::HEADROOM);
        }
    }

    #[test]
    fn what_has_no_driver_or_no_memory_says_so() {
        let error = started::<ixgbe::puppet::Intel82599>((0x8086, 0x1572), 1 << 20, 0).err();
        let text = error.unwrap().to_string();
        let ids = text.strip_prefix("no driver for 8086:1572: there are for ");
        let (ids, advice) = ids.unwrap().split_once("; ").unwrap();
        assert_eq!(advice, "give the image a card of these, or write a driver");
        let ids: Vec<_> = ids.split(" and ").collect();
        let all = DRIVERS.iter();
        let all = all.map(|driver| format!("{:04x}:{:04x}", driver.vendor, driver.device));
        assert_eq!(ids, all.collect::<Vec<_>>());
        let ids = (virtio::VENDOR, virtio::DEVICE);
        let error = started::<ixgbe::puppet::Intel82599>(ids, 1 << 20, 0).err();
        let text = error.unwrap().to_string();
        let says = "virtio-net: it has no capabilities of virtio 1.0";
        assert!(text.starts_with(says), "{text}");
        let error = started::<e1000e::puppet::Intel82574>((0x8086, 0x10d3), 4096, 0).err();
        let text = error.unwrap().to_string();
        assert!(text.starts_with("e1000e: "), "{text}");
        assert!(
            text.ends_with("enlarge dma_size in manifest.json"),
            "{text}"
        );
    }
}
