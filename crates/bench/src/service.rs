//! TCP of an image beside Linux's, with the stock iperf3 as the other end of both.
//!
//! ```text
//!   iperf3 - Linux === tap  - the image iperf3 on spt
//!   iperf3 - Linux === veth - Linux - iperf3
//! ```
//!
//! CPU time is that of the whole machine: most of Linux's work for TCP has no process.

use crate::samples::{Bound, Measure, Promise, Samples};
use crate::turn::Error;
use linux::tap::Tap;
use std::io::{self, BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use testbed::contender;
use testbed::segment::{Address, Segment};
use testbed::stats::turns;
use testbed::traffic::{Window, iperf3};

const OURS: &str = "outboard";
const LINUX: &str = "Linux";
const CONTENDERS: [&str; 2] = [OURS, LINUX];
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The same on both sides; this kernel's default is another one.
const CONGESTION: &str = "cubic";
/// How long a server may take to listen.
const LISTENS: Duration = Duration::from_millis(300);
/// Ticks of `/proc/stat` in a second: `USER_HZ`, the same on every machine with an x86-64.
const TICKS_PER_SECOND: u64 = 100;
/// Guest memory in MiB.
const MEMORY: &str = "--mem=128";

/// One transfer: what the client is told, its rate and its CPU time.
struct Transfer {
    words: &'static [&'static str],
    rate: Measure,
    cpu: Measure,
}

const RECEIVE: Measure = Measure::new("receive", "Gb/s");
const RECEIVE_CPU: Measure = Measure::new("receive: CPU", "s/GB");
const RECEIVE_8: Measure = Measure::new("receive, 8 streams", "Gb/s");
const RECEIVE_8_CPU: Measure = Measure::new("receive, 8 streams: CPU", "s/GB");
const SEND: Measure = Measure::new("send", "Gb/s");
const SEND_CPU: Measure = Measure::new("send: CPU", "s/GB");
const SEND_8: Measure = Measure::new("send, 8 streams", "Gb/s");
const SEND_8_CPU: Measure = Measure::new("send, 8 streams: CPU", "s/GB");

const TRANSFERS: [Transfer; 4] = [
    Transfer {
        words: &[],
        rate: RECEIVE,
        cpu: RECEIVE_CPU,
    },
    Transfer {
        words: &["--parallel", "8"],
        rate: RECEIVE_8,
        cpu: RECEIVE_8_CPU,
    },
    Transfer {
        words: &["--reverse"],
        rate: SEND,
        cpu: SEND_CPU,
    },
    Transfer {
        words: &["--reverse", "--parallel", "8"],
        rate: SEND_8,
        cpu: SEND_8_CPU,
    },
];

/// What is measured, in the order of the report.
pub const ALL: [Measure; 8] = [
    RECEIVE,
    RECEIVE_CPU,
    RECEIVE_8,
    RECEIVE_8_CPU,
    SEND,
    SEND_CPU,
    SEND_8,
    SEND_8_CPU,
];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 4] = [
    ("receive", RECEIVE),
    ("receive-8", RECEIVE_8),
    ("send", SEND),
    ("send-8", SEND_8),
];
/// What was promised.
pub const PROMISES: [Promise; 8] = [
    promise(RECEIVE, Bound::AtLeast(1.0)),
    promise(RECEIVE_8, Bound::AtLeast(1.0)),
    promise(SEND, Bound::AtLeast(1.0)),
    promise(SEND_8, Bound::AtLeast(1.0)),
    promise(RECEIVE_CPU, Bound::AtMost(1.3)),
    promise(RECEIVE_8_CPU, Bound::AtMost(1.3)),
    promise(SEND_CPU, Bound::AtMost(1.3)),
    promise(SEND_8_CPU, Bound::AtMost(1.3)),
];

const fn promise(measure: Measure, bound: Bound) -> Promise {
    Promise {
        measure,
        contender: OURS,
        baseline: Some(LINUX),
        bound,
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each contender.
    pub rounds: usize,
    /// Of each transfer.
    pub window: Window,
}

impl Plan {
    /// For judging.
    pub const FULL: Self = Self {
        rounds: 8,
        window: Window {
            warm_up: Duration::from_secs(1),
            measured: Duration::from_secs(3),
        },
    };
    /// For a glance.
    pub const QUICK: Self = Self {
        rounds: 2,
        window: Window {
            warm_up: Duration::from_secs(1),
            measured: Duration::from_secs(1),
        },
    };
}

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The image `iperf3` for spt.
    pub image: PathBuf,
}

