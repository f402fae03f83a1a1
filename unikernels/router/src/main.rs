//! A router: it sends packets on between its ports, as rules let them. The image has nothing of its
//! own but its rules.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::future::pending;

/// The rules in force where the host has no others.
const BUILT_IN: &str = include_str!(env!("OUTBOARD_RULES"));

unikernel::entry!(main);

fn main() -> i32 {
    service::route("router", "", BUILT_IN, |_service| pending())
}
