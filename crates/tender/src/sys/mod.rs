//! Everything in this crate that needs `unsafe`, each wrapped so that its callers do not.

mod entry;
pub(crate) mod fault;
pub mod guest;
pub(crate) mod landlock;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod random;
pub(crate) mod rings;
pub(crate) mod stop;
pub(crate) mod vfio;
pub(crate) mod window;
