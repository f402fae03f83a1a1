//! Passes every frame on, in both directions, for ever, between two NICs of its own, and waits
//! after so many turns as its argument says; appliances do after each. For benchmarks: it promises
//! nothing.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use device::Batch;

unikernel::entry!(main);

fn main() {
    let turns = unikernel::arguments().next();
    let turns: u32 = turns
        .and_then(|turns| turns.parse().ok())
        .expect("a number");
    let mut left = appliance::port("left").expect("left");
    let mut right = appliance::port("right").expect("right");
    let mut batch = Batch::new();
    loop {
        unikernel::wait(None);
        for _ in 0..turns {
            left.receive(&mut batch);
            right.transmit(&mut batch);
            right.receive(&mut batch);
            left.transmit(&mut batch);
        }
    }
}
