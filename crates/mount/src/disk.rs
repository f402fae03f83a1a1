//! A file or a block device of the host, as a disk.

use device::block::{Durability, Limits};
use device::{BlockDevice, BlockError};
use rustix::fs::SeekFrom;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Bytes of a block. What a file has behind its last whole block is left alone.
const BLOCK: u64 = 512;

/// A disk that nobody writes meanwhile who asks for a lock.
pub struct HostDisk {
    file: File,
    capacity: u64,
    is_read_only: bool,
}

impl HostDisk {
    /// Opens it for reading and writing, or for reading where it may not be written.
    ///
    /// # Errors
    /// It is no file and no block device, cannot be opened, or somebody else has it
    /// ([`io::ErrorKind::WouldBlock`]).
    pub fn open(path: &Path) -> io::Result<Self> {
        match Self::opened(path, false) {
            Err(error) if may_be_read(&error) => Self::open_to_read(path),
            opened => opened,
        }
    }

    /// Opens it for reading; others may do so, too.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        Self::opened(path, true)
    }

    fn opened(path: &Path, is_read_only: bool) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(!is_read_only)
            .open(path)?;
        let metadata = file.metadata()?;
        let length = match metadata.file_type() {
            kind if kind.is_file() => metadata.len(),
            kind if kind.is_block_device() => rustix::fs::seek(&file, SeekFrom::End(0))?,
            _ => return Err(io::Error::other("neither a file nor a block device")),
        };
        let locked = match is_read_only {
            true => file.try_lock_shared(),
            false => file.try_lock(),
        };
        match locked {
            Ok(()) => Ok(Self {
                file,
                capacity: length / BLOCK * BLOCK,
                is_read_only,
            }),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

fn may_be_read(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

fn failed(error: io::Error) -> BlockError {
    BlockError::Host(
        error
            .raw_os_error()
            .unwrap_or(rustix::io::Errno::IO.raw_os_error()),
    )
}

impl BlockDevice for HostDisk {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn limits(&self) -> Limits {
        Limits {
            read_only: self.is_read_only,
            durability: Durability::Flushed,
            ..Limits::plain(BLOCK as usize)
        }
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits().check(self.capacity, offset, length)?;
        self.file.read_exact_at(blocks, offset).map_err(failed)
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits().check_change(self.capacity, offset, length)?;
        self.file.write_all_at(blocks, offset).map_err(failed)
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        self.file.sync_data().map_err(failed)
    }
}
