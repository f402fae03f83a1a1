//! A disk whose pages are kept once they were read, or written.
//!
//! What is written stays in memory until so much of it is there that half of the pages are
//! changed, or until somebody flushes: it then goes to the device from the beginning of the disk
//! to its end, pages that follow each other at once, and the device is flushed behind it. Between
//! two flushes nothing is ordered. A page that the device refuses stays, and is tried again.
//!
//! Reads of [`LARGE`] bytes and more, of which nothing is kept, go from the device to whoever
//! reads, and are not kept: who reads so much at once does it once. Whoever does it more often
//! [shares](Disk::share) what was read: it is kept apart from the pages, without a copy.

use crate::pages::Pages;
use crate::parts::Parts;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::cell::RefCell;
use core::ops::Range;
use device::block::{Durability, Limits};
use device::{BlockDevice, BlockError};

/// Bytes of a page: what is read of a disk at least. A multiple of every size that a block has
/// ([`Disk::new`] refuses others).
pub const PAGE: usize = 4096;
/// Pages that are read at once where one follows the last that was read.
pub const AHEAD: usize = 16;
/// Bytes of a read that passes by what is kept, and of a part that is shared.
pub const LARGE: usize = 64 << 10;
/// Pages that are written at once where they follow each other.
const RUN: usize = 64;
/// Bytes that are kept where nobody says otherwise.
pub const BUDGET: usize = 4 << 20;

/// A disk that several file systems and files share.
#[derive(Clone)]
pub struct Disk(Rc<RefCell<Kept>>);

struct Kept {
    device: Box<dyn BlockDevice>,
    pages: Pages,
    /// What is shared. None of it was changed since it was read.
    parts: Parts,
    /// The page behind the last that was read: whoever asks for it next reads on.
    next: u64,
    /// Where pages are read to.
    ahead: Vec<u8>,
    /// Why a flush has failed. What was written before may be lost, and no later flush brings it
    /// back: so nothing is written any more, and each later flush fails as well.
    lost: Option<BlockError>,
}

impl Disk {
    /// Keeps up to `budget` bytes of pages, and half as many of what is shared.
    ///
    /// # Errors
    /// [`BlockError::OutOfRange`], if the device's blocks do not divide a page.
    pub fn new(device: Box<dyn BlockDevice>, budget: usize) -> Result<Self, BlockError> {
        match device.block_size() {
            1..=PAGE if PAGE.is_multiple_of(device.block_size()) => {
                Ok(Self(Rc::new(RefCell::new(Kept {
                    device,
                    pages: Pages::new(budget / PAGE),
                    parts: Parts::new(budget / LARGE / 2),
                    next: u64::MAX,
                    ahead: Vec::new(),
                    lost: None,
                }))))
            }
            _ => Err(BlockError::OutOfRange),
        }
    }

    /// Size in bytes.
    pub fn capacity(&self) -> u64 {
        self.0.borrow().device.capacity()
    }

