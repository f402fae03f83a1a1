//! A card that lies to the driver of the 82574L: see `card`.

use crate::parts::card::{Card, RING};
use drivers::net::e1000e::puppet::Intel82574;
use drivers::net::e1000e::{Config, Driver};
use std::cell::RefCell;

type Subject = Card<Intel82574, Driver<RING, RING>>;

thread_local! {
    /// One for all inputs, each of which finds it as new.
    static CARD: RefCell<Subject> = RefCell::new(card());
}

fn card() -> Subject {
    Card::new(
        2048,
        |puppet, bar, arena, pool| {
            let nic = Driver::new(bar, arena, pool, Config::FORWARD, puppet.clock());
            nic.expect("the puppet comes up")
        },
        |nic, puppet| {
            let renewed = nic.renew(puppet.power_cycle());
            renewed.expect("the puppet comes up");
        },
    )
}

pub fn feed(bytes: &[u8]) {
    CARD.with_borrow_mut(|card| card.run(bytes))
}
