//! Has a network controller, and waits; with an argument, it ends at once.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use unikernel::println;

unikernel::entry!(main);

fn main() {
    unikernel::pci("nic").expect("it is attached");
    println!("READY");
    while unikernel::arguments().next().is_none() {
        unikernel::wait(None);
    }
}
