//! TCP (RFC 9293) as a pure function over plain data.
//!
//! | module | what, and its documents |
//! |---|---|
//! | [`connection`] | what a connection knows, and what its user asks of it |
//! | [`input`] | a segment arrives: RFC 9293 3.10.7, 5961, 7323, 2018, 2883 |
//! | [`output`] | what leaves next, and what time brings: RFC 9293 3.8, 6298, 8985 |
//! | [`sent`], [`received`] | what is on its way, and what lies behind holes |
//! | [`host`], [`socket`] | all connections of an image, who listens, and who waits |
//! | [`counted`] | what is counted |
//! | [`queues`], `budget` | bytes to be sent, bytes that have arrived, and their memory |
//! | [`saved`], [`vault`] | what outlives the image: a connection as bytes, and memory with all |
//! | [`time_wait`] | connections that are done: RFC 6191 |
//! | [`report`] | what monitoring and tests are told of a connection |
//! | [`below`] | a segment on its way to the layer below |
//! | [`congestion`], [`rtt`] | how much may be on its way: RFC 5681, 9438, 9937, 6298 |
//! | [`identity`] | which connection a segment belongs to, and initial numbers: RFC 6528, 6056 |
//! | [`half_open`], [`cookie`] | connections that a peer begins to open: RFC 4987 |
//! | [`segment`], [`seq`] | headers and options, and numbers that wrap |

pub mod below;
mod budget;
pub mod congestion;
pub mod connection;
pub mod cookie;
pub mod counted;
pub mod half_open;
pub mod host;
pub mod identity;
pub mod input;
mod listener;
pub mod output;
pub mod queues;
pub mod received;
pub mod report;
pub mod rtt;
pub mod saved;
pub mod segment;
pub mod sent;
pub mod seq;
pub mod socket;
#[cfg(test)]
pub(crate) mod tests;
pub mod time_wait;
pub mod vault;

pub use connection::{Config, Connection, Failure, Limits, Opening, State};
pub use segment::Segment;
