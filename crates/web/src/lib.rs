//! HTTP/1.1 (RFC 9110, RFC 9112) for a site of files.
//!
//! | module | what |
//! |---|---|
//! | [`site`] | the files, in a file system or an archive |
//! | [`answer`] | a request in, an answer out |
//! | [`server`] | connections, and what they may take |

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
