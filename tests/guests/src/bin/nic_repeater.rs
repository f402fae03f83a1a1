//! Passes every frame on, in both directions, for ever, between a NIC of its own and a network of
//! the host.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use device::{Batch, Netif};

unikernel::entry!(main);

fn main() {
    let mut left = nics::port("left").expect("left");
    let mut right = nics::port("right").expect("right");
    let mut batch = Batch::new();
    loop {
        let ready = unikernel::wait(None);
        if ready.contains(left.wait_handle()) {
            left.receive(&mut batch);
            right.transmit(&mut batch);
        }
        if ready.contains(right.wait_handle()) {
            right.receive(&mut batch);
            left.transmit(&mut batch);
        }
    }
}
