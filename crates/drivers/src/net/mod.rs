//! Network interfaces.

pub mod e1000e;
pub mod ixgbe;
#[cfg(any(test, feature = "puppet"))]
pub mod puppet;
