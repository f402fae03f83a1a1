//! End-to-end tests: real images under real tenders, on real taps.
//!
//! `cargo test -p e2e [FILTER]` builds what it needs. Tests that need root run in a user namespace
//! when started by an ordinary user. A test that cannot run here says why.

#![forbid(unsafe_code)]

mod commands;
mod devices;
mod disks;
mod documents;
mod harness;
mod hosts;
mod rules;
mod services;

use harness::{build, network};
use libtest_mimic::{Arguments, Trial};
use std::thread;

/// Tests at once, for each processor: they wait more than they work.
const TESTS_PER_PROCESSOR: usize = 3;

fn main() {
    let mut arguments = Arguments::from_args();
    harness::signals::restore();
    let images = if arguments.list {
        build::Images::default()
    } else {
        build::all()
    };
    // In the lab, tests have devices that they share.
    if !images.are_prebuilt() {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        arguments
            .test_threads
            .get_or_insert(TESTS_PER_PROCESSOR * processors);
    }
    let images: &'static build::Images = Box::leak(Box::new(images));
    let network = network::Network::acquire();
    let mut trials: Vec<Trial> = Vec::new();
    trials.extend(harness::signals::trials());
    trials.extend(harness::programs::trials());
    trials.extend(hosts::trials(images, &network));
    trials.extend(devices::trials(images, &network));
    trials.extend(disks::trials());
    trials.extend(rules::trials(images, &network));
    trials.extend(services::trials(images, &network));
    trials.extend(commands::trials(images, &network));
    trials.extend(documents::trials(images, &network));
    libtest_mimic::run(&arguments, trials).exit();
}
