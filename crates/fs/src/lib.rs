//! File systems on a disk, for reading.
//!
//! | module | what |
//! |---|---|
//! | [`disk`] | a disk whose pages are kept once they were read |
//! | [`volume`] | the part of a disk that a file system is on |
//! | [`mount()`] | finds the file system of a disk: a [`device::files::FileSystem`] |
//!
//! The file systems themselves are crates that others keep up, one for each feature: `ext`
//! (ext2, ext3, ext4), `fat` (FAT12, FAT16, FAT32, with long names) and `iso` (ISO 9660, with
//! Joliet and Rock Ridge).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod disk;
#[cfg(feature = "ext")]
mod ext;
mod mount;
#[cfg(any(feature = "fat", feature = "iso"))]
mod node;
mod pages;
#[cfg(test)]
mod tests;
pub mod volume;

pub use mount::{NoFileSystem, mount};
