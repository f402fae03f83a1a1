//! The part of a disk that a file system is on, as each of the crates wants to read it.

use crate::disk::Disk;
use device::BlockError;
#[cfg(any(feature = "fat", feature = "iso"))]
use device::files::Error;
use hadris_fs::ErrorKind;
use hadris_storage::sync::BlockDevice;
use hadris_storage::{BlockIndex, BlockSize};

/// Size of the blocks in which FAT and ISO 9660 are read: several where theirs are larger.
const BLOCK: BlockSize = BlockSize::new(512).unwrap();

/// A disk, or a partition of it.
#[derive(Clone)]
pub struct Volume {
    disk: Disk,
    start: u64,
    size: u64,
}

impl Volume {
    /// All of a disk.
    pub fn whole(disk: Disk) -> Self {
        let size = disk.capacity();
        Self {
            disk,
            start: 0,
            size,
        }
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A part of it; none if it reaches beyond.
    pub fn part(&self, start: u64, size: u64) -> Option<Self> {
        let end = start.checked_add(size).filter(|end| *end <= self.size);
        end.map(|_| Self {
            disk: self.disk.clone(),
            start: self.start + start,
            size,
        })
    }

    /// Reads bytes at any place of it.
    ///
    /// # Errors
    /// As [`Disk::read`].
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        match offset.checked_add(bytes.len() as u64) {
            Some(end) if end <= self.size => self.disk.read(self.start + offset, bytes),
            _ => Err(BlockError::OutOfRange),
        }
    }
}

#[cfg(feature = "ext")]
impl ext4_view::Ext4Read for Volume {
    fn read(
        &mut self,
        start_byte: u64,
        dst: &mut [u8],
    ) -> Result<(), alloc::boxed::Box<dyn core::error::Error + Send + Sync>> {
        Ok(Self::read(self, start_byte, dst)?)
    }
}

impl hadris_io::ErrorType for Volume {
    type Error = BlockError;
}

impl BlockDevice for Volume {
    fn block_size(&self) -> BlockSize {
        BLOCK
    }

    fn block_count(&self) -> u64 {
        self.size / u64::from(BLOCK.get())
    }

    fn read_blocks(
        &mut self,
        first: BlockIndex,
        buf: &mut [u8],
    ) -> Result<(), hadris_fs::Error<BlockError>> {
        let offset = first.get().checked_mul(u64::from(BLOCK.get()));
        let offset = offset.ok_or(ErrorKind::InvalidInput)?;
        let read = self.read(offset, buf);
        read.map_err(|error| hadris_fs::Error::device(error, "the disk cannot be read"))
    }
}

/// What an error of the crates for FAT and ISO 9660 means here.
#[cfg(any(feature = "fat", feature = "iso"))]
pub(crate) fn meant(error: hadris_fs::Error<BlockError>) -> Error {
    if let Some(error) = error.device_error() {
        return Error::Disk(*error);
    }
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound,
        ErrorKind::NotADirectory => Error::NoFolder,
        ErrorKind::IsADirectory => Error::NoFile,
        _ => Error::Damaged(error.message()),
    }
}
