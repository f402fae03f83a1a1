//! Writes to its own code: executable memory is not writable.

#![no_std]
#![no_main]

use unikernel::println;

unikernel::entry!(main);

fn main() {
    let code = main as fn() as usize as *mut u8;
    // SAFETY: none; the promise is that this faults.
    unsafe { code.write_volatile(0xc3) };
    println!("FAILURE: wrote to text");
}
