//! Prints what it learns of two ports, then says on one what it hears on the other, once each.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::time::Duration;
use device::Batch;
use unikernel::println;

unikernel::entry!(main);

const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> i32 {
    let mut left = unikernel::net("left").expect("left");
    let mut right = unikernel::net("right").expect("right");
    assert!(
        unikernel::net("left").is_err(),
        "a device is handed out once"
    );
    assert!(unikernel::net("middle").is_err(), "no such device");
    for port in [&left, &right] {
        println!(
            "{} mac {:02x?} mtu {} max {}",
            port.name(),
            port.mac(),
            port.mtu(),
            port.max_frame()
        );
    }
    let deadline = unikernel::monotonic() + PATIENCE;
    let mut batch = Batch::new();
    for turn in 0..2 {
        let (from, to) = if turn == 0 {
            (&mut left, &mut right)
        } else {
            (&mut right, &mut left)
        };
        while batch.is_empty() {
            if unikernel::wait(Some(deadline)).is_empty() {
                println!("FAILURE: nothing came from {}", from.name());
                return 1;
            }
            from.receive(&mut batch);
        }
        for frame in batch.iter() {
            println!("{} to {}: {} bytes", from.name(), to.name(), frame.len());
        }
        to.transmit(&mut batch);
    }
    println!("SUCCESS");
    0
}
