//! Writes every block and reads it back; what is not whole blocks of the device is refused.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec;
use device::BlockError;
use unikernel::println;

unikernel::entry!(main);

fn main() {
    let mut disk = unikernel::block("disk").expect("disk");
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
