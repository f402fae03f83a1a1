//! HTTP/1.1 (RFC 9110, RFC 9112), as a server of files that are part of the image.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod answer;
pub mod date;
pub mod file;
pub mod range;
pub mod request;
pub mod server;
