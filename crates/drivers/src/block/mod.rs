//! Disks: each driver in a folder.

pub mod ahci;
pub mod nvme;
pub mod virtio;
