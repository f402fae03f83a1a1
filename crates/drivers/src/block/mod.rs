//! Disks: each driver in a folder.

pub mod ahci;
mod cache;
mod flight;
mod looks;
pub mod nvme;
pub mod virtio;
pub mod watch;
