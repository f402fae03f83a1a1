//! Writes every block of a disk behind USB and reads it back; what is not whole blocks of the
//! device is refused. Zeroes are written and read, what was written is flushed, and blocks are
//! discarded where the disk offers it.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

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
    let (offset, length) = guests::write_flush_and_compare(&mut *disk);
    if limits.discard {
        disk.discard(offset, length).expect("discard");
    }
    println!("USB");
}
