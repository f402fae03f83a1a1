//! Disks: each driver in a folder.

pub mod virtio;
