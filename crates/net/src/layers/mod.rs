//! Layers that are ports themselves and wrap any port, without a changed line above.

pub mod faults;
pub mod trace;
pub mod vlan;
