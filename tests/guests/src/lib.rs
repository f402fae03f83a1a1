//! What several guests do.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod disk_load;
pub mod fairness;

use alloc::vec;
use device::{Batch, BlockDevice, BlockError, Netif};
use unikernel::println;

/// Passes every frame on, in both directions, for ever.
pub fn repeat(left: &mut dyn Netif, right: &mut dyn Netif) -> ! {
    let mut batch = Batch::new();
    loop {
        let ready = unikernel::wait(None);
        if ready.contains(left.wait_handle()) {
            left.receive(&mut batch);
            right.transmit(&mut batch);
        }
        if ready.contains(right.wait_handle()) {
            right.receive(&mut batch);
            left.transmit(&mut batch);
        }
    }
}

/// Writes every block of a disk and reads it back; what is not whole blocks of it is refused.
pub fn fill_and_compare(disk: &mut dyn BlockDevice) {
    let (capacity, size) = (disk.capacity(), disk.block_size());
    println!("capacity {capacity} block size {size}");
    let mut block = vec![0; size];
    for offset in (0..capacity).step_by(size) {
        block.fill((offset / size as u64) as u8 ^ 0x5a);
        disk.write(offset, &block).expect("write");
    }
    for offset in (0..capacity).step_by(size) {
        disk.read(offset, &mut block).expect("read");
        let expected = (offset / size as u64) as u8 ^ 0x5a;
        assert!(
            block.iter().all(|byte| *byte == expected),
            "block at {offset}"
        );
    }
    let refused = Err(BlockError::OutOfRange);
    assert_eq!(disk.read(capacity, &mut block), refused);
    assert_eq!(disk.read(1, &mut block), refused);
    assert_eq!(disk.read(0, &mut block[1..]), refused);
    assert_eq!(disk.write(u64::MAX - size as u64 + 1, &block), refused);
    println!("SUCCESS");
}

/// Writes more than one transfer, with zeroes in its second block, flushes, and reads it back;
/// which bytes these are, from where on and how many.
pub fn write_flush_and_compare(disk: &mut dyn BlockDevice) -> (u64, u64) {
    let (size, capacity) = (disk.block_size() as u64, disk.capacity());
    // Over the end of a buffer.
    let length = (capacity - 2 * size).min(300 << 10) / size * size;
    let bytes: vec::Vec<_> = (0..length).map(|at| (at / 7 + at / 512) as u8).collect();
    disk.write(size, &bytes).expect("write");
    disk.write_zeroes(2 * size, size).expect("write zeroes");
    disk.flush().expect("flush");
    let mut found = vec![1; bytes.len()];
    disk.read(size, &mut found).expect("read");
    let (zeros, rest) = found.split_at(2 * size as usize);
    assert!(zeros[size as usize..].iter().all(|byte| *byte == 0));
    assert!(*rest == bytes[2 * size as usize..]);
    (size, length)
}

/// Bytes that are asked for each time: more than a request has.
const DRAWN_BYTES: usize = 256;
/// Different bytes of so many random ones: fewer come once in more than 10^20 times.
const DIFFERENT_MIN: usize = 100;

/// Asks for random bytes, several times, and looks at them.
pub fn draw(mut fill: impl FnMut(&mut [u8])) {
    let mut blocks = [[0; DRAWN_BYTES]; 4];
    for block in &mut blocks {
        fill(block);
        let different = (0..=u8::MAX).filter(|byte| block.contains(byte)).count();
        assert!(different >= DIFFERENT_MIN, "{different} different bytes");
    }
    let [first, rest @ ..] = &blocks;
    assert!(!rest.contains(first), "the same bytes again");
}
