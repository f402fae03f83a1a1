//! The hosts: what each promises to a guest, and what a guest or an image cannot do to it.

pub mod backtrace;
pub mod compatibility;
pub mod core;
pub mod disks;
pub mod guests;
pub mod hvt;
pub mod refusals;
pub mod rings;
pub mod state;

use crate::harness::build::Images;
use crate::harness::network::Network;
use libtest_mimic::{Failed, Trial};

/// All tests of this folder.
pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    [
        guests::trials(images),
        backtrace::trials(images),
        refusals::trials(images),
        core::trials(images),
        state::trials(images),
        disks::trials(images),
        hvt::trials(images, network),
        compatibility::trials(images, network),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A test on a host of this name.
pub type Test = fn(&Images, &str) -> Result<(), Failed>;

/// A group's tests on the hosts that this machine has.
pub fn on_each(
    images: &'static Images,
    group: &str,
    tests: &'static [(&'static str, Test)],
) -> Vec<Trial> {
    let on = |host| on(images, host, group, tests).into_iter();
    ["process", "spt"].into_iter().flat_map(on).collect()
}

/// A group's tests on one host; those of `hvt` are named by it first, as all of its tests are.
pub fn on(
    images: &'static Images,
    host: &'static str,
    group: &str,
    tests: &'static [(&'static str, Test)],
) -> Vec<Trial> {
    let trials = tests.iter().map(|(name, test)| {
        let name = match host {
            "hvt" => format!("hvt::{group}::{name}"),
            _ => format!("{group}::{name}::{host}"),
        };
        Trial::test(name, move || test(images, host))
    });
    trials.collect()
}
