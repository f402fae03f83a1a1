//! What is said on standard error. Where that is closed or full, nothing more can be said, and that
//! is no reason for anybody to end: `eprintln!` would panic.

use std::fmt::Display;
use std::io::Write;

/// Says a line, if anybody listens.
pub fn line(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "{what}");
}
