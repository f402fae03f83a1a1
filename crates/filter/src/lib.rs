//! Rules at work in an appliance: where they come from, what they count and log, and how others
//! take their place while frames pass.
//!
//! An appliance calls [`Filter::refresh`] between batches and [`Filter::accepts`] for each frame.
//! Rules come from the host ([`ports::rules`]), or else from the command line, or else from the
//! image itself. A filter knows ports by their name and index alone, so they may be of any kind,
//! or layers around others.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bridge;
mod connections;
mod elements;
mod flows;
mod kept;
mod routed;
mod start;
#[cfg(test)]
mod tests;
mod work;

pub use bridge::{Filter, Path};
pub use kept::STATE;
pub use routed::Gate;
pub use start::Error;
pub use work::Seed;

use work::Work;
