//! Writes every block of a virtio disk and reads it back; what is not whole blocks of the device is
//! refused.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() {
    let mut disk = appliance::disk("disk").expect("disk");
    guests::fill_and_compare(&mut *disk);
}
