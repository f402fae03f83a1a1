//! Disks: each driver in a folder.

pub mod ahci;
mod cache;
mod flight;
pub(crate) mod looks;
pub mod nvme;
pub mod usb;
pub mod virtio;
pub mod watch;
