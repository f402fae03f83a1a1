//! Relays, traffic generators and side-by-side measurements.
//!
//! | module | what |
//! |---|---|
//! | [`relay`] | the peers: forwarders without rules, run as processes of their own |
//! | [`segment`], [`topology`] | the two networks between which a contender stands |
//! | [`traffic`] | generators and sinks: TCP bulk, UDP flood, ping-pong |
//! | [`stats`] | medians, spread, ratios, interleaving |
//! | [`report`] | tables, CSV and plots |
//! | [`machine`] | what figures were taken on |

#![forbid(unsafe_code)]

pub mod meter;
pub mod relay;
pub mod stats;
pub mod traffic;
