//! What the fuzz targets share.

pub mod card;
pub mod model;
pub mod virtio;
