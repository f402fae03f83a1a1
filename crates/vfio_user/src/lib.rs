//! The vfio-user protocol, version 0.1: a driver in one process uses a PCI device in another one,
//! over a Unix stream socket (libvfio-user `docs/vfio-user.rst`, QEMU
//! `docs/interop/vfio-user.rst`).
//!
//! The driver's side is the client: it sends commands, and the device's side answers each. All
//! numbers are little-endian, as on the machines that Outboard runs on. The other side is hostile:
//! numbers stay numbers here, and the code that reads them checks them.
//!
//! | module | what | who uses it |
//! |---|---|---|
//! | `header` | what every message begins with, and the numbers of commands | both sides |
//! | `payload` | what follows the header, one structure for each command | both sides |
//! | `register` | whole messages that read or write one 32-bit register | guests |
//! | `socket` | sending and receiving messages with descriptors; feature `host` | tender, models |
//!
//! The page of doorbells is Outboard's addition to the protocol and a contract of guest and host:
//! `abi::doorbell`.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "host"))]
extern crate std;

mod header;
mod payload;
mod register;
#[cfg(feature = "host")]
pub mod socket;

pub use header::{
    Deadline, HEADER_BYTES, Header, HeaderError, MAJOR, MINOR, PATIENCE, command, command_name,
    flag,
};
pub use payload::{
    CapabilityHeader, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, IrqSet, RegionAccess, RegionInfo,
    TypeCapability, Version, capability, device_flag, dma_flag, irq, irq_info_flag, irq_set_flag,
    region, region_flag,
};
pub use register::{RegisterRead, RegisterValue, ReplyError, Width, reply_bytes};
