//! An authoritative server of one zone (RFC 1034, RFC 1035), which is part of the image.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod answer;
pub mod server;
pub mod zone;
