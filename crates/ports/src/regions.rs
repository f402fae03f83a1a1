//! The memory of links and of states, out of what the tender says of regions.

use crate::link::LinkMemory;
use crate::state::StateMemory;
use abi::link;
use abi::region::Info;
use abi::state::HEAD_BYTES;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

/// The words at the start of a region, and what follows them.
pub type Own = (&'static [AtomicU64], &'static mut [u8]);

/// The memory of links, and that of states, both by the numbers of regions. `own` gives the memory
/// of a number, of so many bytes, the first of which are so many bytes of words; it is asked once
/// for each. `peer` gives so many bytes that the other end of a link writes.
pub fn regions(
    infos: &[Info],
    own: impl Fn(usize, u64, usize) -> Option<Own>,
    peer: impl Fn(usize, u64) -> &'static [AtomicU64],
) -> (Vec<Option<LinkMemory>>, Vec<Option<StateMemory>>) {
    let (mut links, mut states) = (Vec::new(), Vec::new());
    for (number, info) in infos.iter().enumerate() {
        let (mut link, mut state) = (None, None);
        if info.peer_bytes != 0 {
            let own = own(number, info.own_bytes, link::HEAD_BYTES);
            let peer = peer(number, info.peer_bytes);
            link = own.map(|(own, slots)| LinkMemory { own, slots, peer });
        } else if info.own_bytes != 0 {
            let own = own(number, info.own_bytes, HEAD_BYTES);
            state = own.map(|(head, body)| StateMemory { head, body });
        }
        links.push(link);
        states.push(state);
    }
    (links, states)
}
