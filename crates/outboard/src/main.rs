//! `outboard`: the command line.

#![forbid(unsafe_code)]

mod demo;

use clap::{Parser, Subcommand};
use outboard::{build, inspect, run};
use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

/// Appliances that are one image and may touch what their manifest names.
#[derive(Parser)]
#[command(name = "outboard", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start an image and report how it ended
    ///
    /// The exit status is the guest's own, or 128 plus the number of the signal that ended it. All
    /// options but --name are the tender's: `outboard-tender --help` lists them. Arguments behind
    /// the image are the guest's.
    #[command(
        override_usage = "outboard run [--name=NAME] [TENDER OPTIONS] [--] IMAGE [ARGUMENTS]"
    )]
    Run {
        /// The tender's options, the image, and its own arguments; --name=NAME keeps the counters
        /// in $XDG_RUNTIME_DIR/outboard/NAME (or /run/outboard/NAME) while the guest runs
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGUMENTS"
        )]
        arguments: Vec<OsString>,
    },
    /// Build the image of an appliance
    Build(build::Arguments),
    /// Show what an image carries: manifest, ABI, segments
    Inspect(inspect::Arguments),
    /// Show Outboard at work
    Demo(demo::Arguments),
}

fn main() -> ExitCode {
    match execute(Arguments::parse().command) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("outboard: {error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Command::Run { arguments } => {
            let status = run::run(&run::Request::parse(arguments)?)?;
            return Ok(ExitCode::from(status));
        }
        Command::Build(arguments) => build::run(&arguments)?,
        Command::Inspect(arguments) => inspect::run(&arguments)?,
        Command::Demo(arguments) => return Ok(demo::run(&arguments)?),
    }
    Ok(ExitCode::SUCCESS)
}
