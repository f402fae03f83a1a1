//! Prints MTU and largest frame, and answers each frame with itself until one says 'quit'.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use device::{Batch, NetifExt};
use unikernel::println;

unikernel::entry!(main);

fn main() {
    let mut net = unikernel::net("net").expect("net");
    println!("mtu {} max {}", net.mtu(), net.max_frame());
    let mut batch = Batch::new();
    loop {
        unikernel::wait(None);
        net.receive(&mut batch);
        for frame in batch.drain() {
            let bytes = frame.bytes();
            net.send(bytes.len(), |answer| {
                answer.copy_from_slice(bytes);
                answer.len()
            });
            if bytes.ends_with(b"quit") {
                println!("SUCCESS");
                return;
            }
        }
    }
}
