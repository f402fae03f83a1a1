//! A disk that the host attached. The jail of `spt` lets through transfers of exactly one block; a
//! ring takes any number of them at once.

use crate::boot::{Attached, DeviceError, boot};
use crate::host::{self, Errno, Handle};
use crate::ring::{Disk, Rings, TRANSFER_BYTES_MAX};
use abi::extension::device_flag;
use abi::manifest::Device;
use device::{BlockDevice, BlockError};

/// A block device of the manifest.
pub struct Block {
    link: Link,
    capacity: u64,
    block_size: usize,
}

/// How blocks come and go.
enum Link {
    /// By a call each.
    Calls(Handle),
    /// Through a ring, as many as there are.
    Ring(Disk, &'static Rings),
}

impl Block {
    pub(crate) fn new(attached: Attached) -> Result<Self, DeviceError> {
        let rings = boot().rings.as_ref();
        let rings = rings.filter(|_| attached.flags & device_flag::RING != 0);
        let name = attached.entry.name().unwrap_or("");
        let ring = rings.and_then(|rings| Some((rings.disk(attached.index, name)?, rings)));
        let link = match ring {
            Some((disk, rings)) => Link::Ring(disk, rings),
            None => Link::Calls(attached.handle),
        };
        match attached.entry.device() {
            Some(Device::Block {
                capacity,
                block_size,
            }) if block_size > 0 => Ok(Self {
                link,
                capacity,
                block_size: usize::from(block_size),
            }),
            _ => Err(DeviceError::OtherKind),
        }
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), BlockError> {
        let whole =
            offset.is_multiple_of(self.block_size as u64) && length.is_multiple_of(self.block_size);
        let inside = offset
            .checked_add(length as u64)
            .is_some_and(|end| end <= self.capacity);
        (whole && inside)
            .then_some(())
            .ok_or(BlockError::OutOfRange)
    }

    /// How many bytes are moved at a time.
    fn transfer_bytes(&self) -> usize {
        match self.link {
            Link::Calls(_) => self.block_size,
            Link::Ring(..) => TRANSFER_BYTES_MAX / self.block_size * self.block_size,
        }
    }
}

/// What became of a transfer of `length` bytes.
fn outcome(result: Result<usize, Errno>, length: usize) -> Result<(), BlockError> {
    match result {
        Ok(count) if count == length => Ok(()),
        Ok(_) => Err(BlockError::Host(Errno::IO.0)),
        Err(errno) => Err(BlockError::Host(errno.0)),
    }
}

impl BlockDevice for Block {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn block_size(&self) -> usize {
        self.block_size
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        self.check(offset, blocks.len())?;
        let size = self.transfer_bytes();
        for (part, offset) in blocks.chunks_mut(size).zip((offset..).step_by(size)) {
            let read = match &mut self.link {
                Link::Calls(handle) => host::pread(*handle, part, offset),
                Link::Ring(disk, rings) => disk.read(rings, offset, part),
            };
            outcome(read, part.len())?;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        self.check(offset, blocks.len())?;
        let size = self.transfer_bytes();
        for (part, offset) in blocks.chunks(size).zip((offset..).step_by(size)) {
            let written = match &mut self.link {
                Link::Calls(handle) => host::pwrite(*handle, part, offset),
                Link::Ring(disk, rings) => disk.write(rings, offset, part),
            };
            outcome(written, part.len())?;
        }
        Ok(())
    }
}
