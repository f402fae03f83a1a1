//! The firewall beside its peers: what is measured, and how.
//!
//! Contenders take turns, each time between two fresh segments with fresh taps.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use rustix::net::sockopt;

use crate::contender::{self, Contender, FIREWALL_MEMORY_MIB, Programs, Standing};
use crate::meter;
use crate::placement::Apart;
use crate::promises::{self as measures, MONITOR, STOCK, TENDER};
use crate::samples::{Measure, Samples};
use crate::startup;
use crate::stats::turns;
use crate::topology::{INTERFACE, Side, connect};
use crate::traffic::{Window, ping, tcp, udp};

/// The TCP port that the firewall lets through.
const TCP_PORT: u16 = 7070;
const UDP_PORT: u16 = 7071;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Frames a second that every contender can carry on half a core.
const MODEST_RATE: u64 = 100_000;
/// Datagrams that fill the receiving socket, which nobody reads: a third busy thread would take
/// CPU time from generator or contender on a machine of two cores. What arrived is counted at the
/// interface.
const SINK_BYTES: usize = 2048;
/// How long a flood runs before one that counts.
const FLOOD_WARM_UP: Duration = Duration::from_millis(200);

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
        (transfers + floods + others) * (self.rounds * Contender::ALL.len()) as u32
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

