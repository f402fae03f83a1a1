//! One stream of an image and one of Linux over the same wire, which is long and loses frames, with
//! the stock iperf3 as the other end of both.
//!
//! ```text
//!   iperf3 - Linux - tap === wire === tap - bridge - tap - the image iperf3 on spt
//!   iperf3 - Linux - tap === wire === tap - Linux - iperf3
//! ```
//!
//! The taps of the wire have no offloads, so that each segment is lost for itself; whether the
//! sender leaves it to others to cut what it sends makes no difference. The wire loses the same
//! frames of both contenders' rounds, counted from the first.

use crate::plan::Plan;
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::served::{CLIENT, INTERFACE, SERVER, Served, at, start};
use crate::turn::Error;
use linux::tap::Tap;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use testbed::contender::{self, Port};
use testbed::segment::Segment;
use testbed::stats::turns;
use testbed::traffic::{Window, iperf3};
use testbed::wire::{MILLION, Quality, Wire};

const OURS: &str = "outboard";
const LINUX: &str = "Linux";
const CONTENDERS: [&str; 2] = [OURS, LINUX];
/// Half of the round-trip time.
const DELAY: Duration = Duration::from_millis(10);
/// One in a hundred, in each direction.
const LOSS: u32 = MILLION / 100;
/// The same on both sides; a kernel's default may be another one.
const CONGESTION: &str = "cubic";
/// How long a server may take to listen.
const LISTENS: Duration = Duration::from_millis(300);
/// Guest memory.
const MEMORY: &str = "--mem=128";
/// What joins the image's tap and the wire's.
const BRIDGE: &str = "bridge0";
/// The image's tap.
const SERVICE: &str = "service";

const RECEIVE: Measure = Measure::new("receive", "Mb/s");
const SEND: Measure = Measure::new("send", "Mb/s");

/// What the client is told for each.
const TRANSFERS: [(Measure, &[&str]); 2] = [(RECEIVE, &[]), (SEND, &["--reverse"])];

/// What is measured, in the order of the report.
pub const ALL: [Measure; 2] = [RECEIVE, SEND];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 2] = [("receive", RECEIVE), ("send", SEND)];
/// What was promised.
pub const PROMISES: [Promise; 2] = [promise(RECEIVE), promise(SEND)];

const fn promise(measure: Measure) -> Promise {
    Promise {
        measure,
        contender: OURS,
        baseline: Some(LINUX),
        bound: Bound::AtLeast(0.9),
    }
}

/// For judging: a stream meets several losses in a second, and many make a rate.
pub const FULL: Plan = Plan {
    rounds: 8,
    window: Window {
        warm_up: Duration::from_secs(2),
        measured: Duration::from_secs(15),
    },
};
/// For a glance.
pub const QUICK: Plan = Plan {
    rounds: 2,
    window: Window {
        warm_up: Duration::from_secs(1),
        measured: Duration::from_secs(3),
    },
};

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The image `iperf3` for spt.
    pub image: PathBuf,
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
        for (measure, words) in TRANSFERS {
            let quality = Quality {
                delay: DELAY,
                loss: LOSS,
                seed: round as u64,
            };
            let (_wire, served) = match name {
                OURS => ours(programs, quality),
                _ => linux(quality),
            }
            .map_err(|error| Error::Contender(name, error))?;
            let rate = run(&served, words, plan.window)
                .map_err(|error| Error::Measure(name, measure, error))?;
            samples.add(measure, name, round, rate);
        }
    }
    Ok(samples)
}

fn lay(near: Tap, far: Tap, quality: Quality) -> Result<Wire, contender::Error> {
    let ends = [near, far].map(Tap::into_fd);
    Wire::lay(ends, quality).map_err(contender::Error::Tap)
}

fn ours(programs: &Programs, quality: Quality) -> Result<(Wire, Served), contender::Error> {
    let (client, middle) = (Segment::new()?, Segment::new()?);
    let near = client.tap(INTERFACE, false, at(CLIENT))?;
    let make = |name, vnet_header| {
        let tap = middle.run(|| Tap::create(name, vnet_header));
        tap.map_err(contender::Error::Tap)
    };
    let (far, service) = (make(INTERFACE, false)?, make(SERVICE, true)?);
    middle.netlink(|netlink| {
        netlink.add_bridge(BRIDGE)?;
        netlink.set_up(BRIDGE)?;
        for name in [INTERFACE, SERVICE] {
            netlink.set_master(name, BRIDGE)?;
            netlink.set_up(name)?;
        }
        Ok(())
    })?;
    let wire = lay(near, far, quality)?;
    let (tender, image) = (&programs.tender, &programs.image);
    let process = start(tender, image, &Port::tap(service), &[MEMORY], &["-s"])?;
    let served = Served {
        process: Some(process),
        nic: None,
        client,
        server: Some(middle),
    };
    Ok((wire, served))
}

fn linux(quality: Quality) -> Result<(Wire, Served), contender::Error> {
    let (client, server) = (Segment::new()?, Segment::new()?);
    let near = client.tap(INTERFACE, false, at(CLIENT))?;
    let far = server.tap(INTERFACE, false, at(SERVER))?;
    let wire = lay(near, far, quality)?;
    let program = server.run(|| iperf3::server(SERVER.into()).spawn());
    let failed = |error| contender::Error::Spawn(PathBuf::from("iperf3"), error);
    let served = Served {
        process: Some(program.map_err(failed)?.into()),
        nic: None,
        client,
        server: Some(server),
    };
    Ok((wire, served))
}

/// Megabits a second.
fn run(served: &Served, words: &[&str], window: Window) -> io::Result<f64> {
    // To connect and to say nothing would be a test for iperf3, and this server has but one.
    thread::sleep(LISTENS);
    let mut client = iperf3::client(SERVER.into(), window);
    client.args(["--congestion", CONGESTION]).args(words);
    let output = served.client.run(|| client.output())?;
    let rate = iperf3::gigabits_per_second(&output.stdout).map_err(io::Error::other)?;
    Ok(rate * 1000.0)
}
