//! Prints its arguments, one a line.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use unikernel::println;

unikernel::entry!(main);

fn main() {
    for argument in unikernel::arguments() {
        println!("[{argument}]");
    }
    println!("SUCCESS");
}
