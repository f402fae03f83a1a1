//! What ports, drivers, stack and filters share.
//!
//! A [`Frame`] is an owned packet buffer of one [`Pool`]; a [`Batch`] is what moves between ports;
//! a [`Netif`] is a port. A packet's way: `receive` fills a batch with owned frames, the appliance
//! edits or drops some, `transmit` of another port takes the rest. Ownership moves, bytes do not;
//! dropping a frame gives its buffer back.
//!
//! Nothing here knows where a port lives, and nothing allocates once a pool exists.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
mod block;
mod checksum;
mod coalesce;
pub mod ethernet;
mod frame;
mod guess;
mod netif;
mod nic;
pub mod offload;
mod segment;
#[cfg(test)]
mod tests;
mod transport;
pub mod virtio;

pub use batch::{BATCH_BYTES_MAX, BATCH_FRAMES_MAX, Batch};
pub use block::{BlockDevice, BlockError};
pub use coalesce::coalesced;
pub use frame::{FRAME_BYTES_MAX, Frame, HEADROOM, Pool};
pub use guess::Guess;
pub use netif::{Netif, NetifExt, WaitHandle};
pub use nic::{Nic, NicCounts, Sent, TEND_NANOSECONDS};
pub use offload::{Gso, GsoKind, Offload, Offloads};
pub use segment::{SEGMENT_HEADER_MAX, Segmenter, segments};
pub use transport::Transport;
