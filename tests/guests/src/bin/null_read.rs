//! Reads address zero.

#![no_std]
#![no_main]

use unikernel::println;

unikernel::entry!(main);

fn main() {
    let address = core::hint::black_box(core::ptr::null::<u8>());
    // SAFETY: none; the promise is that this faults.
    let byte = unsafe { address.read_volatile() };
    println!("FAILURE: read {byte}");
}
