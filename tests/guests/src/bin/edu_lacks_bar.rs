//! Asks for a BAR that the device does not have.

#![no_std]
#![no_main]

unikernel::entry!(main);

fn main() {
    unikernel::println!("FAILURE: started");
}
