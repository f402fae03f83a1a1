//! A transparent firewall: frames that the rules accept pass between `private` and `public`,
//! unchanged and uncopied; all others are dropped and counted.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use device::{Batch, Guess, Netif};
use filter::Filter;
use nf::Way;
use unikernel::{Port, println};

unikernel::entry!(main);

/// In force where neither the host nor the command line has other rules.
const BUILT_IN: &str = include_str!("../rules/default.nft");

fn main() -> i32 {
    let ports = nics::port("private").and_then(|p| Ok((p, nics::port("public")?)));
    let (mut private, mut public) = match ports {
        Ok(ports) => ports,
        Err(error) => {
            println!("firewall: {error}");
            return abi::exit::FAILURE;
        }
    };
    let mut filter = match Filter::start(BUILT_IN) {
        Ok(filter) => filter,
        Err(error) => {
            println!("firewall: {error}");
            return abi::exit::FAILURE;
        }
    };
    let (out, back) = (filter.way(&private, &public), filter.way(&public, &private));
    let mut batch = Batch::new();
    let mut answered = Guess::default();
    loop {
        let ready = unikernel::wait(None);
        filter.refresh();
        let outwards = ready.contains(private.wait_handle());
        let inwards = ready.contains(public.wait_handle());
        if outwards {
            forward(&mut filter, out, &mut private, &mut public, &mut batch);
        }
        if inwards {
            forward(&mut filter, back, &mut public, &mut private, &mut batch);
        }
        // Who got a frame may have answered already, and to look costs less than to wait.
        if outwards != inwards && answered.worth() {
            let found = if outwards {
                forward(&mut filter, back, &mut public, &mut private, &mut batch)
            } else {
                forward(&mut filter, out, &mut private, &mut public, &mut batch)
            };
            answered.learn(found);
        }
    }
}

/// One batch from one port to the other; whether there was one.
fn forward(
    filter: &mut Filter,
    way: Way,
    from: &mut Port,
    to: &mut Port,
    batch: &mut Batch,
) -> bool {
    from.receive(batch);
    let any = !batch.is_empty();
    batch.retain(|frame| filter.accepts(frame, from, way));
    to.transmit(batch);
    any
}
