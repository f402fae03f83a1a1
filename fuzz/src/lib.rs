//! What the fuzz targets share.

pub mod card;
pub mod model;
