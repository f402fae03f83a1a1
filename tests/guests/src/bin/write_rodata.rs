//! Writes to a constant: read-only data is not writable.

#![no_std]
#![no_main]

use unikernel::println;

unikernel::entry!(main);

static CONSTANT: [u8; 64] = [7; 64];

fn main() {
    let constant = core::hint::black_box(&CONSTANT).as_ptr().cast_mut();
    // SAFETY: none; the promise is that this faults.
    unsafe { constant.write_volatile(1) };
    println!("FAILURE: wrote to read-only data");
}
