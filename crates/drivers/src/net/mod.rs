//! Network interfaces.

pub mod e1000e;
