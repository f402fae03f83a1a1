//! A disk as what disks are (first argument): `whole` writes, flushes, discards and reads all of
//! it; `read` finds that it is not to be written; `hold` keeps it.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec;
use device::block::Durability;
use device::{BlockDevice, BlockError};
use unikernel::println;

unikernel::entry!(main);

/// What is moved in one call.
const PIECE: usize = 1 << 20;
/// What is discarded, and where zeroes are written: within blocks of 64 KiB, and within pages.
const DISCARDED: core::ops::Range<usize> = (1 << 20)..(3 << 20);
const ZEROES: core::ops::Range<usize> = (5 << 20) + 4096..(5 << 20) + 4096 + (100 << 10);

fn main() {
    let mut disk = unikernel::block("disk").expect("disk");
    println!("{:?}", disk.limits());
    match unikernel::arguments().next() {
        Some("whole") => whole(&mut *disk),
        Some("read") => read(&mut *disk),
        _ => {
            println!("HELD");
            loop {
                unikernel::wait(None);
            }
        }
    }
    println!("SUCCESS");
}

/// The byte at this place.
fn expected(at: usize, is_changed: bool) -> u8 {
    match is_changed && (DISCARDED.contains(&at) || ZEROES.contains(&at)) {
        true => 0,
        false => (at >> 9) as u8 | 1,
    }
}

fn whole(disk: &mut dyn BlockDevice) {
    let capacity = disk.capacity() as usize;
    assert_eq!(disk.limits().durability, Durability::Flushed);
    let mut piece = vec![0; PIECE];
    for start in (0..capacity).step_by(PIECE) {
        for (at, byte) in piece.iter_mut().enumerate() {
            *byte = expected(start + at, false);
        }
        disk.write(start as u64, &piece).expect("write");
    }
    disk.flush().expect("flush");
    let length = |range: &core::ops::Range<usize>| range.len() as u64;
    disk.discard(DISCARDED.start as u64, length(&DISCARDED))
        .expect("discard");
    disk.write_zeroes(ZEROES.start as u64, length(&ZEROES))
        .expect("zeroes");
    disk.flush().expect("flush");
    for start in (0..capacity).step_by(PIECE) {
        disk.read(start as u64, &mut piece).expect("read");
        for (at, byte) in piece.iter().enumerate() {
            assert_eq!(*byte, expected(start + at, true), "byte {}", start + at);
        }
    }
    // What is no whole block of it is refused before the host hears of it.
    let refused = Err(BlockError::OutOfRange);
    assert_eq!(disk.discard(1, 512), refused);
    assert_eq!(disk.discard(capacity as u64, 512), refused);
    assert_eq!(disk.write_zeroes(0, capacity as u64 + 512), refused);
}

fn read(disk: &mut dyn BlockDevice) {
    let mut block = vec![0; disk.block_size()];
    disk.read(0, &mut block).expect("read");
    println!("begins with {}", block[0]);
    let refused = Err(BlockError::ReadOnly);
    assert_eq!(disk.write(0, &block), refused);
    assert_eq!(disk.discard(0, block.len() as u64), refused);
    assert_eq!(disk.write_zeroes(0, block.len() as u64), refused);
    assert_eq!(disk.flush(), Ok(()));
}
