//! A card that lies to the driver of the 82599: see `card`.

use crate::parts::card::{Card, RING};
use drivers::net::ixgbe::puppet::Intel82599;
use drivers::net::ixgbe::{Config, Driver};
use std::cell::RefCell;

type Subject = Card<Intel82599, Driver<RING, RING>>;

thread_local! {
    /// One for all inputs, each of which finds it as new.
    static PLAIN: RefCell<Subject> = RefCell::new(card(2048, Config::FORWARD));
    /// One that coalesces.
    static COALESCING: RefCell<Subject> = RefCell::new(card(16 << 10, Config::COALESCE));
}

fn card(frame_bytes_max: usize, config: Config) -> Subject {
    Card::new(
        frame_bytes_max,
        |puppet, bar, arena, pool| {
            let nic = Driver::new(bar, arena, pool, config, puppet.clock());
            nic.expect("the puppet comes up")
        },
        |nic, puppet| {
            let renewed = nic.renew(puppet.power_cycle());
            renewed.expect("the puppet comes up");
        },
    )
}

pub fn feed(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let card = if first % 2 == 0 { &PLAIN } else { &COALESCING };
    card.with_borrow_mut(|card| card.run(rest));
}
