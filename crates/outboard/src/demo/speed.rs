//! Bulk TCP through each contender, in turns.

use super::error::Error;
use serde::Serialize;
use std::io;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testbed::contender::{Contender, Process, Programs, Standing};
use testbed::stats::{Summary, number, turns};
use testbed::topology::connect;
use testbed::traffic::{Window, iperf3, tcp};

/// The port that the firewall lets through.
const PORT: u16 = 7070;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// What comes first and is not counted.
const WARM_UP: Duration = Duration::from_millis(300);
/// What a turn takes beside its window: fresh segments, a process, a connection.
const SETUP: Duration = Duration::from_millis(150);
/// How often the client of iperf3 asks for a server that has just been started.
const IPERF3_ATTEMPTS_MAX: usize = 20;
const IPERF3_RETRY: Duration = Duration::from_millis(50);

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds, in each of which all contenders have a turn.
    pub rounds: usize,
    /// Length of a turn's window.
    pub measured: Duration,
    /// Send with iperf3.
    pub iperf3: bool,
    /// Who takes part.
    pub contenders: &'static [Contender],
}

impl Plan {
    fn window(&self) -> Window {
        // iperf3 counts whole seconds.
        let whole = |length: Duration| Duration::from_secs(length.as_secs_f64().ceil() as u64);
        match self.iperf3 {
            true => Window {
                warm_up: whole(WARM_UP),
                measured: whole(self.measured),
            },
            false => Window {
                warm_up: WARM_UP,
                measured: self.measured,
            },
        }
    }

    /// How long it will take.
    pub fn estimate(&self) -> Duration {
        let window = self.window();
        let turn = window.warm_up + window.measured + SETUP;
        turn * (self.rounds * self.contenders.len()) as u32
    }
}

/// What the rounds of a contender say.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Whose.
    pub contender: &'static str,
    /// Gigabits of payload a second.
    pub gigabits_per_second: Summary,
    /// CPU seconds of the contender for a gigabyte; unknown of the kernel's bridge.
    pub cpu_seconds_per_gigabyte: Option<Summary>,
}

/// What a turn says.
struct Turn {
    gigabits_per_second: f64,
    cpu_seconds_per_gigabyte: Option<f64>,
}

/// Measures all contenders in turns and tells `progress` about each.
///
/// # Errors
/// A contender cannot be started, or carries nothing.
pub fn run(
    plan: Plan,
    programs: &Programs,
    progress: impl Fn(&str),
) -> Result<Vec<Figures>, Error> {
    let mut all: Vec<Vec<Turn>> = plan.contenders.iter().map(|_| Vec::new()).collect();
    let total = plan.rounds * all.len();
    for (done, (round, index)) in turns(all.len(), plan.rounds).enumerate() {
        let contender = plan.contenders[index];
        let standing = Standing::start(contender, programs)?;
        let turn = match plan.iperf3 {
            true => with_iperf3(&standing, plan.window())?,
            false => built_in(&standing, plan.window())
                .map_err(|e| Error::Traffic(contender.name(), e))?,
        };
        progress(&format!(
            "[{:2}/{total}] round {}  {:15}  {:>5} Gb/s",
            done + 1,
            round + 1,
            contender.name(),
            number(turn.gigabits_per_second),
        ));
        all[index].push(turn);
    }
    let named = plan.contenders.iter().copied().zip(&all);
    Ok(named
        .filter_map(|(contender, turns)| summary(contender, turns))
        .collect())
}

fn summary(contender: Contender, turns: &[Turn]) -> Option<Figures> {
    let rates: Vec<f64> = turns.iter().map(|turn| turn.gigabits_per_second).collect();
    let cpu: Vec<f64> = turns
        .iter()
        .filter_map(|turn| turn.cpu_seconds_per_gigabyte)
        .collect();
    Some(Figures {
        contender: contender.name(),
        gigabits_per_second: Summary::of(&rates)?,
        cpu_seconds_per_gigabyte: Summary::of(&cpu),
    })
}

fn built_in(standing: &Standing, window: Window) -> io::Result<Turn> {
    let pair = &standing.pair;
    let (sender, receiver) = connect(&pair.a, &pair.b, PORT, CONNECT_TIMEOUT)?;
    let bulk = tcp::bulk(&sender, &receiver, window, &|| standing.cpu_time())?;
    if bulk.bytes == 0 {
        return Err(io::Error::other("it carried nothing"));
    }
    Ok(Turn {
        gigabits_per_second: bulk.gigabits_per_second(),
        cpu_seconds_per_gigabyte: standing
            .process()
            .is_some()
            .then(|| bulk.cpu_seconds_per_gigabyte()),
    })
}

/// Whether iperf3 can be started.
///
/// # Errors
/// It cannot.
pub fn require_iperf3() -> Result<(), Error> {
    let version = Command::new("iperf3").arg("--version").output();
    version.map(drop).map_err(iperf3_error)
}

fn iperf3_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::NoIperf3,
        _ => Error::Iperf3(error.to_string()),
    }
}

fn with_iperf3(standing: &Standing, window: Window) -> Result<Turn, Error> {
    let (from, to) = (&standing.pair.a, &standing.pair.b);
    let on_port = |mut command: Command| {
        command.args(["--port", &PORT.to_string()]);
        command
    };
    let server = to
        .segment
        .run(|| on_port(iperf3::server(to.ip.into())).spawn());
    let _server = Process::from(server.map_err(iperf3_error)?);
    let mut result = Err(String::new());
    let (mut cpu, mut elapsed) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..IPERF3_ATTEMPTS_MAX {
        thread::sleep(IPERF3_RETRY);
        let begin = Instant::now();
        let cpu_begin = standing.cpu_time().map_err(iperf3_error)?;
        let output = from
            .segment
            .run(|| on_port(iperf3::client(to.ip.into(), window)).output());
        cpu = standing
            .cpu_time()
            .map_err(iperf3_error)?
            .saturating_sub(cpu_begin);
        elapsed = begin.elapsed();
        result = iperf3::gigabits_per_second(&output.map_err(iperf3_error)?.stdout);
        if result.is_ok() {
            break;
        }
    }
    let rate = result.map_err(Error::Iperf3)?;
    // Of the whole run: iperf3 does not say when it begins to count.
    let per_gigabyte = cpu.as_secs_f64() / elapsed.as_secs_f64() / (rate / 8.0);
    Ok(Turn {
        gigabits_per_second: rate,
        cpu_seconds_per_gigabyte: standing.process().is_some().then_some(per_gigabyte),
    })
}
