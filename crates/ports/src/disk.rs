//! Disks that the host attached. The jail of `spt` lets through transfers of one block, and of
//! several where the image and the tender know of that; a ring takes any number of blocks at once.

use crate::DeviceError;
use crate::devices::Attached;
use crate::host::{Errno, Handle, Host};
use abi::PAGE_SIZE;
use abi::extension::device_flag;
use abi::manifest::Device;
use abi::spt::{DISCARD_BYTES, TRANSFER_BYTES};
use alloc::vec;
use alloc::vec::Vec;
use device::block::{self, Durability, Limits};
use device::{BlockDevice, BlockError};

/// How bytes come from a disk and go there.
pub(crate) trait Transfer {
    /// Most bytes that one transfer moves with `left` bytes of the disk behind its beginning: a
    /// multiple of the size of a block.
    fn bytes_max(&self, block_size: usize, left: u64) -> usize;
    /// The same of what is discarded at once.
    fn discard_bytes_max(&self, block_size: usize, left: u64) -> u64;
    /// Reads whole blocks at this offset in bytes; how many bytes.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno>;
    /// Writes whole blocks at this offset in bytes; how many bytes.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, Errno>;
    /// Makes durable what was written.
    fn flush(&mut self) -> Result<(), Errno>;
    /// Makes whole blocks zeroes, which take no room.
    fn discard(&mut self, offset: u64, length: u64) -> Result<(), Errno>;
}

/// By a call for each block, or for several.
pub(crate) struct CallDisk {
    host: &'static dyn Host,
    handle: Handle,
    /// Whether one call may do more than one block.
    several: bool,
}

impl CallDisk {
    pub(crate) fn new(host: &'static dyn Host, attached: &Attached) -> Self {
        Self {
            host,
            handle: attached.handle,
            several: attached.flags & device_flag::DISK != 0,
        }
    }
}

impl Transfer for CallDisk {
    fn bytes_max(&self, block_size: usize, left: u64) -> usize {
        match self.several && left >= TRANSFER_BYTES {
            true => TRANSFER_BYTES as usize,
            false => block_size,
        }
    }

    fn discard_bytes_max(&self, block_size: usize, left: u64) -> u64 {
        match left >= DISCARD_BYTES {
            true => DISCARD_BYTES,
            false => block_size as u64,
        }
    }

    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.host.pread(self.handle, bytes, offset)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.host.pwrite(self.handle, bytes, offset)
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.host.sync(self.handle).map(drop)
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<(), Errno> {
        self.host.discard(self.handle, offset, length).map(drop)
    }
}

/// Capacity and limits of a disk, as the tender says.
///
/// # Errors
/// It is none.
pub(crate) fn properties(attached: &Attached) -> Result<(u64, Limits), DeviceError> {
    let Some(Device::Block {
        capacity,
        block_size: block_size @ 1..,
    }) = attached.entry.device()
    else {
        return Err(DeviceError::OtherKind);
    };
    let has = |flag| attached.flags & flag != 0;
    let read_only = has(device_flag::READ_ONLY);
    let writes = has(device_flag::DISK) && !read_only;
    let limits = Limits {
        read_only,
        alignment: match has(device_flag::DIRECT) {
            true => PAGE_SIZE as usize,
            false => 1,
        },
        durability: match (read_only, writes) {
            (true, _) => Durability::Written,
            (false, true) => Durability::Flushed,
            (false, false) => Durability::Unknown,
        },
        discard: writes,
        write_zeroes: writes,
        // Who has others to serve goes back to them in between.
        range_bytes_max: DISCARD_BYTES,
        ..Limits::plain(block_size.into())
    };
    Ok((capacity, limits))
}

/// A disk of the manifest.
pub(crate) struct Disk<T> {
    transfer: T,
    capacity: u64,
    limits: Limits,
    /// Where bytes pass the host's cache by: a buffer that begins at a page, for those that do not.
    aligned: Option<Aligned>,
}

impl<T: Transfer> Disk<T> {
    /// The disk of this entry, whose bytes move so.
    pub(crate) fn new(attached: &Attached, transfer: T) -> Result<Self, DeviceError> {
        let (capacity, limits) = properties(attached)?;
        let direct = attached.flags & device_flag::DIRECT != 0;
        Ok(Self {
            transfer,
            capacity,
            limits,
            aligned: direct.then(|| Aligned::new(limits.block_size)),
        })
    }

