//! `outboard demo`: Outboard at work, on real traffic, between networks of its own.

mod checks;
mod error;
mod firewall;
mod keep;
mod observed;
mod report;
mod speed;

use error::Error;
use std::process::ExitCode;

/// `outboard demo`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    demo: Demo,
}

#[derive(clap::Subcommand)]
enum Demo {
    /// A firewall between two networks: what passes, which rule decides, and how fast
    ///
    /// Makes two private network segments, starts the firewall's image between them and sends real
    /// traffic through it; then compares bulk TCP with relays and the kernel's bridge. Needs no
    /// root where unprivileged user namespaces work, and leaves nothing behind. The exit status is
    /// 0 if all checks held.
    Firewall(firewall::Options),
}

/// Runs the demonstration.
///
/// # Errors
/// What kept it from being shown. That a check did not hold is no error, but a failing status.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    match &arguments.demo {
        Demo::Firewall(options) => firewall::run(options),
    }
}
