//! Virtio devices, and transports in front of them, written from the specification: Virtual I/O
//! Device (VIRTIO) Version 1.2, OASIS, 1 July 2022. Section numbers in this folder refer to it.
//!
//! | type | what | section |
//! |---|---|---|
//! | [`VirtioDevice`] | what a device is to a transport | 5 |
//! | [`State`] | features, status and queues: what all transports share | 2, 3 |
//! | [`Virtqueue`], [`Chain`] | split virtqueues, on the device's side | 2.7 |
//! | [`Pci`] | registers and capabilities of virtio over PCI | 4.1 |
//! | [`Mmio`] | registers of virtio over memory-mapped I/O | 4.2 |
//! | [`VirtioNet`] | a network card | 5.1 |
//! | [`VirtioBlk`] | a disk | 5.2 |
//! | [`VirtioRng`] | a source of entropy | 5.4 |
//!
//! A device knows no transport, and a transport no device. Packed virtqueues are left out, as are
//! legacy interfaces: a driver must accept VIRTIO_F_VERSION_1.

pub(crate) mod blk;
mod chain;
mod device;
pub(crate) mod inflight;
pub mod mmio;
pub(crate) mod net;
pub mod pci;
pub(crate) mod queue;
pub(crate) mod rng;
mod state;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod work;

pub use blk::VirtioBlk;
pub use chain::Chain;
pub use device::{QueueKind, VirtioDevice};
pub use mmio::Mmio;
pub use net::VirtioNet;
pub use pci::Pci;
pub use queue::Virtqueue;
pub use rng::VirtioRng;
pub use state::{Area, State};
pub use work::Work;

/// Features that are no device's own (6).
pub mod feature {
    /// Descriptors may refer to tables of descriptors.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Each side says at which index it wants to be notified.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// The driver keeps to this specification.
    pub const VERSION_1: u64 = 1 << 32;
    /// Addresses are those of the bus, behind whatever translates them.
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// A notification says how far the driver is.
    pub const NOTIFICATION_DATA: u64 = 1 << 38;
    /// Queues can be reset one by one.
    pub const RING_RESET: u64 = 1 << 40;
}

/// Bits of the device status (2.1).
pub(crate) mod status {
    pub const ACKNOWLEDGE: u8 = 1;
    pub const DRIVER: u8 = 2;
    pub const DRIVER_OK: u8 = 4;
    pub const FEATURES_OK: u8 = 8;
    pub const NEEDS_RESET: u8 = 64;
    pub const FAILED: u8 = 128;
    /// Those that the driver sets.
    pub const OF_DRIVER: u8 = ACKNOWLEDGE | DRIVER | DRIVER_OK | FEATURES_OK | FAILED;
}