/// Why a run was given up.
#[derive(Debug)]
pub enum Error {
    /// A contender could not be put in place.
    Contender(Contender, contender::Error),
    /// A measurement failed.
    Measure(&'static str, Measure, io::Error),
    /// The image could not be looked at.
    Image(PathBuf, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Contender(contender, error) => write!(f, "{}: {error}", contender.name()),
            Self::Measure(contender, measure, error) => {
                write!(f, "{contender}: cannot measure {:?}: {error}", measure.name)
            }
            Self::Image(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

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
        .map_err(|error| Error::Image(programs.firewall.clone(), error))?;
    let image_kib = image.len() as f64 / 1024.0;
    samples.add(measures::IMAGE, Contender::Firewall.name(), 0, image_kib);
    for (round, index) in turns(Contender::ALL.len(), plan.rounds) {
        let contender = Contender::ALL[index];
        let (seconds, of) = (begin.elapsed().as_secs(), plan.estimate().as_secs());
        let (turn, name) = (round + 1, contender.name());
        say(&format!(
            "round {turn} of {}: {name} ({seconds} s of about {of})",
            plan.rounds
        ));
        let standing = Standing::start(contender, programs)
            .map_err(|error| Error::Contender(contender, error))?;
        let turn = Turn {
            contender,
            round,
            standing,
        };
        turn.take(plan, &mut samples)?;
    }
    if let Some(starters) = starters {
        say(&format!("start-up: {} starts of each", plan.starts));
        start_up(plan.starts, &programs.tender, starters, &mut samples)?;
    }
    Ok(samples)
}

/// One contender's turn.
struct Turn {
    contender: Contender,
    round: usize,
    standing: Standing,
}

impl Turn {
    fn take(&self, plan: &Plan, samples: &mut Samples) -> Result<(), Error> {
        self.latency(plan, samples)?;
        let (a, b) = (&self.standing.pair.a, &self.standing.pair.b);
        self.bulk(
            a,
            b,
            plan,
            [measures::TCP_OUT, measures::TCP_OUT_CPU],
            samples,
        )?;
        self.bulk(
            b,
            a,
            plan,
            [measures::TCP_IN, measures::TCP_IN_CPU],
            samples,
        )?;
        self.flood(plan, samples)?;
        if let (Contender::Firewall, Some(id)) = (self.contender, self.standing.process()) {
            // An ordinary user may not look, and the promise is then reported as not measured.
            if let Ok(kib) = meter::resident_kib(id, FIREWALL_MEMORY_MIB << 20) {
                self.add(samples, measures::MEMORY, kib as f64);
            }
        }
        Ok(())
    }

    fn latency(&self, plan: &Plan, samples: &mut Samples) -> Result<(), Error> {
        let [median, p99] = [measures::PING_MEDIAN, measures::PING_P99];
        let ping = self.icmp(plan).map_err(self.failed(median))?;
        self.add(samples, median, ping.median_us);
        self.add(samples, p99, ping.p99_us);
        let [median, p99] = [measures::ECHO_MEDIAN, measures::ECHO_P99];
        let echo = self.echo(plan).map_err(self.failed(median))?;
        self.add(samples, median, echo.median_us);
        self.add(samples, p99, echo.p99_us);
        self.add(samples, measures::LOST, (ping.lost + echo.lost) as f64);
        Ok(())
    }

    fn icmp(&self, plan: &Plan) -> io::Result<ping::Latency> {
        let pair = &self.standing.pair;
        let socket = pair.a.segment.run(|| ping::Icmp::new(pair.b.at(0)))?;
        socket.ping(plan.round_trips)
    }

    fn echo(&self, plan: &Plan) -> io::Result<ping::Latency> {
        let (client, server) = self.udp_sockets()?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let echo = scope.spawn(|| ping::echo(&server, &over));
            let latency = ping::udp(&client, plan.round_trips);
            over.store(true, Relaxed);
            echo.join().expect("echo does not panic")?;
            latency
        })
    }

    fn bulk(
        &self,
        from: &Side,
        to: &Side,
        plan: &Plan,
        [rate, cpu]: [Measure; 2],
        samples: &mut Samples,
    ) -> Result<(), Error> {
        let bulk = connect(from, to, TCP_PORT, CONNECT_TIMEOUT)
            .and_then(|(client, server)| {
                let clock = || self.standing.cpu_time();
                tcp::bulk(&client, &server, plan.window, &clock)
            })
            .map_err(self.failed(rate))?;
        self.add(samples, rate, bulk.gigabits_per_second());
        self.add_cpu(samples, cpu, bulk.cpu_seconds_per_gigabyte());
        Ok(())
    }

    fn flood(&self, plan: &Plan, samples: &mut Samples) -> Result<(), Error> {
        let most = self
            .flood_at(None, plan.flood)
            .map_err(self.failed(measures::UDP))?;
        self.add(samples, measures::UDP, most.forwarded_per_second() / 1000.0);
        self.add(
            samples,
            measures::UDP_OFFERED,
            most.offered_per_second() / 1000.0,
        );
        self.add_cpu(samples, measures::UDP_CPU, most.cpu_nanoseconds_per_frame());
        self.add_cpu(samples, measures::UDP_BUSY, most.busy_percent());
        let modest = self
            .flood_at(Some(MODEST_RATE), plan.flood)
            .map_err(self.failed(measures::UDP_MODEST_CPU))?;
        let lost = modest.offered.saturating_sub(modest.forwarded) as f64;
        let lost_percent = 100.0 * lost / modest.offered as f64;
        self.add(samples, measures::UDP_MODEST_LOST, lost_percent);
        self.add_cpu(
            samples,
            measures::UDP_MODEST_CPU,
            modest.cpu_nanoseconds_per_frame(),
        );
        Ok(())
    }

    fn flood_at(&self, rate: Option<u64>, length: Duration) -> io::Result<udp::Flood> {
        let (sender, sink) = self.udp_sockets()?;
        sockopt::set_socket_recv_buffer_size(&sink, SINK_BYTES)?;
        let _apart = Apart::new(self.standing.process())?;
        let far = &self.standing.pair.b.segment;
        let arrived = || meter::frames_received(far, INTERFACE);
        let clock = || self.standing.cpu_time();
        udp::flood(&sender, rate, FLOOD_WARM_UP, &arrived, &clock)?;
        udp::flood(&sender, rate, length, &arrived, &clock)
    }

    /// A socket in the private segment, connected to one in the public segment.
    fn udp_sockets(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let (a, b) = (&self.standing.pair.a, &self.standing.pair.b);
        let server = b.segment.run(|| UdpSocket::bind(b.at(UDP_PORT)))?;
        let client = a.segment.run(|| UdpSocket::bind(a.at(0)))?;
        client.connect(b.at(UDP_PORT))?;
        Ok((client, server))
    }

    fn add(&self, samples: &mut Samples, measure: Measure, value: f64) {
        samples.add(measure, self.contender.name(), self.round, value);
    }

    /// The kernel's bridge works in the generator's time, which cannot be told apart.
    fn add_cpu(&self, samples: &mut Samples, measure: Measure, value: f64) {
        if self.standing.process().is_some() {
            self.add(samples, measure, value);
        }
    }

    fn failed(&self, measure: Measure) -> impl Fn(io::Error) -> Error {
        let name = self.contender.name();
        move |error| Error::Measure(name, measure, error)
    }
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
