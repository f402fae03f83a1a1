//! A transparent firewall: frames that the rules accept pass between `private` and `public`,
//! unchanged and uncopied; all others are dropped and counted.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use abi::share::{PORT_APPLIANCE, appliance_counters};
use alloc::vec::Vec;
use device::{Batch, Frame, Guess, Netif};
use nf::nft::Limits;
use nf::{Key, RuleSet, Verdict, Way};
use unikernel::{Counter, Fate, Port, counter, println};

unikernel::entry!(main);

/// The rules that it comes with.
const BUILT_IN: &str = include_str!("../rules/seed001.nft");

fn main() -> i32 {
    let ports = unikernel::net("private").and_then(|p| Ok((p, unikernel::net("public")?)));
    let (mut private, mut public) = match ports {
        Ok(ports) => ports,
        Err(error) => {
            println!("firewall: {error}");
            return abi::exit::FAILURE;
        }
    };
    let filter = match nf::load(BUILT_IN, &["private", "public"], &Limits::DEFAULT) {
        Ok(rules) => Filter::new(rules),
        Err(error) => {
            println!("firewall: {}", error.render("seed001.nft", BUILT_IN));
            return abi::exit::FAILURE;
        }
    };
    let mut batch = Batch::new();
    let mut answered = Guess::default();
    loop {
        let ready = unikernel::wait(None);
        let outwards = ready.contains(private.wait_handle());
        let inwards = ready.contains(public.wait_handle());
        if outwards {
            filter.forward(&mut private, &mut public, &mut batch);
        }
        if inwards {
            filter.forward(&mut public, &mut private, &mut batch);
        }
        // Who got a frame may have answered already, and to look costs less than to wait.
        if outwards != inwards && answered.worth() {
            let (from, to) = if outwards {
                (&mut public, &mut private)
            } else {
                (&mut private, &mut public)
            };
            answered.learn(filter.forward(from, to, &mut batch));
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

    /// One batch from one port to the other; whether there was one.
    fn forward(&self, from: &mut Port, to: &mut Port, batch: &mut Batch) -> bool {
        from.receive(batch);
        let any = !batch.is_empty();
        batch.retain(|frame| self.accepts(frame, from));
        to.transmit(batch);
        any
    }

    fn accepts(&self, frame: &Frame, from: &Port) -> bool {
        match Key::parse(frame.bytes()) {
            Ok(key) => {
                let way = Way { from: 0, to: 1 };
                let (verdict, rule) = self.rules.verdict(&key, way, &mut ());
                self.decided[rule].add(1);
                let accepted = verdict == Verdict::Accept;
                if !accepted {
                    from.dropped(frame, Fate::Rule(rule as u16));
                }
                accepted
            }
            Err(malformed) => {
                let number = PORT_APPLIANCE + malformed.index();
                from.counter(number).add(1);
                from.dropped(frame, Fate::Counter(number as u16));
                false
            }
        }
    }
}
