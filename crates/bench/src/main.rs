//! The benchmarks' program, and the peers that it starts as processes of their own.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use bench::relay;
use clap::{Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(
    name = "outboard-bench",
    about = "Side-by-side measurements of Outboard"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Forward frames between standard input and standard output, both taps.
    Relay { kind: Kind },
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// One frame a wake-up.
    Plain,
    /// Up to 64 frames a wake-up.
    Batched,
}

impl From<Kind> for relay::Kind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Plain => Self::Plain,
            Kind::Batched => Self::Batched,
        }
    }
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Relay { kind } => relay::serve(kind.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outboard-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
