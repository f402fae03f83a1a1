//! HTTP/1.1 (RFC 9110, RFC 9112), as a server of files.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod answer;
pub mod server;
pub mod site;
#[cfg(test)]
mod tests;
