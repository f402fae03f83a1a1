//! PCI devices of this machine: where they are plugged in, what they are, and what sysfs says.

mod address;
mod class;
pub mod sysfs;

pub use address::Address;
pub use class::{Class, Identity};
