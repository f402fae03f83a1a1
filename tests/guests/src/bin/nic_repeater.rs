//! Passes every frame on, in both directions, for ever, between a NIC of its own and a network of
//! the host.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() -> i32 {
    let mut left = appliance::port("left").expect("left");
    let mut right = appliance::port("right").expect("right");
    guests::repeat(&mut *left, &mut *right)
}
