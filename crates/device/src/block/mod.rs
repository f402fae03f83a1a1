//! A disk.
//!
//! [`BlockDevice`] moves blocks while its caller waits. [`BlockQueue`] has several requests in
//! flight, whose buffers it owns meanwhile. [`Immediate`] makes a queue of a device, and
//! [`Blocking`] a device of a queue, so a driver has the one that is like its device.
//!
//! [`Integrity`] and [`Faults`] are layers around a disk: one notices what the other one does.
//!
//! **Order.** Requests that are in flight together are done in any order. Who wants one after the
//! other waits for the first.
//!
//! **Durability.** What a write that succeeded has stored is what reads find, until the disk loses
//! power. What is left of it then, [`Limits::durability`] says. A block whose write had not
//! succeeded by then may hold its old bytes, its new ones, or some of both.
//!
//! **Errors.** A request that fails fails alone: what comes behind it is tried as ever.

mod blocking;
pub mod faults;
mod immediate;
mod integrity;
#[cfg(test)]
mod layer_tests;
mod memory;
mod queue;
#[cfg(test)]
mod tests;

pub use blocking::Blocking;
pub use faults::Faults;
pub use immediate::Immediate;
pub use integrity::{Integrity, OpenError};
pub use memory::{Content, MemoryDisk};
pub use queue::{BlockQueue, Buffers, Operation, Request};

use alloc::boxed::Box;
use alloc::vec;

/// Why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// Offset or length is not a multiple of the block size, or the range leaves the device.
    OutOfRange,
    /// The disk is not to be written.
    ReadOnly,
    /// The disk does not offer this ([`Limits`]).
    Unsupported,
    /// The device says that it could not, with this status of its own kind.
    Device(u16),
    /// The device did not answer in time, or lied, and was reset: it may have done it or not.
    Reset,
    /// The device was given up, or is no more.
    Gone,
    /// The bytes were read, and are not those that were written.
    Damaged,
    /// The host refused it, with this error number.
    Host(i32),
}

impl core::fmt::Display for BlockError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::OutOfRange => write!(f, "not whole blocks of the device"),
            Self::ReadOnly => write!(f, "the disk is read-only"),
            Self::Unsupported => write!(f, "the disk does not offer this"),
            Self::Device(status) => write!(f, "the disk failed (status {status:#x})"),
            Self::Reset => write!(f, "the disk did not answer and was reset"),
            Self::Gone => write!(f, "the disk is no more"),
            Self::Damaged => write!(f, "the disk holds other bytes than were written"),
            Self::Host(errno) => write!(f, "the host refused the transfer (errno {errno})"),
        }
    }
}

impl core::error::Error for BlockError {}

/// When what was written outlives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Once its write has succeeded. A flush has nothing to do, and succeeds.
    Written,
    /// Once a flush has succeeded that began after its write had succeeded. Without one, any of it
    /// may be lost, in any order.
    Flushed,
    /// Nobody says: the disk has no flush. It outlives the image, not the power of its host.
    Unknown,
}

/// What a disk is like. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a block: a power of two.
    pub block_size: usize,
    /// Most bytes of one read or write of a queue, whole blocks. A [`BlockDevice`] cuts what is
    /// longer itself.
    pub transfer_bytes_max: usize,
    /// Most buffers of one request.
    pub buffers_max: usize,
    /// Buffers of a queue begin at a multiple of this in memory: a power of two.
    pub alignment: usize,
    /// Most bytes of one discard or write of zeroes of a queue, whole blocks.
    pub range_bytes_max: u64,
    /// Whether writes, discards and writes of zeroes are refused.
    pub read_only: bool,
    /// What a flush is for.
    pub durability: Durability,
    /// Whether blocks can be discarded.
    pub discard: bool,
    /// Whether zeroes are written without moving them.
    pub write_zeroes: bool,
}

impl Limits {
    /// A disk with blocks of this size that reads and writes and has nothing else.
    pub const fn plain(block_size: usize) -> Self {
        Self {
            block_size,
            transfer_bytes_max: 1 << 20,
            buffers_max: usize::MAX,
            alignment: 1,
            range_bytes_max: 1 << 30,
            read_only: false,
            durability: Durability::Unknown,
            discard: false,
            write_zeroes: false,
        }
    }

