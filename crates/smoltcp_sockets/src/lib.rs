//! smoltcp's sockets behind the traits of [`net::socket`], over the same port as our stack.
//!
//! An appliance runs on either unchanged, so that the two can be compared. Nothing of an image
//! carries this crate unless it is built with the feature `smoltcp` of `service`.
//!
//! | module | what |
//! |---|---|
//! | `device` | a port as smoltcp sees it |
//! | `stack` | interface and sockets, turn by turn |
//! | `sockets` | what appliances see |
//!
//! What smoltcp has no counterpart for is refused or left out: see [`Refused`], and
//! `docs/network.md` for the list.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod device;
mod sockets;
mod stack;
#[cfg(test)]
mod tests;

pub use sockets::{Net, TcpListener, TcpStream, UdpSocket};
pub use stack::{Refused, Stack};
