//! What a guest has counted: read from its shared file, named, and shown.
//!
//! | module | what |
//! |---|---|
//! | [`reader`] | takes snapshots |
//! | [`raw`] | a private copy of the shared file's numbers |
//! | [`snapshot`] | what they mean |
//! | [`rates`] | how fast they grow |
//! | [`table`], [`last`], [`prometheus`] | for people, for the last words, for Prometheus |

pub mod last;
pub mod prometheus;
pub mod rates;
pub mod raw;
pub mod reader;
pub mod snapshot;
pub mod table;

use std::{fmt, io};

/// Why there is nothing to show.
#[derive(Debug)]
pub enum Error {
    /// The shared file cannot be read.
    Read(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(e) => write!(f, "cannot read the counters: {e}"),
        }
    }
}

impl std::error::Error for Error {}
