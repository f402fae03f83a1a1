//! Everything in this crate that needs `unsafe`, each wrapped so that its callers do not.

pub mod descriptor;
mod entry;
pub(crate) mod fault;
pub mod guest;
pub mod interface;
mod ioctl;
pub(crate) mod landlock;
pub(crate) mod machine;
pub(crate) mod memory;
pub mod namespace;
pub mod packet;
pub mod process;
pub(crate) mod random;
pub(crate) mod rings;
pub mod signal;
pub(crate) mod stop;
pub mod tap;
pub(crate) mod vfio;
pub(crate) mod window;
