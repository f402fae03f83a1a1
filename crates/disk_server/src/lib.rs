//! The network block device protocol, for whoever serves a disk.
//!
//! Keep its text open: `doc/proto.md` of the project NetworkBlockDevice. What is named "Baseline"
//! there is here, and beside it flush, FUA, trim, write zeroes, sizes of blocks, and structured
//! replies. There is no TLS: who may reach the port may have the disk.
//!
//! | module | what |
//! |---|---|
//! | [`wire`] | bytes in, values out, and back: requests, options, replies |
//! | [`negotiation`] | options in, answers out, until the client wants the disk |
//! | [`export`] | what is served, and whether a request can be done with it |
//! | [`disk`] | a queue that several connections share, each with buffers of its own |
//! | [`server`] | connections, and what they may take |
//! | `flights` | the requests of a connection that are under way |
//!
//! **Memory.** All buffers are there from the start. A connection has its own, so a client that
//! does not read its answers stops itself alone. Whoever finds no buffers left is not served.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod disk;
pub mod export;
mod flights;
pub mod negotiation;
mod reply;
pub mod server;
#[cfg(test)]
mod tests;
pub mod wire;
