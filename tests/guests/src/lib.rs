//! What several guests do.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod fairness;

use device::{Batch, Netif};

/// Passes every frame on, in both directions, for ever.
pub fn repeat(left: &mut dyn Netif, right: &mut dyn Netif) -> ! {
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
