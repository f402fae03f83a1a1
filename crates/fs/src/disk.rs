//! A disk whose pages are kept once they were read.

use crate::pages::Pages;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use core::cell::RefCell;
use device::block::Limits;
use device::{BlockDevice, BlockError};

/// Bytes of a page: what is read of a disk at least. A multiple of every size that a block has
/// ([`Disk::new`] refuses others).
pub const PAGE: usize = 4096;
/// Pages that are read at once where one follows the last that was read.
pub const AHEAD: usize = 16;
/// Bytes that are kept where nobody says otherwise.
pub const BUDGET: usize = 4 << 20;

/// A disk that several file systems and files share.
#[derive(Clone)]
pub struct Disk(Rc<RefCell<Kept>>);

struct Kept {
    device: Box<dyn BlockDevice>,
    pages: Pages,
    /// The page behind the last that was read: whoever asks for it next reads on.
    next: u64,
}

impl Disk {
    /// Keeps up to `budget` bytes of pages.
    ///
    /// # Errors
    /// [`BlockError::OutOfRange`], if the device's blocks do not divide a page.
    pub fn new(device: Box<dyn BlockDevice>, budget: usize) -> Result<Self, BlockError> {
        match device.block_size() {
            1..=PAGE if PAGE.is_multiple_of(device.block_size()) => {
                Ok(Self(Rc::new(RefCell::new(Kept {
                    device,
                    pages: Pages::new(budget / PAGE),
                    next: u64::MAX,
                }))))
            }
            _ => Err(BlockError::OutOfRange),
        }
    }

    /// Size in bytes.
    pub fn capacity(&self) -> u64 {
        self.0.borrow().device.capacity()
    }

    /// Reads bytes at any place.
    ///
    /// # Errors
    /// They are not all on the disk, or it fails; some may have been read.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        let mut kept = self.0.borrow_mut();
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > kept.device.capacity()) {
            return Err(BlockError::OutOfRange);
        }
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let skipped = (at % PAGE as u64) as usize;
            let count = rest.len().min(PAGE - skipped);
            let (part, behind) = rest.split_at_mut(count);
            kept.page(at / PAGE as u64, |page| {
                // A page at the end of the disk is shorter, and all of `bytes` is on the disk.
                if let Some(found) = page.get(skipped..skipped + count) {
                    part.copy_from_slice(found);
                }
            })?;
            (at, rest) = (at + count as u64, behind);
        }
        Ok(())
    }
}

/// Blocks are those of the device. What is written goes there at once.
impl BlockDevice for Disk {
    fn capacity(&self) -> u64 {
        Self::capacity(self)
    }

    fn limits(&self) -> Limits {
        self.0.borrow().device.limits()
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        Self::read(self, offset, blocks)
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let mut kept = self.0.borrow_mut();
        // Also where it fails, some blocks may have been written.
        let written = kept.device.write(offset, blocks);
        let first = offset / PAGE as u64;
        let end = offset
            .saturating_add(blocks.len() as u64)
            .div_ceil(PAGE as u64);
        (first..end).for_each(|page| kept.pages.forget(page));
        written
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        self.0.borrow_mut().device.flush()
    }
}

impl Kept {
    /// Has `with` look at a page, which is read if it is not kept.
    fn page(&mut self, number: u64, with: impl FnOnce(&[u8])) -> Result<(), BlockError> {
        if !self.pages.has(number) {
            self.load(number)?;
        }
        self.pages.get(number).map(with);
        Ok(())
    }

    /// Reads a page, and those behind it if somebody reads on. Of those, none is an error's.
    fn load(&mut self, number: u64) -> Result<(), BlockError> {
        let ahead = if number == self.next { AHEAD } else { 1 };
        let end = self.device.capacity().div_ceil(PAGE as u64);
        let behind = (number..end.min(number + ahead as u64)).skip(1);
        let count = 1 + behind.take_while(|page| !self.pages.has(*page)).count();
        let start = number * PAGE as u64;
        let size = (count * PAGE) as u64;
        let mut bytes = vec![0; size.min(self.device.capacity() - start) as usize];
        match self.device.read(start, &mut bytes) {
            Ok(()) => {}
            // What was not asked for may be what cannot be read.
            Err(_) if count > 1 => {
                bytes.truncate(PAGE);
                self.device.read(start, &mut bytes)?;
            }
            Err(error) => return Err(error),
        }
        for (page, bytes) in (number..).zip(bytes.chunks(PAGE)) {
            self.pages.put(page, bytes.into());
        }
        self.next = number + bytes.len().div_ceil(PAGE) as u64;
        Ok(())
    }
}
