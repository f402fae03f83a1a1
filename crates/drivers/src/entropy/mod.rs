//! Sources of entropy: each driver in a folder.

pub mod virtio;
