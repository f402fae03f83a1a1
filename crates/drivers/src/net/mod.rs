//! Network interfaces.

pub mod e1000e;
pub mod ixgbe;
