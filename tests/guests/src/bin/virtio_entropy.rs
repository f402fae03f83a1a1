//! Asks a virtio source of entropy for bytes, more than once.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use unikernel::println;

unikernel::entry!(main);

fn main() {
    let mut source = match appliance::entropy("entropy") {
        Ok(source) => source,
        Err(error) => panic!("{error}"),
    };
    guests::draw(|bytes| source.fill(bytes).expect("random bytes"));
    println!("SUCCESS");
}
