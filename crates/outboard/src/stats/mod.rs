//! `outboard stats`: what a guest has counted, read from its shared file, named, and shown.
//!
//! | module | what |
//! |---|---|
//! | [`reader`] | takes snapshots of one instance |
//! | [`raw`] | a private copy of the shared file's numbers |
//! | [`snapshot`], [`net`] | what they mean |
//! | [`rates`] | how fast they grow |
//! | [`table`], [`last`], [`prometheus`] | for people, for the last words, for Prometheus |

pub mod last;
pub mod net;
pub mod prometheus;
pub mod rates;
pub mod raw;
pub mod reader;
pub mod snapshot;
pub mod table;

use crate::instance::{self, Description, Instance};
use rates::Rates;
use reader::Reader;
use serde::Serialize;
use snapshot::Snapshot;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// Version of the JSON; it goes up when a field goes or changes its meaning.
const VERSION: u32 = 1;
/// Cursor to the upper left corner, and all behind it cleared (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[J";

/// `outboard stats`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name under which the guest runs
    instance: String,
    /// Show it again every second, or as often as given, with rates, until the guest ends
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = interval,
        conflicts_with = "json"
    )]
    watch: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Include reasons for drops that never happened
    #[arg(long)]
    all: bool,
}

/// A number of seconds that is sensible between two looks.
///
/// # Errors
/// It is none.
pub fn interval(text: &str) -> Result<Duration, &'static str> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("0.1 to 3600 seconds"),
    }
}

/// Why there is nothing to show.
#[derive(Debug)]
pub enum Error {
    /// No such instance.
    Instance(instance::Error),
    /// The shared file cannot be read.
    Read(io::Error),
    /// What was read cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Read(e) => write!(f, "cannot read the counters: {e}"),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    name: &'a str,
    running: bool,
    monitor: u32,
    image: &'a std::path::Path,
    host: &'a str,
    started: u64,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
}

/// Shows what an instance has counted.
///
/// # Errors
/// There is no such instance, or its counters cannot be read.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let instance = Instance::open(&arguments.instance).map_err(Error::Instance)?;
    let mut reader = Reader::of(&instance)?;
    if let Some(interval) = arguments.watch {
        return watch(&instance, &mut reader, interval, arguments.all);
    }
    let snapshot = reader.snapshot()?;
    let running = instance.is_running().map_err(Error::Instance)?;
    if arguments.json {
        let json = json(&instance, running, &snapshot)?;
        return print(&format!("{json}\n"));
    }
    let mut text = table::render(&snapshot, None, arguments.all);
    if !running {
        text += &format!("{}\n", ended(&instance));
    }
    print(&text)
}

fn json(instance: &Instance, running: bool, snapshot: &Snapshot) -> Result<String, Error> {
    let Description {
        monitor,
        image,
        host,
        started,
        ..
    } = instance.description();
    let document = Document {
        version: VERSION,
        name: instance.name(),
        running,
        monitor: *monitor,
        image,
        host,
        started: *started,
        snapshot,
    };
    serde_json::to_string_pretty(&document).map_err(|e| Error::Print(e.into()))
}

/// Shows it again and again, until the instance ends. Each time in the same place on a terminal,
/// and one below the other elsewhere.
fn watch(
    instance: &Instance,
    reader: &mut Reader,
    interval: Duration,
    all: bool,
) -> Result<(), Error> {
    let (before, behind) = match io::stdout().is_terminal() {
        true => (CLEAR, ""),
        false => ("", "\n"),
    };
    let mut former: Option<(Instant, Snapshot)> = None;
    loop {
        // Asked first: what a guest counts before its end is shown.
        let running = instance.is_running().map_err(Error::Instance)?;
        let (now, snapshot) = (Instant::now(), reader.snapshot()?);
        let rates = former
            .as_ref()
            .map(|(then, former)| Rates::between(former, &snapshot, now - *then));
        let table = table::render(&snapshot, rates.as_ref(), all);
        print(&format!("{before}{table}{behind}"))?;
        if !running {
            return print(&format!("{}\n", ended(instance)));
        }
        former = Some((now, snapshot));
        thread::sleep(interval);
    }
}

fn ended(instance: &Instance) -> String {
    format!("{} has ended; these are its last counters", instance.name())
}

fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(Error::Print)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_sensible() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "inf", "1e9", ""] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
