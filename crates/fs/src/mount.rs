//! Which file system a disk has.

use crate::Now;
use crate::disk::Disk;
use crate::volume::Volume;
use alloc::boxed::Box;
use core::fmt;
use device::files::{Error, FileSystem};

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFileSystem {
    /// Neither the disk nor one of its partitions has one that is known here.
    Unknown,
    /// There is one that cannot be read: its name, and why.
    Unreadable(&'static str, Error),
}

impl fmt::Display for NoFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(
                f,
                "neither the disk nor one of its partitions has a file system that this image knows"
            ),
            Self::Unreadable(name, error) => write!(f, "{name}: {error}"),
        }
    }
}

impl core::error::Error for NoFileSystem {}

/// The file system of a disk, or that of the first of its partitions (MBR or GPT) that has one,
/// for reading.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn mount(disk: &Disk) -> Result<Box<dyn FileSystem>, NoFileSystem> {
    found(disk, None)
}

/// The same for reading and writing; `now` are seconds since 1970-01-01 00:00 UTC. It is read alone
/// ([`FileSystem::is_writable`]) where the image has no code that writes its kind, the disk is
/// read-only, it has features that are not written here, or it is not clean: a checker first.
///
/// # Errors
/// As [`mount()`].
pub fn mount_to_write(disk: &Disk, now: Now) -> Result<Box<dyn FileSystem>, NoFileSystem> {
    found(disk, Some(now))
}

fn found(disk: &Disk, write: Option<Now>) -> Result<Box<dyn FileSystem>, NoFileSystem> {
    let mut whole = Volume::whole(disk.clone());
    if let Some(found) = of(&whole, write)? {
        return Ok(found);
    }
    let table = hadris_part::sync::read(&mut whole).map_err(|_| NoFileSystem::Unknown)?;
    for partition in table.partitions() {
        let block = u64::from(table.block_size().get());
        let start = partition.start().checked_mul(block);
        let volume = start.and_then(|start| whole.part(start, partition.size_bytes()));
        let found = volume.map(|volume| of(&volume, write)).transpose()?;
        if let Some(found) = found.flatten() {
            return Ok(found);
        }
    }
    Err(NoFileSystem::Unknown)
}

/// The file system of a volume. A disc may have the table of partitions of a disk before its
/// ISO 9660, and a file system of FAT begins as such a table does: it comes last.
fn of(volume: &Volume, write: Option<Now>) -> Result<Option<Box<dyn FileSystem>>, NoFileSystem> {
    #[cfg(feature = "ext2")]
    if let Some(now) = write
        && let Some(found) = crate::ext2::mount(volume, now)
    {
        return Ok(Some(found));
    }
    #[cfg(all(feature = "ext", feature = "ext2"))]
    if let Some(found) = crate::ext2::mount_to_read(volume) {
        return Ok(Some(found));
    }
    #[cfg(feature = "ext")]
    if crate::ext::is_there(volume) {
        let mounted = crate::ext::Ext::mount(volume.clone());
        let mounted = mounted.map_err(|error| NoFileSystem::Unreadable("ext", error))?;
        return Ok(Some(Box::new(mounted)));
    }
    #[cfg(feature = "iso")]
    if crate::node::is_iso(volume) {
        let mounted = crate::node::iso(volume.clone());
        return mounted
            .map(Some)
            .map_err(|error| NoFileSystem::Unreadable("iso9660", error));
    }
    #[cfg(feature = "fat")]
    if let Some(found) = crate::node::fat(volume.clone(), write)
        .map_err(|error| NoFileSystem::Unreadable("vfat", error))?
    {
        return Ok(Some(found));
    }
    Ok(None)
}
