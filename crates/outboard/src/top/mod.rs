//! `outboard top`: what all guests do, again each second.
//!
//! | module | what |
//! |---|---|
//! | [`process`] | what a guest costs the host |
//! | [`sample`] | guests at a moment, and what they have done between two |
//! | [`view`] | that as a table |
//! | [`screen`] | the terminal |

pub mod process;
pub mod sample;
pub mod screen;
pub mod view;

use crate::instance::{self, Instance};
use crate::stats;
use crate::stats::raw::Raw;
use crate::stats::snapshot::{Names, Snapshot};
use crate::up::place::Place;
use crate::up::status::Status;
use sample::{Row, Sample, Sort};
use screen::{Screen, Wish};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// Version of the JSON; it goes up when a field goes or changes its meaning.
const VERSION: u32 = 1;
/// Seconds between two looks that are not chosen.
const INTERVAL: &str = "1";

/// `outboard top`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print one table, and end; so it is where standard output is no terminal
    #[arg(long)]
    once: bool,
    /// Print JSON once, and end
    #[arg(long)]
    json: bool,
    /// Seconds between two looks
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = INTERVAL,
        value_parser = stats::interval
    )]
    interval: Duration,
    /// What guests are put in order by
    #[arg(long, value_enum, default_value = "name")]
    sort: Sort,
}

/// Why there is nothing to show.
#[derive(Debug)]
pub enum Error {
    /// The guests cannot be found.
    Instance(instance::Error),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    guests: &'a [Row],
}

/// Shows what all guests do.
///
/// # Errors
/// They cannot be found, or it cannot be printed.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let on_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    match arguments.once || arguments.json || !on_terminal {
        true => once(arguments),
        false => again(arguments),
    }
}

fn once(arguments: &Arguments) -> Result<(), Error> {
    let (begun, before) = (Instant::now(), samples()?);
    thread::sleep(arguments.interval);
    let mut rows = sample::rows(&before, &samples()?, begun.elapsed());
    sample::sort(&mut rows, arguments.sort);
    let text = match arguments.json {
        false => view::table(&rows),
        true => {
            let (version, guests) = (VERSION, &rows[..]);
            let json = serde_json::to_string_pretty(&Document { version, guests });
            json.map_err(|e| Error::Print(e.into()))? + "\n"
        }
    };
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(Error::Print)
}

/// Shows them until somebody has seen enough.
fn again(arguments: &Arguments) -> Result<(), Error> {
    let screen = Screen::enter().map_err(Error::Print)?;
    let mut sort = arguments.sort;
    let (mut then, mut before) = (Instant::now(), samples()?);
    let mut rows = sample::rows(&[], &before, Duration::ZERO);
    loop {
        sample::sort(&mut rows, sort);
        let page = view::screen(&rows, sort, screen.size());
        screen.show(&page).map_err(Error::Print)?;
        let rest = arguments.interval.saturating_sub(then.elapsed());
        match screen.wait(rest).map_err(Error::Print)? {
            Wish::End | Wish::Key(b'q') => return Ok(()),
            Wish::Key(key) => {
                let chosen = Sort::ALL.into_iter().find(|(known, ..)| *known == key);
                sort = chosen.map_or(sort, |(_, _, by)| by);
            }
            Wish::Again => {}
        }
        if then.elapsed() >= arguments.interval {
            let now = samples()?;
            rows = sample::rows(&before, &now, then.elapsed());
            (then, before) = (Instant::now(), now);
        }
    }
}

/// All guests that run, and all components of a supervisor's. Those that cannot be read are left
/// out: `outboard ps` names them.
fn samples() -> Result<Vec<Sample>, Error> {
    let (instances, _) = Instance::survey().map_err(Error::Instance)?;
    let mut samples: Vec<_> = instances.iter().filter_map(sample).collect();
    let status = Place::find().ok().and_then(|place| Status::read(&place));
    for component in status.into_iter().flat_map(|status| status.components) {
        let own = samples.iter_mut().find(|one| one.name == component.name);
        match own {
            Some(sample) => {
                sample.state = component.state;
                sample.restarts = Some(component.restarts);
            }
            None => samples.push(Sample {
                name: component.name,
                run: (0, 0),
                cost: None,
                snapshot: None,
                state: component.state,
                restarts: Some(component.restarts),
            }),
        }
    }
    Ok(samples)
}

fn sample(instance: &Instance) -> Option<Sample> {
    if !instance.is_running().ok()? {
        return None;
    }
    let description = instance.description();
    let raw = Raw::read(instance.share()).ok()?;
    Some(Sample {
        name: instance.name().to_owned(),
        run: (description.monitor, description.started),
        cost: process::cost(description.monitor),
        snapshot: Some(Snapshot::new(&raw, description, &Names::BuiltIn)),
        state: "running".to_owned(),
        restarts: None,
    })
}
