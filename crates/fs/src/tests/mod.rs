//! What is read of a disk, how often, and what is no file system. `tests/e2e/disks` has those that
//! others made.

use crate::disk::{AHEAD, BUDGET, Disk, LARGE, PAGE};
use crate::{NoFileSystem, mount};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::block::Limits;
use device::{BlockDevice, BlockError};

mod tmpfs;
mod tree;
mod written;

/// Bytes, and what was asked for of them.
#[derive(Clone)]
struct Memory {
    bytes: Rc<Vec<u8>>,
    reads: Rc<RefCell<Vec<(u64, usize)>>>,
    /// Bytes from here on cannot be read.
    fails_from: u64,
}

impl Memory {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: Rc::new(bytes),
            reads: Rc::default(),
            fails_from: u64::MAX,
        }
    }

    fn disk(&self, budget: usize) -> Disk {
        Disk::new(Box::new(self.clone()), budget).unwrap()
    }
}

impl BlockDevice for Memory {
    fn capacity(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn limits(&self) -> Limits {
        Limits::plain(512)
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let end = offset + blocks.len() as u64;
        assert!(end <= self.capacity() && offset.is_multiple_of(512));
        assert!(blocks.len().is_multiple_of(512));
        if end > self.fails_from {
            return Err(BlockError::Host(5));
        }
        self.reads.borrow_mut().push((offset, blocks.len()));
        blocks.copy_from_slice(&self.bytes[offset as usize..end as usize]);
        Ok(())
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), BlockError> {
        panic!("nothing is written")
    }
}

/// Bytes that tell where they are.
fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7 + at / 4096) as u8).collect()
}

#[test]
fn bytes_are_read_once_and_ahead() {
    let bytes = numbered(40 * PAGE + 512);
    let memory = Memory::new(bytes.clone());
    let disk = memory.disk(BUDGET);
    let mut found = vec![0; 100];
    for at in [5, 4090, 100] {
        disk.read(at, &mut found).unwrap();
        assert_eq!(found, bytes[at as usize..][..100]);
    }
    // The second page follows the first.
    let ahead = (PAGE as u64, AHEAD * PAGE);
    assert_eq!(*memory.reads.borrow(), [(0, PAGE), ahead]);
    let mut all = vec![0; bytes.len()];
    disk.read(0, &mut all).unwrap();
    assert_eq!(all, bytes);
    let (offset, len) = *memory.reads.borrow().last().unwrap();
    // What is kept is not read again, and the rest is much.
    assert_eq!((offset, len), (17 * PAGE as u64, 23 * PAGE + 512));
    assert_eq!(
        disk.read(bytes.len() as u64 - 1, &mut [0; 2]),
        Err(BlockError::OutOfRange)
    );
    assert_eq!(
        disk.read(u64::MAX, &mut [0; 2]),
        Err(BlockError::OutOfRange)
    );
}

#[test]
fn much_is_read_past_what_is_kept() {
    let bytes = numbered(64 * PAGE);
    let memory = Memory::new(bytes.clone());
    let disk = memory.disk(BUDGET);
    let mut found = vec![0; 20 * PAGE];
    for _ in 0..2 {
        // It begins and ends within pages, at sectors.
        disk.read(PAGE as u64 + 512, &mut found).unwrap();
        assert!(found == bytes[PAGE + 512..][..20 * PAGE]);
    }
    let twice = [(PAGE as u64 + 512, 20 * PAGE); 2];
    assert_eq!(*memory.reads.borrow(), twice);
}

#[test]
fn a_page_that_is_kept_holds_up_one_part_of_a_file() {
    let bytes = numbered(4 * LARGE);
    let memory = Memory::new(bytes.clone());
    let disk = memory.disk(BUDGET);
    disk.read(0, &mut [0; PAGE]).unwrap();
    for (index, expected) in bytes.chunks(LARGE).enumerate() {
        let mut found = vec![0; LARGE];
        disk.read((index * LARGE) as u64, &mut found).unwrap();
        assert!(found == expected, "{index}");
    }
    let page = PAGE as u64;
    let parts = (1..4).map(|index| ((index * LARGE) as u64, LARGE));
    let expected: Vec<_> = [(0, PAGE), (page, LARGE - PAGE)]
        .into_iter()
        .chain(parts)
        .collect();
    assert_eq!(*memory.reads.borrow(), expected);
}

#[test]
fn what_is_shared_is_read_once() {
    let bytes = numbered(3 * LARGE);
    let memory = Memory::new(bytes.clone());
    let disk = memory.disk(BUDGET);
    let first = disk.share(512, LARGE).unwrap();
    let second = disk.share(512, LARGE).unwrap();
    assert!(first == bytes[512..][..LARGE] && first.as_ptr() == second.as_ptr());
    assert_eq!(*memory.reads.borrow(), [(512, LARGE)]);
    // At no block's beginning, and too little, and with pages that are kept then.
    for (at, size) in [(700_usize, LARGE), (0, 100), (1024, LARGE)] {
        let found = disk.share(at as u64, size).unwrap();
        assert!(found == bytes[at..][..size], "{at}");
    }
    let behind = disk.share(2 * LARGE as u64 + 512, LARGE);
    assert_eq!(behind, Err(BlockError::OutOfRange));
    assert_eq!(disk.share(u64::MAX, LARGE), Err(BlockError::OutOfRange));
}

#[test]
fn what_cannot_be_read_ahead_fails_who_asks_for_it() {
    let mut memory = Memory::new(numbered(8 * PAGE));
    memory.fails_from = 3 * PAGE as u64;
    let disk = memory.disk(BUDGET);
    let mut bytes = vec![0; 3 * PAGE];
    disk.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, memory.bytes[..3 * PAGE]);
    let read = disk.read(3 * PAGE as u64, &mut [0; 1]);
    assert_eq!(read, Err(BlockError::Host(5)));
}

#[test]
fn a_small_budget_reads_again() {
    let bytes = numbered(8 * PAGE);
    let memory = Memory::new(bytes.clone());
    let disk = memory.disk(PAGE);
    for at in [0, 5, 0, 2] {
        let mut found = [0; 16];
        disk.read(at * PAGE as u64, &mut found).unwrap();
        assert_eq!(found, bytes[at as usize * PAGE..][..16]);
    }
    assert_eq!(memory.reads.borrow().len(), 4);
}

#[test]
fn a_disk_without_a_file_system_has_none() {
    for bytes in [
        vec![0; 1 << 20],
        vec![0xff; 1 << 20],
        Vec::new(),
        vec![0; 512],
    ] {
        let mounted = mount(&Memory::new(bytes).disk(BUDGET)).err();
        assert_eq!(mounted, Some(NoFileSystem::Unknown));
    }
}