/// A server, and where its client runs.
struct Standing {
    client: Segment,
    /// Where Linux's server runs; the image serves by itself.
    server: Option<Segment>,
    image: Option<Child>,
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Some(image) = &mut self.image {
            let _ = image.kill();
            let _ = image.wait();
        }
    }
}

/// Takes all measurements, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed.
pub fn measure(plan: &Plan, programs: &Programs, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let name = CONTENDERS[index];
        say(&format!("round {} of {}: {name}", round + 1, plan.rounds));
        let standing = match name {
            OURS => ours(programs),
            _ => linux(),
        };
        let standing = standing.map_err(|error| Error::Contender(name, error))?;
        for transfer in &TRANSFERS {
            let (rate, cpu) = run(&standing, transfer, plan.window)
                .map_err(|error| Error::Measure(name, transfer.rate, error))?;
            samples.add(transfer.rate, name, round, rate);
            samples.add(transfer.cpu, name, round, cpu);
        }
    }
    Ok(samples)
}

const fn at(ip: Ipv4Addr) -> Address {
    Address {
        ip,
        prefix: 24,
        mtu: 1500,
    }
}

fn ours(programs: &Programs) -> Result<Standing, contender::Error> {
    let client = Segment::new()?;
    let tap: OwnedFd = Tap::into_fd(client.tap("tap0", true, at(CLIENT))?);
    let inherited = rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty());
    inherited.map_err(|error| contender::Error::Descriptor(error.into()))?;
    let mut command = Command::new(&programs.tender);
    command
        .args([MEMORY, &format!("--net:service=@{}", tap.as_raw_fd())])
        .arg("--")
        .arg(&programs.image)
        .args([&format!("--ipv4={SERVER}/24"), "-s"])
        .stdout(Stdio::piped());
    let failed = |error| contender::Error::Spawn(programs.tender.clone(), error);
    let mut image = command.spawn().map_err(failed)?;
    let mut said = image.stdout.take().map(|said| BufReader::new(said).lines());
    let line = said.as_mut().and_then(Iterator::next);
    let line = line.transpose().map_err(failed)?;
    // Whoever prints into a pipe that nobody reads ends.
    thread::spawn(move || said.into_iter().flatten().for_each(drop));
    let standing = Standing {
        client,
        server: None,
        image: Some(image),
    };
    match line {
        Some(_) => Ok(standing),
        None => Err(failed(io::Error::other("the image says nothing"))),
    }
}

fn linux() -> Result<Standing, contender::Error> {
    let (client, server) = (Segment::new()?, Segment::new()?);
    client.cable("veth0", &server, "veth0")?;
    client.configure("veth0", at(CLIENT))?;
    server.configure("veth0", at(SERVER))?;
    Ok(Standing {
        client,
        server: Some(server),
        image: None,
    })
}

/// Gigabits a second, and seconds of CPU time for each gigabyte.
fn run(standing: &Standing, transfer: &Transfer, window: Window) -> io::Result<(f64, f64)> {
    let server = match &standing.server {
        Some(segment) => {
            let server = segment.run(|| iperf3::server(SERVER.into()).spawn())?;
            thread::sleep(LISTENS);
            Some(server)
        }
        None => None,
    };
    let mut client = iperf3::client(SERVER.into(), window);
    client
        .args(["--congestion", CONGESTION])
        .args(transfer.words);
    let before = busy()?;
    let output = standing.client.run(|| client.output())?;
    let used = busy()? - before;
    if let Some(mut server) = server {
        server.wait()?;
    }
    let rate = iperf3::gigabits_per_second(&output.stdout).map_err(io::Error::other)?;
    // The warm-up has cost CPU time as well, at the same rate.
    let seconds = (window.warm_up + window.measured).as_secs_f64();
    Ok((rate, used.as_secs_f64() / (rate / 8.0 * seconds)))
}

/// CPU time that this machine has spent on anything (proc(5), `/proc/stat`).
fn busy() -> io::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let malformed = || io::Error::other("/proc/stat has no line of all processors");
    let line = stat.lines().next().ok_or_else(malformed)?;
    let ticks = line.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().map_err(|_| malformed())?;
    // User, nice, system; idle and waiting for disks are not work; interrupts of both kinds.
    let [user, nice, system, _, _, hard, soft, ..] = ticks[..] else {
        return Err(malformed());
    };
    let all = user + nice + system + hard + soft;
    Ok(Duration::from_millis(all * 1000 / TICKS_PER_SECOND))
}
