//! Disks: each driver in a folder.

pub mod nvme;
pub mod virtio;
