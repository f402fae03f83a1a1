//! Passes every frame on, in both directions, for ever, between a NIC of its own and a network of
//! the host.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() -> i32 {
    let left = nics::port("left").expect("left");
    let right = nics::port("right").expect("right");
    guests::repeat(left, right)
}
