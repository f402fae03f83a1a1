//! Everything in this crate that needs `unsafe`, each wrapped so that its callers do not.

pub mod descriptor;
pub(crate) mod ioctl;
pub mod namespace;
pub mod notify;
pub mod packet;
pub mod process;
pub mod shared;
pub mod signal;
pub mod tap;
