//! `outboard demo`: the command line's side of the demonstration.

use std::io;
use std::process::ExitCode;

/// `outboard demo`.
#[derive(clap::Args)]
pub struct Arguments {}

/// Runs the demonstration.
pub fn run(_: &Arguments) -> Result<ExitCode, io::Error> {
    Err(io::Error::other("the demonstration is not part of this build"))
}
