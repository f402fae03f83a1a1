//! The firewall beside its peers: what is measured, and how.
//!
//! Contenders take turns, each time between two fresh segments with fresh taps.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::measures;
use crate::promises::{MONITOR, STOCK, TENDER};
use crate::samples::Samples;
use crate::startup;
use crate::turn::{Error, FLOOD_WARM_UP, Turn};
use testbed::contender::{Contender, FIREWALL_MEMORY_MIB, Programs, Standing};
use testbed::meter;
use testbed::stats::turns;
use testbed::traffic::Window;

const FIREWALL: &str = Contender::Firewall.name();

/// Who is measured.
const CONTENDERS: [Contender; 5] = [
    Contender::PlainRelay,
    Contender::OffloadedRelay,
    Contender::Firewall,
    Contender::UnjailedFirewall,
    Contender::KernelBridge,
];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each contender.
    pub rounds: usize,
    /// Of each TCP transfer.
    pub window: Window,
    /// Length of each UDP flood.
    pub flood: Duration,
    /// Of each kind of ping-pong.
    pub round_trips: u16,
    /// Starts of each program.
    pub starts: usize,
}

impl Plan {
    /// What promises are judged by.
    pub const FULL: Self = Self {
        rounds: 10,
        window: Window {
            warm_up: Duration::from_millis(500),
            measured: Duration::from_secs(2),
        },
        flood: Duration::from_secs(2),
        round_trips: 5000,
        starts: 400,
    };

    /// A glance.
    pub const QUICK: Self = Self {
        rounds: 2,
        window: Window {
            warm_up: Duration::from_millis(200),
            measured: Duration::from_millis(500),
        },
        flood: Duration::from_millis(500),
        round_trips: 1000,
        starts: 100,
    };

    /// Roughly how long it takes; round trips and starts are small beside the rest.
    pub fn estimate(&self) -> Duration {
        let transfers = 2 * (self.window.warm_up + self.window.measured);
        let floods = 2 * (self.flood + FLOOD_WARM_UP);
        let others = Duration::from_millis(1500);
        (transfers + floods + others) * (self.rounds * CONTENDERS.len()) as u32
    }
}

/// What start-up is measured with.
#[derive(Clone, Debug)]
pub struct Starters {
    /// The monitor, `outboard`.
    pub monitor: PathBuf,
    /// A built Solo5 v0.12: the stock tender, and the image that all of them start.
    pub solo5: PathBuf,
}

/// Takes all measurements, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed: a gap in the figures would be mistaken for a result.
pub fn measure(
    plan: &Plan,
    programs: &Programs,
    starters: Option<&Starters>,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    let begin = Instant::now();
    let image = std::fs::metadata(&programs.firewall)
        .map_err(|error| Error::File(programs.firewall.clone(), error))?;
    let image_kib = image.len() as f64 / 1024.0;
    samples.add(measures::IMAGE, FIREWALL, 0, image_kib);
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let contender = CONTENDERS[index];
        let (seconds, of) = (begin.elapsed().as_secs(), plan.estimate().as_secs());
        let (turn, name) = (round + 1, contender.name());
        say(&format!(
            "round {turn} of {}: {name} ({seconds} s of about {of})",
            plan.rounds
        ));
        let standing = Standing::start(contender, programs)
            .map_err(|error| Error::Contender(contender.name(), error))?;
        let turn = Turn {
            contender: contender.name(),
            round,
            standing,
        };
        take(&turn, plan, &mut samples)?;
    }
    if let Some(starters) = starters {
        say(&format!("start-up: {} starts of each", plan.starts));
        start_up(plan.starts, &programs.tender, starters, &mut samples)?;
    }
    Ok(samples)
}

fn take(turn: &Turn, plan: &Plan, samples: &mut Samples) -> Result<(), Error> {
    if turn.contender == Contender::UnjailedFirewall.name() {
        // The jail costs something for each call; small frames show it best.
        return turn.flood(plan.flood, samples);
    }
    turn.latency(plan.round_trips, samples)?;
    turn.transfers(plan.window, samples)?;
    turn.flood(plan.flood, samples)?;
    turn.modest_flood(plan.flood, samples)?;
    if let (true, Some(id)) = (turn.contender == FIREWALL, turn.standing.process()) {
        // An ordinary user may not look, and the promise is then reported as not measured.
        if let Ok(kib) = meter::resident_kib(id, FIREWALL_MEMORY_MIB << 20) {
            turn.add(samples, measures::MEMORY, kib as f64);
        }
    }
    Ok(())
}

/// Starts the same image by turns under the stock tender, ours, and the monitor. Each turn of the
/// three is a round of its own, so that a ratio compares neighbours in time.
fn start_up(
    starts: usize,
    tender: &Path,
    starters: &Starters,
    samples: &mut Samples,
) -> Result<(), Error> {
    let image = starters.solo5.join("tests/test_hello/test_hello.spt");
    let stock = starters.solo5.join("tenders/spt/solo5-spt");
    let options = [
        "--mem=16".as_ref(),
        "--".as_ref(),
        image.as_os_str(),
        "Hello_Solo5".as_ref(),
    ];
    let command = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        command.args(words).args(options);
        command
    };
    let mut commands = [
        (STOCK, command(&stock, &[])),
        (TENDER, command(tender, &[])),
        (MONITOR, command(&starters.monitor, &["run"])),
    ];
    for (round, index) in turns(commands.len(), starts) {
        let (name, command) = &mut commands[index];
        let time = startup::first_byte(command)
            .map_err(|error| Error::Measure(name, measures::START, error))?;
        samples.add(measures::START, name, round, time.as_secs_f64() * 1000.0);
    }
    Ok(())
}
