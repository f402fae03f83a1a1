//! TCP of an image beside Linux's, with the stock iperf3 as the other end of all.
//!
//! ```text
//!   iperf3 - Linux === tap  - the image iperf3 on spt, with offloads and without
//!   iperf3 - Linux === tap  - the same image on smoltcp's sockets
//!   iperf3 - Linux === tap  - a software NIC - the image on spt, with the NIC's driver
//!   iperf3 - Linux === veth - Linux - the image with Linux's sockets, on process
//!   iperf3 - Linux === veth - Linux - iperf3
//! ```
//!
//! The client has one core, and all processes of the server's side another one, unless the plan
//! says otherwise. CPU time is that of the whole machine: most of Linux's work for TCP has no
//! process.

use crate::placement::Apart;
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::served::{SERVER, Served};
use crate::turn::Error;
use std::io;
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::Duration;
use testbed::contender::{self, Process};
use testbed::meter;
use testbed::stats::turns;
use testbed::traffic::{Window, iperf3};

/// A stack of the image's own, on a tap.
const OURS: &str = "outboard";
/// The same, but each frame is as long as the MTU allows.
const PLAIN: &str = "plain tap";
/// The same appliance on smoltcp's sockets, on the same tap.
const SMOLTCP: &str = "smoltcp";
/// The same stack on a driver of the image's own, for a software NIC that has the tap.
const NIC: &str = "own 82599";
/// The same appliance on Linux's stack.
const SOCKETS: &str = "host sockets";
const LINUX: &str = "Linux";
const CONTENDERS: [&str; 6] = [OURS, PLAIN, SMOLTCP, NIC, SOCKETS, LINUX];
/// The same on both sides; this kernel's default is another one.
const CONGESTION: &str = "cubic";
/// Where iperf3 listens.
const PORT: u16 = 5201;
/// How long iperf3 on Linux, which serves one client, may take to listen.
const LISTENS: Duration = Duration::from_millis(300);
/// Guest memory in MiB.
const MEMORY: &str = "--mem=128";
/// What an image is told.
const SERVE: [&str; 1] = ["-s"];

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
pub const PROMISES: [Promise; 10] = [
    beside_linux(RECEIVE, Bound::AtLeast(1.0)),
    beside_linux(RECEIVE_8, Bound::AtLeast(1.0)),
    beside_linux(SEND, Bound::AtLeast(1.0)),
    beside_linux(SEND_8, Bound::AtLeast(1.0)),
    beside_linux(RECEIVE_CPU, Bound::AtMost(1.3)),
    beside_linux(RECEIVE_8_CPU, Bound::AtMost(1.3)),
    beside_linux(SEND_CPU, Bound::AtMost(1.3)),
    beside_linux(SEND_8_CPU, Bound::AtMost(1.3)),
    beside_plain(RECEIVE),
    beside_plain(SEND),
];

const fn beside_linux(measure: Measure, bound: Bound) -> Promise {
    Promise {
        measure,
        contender: OURS,
        baseline: Some(LINUX),
        bound,
    }
}

/// As for the firewall on NICs.
const fn beside_plain(measure: Measure) -> Promise {
    Promise {
        measure,
        contender: NIC,
        baseline: Some(PLAIN),
        bound: Bound::AtLeast(2.0),
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each contender.
    pub rounds: usize,
    /// Of each transfer.
    pub window: Window,
    /// Whether client and server have a core each. Else the scheduler chooses, and several streams
    /// are twice as fast in one round as in the next.
    pub apart: bool,
}

impl Plan {
    /// For judging.
    pub const FULL: Self = Self {
        rounds: 8,
        window: Window {
            warm_up: Duration::from_secs(1),
            measured: Duration::from_secs(3),
        },
        apart: true,
    };
    /// For a glance.
    pub const QUICK: Self = Self {
        rounds: 2,
        window: Window {
            warm_up: Duration::from_secs(1),
            measured: Duration::from_secs(1),
        },
        apart: true,
    };
}

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// `outboard`, which is the software NIC.
    pub monitor: PathBuf,
    /// The image `iperf3` for spt.
    pub image: PathBuf,
    /// The same on smoltcp's sockets.
    pub smoltcp: PathBuf,
    /// The same with the host's sockets.
    pub sockets: PathBuf,
    /// The same that drives an 82599.
    pub card: PathBuf,
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
        let served = start(name, programs).map_err(|error| Error::Contender(name, error))?;
        for transfer in &TRANSFERS {
            let (rate, cpu) = run(&served, transfer, plan)
                .map_err(|error| Error::Measure(name, transfer.rate, error))?;
            samples.add(transfer.rate, name, round, rate);
            samples.add(transfer.cpu, name, round, cpu);
        }
    }
    Ok(samples)
}

fn start(name: &str, programs: &Programs) -> Result<Served, contender::Error> {
    let Programs {
        tender,
        monitor,
        image,
        smoltcp,
        sockets,
        card,
    } = programs;
    match name {
        OURS => Served::image(tender, image, &[MEMORY], &SERVE),
        PLAIN => Served::on_plain_tap(tender, image, &[MEMORY], &SERVE),
        SMOLTCP => Served::image(tender, smoltcp, &[MEMORY], &SERVE),
        NIC => Served::on_nic(monitor, tender, card, &[MEMORY], &SERVE),
        SOCKETS => Served::on_sockets(tender, sockets, &[MEMORY], &SERVE),
        _ => Served::linux(),
    }
}

/// Gigabits a second, and seconds of CPU time for each gigabyte.
fn run(served: &Served, transfer: &Transfer, plan: &Plan) -> io::Result<(f64, f64)> {
    let server = match (&served.process, &served.server) {
        (None, Some(segment)) => {
            let server = segment.run(|| iperf3::server(SERVER.into()).spawn())?;
            thread::sleep(LISTENS);
            Some(server)
        }
        _ => {
            served.listens(PORT)?;
            None
        }
    };
    let processes = [&served.process, &served.nic].into_iter().flatten();
    let processes = processes
        .map(Process::id)
        .chain(server.iter().map(Child::id));
    let _apart = plan.apart.then(|| Apart::new(processes)).transpose()?;
    let mut client = iperf3::client(SERVER.into(), plan.window);
    client
        .args(["--congestion", CONGESTION])
        .args(transfer.words);
    let before = meter::machine()?;
    let output = served.client.run(|| client.output())?;
    let used = meter::machine()? - before;
    if let Some(mut server) = server {
        server.wait()?;
    }
    let rate = iperf3::gigabits_per_second(&output.stdout).map_err(io::Error::other)?;
    // The warm-up has cost CPU time as well, at the same rate.
    let seconds = (plan.window.warm_up + plan.window.measured).as_secs_f64();
    Ok((rate, used.as_secs_f64() / (rate / 8.0 * seconds)))
}
