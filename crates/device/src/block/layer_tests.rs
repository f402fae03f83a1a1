//! A bad disk, and who notices.

use super::faults::{Happened, MILLION, Settings};
use super::*;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::Cell;
use core::time::Duration;
use proptest::prelude::*;

const BLOCK: u64 = 512;
/// Bytes of the disk below: its blocks take five tables.
const BYTES: usize = 128 * 512;

fn bad(settings: Settings, seed: u64) -> (MemoryDisk, Faults<MemoryDisk>) {
    let ram = MemoryDisk::new(BYTES);
    let faults = Faults::new(ram.clone(), settings, seed, |_| {});
    (ram, faults)
}

/// What a block holds that was written so often.
fn content(block: u64, times: u64) -> Vec<u8> {
    (0..BLOCK)
        .map(|at| (block * 31 + times * 7 + at) as u8)
        .collect()
}

#[test]
fn a_bad_disk_does_what_it_is_told_and_the_same_for_a_seed() {
    let run = |settings, seed| {
        let (ram, mut faults) = bad(settings, seed);
        for block in 0..100 {
            let _ = faults.write(block * BLOCK, &content(block, 1));
        }
        let bytes = ram.content().bytes.clone();
        (faults.happened(), bytes)
    };
    let half = MILLION / 2;
    let none = Settings::default();
    let (happened, good) = run(none, 1);
    assert_eq!(happened, Happened::default());
    for (settings, count) in [
        (
            Settings { fail: half, ..none },
            (|h| h.failed) as fn(Happened) -> u64,
        ),
        (Settings { lose: half, ..none }, |h| h.lost),
        (Settings { tear: half, ..none }, |h| h.torn),
        (
            Settings {
                corrupt: half,
                ..none
            },
            |h| h.corrupted,
        ),
    ] {
        let (happened, bytes) = run(settings, 1);
        assert!((30..70).contains(&count(happened)), "{happened:?}");
        assert_ne!(bytes, good);
        assert_eq!(run(settings, 1), (happened, bytes.clone()));
        assert_ne!(run(settings, 2).1, bytes);
    }
}

#[test]
fn what_is_torn_ends_within_a_block_and_the_rest_is_as_it_was() {
    let always = Settings {
        tear: MILLION,
        ..Settings::default()
    };
    for seed in 0..50 {
        let (ram, mut faults) = bad(always, seed);
        ram.content_mut().bytes.fill(1);
        faults.write(BLOCK, &[2; 8 * 512]).unwrap();
        let bytes = ram.content().bytes.clone();
        let end = bytes
            .iter()
            .rposition(|byte| *byte == 2)
            .map_or(512, |at| at + 1);
        assert!((512..9 * 512).contains(&end), "{end}");
        assert!(bytes[512..end].iter().all(|byte| *byte == 2));
        assert!(bytes[end..].iter().all(|byte| *byte == 1));
    }
}

#[test]
fn a_slow_disk_waits_as_long_as_it_says_at_most() {
    let waited = Rc::new(Cell::new(Duration::ZERO));
    let (total, settings) = (
        waited.clone(),
        Settings {
            delay: Duration::from_millis(2),
            ..Settings::default()
        },
    );
    let wait = move |time| total.set(total.get() + time);
    let mut faults = Faults::new(MemoryDisk::new(BYTES), settings, 1, wait);
    (0..100).for_each(|_| faults.read(0, &mut [0; 512]).unwrap());
    let mean = waited.get() / 100;
    assert!((800..1200).contains(&mean.as_micros()), "{mean:?}");
}

#[test]
fn a_disk_with_checksums_is_prepared_once_and_smaller() {
    let ram = MemoryDisk::new(BYTES);
    let open = |disk: &MemoryDisk| Integrity::open(disk.clone()).map(drop);
    assert_eq!(open(&ram), Err(OpenError::NotPrepared));
    ram.content_mut().bytes.fill(9);
    assert_eq!(open(&ram), Err(OpenError::NotPrepared));
    let mut disk = Integrity::prepare(ram.clone()).unwrap();
    // 127 blocks but for the mark, of which each 32nd is a table.
    assert_eq!(disk.capacity(), 123 * BLOCK);
    let mut bytes = vec![0; 123 * 512];
    assert_eq!(
        disk.read(0, &mut bytes),
        Ok(()),
        "nothing is known of what was there"
    );
    assert!(bytes.iter().all(|byte| *byte == 9));
    assert_eq!(open(&ram), Ok(()));
    // A copy of another size is another disk.
    let larger = MemoryDisk::new(BYTES + 512);
    larger.content_mut().bytes[512..].copy_from_slice(&ram.content().bytes);
    assert_eq!(open(&larger), Err(OpenError::NotPrepared));
    assert_eq!(open(&MemoryDisk::new(1024)), Err(OpenError::Size));
    let small = MemoryDisk::new(BYTES);
    small.content_mut().limits.block_size = 16;
    assert_eq!(open(&small), Err(OpenError::Size));
}

