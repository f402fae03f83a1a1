//! The part of a disk that a file system is on, as each of the crates wants to read and write it.

use crate::disk::Disk;
use alloc::rc::Rc;
use bytes::Bytes;
use core::cell::Cell;
use device::BlockError;
#[cfg(any(feature = "fat", feature = "iso"))]
use device::files::Error;
use hadris_fs::ErrorKind;
use hadris_storage::sync::BlockDevice;
use hadris_storage::{BlockIndex, BlockSize};

/// Size of the blocks in which FAT and ISO 9660 are read: several where theirs are larger.
const BLOCK: BlockSize = BlockSize::new(512).unwrap();

/// Whether zeroes reach the disk before what is written behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zeroes {
    /// They may come later.
    Unordered,
    /// They come first.
    First,
    /// Some were written: they come first.
    Written,
}

/// A disk, or a partition of it.
#[derive(Clone)]
pub struct Volume {
    disk: Disk,
    start: u64,
    size: u64,
    zeroes: Rc<Cell<Zeroes>>,
}

impl Volume {
    /// All of a disk.
    pub fn whole(disk: Disk) -> Self {
        let size = disk.capacity();
        Self {
            disk,
            start: 0,
            size,
            zeroes: Rc::new(Cell::new(Zeroes::Unordered)),
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
            zeroes: Rc::clone(&self.zeroes),
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

    /// Reads bytes at any place of it that others may hold as well.
    ///
    /// # Errors
    /// As [`Disk::share`].
    pub fn share(&self, offset: u64, size: usize) -> Result<Bytes, BlockError> {
        match offset.checked_add(size as u64) {
            Some(end) if end <= self.size => self.disk.share(self.start + offset, size),
            _ => Err(BlockError::OutOfRange),
        }
    }

    /// Writes bytes at any place of it.
    ///
    /// # Errors
    /// As [`Disk::write`].
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        match offset.checked_add(bytes.len() as u64) {
            Some(end) if end <= self.size => self.disk.write(self.start + offset, bytes),
            _ => Err(BlockError::OutOfRange),
        }
    }

    /// Has all that was written outlive a power cut.
    ///
    /// # Errors
    /// As [`Disk::flush`].
    pub fn flush(&self) -> Result<(), BlockError> {
        self.disk.flush()
    }

    /// Whether it can be written.
    pub fn is_writable(&self) -> bool {
        !self.disk.is_read_only()
    }

    /// What whoever writes a file system says of the order of what it writes.
    #[cfg(any(feature = "fat", feature = "iso"))]
    pub(crate) fn zeroes(&self) -> Rc<Cell<Zeroes>> {
        Rc::clone(&self.zeroes)
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

    fn writable(&self) -> bool {
        self.is_writable()
    }

    fn write_blocks(
        &mut self,
        first: BlockIndex,
        buf: &[u8],
    ) -> Result<(), hadris_fs::Error<BlockError>> {
        let offset = first.get().checked_mul(u64::from(BLOCK.get()));
        let offset = offset.ok_or(ErrorKind::InvalidInput)?;
        let is_zero = || buf.iter().all(|byte| *byte == 0);
        match self.zeroes.get() {
            Zeroes::Unordered => {}
            Zeroes::First if is_zero() => self.zeroes.set(Zeroes::Written),
            Zeroes::Written if !is_zero() => {
                self.zeroes.set(Zeroes::First);
                hadris_storage::sync::BlockDevice::flush(self)?;
            }
            Zeroes::First | Zeroes::Written => {}
        }
        let written = self.write(offset, buf);
        written.map_err(|error| hadris_fs::Error::device(error, "the disk cannot be written"))
    }

    fn flush(&mut self) -> Result<(), hadris_fs::Error<BlockError>> {
        let flushed = Self::flush(self);
        flushed.map_err(|error| hadris_fs::Error::device(error, "the disk cannot be flushed"))
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
        ErrorKind::AlreadyExists => Error::Exists,
        ErrorKind::DirectoryNotEmpty => Error::NotEmpty,
        ErrorKind::NoSpace => Error::NoSpace,
        ErrorKind::ReadOnly => Error::ReadOnly,
        ErrorKind::InvalidInput | ErrorKind::NameTooLong => Error::Path,
        ErrorKind::FileTooLarge => Error::TooLarge,
        ErrorKind::Busy => Error::Busy,
        _ => Error::Damaged(error.message()),
    }
}
