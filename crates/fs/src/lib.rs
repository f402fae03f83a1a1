//! File systems on a disk, and one in memory.
//!
//! | module | what |
//! |---|---|
//! | [`disk`] | a disk whose pages are kept once they were read or written |
//! | [`volume`] | the part of a disk that a file system is on |
//! | [`mount()`] | finds the file system of a disk: a [`device::files::FileSystem`] |
//! | [`tmpfs`] | a file system in memory |
//! | [`tree`] | all that a file system has: read, copied, compared |
//!
//! Each file system is a feature, and an appliance names those that it has:
//!
//! | feature | what | by |
//! |---|---|---|
//! | `ext` | reads ext2, ext3 and ext4 | the crate `ext4-view` |
//! | `ext2` | reads and writes ext2; with `ext`, reads ext3 and ext4, too | this crate |
//! | `fat` | reads FAT12, FAT16, FAT32, with long names | the crate `hadris-fat` |
//! | `fat-write` | writes them | the same |
//! | `iso` | reads ISO 9660, with Joliet and Rock Ridge | the crate `hadris-iso` |
//!
//! docs/files.md says what is promised of what is written, and why ext4 is read alone.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod disk;
#[cfg(feature = "ext")]
mod ext;
#[cfg(feature = "ext2")]
mod ext2;
mod mount;
#[cfg(any(feature = "fat", feature = "iso"))]
mod node;
mod pages;
mod parts;
#[cfg(test)]
mod tests;
pub mod tmpfs;
pub mod tree;
pub mod volume;

pub use mount::{NoFileSystem, mount, mount_to_write};

/// Says what time it is: seconds since 1970-01-01 00:00 UTC.
pub type Now = fn() -> u64;