    /// Whether nobody can write it.
    pub fn is_read_only(&self) -> bool {
        self.0.borrow().device.limits().read_only
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
        // What was read ahead of a part would keep the next one from passing by.
        let reads_on = bytes.len() < LARGE;
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let direct = kept.read_past(at, rest);
            let (number, skipped) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let count = match direct {
                0 => rest.len().min(PAGE - skipped),
                direct => direct,
            };
            let wanted = (skipped + rest.len()).div_ceil(PAGE);
            let (part, behind) = rest.split_at_mut(count);
            if direct == 0 {
                let page = kept.page(number, wanted, reads_on)?;
                // A page at the end of the disk is shorter, and all of `bytes` is on the disk.
                if let Some(found) = page.get(skipped..skipped + count) {
                    part.copy_from_slice(found);
                }
            }
            (at, rest) = (at + count as u64, behind);
        }
        Ok(())
    }

    /// Reads bytes at any place, to memory that others who read the same may hold as well:
    /// [`LARGE`] bytes that begin with a block, and of which no page is kept, are copied for
    /// nobody.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn share(&self, offset: u64, size: usize) -> Result<Bytes, BlockError> {
        if size == LARGE
            && let Some(bytes) = self.0.borrow_mut().part(offset)
        {
            return Ok(bytes);
        }
        let mut bytes = vec![0; size];
        self.read(offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Writes bytes at any place. They are on the device once [`flush`](Self::flush) says so.
    ///
    /// # Errors
    /// They do not all fit on the disk, or it fails; some may have been written.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BlockError> {
        let mut kept = self.0.borrow_mut();
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > kept.device.capacity()) {
            return Err(BlockError::OutOfRange);
        }
        if kept.device.limits().read_only {
            return Err(BlockError::ReadOnly);
        }
        kept.lost.map_or(Ok(()), Err)?;
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let skipped = (at % PAGE as u64) as usize;
            let (part, behind) = rest.split_at(rest.len().min(PAGE - skipped));
            kept.change(at / PAGE as u64, skipped, part)?;
            (at, rest) = (at + part.len() as u64, behind);
        }
        Ok(())
    }

    /// Has all that was written be where it outlives a power cut.
    ///
    /// Where the device has no flush ([`Durability::Unknown`]), it is what outlives this image.
    ///
    /// # Errors
    /// The device fails. If it refuses pages, they are tried again by the next flush. If its own
    /// flush fails, none, some or all of what was written since the last one may be there: this
    /// disk is flushed and written no more.
    pub fn flush(&self) -> Result<(), BlockError> {
        let mut kept = self.0.borrow_mut();
        kept.lost.map_or(Ok(()), Err)?;
        kept.write_back()?;
        let flushed = match kept.device.limits().durability {
            Durability::Unknown => Ok(()),
            Durability::Written | Durability::Flushed => kept.device.flush(),
        };
        kept.lost = flushed.err();
        flushed
    }
}

/// Blocks are those of the device, and are kept as the rest is.
impl BlockDevice for Disk {
    fn capacity(&self) -> u64 {
        Self::capacity(self)
    }

    fn limits(&self) -> Limits {
        let limits = self.0.borrow().device.limits();
        Limits {
            durability: match limits.durability {
                // Also what the device keeps at once, is kept here for a while.
                Durability::Written => Durability::Flushed,
                other => other,
            },
            // A discard would have to look for pages that are kept.
            discard: false,
            write_zeroes: false,
            ..limits
        }
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        Self::read(self, offset, blocks)
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        Self::write(self, offset, blocks)
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        Self::flush(self)
    }
}

impl Kept {
    /// A page, which is read if it is not kept; so many are wanted from this one on, and those
    /// behind them if somebody `reads_on`.
    fn page(&mut self, number: u64, wanted: usize, reads_on: bool) -> Result<&[u8], BlockError> {
        let place = match self.pages.find(number) {
            Some(place) => place,
            None => {
                self.load(number, wanted, reads_on)?;
                let place = self.pages.find(number);
                place.ok_or(BlockError::OutOfRange)?
            }
        };
        Ok(self.pages.at(place))
    }

    /// Reads what is much and not kept without keeping it; how many bytes, 0 if it is kept, is too
    /// little, or cannot be read at once.
    fn read_past(&mut self, at: u64, bytes: &mut [u8]) -> usize {
        let block = self.device.block_size();
        if bytes.len() < LARGE || !at.is_multiple_of(block as u64) {
            return 0;
        }
        let first = at / PAGE as u64;
        let end = (at + bytes.len() as u64).div_ceil(PAGE as u64);
        let end = (first..end)
            .find(|page| self.pages.has(*page))
            .unwrap_or(end);
        let count = (end * PAGE as u64)
            .saturating_sub(at)
            .min(bytes.len() as u64) as usize;
        let count = count / block * block;
        if count < LARGE || self.device.read(at, &mut bytes[..count]).is_err() {
            return 0;
        }
        self.next = (at + count as u64) / PAGE as u64;
        count
    }

    /// [`LARGE`] bytes from a block on, if no page of them is kept and they can be read.
    fn part(&mut self, at: u64) -> Option<Bytes> {
        let end = at.checked_add(LARGE as u64)?;
        let is_there = end <= self.device.capacity();
        if !is_there || !at.is_multiple_of(self.device.block_size() as u64) {
            return None;
        }
        if let Some(bytes) = self.parts.find(at) {
            return Some(bytes);
        }
        let mut pages = at / PAGE as u64..end.div_ceil(PAGE as u64);
        if pages.any(|page| self.pages.has(page)) {
            return None;
        }
        let mut bytes = self.parts.blank();
        self.device.read(at, &mut bytes).ok()?;
        self.next = end / PAGE as u64;
        Some(self.parts.put(at, bytes.freeze()))
    }

