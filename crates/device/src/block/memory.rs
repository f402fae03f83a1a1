//! A disk in memory: what queues, layers and servers of disks are tested with.

use super::{BlockDevice, BlockError, Durability, Limits};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Ref, RefCell, RefMut};

/// A disk in memory that has all that a disk can have. Clones are the same disk: a test keeps one.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Rc<RefCell<Content>>);

/// What is in a disk, and what happened to it.
#[derive(Clone, Debug)]
pub struct Content {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What it is like.
    pub limits: Limits,
    /// The byte whose block can be neither read nor written.
    pub bad: Option<u64>,
    /// Offset and length of each read and write.
    pub transfers: Vec<(u64, usize)>,
    /// How often it was flushed.
    pub flushes: usize,
    /// Offset and length of what was discarded.
    pub discards: Vec<(u64, u64)>,
}

impl MemoryDisk {
    /// So many bytes of zeroes, in blocks of 512.
    pub fn new(bytes: usize) -> Self {
        Self(Rc::new(RefCell::new(Content {
            bytes: vec![0; bytes],
            limits: Limits {
                durability: Durability::Flushed,
                discard: true,
                write_zeroes: true,
                ..Limits::plain(512)
            },
            bad: None,
            transfers: Vec::new(),
            flushes: 0,
            discards: Vec::new(),
        })))
    }

    /// What is in it.
    pub fn content(&self) -> Ref<'_, Content> {
        self.0.borrow()
    }

    /// The same, to be changed.
    pub fn content_mut(&self) -> RefMut<'_, Content> {
        self.0.borrow_mut()
    }
}

impl Content {
    /// The bytes of a transfer that was checked.
    fn place(&mut self, offset: u64, length: usize) -> Result<&mut [u8], BlockError> {
        self.transfers.push((offset, length));
        let end = offset + length as u64;
        match self.bad {
            Some(bad) if (offset..end).contains(&bad) => Err(BlockError::Device(1)),
            _ => Ok(&mut self.bytes[offset as usize..end as usize]),
        }
    }

    fn check_change(&self, offset: u64, length: u64) -> Result<(), BlockError> {
        let capacity = self.bytes.len() as u64;
        self.limits.check_change(capacity, offset, length)
    }
}

impl BlockDevice for MemoryDisk {
    fn capacity(&self) -> u64 {
        self.content().bytes.len() as u64
    }

    fn limits(&self) -> Limits {
        self.content().limits
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let mut content = self.content_mut();
        let capacity = content.bytes.len() as u64;
        content
            .limits
            .check(capacity, offset, blocks.len() as u64)?;
        blocks.copy_from_slice(content.place(offset, blocks.len())?);
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let mut content = self.content_mut();
        content.check_change(offset, blocks.len() as u64)?;
        content.place(offset, blocks.len())?.copy_from_slice(blocks);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        let mut content = self.content_mut();
        content.flushes += 1;
        match content.limits.durability {
            Durability::Unknown => Err(BlockError::Unsupported),
            Durability::Written | Durability::Flushed => Ok(()),
        }
    }

    fn discard(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        let mut content = self.content_mut();
        content.check_change(offset, length)?;
        if !content.limits.discard {
            return Err(BlockError::Unsupported);
        }
        content.discards.push((offset, length));
        let range = offset as usize..(offset + length) as usize;
        content.bytes[range].fill(0);
        Ok(())
    }

    fn write_zeroes(&mut self, offset: u64, length: u64) -> Result<(), BlockError> {
        let mut content = self.content_mut();
        content.check_change(offset, length)?;
        let range = offset as usize..(offset + length) as usize;
        content.bytes[range].fill(0);
        Ok(())
    }
}
