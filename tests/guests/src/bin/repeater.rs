//! Passes every frame on, in both directions, for ever.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() -> i32 {
    let mut left = unikernel::net("left").expect("left");
    let mut right = unikernel::net("right").expect("right");
    guests::repeat(&mut *left, &mut *right)
}
