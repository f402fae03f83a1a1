//! What several targets share.

pub mod card;
pub mod disks;
pub mod virtio;
