//! A disk in memory that records what is written, and what a power cut leaves of it.

use device::block::{Durability, Limits};
use device::{BlockDevice, BlockError};
use fastrand::Rng;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a disk writes all of, or nothing.
pub const SECTOR: usize = 512;

/// What happened to a disk.
pub enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// A disk, and all that happened to it since it was new.
#[derive(Clone)]
pub struct Recorded {
    bytes: Rc<RefCell<Vec<u8>>>,
    pub events: Rc<RefCell<Vec<Event>>>,
}

impl Recorded {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: Rc::new(RefCell::new(bytes)),
            events: Rc::default(),
        }
    }

    /// What is on it.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }

    /// How much has happened.
    pub fn now(&self) -> usize {
        self.events.borrow().len()
    }
}

impl BlockDevice for Recorded {
    fn capacity(&self) -> u64 {
        self.bytes.borrow().len() as u64
    }

    fn limits(&self) -> Limits {
        Limits {
            durability: Durability::Flushed,
            ..Limits::plain(SECTOR)
        }
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits().check(self.capacity(), offset, length)?;
        blocks.copy_from_slice(&self.bytes.borrow()[offset as usize..][..blocks.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        let length = blocks.len() as u64;
        self.limits()
            .check_change(self.capacity(), offset, length)?;
        self.bytes.borrow_mut()[offset as usize..][..blocks.len()].copy_from_slice(blocks);
        let event = Event::Write(offset, blocks.to_vec());
        self.events.borrow_mut().push(event);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        self.events.borrow_mut().push(Event::Flush);
        Ok(())
    }
}

/// What is left on the disk when the power fails during the event `cut`: all that was flushed, and
/// of what came later, sector by sector, any of its versions.
pub fn left(new: &[u8], events: &[Event], cut: usize, random: &mut Rng) -> Vec<u8> {
    let flushed = events[..cut]
        .iter()
        .rposition(|event| matches!(event, Event::Flush));
    let flushed = flushed.map_or(0, |at| at + 1);
    let mut bytes = new.to_vec();
    let mut later: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate().take(cut + 1) {
        let Event::Write(offset, blocks) = event else {
            continue;
        };
        let start = *offset as usize;
        if index < flushed {
            bytes[start..][..blocks.len()].copy_from_slice(blocks);
            continue;
        }
        for (sector, block) in blocks.chunks(SECTOR).enumerate() {
            let sector = start / SECTOR + sector;
            later.entry(sector).or_default().push(block);
        }
    }
    // All of it, hardly any of it, and all between.
    let lost = [0, 5, 50, 95][random.usize(..4)];
    for (sector, versions) in later {
        if random.u32(..100) >= lost {
            let kept = match random.u32(..4) {
                0 => random.usize(..versions.len()),
                _ => versions.len() - 1,
            };
            bytes[sector * SECTOR..][..SECTOR].copy_from_slice(versions[kept]);
        }
    }
    bytes
}
