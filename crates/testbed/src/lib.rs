//! Two networks of one machine, what stands between them, and traffic through it. Benchmarks, the
//! demonstration and end-to-end tests are built from these parts.
//!
//! | module | what |
//! |---|---|
//! | [`privilege`] | the right to make networks |
//! | [`segment`], [`topology`] | the two networks between which a contender stands |
//! | [`contender`] | what can stand there: relays, the firewall, the kernel's bridge |
//! | [`relay`] | forwarders without rules, run as processes of their own |
//! | [`wire`] | a long wire that loses frames |
//! | [`traffic`] | generators and sinks: TCP bulk, many connections, floods, ping-pong |
//! | [`meter`] | CPU time, memory and frames of what stands there |
//! | [`stats`], [`table`] | medians, spread and ratios; text in columns |

#![forbid(unsafe_code)]

pub mod contender;
pub mod meter;
pub mod privilege;
pub mod relay;
pub mod segment;
pub mod stats;
pub mod table;
pub mod topology;
pub mod traffic;
pub mod wire;
