//! What tests are made of: programs, files, networks, wires and frames.

pub mod build;
pub mod document;
pub mod exposition;
pub mod frames;
pub mod joined;
pub mod network;
pub mod process;
pub mod programs;
pub mod runtime;
pub mod signals;
pub mod temporary;
pub mod user;
pub mod vlans;
pub mod wait;
pub mod wire;
