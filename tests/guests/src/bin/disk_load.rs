//! How many requests a disk does in a while.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() -> i32 {
    guests::disk_load::run()
}
