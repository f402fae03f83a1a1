//! The memory of links, states and queues of disks, out of what the tender says of regions.

use crate::link::LinkMemory;
use crate::queue::QueueMemory;
use crate::state::StateMemory;
use abi::link;
use abi::region::{Info, Request, kind};
use abi::state::HEAD_BYTES;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

/// The words at the start of a region, and what follows them.
pub type Own = (&'static [AtomicU64], &'static mut [u8]);

/// The memory of regions, each by their numbers.
#[derive(Default)]
pub struct Regions {
    /// Of links.
    pub links: Vec<Option<LinkMemory>>,
    /// Of states.
    pub states: Vec<Option<StateMemory>>,
    /// Of queues of disks.
    pub queues: Vec<Option<QueueMemory>>,
}

/// The memory of the regions that were asked for. `own` gives the memory
/// of a number, of so many bytes, the first of which are so many bytes of words; it is asked once
/// for each. `peer` gives so many bytes that the other end of a link writes.
/// `queue` gives a number's as that of a disk's queue.
pub fn regions(
    requests: &[Request],
    infos: &[Info],
    own: impl Fn(usize, u64, usize) -> Option<Own>,
    peer: impl Fn(usize, u64) -> &'static [AtomicU64],
    queue: impl Fn(usize, u64) -> Option<QueueMemory>,
) -> Regions {
    let mut regions = Regions::default();
    for (number, (request, info)) in requests.iter().zip(infos).enumerate() {
        let (mut link, mut state, mut disk) = (None, None, None);
        if request.kind == kind::QUEUE {
            disk = (info.own_bytes != 0)
                .then(|| queue(number, info.own_bytes))
                .flatten();
        } else if info.peer_bytes != 0 {
            let own = own(number, info.own_bytes, link::HEAD_BYTES);
            let peer = peer(number, info.peer_bytes);
            link = own.map(|(own, slots)| LinkMemory { own, slots, peer });
        } else if info.own_bytes != 0 {
            let own = own(number, info.own_bytes, HEAD_BYTES);
            state = own.map(|(head, body)| StateMemory { head, body });
        }
        regions.links.push(link);
        regions.states.push(state);
        regions.queues.push(disk);
    }
    regions
}
