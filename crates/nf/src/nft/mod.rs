//! The language of nftables, as far as it has a meaning for a transparent firewall or a router.
//!
//! What is accepted here is accepted by nft, with the same meaning; what nft accepts and this does
//! not is refused with its position and a reason, and never ignored.

pub mod ast;
mod error;
mod fib;
mod flowtable;
mod include;
mod lex;
mod limits;
mod marks;
mod objects;
mod parse;
mod print;
mod refusals;
mod render;
mod spelling;
mod timeouts;
mod words;

pub use error::{Error, ErrorKind, Refusal, Spelling};
pub use include::{Find, INCLUDE_DEPTH_MAX, INCLUDED_MAX, SourceFile, Whole};
pub use limits::{BYTES_PER_TEXT_BYTE, Limits};
pub use parse::parse;
pub(crate) use refusals::{NOT_OF_BRIDGE, NOT_OF_ROUTER};

#[cfg(test)]
mod tests;
