//! Ports and disks of an image: the safe half of the runtime.
//!
//! `unikernel` is mechanism: it enters the image, makes calls and maps memory. This crate decides
//! what to do with that, and runs in unit tests on any machine over a host that does what the test
//! says.
//!
//! | module | what |
//! |---|---|
//! | [`Host`] | what a host does for a guest; each host implements it once |
//! | [`Runtime`] | everything that the ports of an image have in common: wait, console, end |
//! | `tap` | a port that makes a call for each frame |
//! | `ring` | ports and disks that use rings, in a virtual machine |
//! | `link` | a port over memory that is shared with another image |
//! | `nic` | a port over a driver of the image's own |
//! | `port`, `network` | what all ports share, and those that the host attached |
//! | `disk` | a disk that makes a call for each block |
//! | `schedule` | when NICs are looked at and when the image sleeps |
//! | `devices`, [`buffers`] | which devices there are, and how many packet buffers |
//! | `clock`, [`console`] | points in time, and lines that the guest prints |
//! | `ledger`, `progress` | what a port counts, by name, and the turns of the image |
//! | [`share`], `counters`, `capture`, [`rules`] | the file that host and guest share |
//! | [`hypercall`] | what a guest of `hvt` makes of answers, and how it waits |
//! | [`inquiry`] | what the host asks in it about sockets |
//! | [`state`], [`regions()`] | memory that outlives the image; where that and links lie |
//! | [`sockets`] | sockets of the host's, and addresses as it has them |
//! | [`message`] | registers of a device that is another process |
//! | `puppet` | a host that does what a test says |
//!
//! A new kind of port is a file here that implements [`device::Netif`], and one line in
//! [`Runtime::network`] (or in the crate `appliance`, if the image drives the device itself).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "puppet"))]
extern crate std;

pub mod buffers;
mod capture;
mod clock;
pub mod console;
mod counters;
mod devices;
mod disk;
mod host;
pub mod hypercall;
pub mod inquiry;
mod ledger;
mod link;
pub mod message;
mod mtu;
mod network;
mod nic;
mod port;
mod progress;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
mod queue;
mod regions;
mod ring;
pub mod rules;
mod runtime;
mod schedule;
pub mod share;
pub mod sockets;
pub mod state;
mod tap;
#[cfg(test)]
mod tests;

pub use capture::Capture;
pub use clock::Instant;
pub use counters::Counter;
pub use devices::{DeviceError, Devices, Names, PciAttached};
pub use host::{Errno, Handle, Host};
pub use link::LinkMemory;
pub use network::Network;
pub use nic::{Card, NicPort};
pub use queue::{DiskQueue, QueueMemory};
pub use regions::{Regions, regions};
pub use ring::Rings;
pub use runtime::{Parts, Ready, Runtime};
pub use tap::TapPort;