    /// Changes a part of a page. What is not changed of it is read before.
    fn change(&mut self, number: u64, skipped: usize, part: &[u8]) -> Result<(), BlockError> {
        if self.pages.changed() >= self.pages.changed_max() {
            self.write_back()?;
        }
        if !self.pages.has(number) {
            let start = number * PAGE as u64;
            let size = (PAGE as u64).min(self.device.capacity() - start) as usize;
            match part.len() == size {
                true => self.put(number, part.into())?,
                false => self.load(number, 1, true)?,
            }
        }
        let start = number * PAGE as u64;
        self.parts.forget(start..start + PAGE as u64);
        let page = self.pages.change(number);
        // A page at the end of the disk is shorter, and all of `part` is on the disk.
        if let Some(place) = page.and_then(|page| page.get_mut(skipped..skipped + part.len())) {
            place.copy_from_slice(part);
        }
        Ok(())
    }

    /// Writes what was changed, each page also if another fails.
    fn write_back(&mut self) -> Result<(), BlockError> {
        let (mut from, mut result) = (0, Ok(()));
        loop {
            let run = self.pages.run(from, RUN);
            if run.is_empty() {
                return result;
            }
            let is_long = run.end - run.start > 1;
            let mut written = self.write_run(run.clone());
            if written.is_err() && is_long {
                // One of them may be what the device refuses.
                written = Ok(());
                for page in run.clone() {
                    let alone = self.write_run(page..page + 1);
                    written = written.and(alone);
                }
            }
            result = result.and(written);
            from = run.end;
        }
    }

    /// Writes changed pages that follow each other.
    fn write_run(&mut self, run: Range<u64>) -> Result<(), BlockError> {
        let mut bytes = Vec::with_capacity((run.end - run.start) as usize * PAGE);
        for page in run.clone() {
            if let Some(place) = self.pages.find(page) {
                bytes.extend_from_slice(self.pages.at(place));
            }
        }
        self.device.write(run.start * PAGE as u64, &bytes)?;
        self.pages.written(run);
        Ok(())
    }

    /// Keeps a page that is not kept yet.
    fn put(&mut self, number: u64, bytes: Box<[u8]>) -> Result<(), BlockError> {
        if let Err(bytes) = self.pages.put(number, bytes) {
            self.write_back()?;
            // Now none is changed.
            let _ = self.pages.put(number, bytes);
        }
        Ok(())
    }

    /// Reads a page, and those behind it that are wanted, or if somebody reads on. Of those, none
    /// is an error's.
    fn load(&mut self, number: u64, wanted: usize, reads_on: bool) -> Result<(), BlockError> {
        let ahead = match reads_on && number == self.next {
            true => AHEAD,
            false => wanted.clamp(1, AHEAD),
        };
        let capacity = self.device.capacity();
        let end = capacity.div_ceil(PAGE as u64);
        let behind = (number..end.min(number + ahead as u64)).skip(1);
        let count = 1 + behind.take_while(|page| !self.pages.has(*page)).count();
        let start = number * PAGE as u64;
        let left = capacity - start;
        let size = left.min((count * PAGE) as u64) as usize;
        let first = size.min(PAGE);
        self.ahead.resize(AHEAD * PAGE, 0);
        let size = match self.device.read(start, &mut self.ahead[..size]) {
            Ok(()) => size,
            // What was not asked for may be what cannot be read.
            Err(_) if count > 1 => {
                self.device.read(start, &mut self.ahead[..first])?;
                first
            }
            Err(error) => return Err(error),
        };
        self.next = number + size.div_ceil(PAGE) as u64;
        // The page that was asked for comes last, where it keeps the room that it gets.
        for index in (0..size.div_ceil(PAGE)).rev() {
            let read = &self.ahead[index * PAGE..size.min((index + 1) * PAGE)];
            let mut bytes = self.pages.blank(read.len());
            bytes.copy_from_slice(read);
            match self.put(number + index as u64, bytes) {
                Err(error) if index == 0 => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
