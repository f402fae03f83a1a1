//! Disks that the host attached. The jail of `spt` lets through transfers of exactly one block; a
//! ring takes any number of blocks at once.

use crate::DeviceError;
use crate::devices::Attached;
use crate::host::{Errno, Handle, Host};
use abi::manifest::Device;
use device::block::Limits;
use device::{BlockDevice, BlockError};

/// How bytes come from a disk and go there.
pub(crate) trait Transfer {
    /// Most bytes that one transfer moves: a multiple of the size of a block.
    fn bytes_max(&self, block_size: usize) -> usize;
    /// Reads whole blocks at this offset in bytes; how many bytes.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno>;
    /// Writes whole blocks at this offset in bytes; how many bytes.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, Errno>;
}

/// By a call for each block.
pub(crate) struct CallDisk {
    pub(crate) host: &'static dyn Host,
    pub(crate) handle: Handle,
}

impl Transfer for CallDisk {
    fn bytes_max(&self, block_size: usize) -> usize {
        block_size
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.host.pread(self.handle, bytes, offset)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.host.pwrite(self.handle, bytes, offset)
    }
}

/// A disk of the manifest.
pub(crate) struct Disk<T> {
    transfer: T,
    capacity: u64,
    limits: Limits,
}

impl<T: Transfer> Disk<T> {
    /// The disk of this entry, whose bytes move so.
    pub(crate) fn new(attached: &Attached, transfer: T) -> Result<Self, DeviceError> {
        match attached.entry.device() {
            Some(Device::Block {
                capacity,
                block_size,
            }) if block_size > 0 => Ok(Self {
                transfer,
                capacity,
                limits: Limits::plain(block_size.into()),
            }),
            _ => Err(DeviceError::OtherKind),
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

impl<T: Transfer> BlockDevice for Disk<T> {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits.check(self.capacity, offset, length)?;
        let size = self.transfer.bytes_max(self.limits.block_size);
        for (part, offset) in blocks.chunks_mut(size).zip((offset..).step_by(size)) {
            outcome(self.transfer.read(offset, part), part.len())?;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits.check_change(self.capacity, offset, length)?;
        let size = self.transfer.bytes_max(self.limits.block_size);
        for (part, offset) in blocks.chunks(size).zip((offset..).step_by(size)) {
            outcome(self.transfer.write(offset, part), part.len())?;
        }
        Ok(())
    }
}
