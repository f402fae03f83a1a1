//! Relays, traffic generators and side-by-side measurements.
