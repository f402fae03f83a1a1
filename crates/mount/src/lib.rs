//! The file systems of images, mounted on Linux by FUSE: what an image reads and writes, any
//! program can.
//!
//! | module | what |
//! |---|---|
//! | [`disk`] | a file or a device of the host, as a disk |
//! | `names` | what the kernel knows, and under which paths |
//! | `held` | what the kernel asks for, done by a file system |
//! | `session` | the kernel's requests, which arrive on a thread of their own |
//!
//! A file system keeps to one thread. The crate `fuser` speaks the kernel's protocol on another one
//! and hands over what was asked, with the place for the answer.

#![forbid(unsafe_code)]

pub mod disk;
mod held;
mod names;
mod session;

pub use session::{Mounted, mount};
