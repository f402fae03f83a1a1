//! Calls code that it wrote: writable memory is not executable (argument: data, heap, stack).

#![no_std]
#![no_main]

extern crate alloc;

use alloc::boxed::Box;
use unikernel::println;

unikernel::entry!(main);

/// The machine code of `ret`.
const RET: u8 = 0xc3;
static mut DATA: [u8; 16] = [RET; 16];

fn main() {
    let mut stack = [RET; 16];
    let address = match unikernel::arguments().next() {
        Some("heap") => Box::leak(Box::new([RET; 16])).as_ptr(),
        Some("stack") => core::hint::black_box(&mut stack).as_ptr(),
        _ => (&raw const DATA).cast(),
    };
    // SAFETY: none; the promise is that the call faults.
    let code = unsafe { core::mem::transmute::<*const u8, extern "C" fn()>(address) };
    code();
    println!("FAILURE: executed data");
}
