//! Files of rules, read with what they include: for programs that are given one, and for images
//! that come with one.

#![forbid(unsafe_code)]

mod build;
mod include;
mod source;

pub use build::appliance;
pub use include::{Failure, Gathered};
pub use source::{Error, Source};
