//! What is written to a disk: when it is there, in which order, and what of it fails.

use super::{Memory, numbered};
use crate::disk::{BUDGET, Disk, LARGE, PAGE};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use device::block::{Durability, Limits};
use device::{BlockDevice, BlockError};

/// What a disk was asked to do, from where on, and how much of it.
type Asked = (&'static str, u64, usize);

/// A disk that says what it was asked to do.
#[derive(Clone)]
struct Spy {
    bytes: Rc<RefCell<Vec<u8>>>,
    said: Rc<RefCell<Vec<Asked>>>,
    /// The page that cannot be written.
    bad: Rc<RefCell<Option<u64>>>,
    /// Whether it cannot be flushed.
    stuck: Rc<RefCell<bool>>,
    read_only: bool,
}

impl Spy {
    fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: Rc::new(RefCell::new(bytes)),
            said: Rc::default(),
            bad: Rc::default(),
            stuck: Rc::default(),
            read_only: false,
        }
    }

    fn disk(&self, budget: usize) -> Disk {
        Disk::new(Box::new(self.clone()), budget).unwrap()
    }
}

impl BlockDevice for Spy {
    fn capacity(&self) -> u64 {
        self.bytes.borrow().len() as u64
    }

    fn limits(&self) -> Limits {
        Limits {
            durability: Durability::Flushed,
            read_only: self.read_only,
            ..Limits::plain(512)
        }
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        let from = offset as usize;
        blocks.copy_from_slice(&self.bytes.borrow()[from..from + blocks.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        assert!(!self.read_only);
        let pages = offset / PAGE as u64..(offset + blocks.len() as u64).div_ceil(PAGE as u64);
        if self.bad.borrow().is_some_and(|bad| pages.contains(&bad)) {
            return Err(BlockError::Device(7));
        }
        let from = offset as usize;
        self.bytes.borrow_mut()[from..from + blocks.len()].copy_from_slice(blocks);
        self.said.borrow_mut().push(("write", offset, blocks.len()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        if *self.stuck.borrow() {
            return Err(BlockError::Device(8));
        }
        self.said.borrow_mut().push(("flush", 0, 0));
        Ok(())
    }
}

#[test]
fn what_is_written_is_found_at_once_and_is_there_once_flushed() {
    let spy = Spy::new(numbered(8 * PAGE + 512));
    let disk = spy.disk(BUDGET);
    let mut expected = numbered(8 * PAGE + 512);
    for (at, len) in [(3 * PAGE + 100, 5000), (10, 20), (8 * PAGE, 512)] {
        disk.write(at as u64, &vec![0xaa; len]).unwrap();
        expected[at..at + len].fill(0xaa);
    }
    let mut found = vec![0; expected.len()];
    disk.read(0, &mut found).unwrap();
    assert!(found == expected && spy.said.borrow().is_empty());
    disk.flush().unwrap();
    assert!(*spy.bytes.borrow() == expected);
    // In order, and what follows each other at once.
    let said = [
        ("write", 0, PAGE),
        ("write", 3 * PAGE as u64, 2 * PAGE),
        ("write", 8 * PAGE as u64, 512),
        ("flush", 0, 0),
    ];
    assert_eq!(*spy.said.borrow(), said);
    spy.said.borrow_mut().clear();
    disk.flush().unwrap();
    assert_eq!(*spy.said.borrow(), [("flush", 0, 0)]);
}

#[test]
fn what_is_written_is_found_by_who_reads_much() {
    let spy = Spy::new(numbered(64 * PAGE));
    let disk = spy.disk(BUDGET);
    let mut expected = numbered(64 * PAGE);
    for at in [30 * PAGE + 7, 63 * PAGE] {
        disk.write(at as u64, &[0xaa; 10]).unwrap();
        expected[at..at + 10].fill(0xaa);
    }
    let mut found = vec![0; 64 * PAGE - 512];
    disk.read(512, &mut found).unwrap();
    assert!(found == expected[512..]);
}

#[test]
fn no_more_than_half_of_the_pages_wait() {
    let spy = Spy::new(vec![0; 64 * PAGE]);
    let disk = spy.disk(8 * PAGE);
    for page in 0..20 {
        disk.write(page * PAGE as u64, &[1; PAGE]).unwrap();
    }
    let four = |page: u64| ("write", page * PAGE as u64, 4 * PAGE);
    let said = [four(0), four(4), four(8), four(12)];
    assert_eq!(*spy.said.borrow(), said);
    let mut found = [0; PAGE];
    for page in 0..20 {
        disk.read(page * PAGE as u64, &mut found).unwrap();
        assert_eq!(found, [1; PAGE]);
    }
}

#[test]
fn one_page_is_enough() {
    let spy = Spy::new(numbered(8 * PAGE));
    let disk = spy.disk(0);
    let mut expected = numbered(8 * PAGE);
    for at in [100, 7 * PAGE, 4000, 2 * PAGE + 5] {
        disk.write(at as u64, &[9; 200]).unwrap();
        expected[at..at + 200].fill(9);
    }
    let mut found = vec![0; 8 * PAGE];
    disk.read(0, &mut found).unwrap();
    assert!(found == expected);
    disk.flush().unwrap();
    assert!(*spy.bytes.borrow() == expected);
}

#[test]
fn a_page_that_cannot_be_written_stays_and_keeps_no_other_back() {
    let spy = Spy::new(vec![0; 16 * PAGE]);
    let disk = spy.disk(8 * PAGE);
    *spy.bad.borrow_mut() = Some(2);
    for page in [2, 3, 5] {
        disk.write(page * PAGE as u64, &[3; PAGE]).unwrap();
    }
    assert_eq!(disk.flush(), Err(BlockError::Device(7)));
    let written = [3, 5].map(|page| ("write", page * PAGE as u64, PAGE));
    assert_eq!(*spy.said.borrow(), written);
    let mut found = [0; PAGE];
    disk.read(2 * PAGE as u64, &mut found).unwrap();
    assert_eq!(found, [3; PAGE]);
    *spy.bad.borrow_mut() = None;
    disk.flush().unwrap();
    assert_eq!(spy.bytes.borrow()[2 * PAGE..3 * PAGE], [3; PAGE]);
}

/// What it had written may be gone, and no later flush brings it back.
#[test]
fn a_disk_whose_flush_has_failed_is_written_no_more() {
    let spy = Spy::new(vec![0; 16 * PAGE]);
    let disk = spy.disk(8 * PAGE);
    disk.write(0, &[3; PAGE]).unwrap();
    *spy.stuck.borrow_mut() = true;
    assert_eq!(disk.flush(), Err(BlockError::Device(8)));
    *spy.stuck.borrow_mut() = false;
    assert_eq!(disk.flush(), Err(BlockError::Device(8)));
    assert_eq!(disk.write(0, &[4; PAGE]), Err(BlockError::Device(8)));
    let mut found = [0; PAGE];
    disk.read(0, &mut found).unwrap();
    assert_eq!(found, [3; PAGE]);
}

#[test]
fn pages_that_cannot_be_written_leave_room_for_those_who_read() {
    let spy = Spy::new(numbered(16 * PAGE));
    let disk = spy.disk(2 * PAGE);
    *spy.bad.borrow_mut() = Some(1);
    disk.write(PAGE as u64, &[3; PAGE]).unwrap();
    let refused = disk.write(5 * PAGE as u64, &[4; PAGE]);
    assert_eq!(refused, Err(BlockError::Device(7)));
    let mut found = vec![0; 4 * PAGE];
    disk.read(8 * PAGE as u64, &mut found).unwrap();
    assert!(found == numbered(16 * PAGE)[8 * PAGE..12 * PAGE]);
}

#[test]
fn what_is_read_ahead_takes_no_room_from_what_was_asked_for() {
    let memory = Memory::new(numbered(40 * PAGE));
    let disk = memory.disk(3 * PAGE);
    let mut found = vec![0; 40 * PAGE];
    disk.read(0, &mut found).unwrap();
    assert!(found == numbered(40 * PAGE));
}

#[test]
fn a_disk_that_is_not_to_be_written_is_not() {
    let mut spy = Spy::new(vec![0; 4 * PAGE]);
    spy.read_only = true;
    let disk = spy.disk(BUDGET);
    assert!(disk.is_read_only());
    assert_eq!(disk.write(0, &[1]), Err(BlockError::ReadOnly));
    let end = 4 * PAGE as u64;
    let disk = Spy::new(vec![0; 4 * PAGE]).disk(BUDGET);
    assert_eq!(disk.write(end - 1, &[0; 2]), Err(BlockError::OutOfRange));
    assert_eq!(disk.write(u64::MAX, &[0; 2]), Err(BlockError::OutOfRange));
}

#[test]
fn what_was_shared_is_shared_no_more_when_it_is_changed() {
    let bytes = numbered(2 * LARGE);
    let disk = Spy::new(bytes.clone()).disk(BUDGET);
    let before = disk.share(PAGE as u64, LARGE).unwrap();
    // The last byte of it.
    let last = PAGE + LARGE - 1;
    let change = [!bytes[last]; 3];
    disk.write(last as u64, &change).unwrap();
    let mut changed = bytes.clone();
    changed[last..last + 3].copy_from_slice(&change);
    for _ in 0..2 {
        let after = disk.share(PAGE as u64, LARGE).unwrap();
        assert!(after == changed[PAGE..][..LARGE]);
        assert!(before == bytes[PAGE..][..LARGE]);
        disk.flush().unwrap();
    }
}
