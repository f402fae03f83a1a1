//! TCP (RFC 9293).

pub mod seq;