    /// Whether a request of `length` bytes is of whole blocks of a disk of this capacity.
    ///
    /// # Errors
    /// [`BlockError::OutOfRange`].
    pub fn check(&self, capacity: u64, offset: u64, length: u64) -> Result<(), BlockError> {
        let block = self.block_size as u64;
        let whole = offset.is_multiple_of(block) && length.is_multiple_of(block);
        let end = offset.checked_add(length);
        let inside = end.is_some_and(|end| end <= capacity);
        (whole && inside)
            .then_some(())
            .ok_or(BlockError::OutOfRange)
    }

    /// The same of a request that changes the disk.
    ///
    /// # Errors
    /// As above, or [`BlockError::ReadOnly`].
    pub fn check_change(&self, capacity: u64, offset: u64, length: u64) -> Result<(), BlockError> {
        self.check(capacity, offset, length)?;
        (!self.read_only).then_some(()).ok_or(BlockError::ReadOnly)
    }
}

/// Zeroes that [`BlockDevice::write_zeroes`] writes at once where the disk has none of its own.
const ZEROES: usize = 64 << 10;

/// A disk whose caller waits.
pub trait BlockDevice {
    /// Size in bytes, a multiple of the block size.
    fn capacity(&self) -> u64;

    /// What it is like.
    fn limits(&self) -> Limits;

    /// Size of a block in bytes.
    fn block_size(&self) -> usize {
        self.limits().block_size
    }

    /// Reads whole blocks at `offset` bytes.
    ///
    /// # Errors
    /// [`BlockError`]; any of the blocks may have been read.
    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError>;

    /// Writes whole blocks at `offset` bytes.
    ///
    /// # Errors
    /// [`BlockError`]; any of the blocks may have been written.
    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError>;

    /// Reads blocks that follow one another on the disk into parts of memory, each whole blocks.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn read_scattered(&mut self, offset: u64, parts: &mut [&mut [u8]]) -> Result<(), BlockError> {
        let mut at = offset;
        for part in parts {
            self.read(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes parts of memory, each whole blocks, one behind the other.
    ///
    /// # Errors
    /// As [`Self::write`].
    fn write_gathered(&mut self, offset: u64, parts: &[&[u8]]) -> Result<(), BlockError> {
        let mut at = offset;
        for part in parts {
            self.write(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes what was written durable, as [`Durability`] says.
    ///
    /// # Errors
    /// [`BlockError`]; what was written since the last flush that succeeded may then be lost, also
    /// if the next one succeeds. [`BlockError::Unsupported`] where nobody promises anything.
    fn flush(&mut self) -> Result<(), BlockError> {
        match self.limits().durability {
            Durability::Written => Ok(()),
            Durability::Flushed | Durability::Unknown => Err(BlockError::Unsupported),
        }
    }

    /// Says that nobody needs these whole blocks any more. What reads find there until they are
    /// written is anything that was ever there, or zeroes.
    ///
    /// # Errors
    /// [`BlockError`]; any of the blocks may have been discarded.
    fn discard(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        let _ = (offset, length);
        Err(BlockError::Unsupported)
    }

    /// Writes zeroes to whole blocks: as [`Self::write`] does it, unless [`Limits::write_zeroes`].
    ///
    /// # Errors
    /// As [`Self::write`].
    fn write_zeroes(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        write_zeroes(self, offset, length)
    }
}

/// Writes zeroes as any other bytes: for disks that have none of their own.
///
/// # Errors
/// As [`BlockDevice::write`].
pub fn write_zeroes<D>(disk: &mut D, offset: u64, length: u64) -> Result<(), BlockError>
where
    D: BlockDevice + ?Sized,
{
    let limits = disk.limits();
    limits.check_change(disk.capacity(), offset, length)?;
    let size = ZEROES.max(limits.block_size) as u64;
    let zeroes = vec![0; size.min(length) as usize];
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let part = size.min(end - at);
        disk.write(at, &zeroes[..part as usize])?;
        at += part;
    }
    Ok(())
}

impl<D: BlockDevice + ?Sized> BlockDevice for Box<D> {
    fn capacity(&self) -> u64 {
        (**self).capacity()
    }

    fn limits(&self) -> Limits {
        (**self).limits()
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        (**self).read(offset, blocks)
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        (**self).write(offset, blocks)
    }

    fn read_scattered(&mut self, offset: u64, parts: &mut [&mut [u8]]) -> Result<(), BlockError> {
        (**self).read_scattered(offset, parts)
    }

    fn write_gathered(&mut self, offset: u64, parts: &[&[u8]]) -> Result<(), BlockError> {
        (**self).write_gathered(offset, parts)
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        (**self).flush()
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        (**self).discard(offset, length)
    }

    fn write_zeroes(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        (**self).write_zeroes(offset, length)
    }
}
