//! DNS with authority (RFC 1034, RFC 1035): a zone, what it answers, and who asks.
//!
//! | module | what |
//! |---|---|
//! | [`Zone`] | records in order, and what a name finds among them |
//! | [`answer`] | a message in, a message out |
//! | [`server`] | datagrams, connections, and what they may take |
//! | `file` | a zone as files have it (feature `file`, with the standard library) |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "file", test))]
extern crate std;

pub mod answer;
#[cfg(any(feature = "file", test))]
pub mod file;
pub mod server;
#[cfg(test)]
mod tests;
mod zone;

pub use zone::{Error, Found, Record, Zone};
