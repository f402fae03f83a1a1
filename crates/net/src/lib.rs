//! TCP/IP inside an image.
//!
//! Each layer writes its own header, once, from the top down, into a buffer that the port has
//! allocated ([`layer`]). On receive, a frame's ownership goes up, and no byte is copied.
//!
//! Decisions are pure functions: time is a parameter, and what a connection knows is plain data
//! ([`tcp`]).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod arp;
mod bucket;
pub mod counts;
pub mod ethernet;
pub mod icmp;
mod ident;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod layer;
pub mod neighbour;
pub mod path_mtu;
pub mod random;
pub mod reassembly;
pub mod routes;
pub mod tcp;
#[cfg(test)]
mod testing;
pub mod version;
