//! Writes every block and reads it back; what is not whole blocks of the device is refused.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() {
    let mut disk = unikernel::block("disk").expect("disk");
    guests::fill_and_compare(&mut *disk);
}
