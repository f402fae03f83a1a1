//! Connections between two ends, over a network that is a function of a seed.

mod arbitrary;
pub(super) mod hosts;
mod script;
mod simulation;
mod throughput;
mod transfers;
pub(crate) mod vault;