    /// How many of `length` bytes at `offset` move at once.
    fn part(&self, offset: u64, length: usize) -> usize {
        let left = self.capacity - offset;
        length.min(self.transfer.bytes_max(self.limits.block_size, left))
    }
}

/// A buffer that begins at a page.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// Of at least one block.
    fn new(block_size: usize) -> Self {
        let (size, page) = (block_size.max(TRANSFER_BYTES as usize), PAGE_SIZE as usize);
        let memory = vec![0; size + page];
        let start = memory.as_ptr().align_offset(page).min(page);
        Self { memory, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        let end = self.memory.len() - PAGE_SIZE as usize + self.start;
        &mut self.memory[self.start..end]
    }

    /// Whether bytes begin where they must.
    fn suits(bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(PAGE_SIZE as usize)
    }
}

/// What became of a transfer of `length` bytes.
fn outcome(result: Result<usize, Errno>, length: usize) -> Result<(), BlockError> {
    match result {
        Ok(count) if count == length => Ok(()),
        Ok(_) => Err(BlockError::Host(Errno::IO.0)),
        Err(errno) => Err(failed(errno)),
    }
}

/// How many of `length` bytes were written, in whole blocks. A host that has no room left writes a
/// part, and says why when it is asked for the rest.
fn written(
    result: Result<usize, Errno>,
    length: usize,
    block_size: usize,
) -> Result<usize, BlockError> {
    match result.map_err(failed)? {
        count if count == length => Ok(length),
        count if count < block_size || count > length => Err(BlockError::Host(Errno::IO.0)),
        count => Ok(count / block_size * block_size),
    }
}

pub(crate) fn failed(errno: Errno) -> BlockError {
    match errno {
        Errno::NOT_SUPPORTED => BlockError::Unsupported,
        Errno(number) => BlockError::Host(number),
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
        let (mut at, mut rest) = (offset, blocks);
        while !rest.is_empty() {
            let mut length = self.part(at, rest.len());
            match &mut self.aligned {
                Some(aligned) if !Aligned::suits(rest) => {
                    let bytes = aligned.bytes();
                    length = length.min(bytes.len());
                    outcome(self.transfer.read(at, &mut bytes[..length]), length)?;
                    rest[..length].copy_from_slice(&bytes[..length]);
                }
                _ => outcome(self.transfer.read(at, &mut rest[..length]), length)?,
            }
            (at, rest) = (at + length as u64, &mut rest[length..]);
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits.check_change(self.capacity, offset, length)?;
        let block_size = self.limits.block_size;
        let (mut at, mut rest) = (offset, blocks);
        while !rest.is_empty() {
            let mut length = self.part(at, rest.len());
            match &mut self.aligned {
                Some(aligned) if !Aligned::suits(rest) => {
                    let bytes = aligned.bytes();
                    length = length.min(bytes.len());
                    bytes[..length].copy_from_slice(&rest[..length]);
                    let result = self.transfer.write(at, &bytes[..length]);
                    length = written(result, length, block_size)?;
                }
                _ => {
                    let result = self.transfer.write(at, &rest[..length]);
                    length = written(result, length, block_size)?;
                }
            }
            (at, rest) = (at + length as u64, &rest[length..]);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        match self.limits.durability {
            Durability::Written => Ok(()),
            Durability::Flushed => self.transfer.flush().map_err(failed),
            Durability::Unknown => Err(BlockError::Unsupported),
        }
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        self.limits.check_change(self.capacity, offset, length)?;
        if !self.limits.discard {
            return Err(BlockError::Unsupported);
        }
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let most = self
                .transfer
                .discard_bytes_max(self.limits.block_size, self.capacity - at);
            let part = most.min(end - at);
            self.transfer
                .discard(at, part)
                .map_err(|errno| match errno {
                    // The range is the disk's: a block device has holes of its own blocks alone.
                    Errno::INVALID => BlockError::Unsupported,
                    errno => failed(errno),
                })?;
            at += part;
        }
        Ok(())
    }

    /// What is discarded reads as zeroes, where the host can discard.
    fn write_zeroes(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        match self.discard(offset, length) {
            Err(BlockError::Unsupported) => block::write_zeroes(self, offset, length),
            done => done,
        }
    }
}
