//! Connections between two ends, over a network that is a function of a seed.

mod arbitrary;
mod hosts;
mod script;
mod simulation;
mod transfers;
pub(super) mod vault;
