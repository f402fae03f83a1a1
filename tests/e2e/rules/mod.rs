//! Rules: what they decide, how they reach a guest, and that they mean what they mean to nft.

mod counted;
mod elements;
pub mod firewall;
pub mod load;
pub mod nft_syntax;
pub mod oracle;

use crate::harness::build::Images;
use crate::harness::network::Network;
use libtest_mimic::Trial;

/// All tests of this folder, but for those that `hvt` repeats.
pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    [
        counted::trials(network),
        elements::trials(images, network),
        firewall::trials(images, network),
        load::trials(images, network),
        nft_syntax::trials(network),
        oracle::trials(network),
    ]
    .into_iter()
    .flatten()
    .collect()
}
