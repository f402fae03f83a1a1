//! Sockets over a link: an application in one image, the TCP/IP stack in another.
//!
//! The application's image has [`Net`], which implements the traits of [`net::socket`]; the
//! stack's has a [`Server`] for each application, over whatever implements them there. Both speak
//! one protocol ([`message`]) over a port, and believe the other end nothing: what it may not do
//! ends its session, is counted and named ([`Fault`]), and neither image ends.
//!
//! | module | what |
//! |---|---|
//! | [`message`] | the protocol: messages, and how they lie in a frame |
//! | `fault` | what the other end may not do |
//! | `wire` | frames over the port: sessions, and what waits for room |
//! | `window` | credits: how much may be sent, and how much may come |
//! | `arrived` | what has come and was not taken |
//! | `app` | the application's end: its sockets, and what appliances see of them |
//! | `stack` | the stack's end: a task or two for each socket |
//!
//! `docs/links.md` has the protocol in words.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod app;
mod arrived;
mod fault;
pub mod message;
mod stack;
#[cfg(test)]
mod tests;
mod window;
mod wire;

pub use app::{Listener, Net, Stream, Table, UdpSocket};
pub use fault::Fault;
pub use message::Own;
pub use stack::{Allowed, Orphans, Server};
