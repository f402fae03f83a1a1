//! How a guest ended, left by its monitor for whoever asked for the end.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek};

/// Most bytes of it: a status, and the lines that the monitor says.
const BYTES_MAX: u64 = 1 << 20;

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The exit status of its monitor.
    pub status: u8,
    /// What the monitor said of it.
    pub lines: Vec<String>,
}

/// What was left in a file that was opened before the end; `None` if nothing was.
///
/// # Errors
/// The file cannot be read, or holds something else.
pub fn read(file: &mut File) -> io::Result<Option<Ended>> {
    file.rewind()?;
    let mut json = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut json)?;
    match json.is_empty() {
        true => Ok(None),
        false => Ok(Some(serde_json::from_slice(&json)?)),
    }
}
