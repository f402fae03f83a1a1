//! Names (RFC 1034, RFC 1035): a stub resolver over sockets of any kind, and a forwarder that asks
//! for others.
//!
//! [`Resolver`] asks servers, which do the work. What they answer is believed if it comes from the
//! server that was asked, at the port that asked, with the number and the question that were sent:
//! ports and numbers come from a key that nobody else knows (RFC 5452). Messages are read and
//! written by the crate `domain`.

mod cache;
mod forwarder;
mod message;
mod passed;
mod resolver;

pub use forwarder::Forwarder;
pub use resolver::{Names, Resolver};

use alloc::vec::Vec;
use core::fmt;

/// A name, from its first label to the root.
pub type Name = domain::base::Name<Vec<u8>>;

/// The port of servers.
pub const PORT: u16 = 53;
/// Addresses that are taken of an answer.
pub const ADDRESSES_MAX: usize = 16;
/// Answers that a resolver keeps at a time.
pub const KNOWN_MAX: usize = 256;

/// Why a name has no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is no name.
    Malformed,
    /// No server is known.
    NoServer,
    /// No server has given an answer that can be used.
    Silent,
    /// The name does not exist.
    NotFound,
    /// The name exists and has no address.
    NoAddress,
    /// Its aliases lead nowhere.
    Aliases,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "this is no name",
            Self::NoServer => "no server of names is known: give one with --dns",
            Self::Silent => "no server of names answers",
            Self::NotFound => "there is no such name",
            Self::NoAddress => "the name has no address",
            Self::Aliases => "the name has too many aliases",
        })
    }
}

impl core::error::Error for Error {}
