//! The image of the firewall: takes its ports and rules, and waits for frames.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use filter::Filter;
use firewall::{BUILT_IN, Firewall};
use unikernel::println;

unikernel::entry!(main);

fn main() -> i32 {
    let ports = appliance::port("private").and_then(|p| Ok((p, appliance::port("public")?)));
    let (mut private, mut public) = match ports {
        Ok(ports) => ports,
        Err(error) => {
            println!("firewall: {error}");
            return abi::exit::FAILURE;
        }
    };
    let filter = match Filter::start(unikernel::runtime(), BUILT_IN, unikernel::seed) {
        Ok(filter) => filter,
        Err(error) => {
            println!("firewall: {error}");
            return abi::exit::FAILURE;
        }
    };
    if let Some(said) = filter.said() {
        println!("firewall: {said}");
    }
    let mut firewall = Firewall::new(filter, &mut *private, &mut *public);
    loop {
        let held = firewall.held(&mut *private, &mut *public);
        let ready = unikernel::runtime().wait_without(None, held);
        firewall.step(ready, &mut *private, &mut *public);
    }
}
