//! A transparent firewall: frames that the rules accept pass between `private` and `public`,
//! unchanged and uncopied; all others are dropped and counted.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use device::{Batch, Guess, Netif};
use filter::{Filter, Path};
use unikernel::println;

unikernel::entry!(main);

/// In force where neither the host nor the command line has other rules.
const BUILT_IN: &str = include_str!("../rules/default.nft");

fn main() -> i32 {
    let ports = appliance::port("private").and_then(|p| Ok((p, appliance::port("public")?)));
    let (mut private, mut public) = match ports {
        Ok(ports) => ports,
        Err(error) => {
            println!("firewall: {error}");
            return abi::exit::FAILURE;
        }
    };
    let mut filter = match Filter::start(unikernel::runtime(), BUILT_IN) {
        Ok(filter) => filter,
        Err(error) => {
            println!("firewall: {error}");
            return abi::exit::FAILURE;
        }
    };
    let (private, public) = (&mut *private, &mut *public);
    let out = filter.path(private, public);
    let back = filter.path(public, private);
    let mut batch = Batch::new();
    let mut answered = Guess::default();
    loop {
        let ready = unikernel::wait(None);
        filter.refresh();
        let outwards = ready.contains(private.wait_handle());
        let inwards = ready.contains(public.wait_handle());
        if outwards {
            forward(&mut filter, out, private, public, &mut batch);
        }
        if inwards {
            forward(&mut filter, back, public, private, &mut batch);
        }
        // Who got a frame may have answered already, and to look costs less than to wait.
        if outwards != inwards && answered.worth() {
            let found = if outwards {
                forward(&mut filter, back, public, private, &mut batch)
            } else {
                forward(&mut filter, out, private, public, &mut batch)
            };
            answered.learn(found);
        }
    }
}

/// One batch from one port to the other; whether there was one.
fn forward(
    filter: &mut Filter,
    path: Path,
    from: &mut dyn Netif,
    to: &mut dyn Netif,
    batch: &mut Batch,
) -> bool {
    from.receive(batch);
    let any = !batch.is_empty();
    batch.retain(|frame| filter.accepts(frame, path));
    to.transmit(batch);
    any
}
