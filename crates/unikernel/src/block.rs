//! A disk that the host attached. The jail of `spt` lets through transfers of exactly one block.

use crate::boot::{Attached, DeviceError};
use crate::host::{self, Errno, Handle};
use abi::manifest::Device;
use device::{BlockDevice, BlockError};

/// A block device of the manifest.
pub struct Block {
    handle: Handle,
    capacity: u64,
    block_size: usize,
}

impl Block {
    pub(crate) fn new(attached: Attached) -> Result<Self, DeviceError> {
        match attached.entry.device() {
            Some(Device::Block {
                capacity,
                block_size,
            }) if block_size > 0 => Ok(Self {
                handle: attached.handle,
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

    /// What became of the transfer of one block.
    fn outcome(&self, result: Result<usize, Errno>) -> Result<(), BlockError> {
        match result {
            Ok(count) if count == self.block_size => Ok(()),
            Ok(_) => Err(BlockError::Host(Errno::IO.0)),
            Err(errno) => Err(BlockError::Host(errno.0)),
        }
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
        let offsets = (offset..).step_by(self.block_size);
        for (block, offset) in blocks.chunks_exact_mut(self.block_size).zip(offsets) {
            self.outcome(host::pread(self.handle, block, offset))?;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        self.check(offset, blocks.len())?;
        let offsets = (offset..).step_by(self.block_size);
        for (block, offset) in blocks.chunks_exact(self.block_size).zip(offsets) {
            self.outcome(host::pwrite(self.handle, block, offset))?;
        }
        Ok(())
    }
}
