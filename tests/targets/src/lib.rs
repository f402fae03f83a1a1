//! What hostile bytes reach: a function for each reader, which feeds it one input and checks what
//! it promises; what inputs start from; and mutations of that.
//!
//! libFuzzer's targets in `fuzz/` call these functions, and so does `cargo test -p targets`, with
//! the same inputs each time.

#![forbid(unsafe_code)]

mod each;
pub mod mutations;
mod parts;
mod requests;
pub mod seeds;

pub use each::{ALL, Target};

/// Feeds an input to the target of a name.
///
/// # Panics
/// If there is no such target, or it breaks one of its promises.
pub fn feed(name: &str, input: &[u8]) {
    let target = ALL.iter().find(|target| target.name == name);
    (target.expect("fuzz/ names a target").feed)(input);
}
