//! Documents whose commands are typed as they stand there.

pub mod network;
pub mod readme;
pub mod tutorial;

use crate::harness::build::Images;
use crate::harness::network::Network;
use libtest_mimic::Trial;

/// All tests of this folder.
pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let readme = readme::trials(images, network);
    readme
        .into_iter()
        .chain(tutorial::trials(images, network))
        .chain(network::trials(images, network))
        .collect()
}
