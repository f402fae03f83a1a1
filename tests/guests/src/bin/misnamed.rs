//! Asks for a device by a name that its manifest has not, and panics with those that it has.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() {
    unikernel::block("disc").map(drop).expect("disc");
}
