//! Writes every block of a disk behind AHCI and reads it back; what is not whole blocks of the
//! device is refused. Zeroes are written and read, what was written is flushed, and blocks are
//! discarded where the disk offers it.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec;
use unikernel::println;

unikernel::entry!(main);

fn main() {
    let mut disk = match appliance::disk("disk") {
        Ok(disk) => disk,
        Err(error) => panic!("{error}"),
    };
    let limits = disk.limits();
    println!("{limits:?}");
    guests::fill_and_compare(&mut *disk);
    let (size, capacity) = (limits.block_size as u64, disk.capacity());
    // More than one transfer, and over the end of a buffer.
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
    if limits.discard {
        disk.discard(size, length).expect("discard");
    }
    println!("AHCI");
}
