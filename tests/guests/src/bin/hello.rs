//! Says hello and where it runs.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use unikernel::println;

unikernel::entry!(main);

fn main() {
    println!("Hello, World, from {:?}", unikernel::host());
    println!("SUCCESS");
}
