//! The host `hvt` beside Solo5's own tender for it: what a hypercall costs, a start, and a frame.
//!
//! Where KVM cannot run the guests, all of it is measured in the lab, where only ratios mean
//! anything: the processor there is an interpreter.

pub mod frames;
mod lab;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fmt, fs, io};

use abi::note::Target;

use crate::samples::{Bound, Measure, Promise, Samples};
use crate::startup;
use testbed::stats::turns;

pub use lab::measure as measure_in_lab;

/// From `out` to the next instruction, and the tender's work for reading the wall clock.
pub const ROUND_TRIP: Measure = Measure::new("hypercall", "us");
/// From the start of the tender to the first byte of Solo5's hello image.
pub const START: Measure = Measure::new("start to first byte", "ms");
/// What is shown, in this order.
pub const ALL: [Measure; 4] = [ROUND_TRIP, START, frames::RATE, frames::EXITS];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 3] = [
    ("hypercall", ROUND_TRIP),
    ("start", START),
    ("frames", frames::RATE),
];

const OURS: &str = "outboard-tender";
const STOCK: &str = "solo5-hvt";
/// Who is measured.
const CONTENDERS: [&str; 2] = [OURS, STOCK];

const fn at_most(measure: Measure, most: f64) -> Promise {
    Promise {
        measure,
        contender: OURS,
        baseline: Some(STOCK),
        bound: Bound::AtMost(most),
    }
}

/// The promises.
pub const PROMISES: [Promise; 3] = [
    at_most(ROUND_TRIP, 1.05),
    at_most(START, 1.05),
    Promise {
        baseline: None,
        ..at_most(frames::EXITS, 0.1)
    },
];

/// Memory of the guests in MiB.
const MEMORY_MIB: u32 = 16;
/// The guest that makes hypercalls, and its image for hvt.
const CALLER: &str = "round_trips";

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Runs of each contender.
    pub rounds: usize,
    /// Hypercalls in a run.
    pub calls: u32,
    /// Starts of each contender in a round.
    pub starts: usize,
}

impl Plan {
    /// What promises are judged by.
    pub const FULL: Self = Self {
        rounds: 10,
        calls: 20_000,
        starts: 10,
    };

    /// A glance.
    pub const QUICK: Self = Self {
        rounds: 2,
        calls: 5_000,
        starts: 3,
    };
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The folder of tiny guests.
    pub guests: PathBuf,
    /// A built Solo5 v0.12: the folder with `tenders` and `tests`, or one with all files in it.
    pub solo5: PathBuf,
}

impl Programs {
    fn stock(&self) -> PathBuf {
        self.of_solo5("tenders/hvt", STOCK)
    }

    fn hello(&self) -> PathBuf {
        self.of_solo5("tests/test_hello", "test_hello.hvt")
    }

    fn of_solo5(&self, folder: &str, name: &str) -> PathBuf {
        let built = self.solo5.join(folder).join(name);
        if built.exists() {
            built
        } else {
            self.solo5.join(name)
        }
    }

    fn caller(&self) -> PathBuf {
        self.guests.join(CALLER)
    }
}

/// Why a run was given up.
#[derive(Debug)]
pub enum Error {
    /// A contender that did not do what it was started for.
    Contender(&'static str, Measure, io::Error),
    /// A file that cannot be read or written.
    File(PathBuf, io::Error),
    /// A guest that is no image.
    Image(PathBuf, image::ImageError),
    /// The lab failed, or printed no figures; its last words.
    Lab(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Contender(contender, measure, error) => {
                write!(f, "{contender}: cannot measure {:?}: {error}", measure.name)
            }
            Self::File(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Image(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Lab(words) => write!(f, "no figures from the lab: {words}"),
        }
    }
}

impl std::error::Error for Error {}

/// Whether KVM can run guests here; some clouds offer one that cannot.
pub fn runs_here(programs: &Programs) -> bool {
    let mut command = Command::new(&programs.tender);
    command.args(["--host=hvt", &format!("--mem={MEMORY_MIB}"), "--"]);
    let status = command
        .arg(programs.caller())
        .arg("1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Takes all measurements here, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed: a gap in the figures would be mistaken for a result.
pub fn measure(plan: &Plan, programs: &Programs, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    let caller = retargeted(&programs.caller())?;
    let begin = Instant::now();
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let contender = CONTENDERS[index];
        let (turn, seconds) = (round + 1, begin.elapsed().as_secs());
        say(&format!(
            "round {turn} of {}: {contender} ({seconds} s)",
            plan.rounds
        ));
        let nanoseconds = round_trips(programs, contender, &caller.path, plan.calls)
            .map_err(|error| Error::Contender(contender, ROUND_TRIP, error))?;
        let each = nanoseconds as f64 / f64::from(plan.calls) / 1000.0;
        samples.add(ROUND_TRIP, contender, round, each);
    }
    say(&format!("{} starts of each", plan.rounds * plan.starts));
    for (round, index) in turns(CONTENDERS.len(), plan.rounds * plan.starts) {
        let contender = CONTENDERS[index];
        let mut command = command(programs, contender, &programs.hello(), "Hello_Solo5");
        let time = startup::first_byte(&mut command)
            .map_err(|error| Error::Contender(contender, START, error))?;
        samples.add(START, contender, round, time.as_secs_f64() * 1000.0);
    }
    let measured = frames::measure(plan.rounds, programs, say, &mut samples);
    measured.map_err(|(contender, error)| Error::Contender(contender, frames::RATE, error))?;
    Ok(samples)
}

fn command(programs: &Programs, contender: &str, image: &Path, word: &str) -> Command {
    let mut command = Command::new(match contender {
        STOCK => programs.stock(),
        _ => programs.tender.clone(),
    });
    command.args([&format!("--mem={MEMORY_MIB}"), "--"]);
    command.arg(image).arg(word);
    command
}

/// Nanoseconds that `calls` hypercalls took, by the guest's own clock.
fn round_trips(programs: &Programs, contender: &str, image: &Path, calls: u32) -> io::Result<u64> {
    let output = command(programs, contender, image, &calls.to_string()).output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    // Solo5's tender prints a banner in front.
    let last = printed.lines().last().unwrap_or_default();
    last.trim().parse().map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("{}: {last} {}", output.status, said.trim()))
    })
}

/// A file that goes when dropped.
struct Temporary {
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The image for hvt of a guest: what a stock tender takes.
fn retargeted(guest: &Path) -> Result<Temporary, Error> {
    let mut bytes = fs::read(guest).map_err(|error| Error::File(guest.to_owned(), error))?;
    image::retarget(&mut bytes, Target::Hvt)
        .map_err(|error| Error::Image(guest.to_owned(), error))?;
    let name = format!("outboard-bench-{}-{CALLER}.hvt", std::process::id());
    let file = Temporary {
        path: std::env::temp_dir().join(name),
    };
    fs::write(&file.path, bytes).map_err(|error| Error::File(file.path.clone(), error))?;
    Ok(file)
}
