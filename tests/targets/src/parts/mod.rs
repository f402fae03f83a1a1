//! What several targets share.

pub mod card;
pub mod virtio;
