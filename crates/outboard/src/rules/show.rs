//! `outboard rules show`: the rules that a guest has in force, with what they have counted.

use crate::instance::{self, Instance};
use crate::stats::reader::Reader;
use crate::stats::{self, table};
use std::{fmt, io};

/// `outboard rules show`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name under which the guest runs
    instance: String,
    /// Print JSON: the object `rules` of `outboard stats --json`
    #[arg(long)]
    json: bool,
}

/// Why there is nothing to show.
#[derive(Debug)]
pub enum Error {
    /// No such instance.
    Instance(instance::Error),
    /// The counters cannot be read.
    Stats(stats::Error),
    /// The guest's image takes no rules.
    NotTaken(String),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Stats(e) => e.fmt(f),
            Self::NotTaken(name) => write!(
                f,
                "{name} takes no rules; what it counts shows: outboard stats {name}"
            ),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Prints the rules that a guest has in force.
///
/// # Errors
/// There is no such guest, or it takes no rules.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let instance = Instance::open(&arguments.instance).map_err(Error::Instance)?;
    let mut reader = Reader::of(&instance).map_err(Error::Stats)?;
    let rules = reader.snapshot().map_err(Error::Stats)?.rules;
    let rules = rules.ok_or_else(|| Error::NotTaken(instance.name().to_owned()))?;
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&rules).map_err(|e| Error::Print(e.into()))? + "\n",
        false => table::rules(&rules, None),
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)
}
