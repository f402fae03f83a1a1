//! A transparent firewall: frames that the rules accept pass between `private` and `public`,
//! unchanged and uncopied; all others are dropped and counted.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use abi::share::{PORT_APPLIANCE, appliance_counters};
use alloc::vec::Vec;
use device::{Batch, Netif};
use nf::{Key, RuleSet, Verdict, Way};
use unikernel::{Counter, Port, counter, println};

unikernel::entry!(main);

fn main() -> i32 {
    let ports = unikernel::net("private").and_then(|p| Ok((p, unikernel::net("public")?)));
    let (mut private, mut public) = match ports {
        Ok(ports) => ports,
        Err(error) => {
            println!("firewall: {error}");
            return abi::exit::FAILURE;
        }
    };
    let filter = Filter::new(nf::seed001());
    let mut batch = Batch::new();
    loop {
        let ready = unikernel::wait(None);
        if ready.contains(private.wait_handle()) {
            filter.forward(&mut private, &mut public, &mut batch);
        }
        if ready.contains(public.wait_handle()) {
            filter.forward(&mut public, &mut private, &mut batch);
        }
    }
}

/// Rules, and how often each decided.
struct Filter {
    rules: RuleSet,
    /// One counter for each rule, and one for the policy.
    decided: Vec<Counter>,
}

impl Filter {
    fn new(rules: RuleSet) -> Self {
        let first = appliance_counters(unikernel::entry_count());
        let decided = (0..=rules.len())
            .map(|rule| counter(first + rule))
            .collect();
        Self { rules, decided }
    }

    /// One batch from one port to the other.
    fn forward(&self, from: &mut Port, to: &mut Port, batch: &mut Batch) {
        from.receive(batch);
        batch.retain(|frame| self.accepts(frame.bytes(), from));
        to.transmit(batch);
    }

    fn accepts(&self, frame: &[u8], from: &Port) -> bool {
        match Key::parse(frame) {
            Ok(key) => {
                let (verdict, rule) = self.rules.verdict(&key, Way { from: 0, to: 1 }, &mut ());
                self.decided[rule].add(1);
                verdict == Verdict::Accept
            }
            Err(malformed) => {
                from.counter(PORT_APPLIANCE + malformed.index()).add(1);
                false
            }
        }
    }
}