#[test]
fn any_byte_that_changes_by_itself_is_noticed() {
    let ram = MemoryDisk::new(BYTES);
    let mut disk = Integrity::prepare(ram.clone()).unwrap();
    let blocks: Vec<u8> = (0..123).flat_map(|block| content(block, 0)).collect();
    disk.write(0, &blocks).unwrap();
    disk.flush().unwrap();
    let mut bytes = vec![0; blocks.len()];
    for at in (0..BYTES - 512).step_by(101) {
        ram.content_mut().bytes[at] ^= 0x10;
        // A table that is kept would hide what the disk holds now.
        let mut disk = Integrity::open(ram.clone()).unwrap();
        let found = disk.read(0, &mut bytes);
        let is_of_nobody = at % 512 >= 504 && at >= 123 * 512;
        match found {
            Ok(()) => assert!(is_of_nobody || bytes == blocks, "byte {at}"),
            Err(error) => assert_eq!(error, BlockError::Damaged, "byte {at}"),
        }
        assert!(
            found.is_err() || is_of_nobody || at >= 123 * 512,
            "byte {at}"
        );
        ram.content_mut().bytes[at] ^= 0x10;
    }
    // What stands in another's place, as after a write that went astray.
    let moved = ram.content().bytes[..512].to_vec();
    ram.content_mut().bytes[512..1024].copy_from_slice(&moved);
    let mut disk = Integrity::open(ram).unwrap();
    assert_eq!(disk.read(512, &mut bytes[..512]), Err(BlockError::Damaged));
    assert_eq!(
        disk.read(1024, &mut bytes[..512]),
        Ok(()),
        "others are read"
    );
    assert_eq!(disk.damaged(), 1);
    // Until it is written again.
    assert_eq!(disk.write(512, &content(1, 5)), Ok(()));
    assert_eq!(disk.read(512, &mut bytes[..512]), Ok(()));
    assert_eq!(bytes[..512], content(1, 5));
}

/// A disk that remembers each write, or one that is bad as far as its blocks go.
struct Writes<F>(MemoryDisk, F);

impl<F: FnMut(&mut MemoryDisk, u64, &[u8]) -> Result<(), BlockError>> BlockDevice for Writes<F> {
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn limits(&self) -> Limits {
        self.0.limits()
    }

    fn read(&mut self, offset: u64, blocks: &mut [u8]) -> Result<(), BlockError> {
        self.0.read(offset, blocks)
    }

    fn write(&mut self, offset: u64, blocks: &[u8]) -> Result<(), BlockError> {
        (self.1)(&mut self.0, offset, blocks)
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        Ok(())
    }
}

#[test]
fn who_is_cut_off_between_two_writes_leaves_the_old_or_the_new() {
    let ram = MemoryDisk::new(BYTES);
    let mut disk = Integrity::prepare(ram.clone()).unwrap();
    for block in 0..123 {
        disk.write(block * BLOCK, &content(block, 0)).unwrap();
    }
    disk.flush().unwrap();
    let before = ram.content().bytes.clone();
    let mut writes = Vec::new();
    let record = |ram: &mut MemoryDisk, offset, bytes: &[u8]| {
        writes.push((offset as usize, bytes.to_vec()));
        ram.write(offset, bytes)
    };
    let mut disk = Integrity::open(Writes(ram, record)).unwrap();
    let new = [29, 30, 31].map(|block| content(block, 1)).concat();
    disk.write(29 * BLOCK, &new).unwrap();
    disk.flush().unwrap();
    drop(disk);
    assert_eq!(writes.len(), 2 * 2 + 2, "two tables, thrice each");
    for cut in 0..=writes.len() {
        let left = MemoryDisk::new(BYTES);
        left.content_mut().bytes = before.clone();
        for (at, bytes) in &writes[..cut] {
            left.content_mut().bytes[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let mut disk = Integrity::open(left).unwrap();
        let mut found = vec![0; 512];
        for block in 0..123 {
            assert_eq!(
                disk.read(block * BLOCK, &mut found),
                Ok(()),
                "{cut}: block {block}"
            );
            let is_new = (29..32).contains(&block) && found == content(block, 1);
            assert!(is_new || found == content(block, 0), "{cut}: block {block}");
        }
    }
}

proptest! {
    /// Whatever a bad disk does to blocks, no read gives bytes that nobody has written there last.
    #[test]
    fn no_read_gives_what_was_not_written(
        seed in any::<u64>(),
        writes in prop::collection::vec((0u64..123, 1u64..8), 1..60),
    ) {
        let some = MILLION / 5;
        let settings = Settings { lose: some, tear: some, corrupt: some, ..Settings::default() };
        let (ram, mut faults) = bad(settings, seed);
        drop(Integrity::prepare(ram.clone()).unwrap());
        let below = |ram: &mut MemoryDisk, offset, bytes: &[u8]| match offset < 123 * BLOCK {
            true => faults.write(offset, bytes),
            false => ram.write(offset, bytes),
        };
        let mut disk = Integrity::open(Writes(ram.clone(), below)).unwrap();
        let mut times = [0; 123];
        for (number, (first, count)) in (1..).zip(&writes) {
            let blocks = *first..(first + count).min(123);
            let bytes: Vec<u8> = blocks.clone().flat_map(|block| content(block, number)).collect();
            prop_assert_eq!(disk.write(first * BLOCK, &bytes), Ok(()));
            blocks.for_each(|block| times[block as usize] = number);
        }
        prop_assert_eq!(disk.flush(), Ok(()));
        drop(disk);
        let (mut disk, mut found) = (Integrity::open(ram).unwrap(), vec![0; 512]);
        let happened = faults.happened();
        for (block, times) in (0..123).zip(times) {
            let read = disk.read(block * BLOCK, &mut found);
            if times > 0 && read == Ok(()) {
                prop_assert_eq!(&found, &content(block, times), "block {}", block);
            }
            prop_assert!(read == Ok(()) || happened != Happened::default());
        }
    }
}
