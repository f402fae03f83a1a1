//! The commands of `outboard`, as a user types them.

pub mod capture;
pub mod cli;
pub mod demo;
pub mod doctor;
pub mod manual;
pub mod messages;
pub mod mount;
pub mod named;
pub mod new;
pub mod send;
pub mod stats;
pub mod top;
pub mod up;

use crate::harness::build::Images;
use crate::harness::network::Network;
use libtest_mimic::Trial;

/// All tests of this folder, but for those that `hvt` repeats.
pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    [
        capture::trials(images, network),
        cli::trials(images),
        demo::trials(images, network),
        doctor::trials(images, network),
        manual::trials(images),
        messages::trials(images, network),
        mount::trials(images, network),
        named::trials(images, network),
        stats::trials(images, network),
        top::trials(images, network),
        send::trials(images, network),
        new::trials(images, network),
        up::trials(images, network),
    ]
    .into_iter()
    .flatten()
    .collect()
}
