//! Writes every block of an NVM Express disk and reads it back; what is not whole blocks of the
//! device is refused. Zeros that the disk writes itself are read, and what was written is flushed.

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
    disk.discard(offset, length).expect("discard");
    println!("NVME");
}
