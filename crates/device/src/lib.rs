//! What ports, drivers, stack and filters share.
//!
//! A [`Frame`] is an owned packet buffer of one [`Pool`]; a [`Batch`] is what moves between ports;
//! a [`Netif`] is a port. A packet's way: `receive` fills a batch with owned frames, the appliance
//! edits or drops some, `transmit` of another port takes the rest. Ownership moves, bytes do not;
//! dropping a frame gives its buffer back.
//!
//! Read in this order:
//!
//! | module | what |
//! |---|---|
//! | `frame` | [`Frame`], and the [`Pool`] to which it returns |
//! | `batch` | [`Batch`], what moves between ports |
//! | `netif` | [`Netif`], a network port |
//! | [`block`] | [`BlockDevice`], a disk, and [`block::BlockQueue`], with requests in flight |
//! | [`files`] | a file system, whatever it is on |
//! | `nic` | [`Nic`], the driver of a NIC as its port sees it |
//! | [`offload`], [`virtio`] | checksums and segmentation that one device leaves to the next |
//! | [`ethernet`], `transport`, `checksum` | where headers lie, and the Internet checksum |
//! | `segment`, `coalesce` | a large TCP frame, cut in software, or made by a NIC |
//! | [`memory`] | a port in memory, for tests of appliances on the host |
//! | `guess` | whether to look at a port before it is known to have anything |
//!
//! Nothing here knows where a port lives, and nothing allocates once a pool exists.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod batch;
pub mod block;
pub mod checksum;
mod coalesce;
pub mod ethernet;
pub mod files;
mod frame;
mod guess;
pub mod memory;
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
pub use offload::{Checksum, Gso, GsoKind, Offload, Offloads};
pub use segment::{SEGMENT_HEADER_MAX, Segmenter, segments};
pub use transport::Transport;
