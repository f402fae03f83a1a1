//! How late a task wakes while a NIC of its own is flooded.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() -> i32 {
    let mut port = appliance::port("service").expect("service");
    guests::fairness::run(&mut *port)
}
