//! Sends every frame back by the port that it came in at, unchanged and uncopied: what a NIC, its
//! driver and its wire can do, and nothing else.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use device::Batch;
use unikernel::println;

unikernel::entry!(main);

fn main() -> i32 {
    let mut port = match appliance::port("nic") {
        Ok(port) => port,
        Err(error) => {
            println!("reflector: {error}");
            return abi::exit::FAILURE;
        }
    };
    let mut batch = Batch::new();
    loop {
        unikernel::wait(None);
        port.receive(&mut batch);
        port.transmit(&mut batch);
    }
}
