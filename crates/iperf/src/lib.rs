//! iperf3's protocol, in both roles: a control connection that carries states of one byte and
//! texts in JSON, and streams over TCP or UDP that carry data (esnet/iperf, `iperf_api.h`). And
//! iperf 2's, as a server.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | the words of the command line |
//! | [`protocol`] | what both ends say to each other |
//! | [`client`], [`server`] | a test in each role |
//! | [`tcp`], [`udp`] | streams that move data |
//! | [`count`], [`inside`] | what is counted of a stream, and what its TCP tells |
//! | [`measure`], [`report`] | a test under way, and what is told of it |
//! | [`iperf2`] | the other protocol |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod client;
pub mod count;
pub mod inside;
pub mod iperf2;
pub mod measure;
pub mod options;
pub mod protocol;
pub mod report;
pub mod server;
pub mod tcp;
pub mod udp;

use core::fmt::Arguments;
use core::time::Duration;
use net::task::Clock;

/// What both roles have of the image.
#[derive(Clone)]
pub struct System {
    /// Time.
    pub clock: Clock,
    /// The time since 1970-01-01 00:00 UTC.
    pub wall: fn() -> Duration,
    /// Prints a line.
    pub print: fn(Arguments<'_>),
}
