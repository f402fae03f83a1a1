//! Programs as they are (nginx, redis, iperf3) on four kinds of sockets, with stock clients.
//!
//! ```text
//!   outboard     client - Linux === tap  - the stack's image - link - outboard proxy - program
//!   the host's   client - Linux === veth - Linux - outboard proxy --net=host - program
//!   alone        client - Linux === veth - Linux - program
//!   slirp4netns  client - Linux === veth - Linux - slirp4netns - tap - Linux - program
//! ```
//!
//! The second is what a relay from sockets of unix(7) to the host's TCP does. CPU time is that of
//! the whole machine, the client's included.

mod contenders;
mod loads;

pub use contenders::{on_slirp, on_stack};
pub use loads::LISTENS_ANEW;

use crate::http::{LARGE, LARGE_BYTES, prepare};
use crate::plan::Plan;
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::turn::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::stats::turns;
use testbed::traffic::Window;

const OURS: &str = "outboard";
const HOSTS: &str = "the host's";
const ALONE: &str = "alone";
/// Debian's user-mode stack.
pub const SLIRP: &str = "slirp4netns";
const CONTENDERS: [&str; 4] = [OURS, HOSTS, ALONE, SLIRP];

const REQUESTS: Measure = Measure::new("requests", "/s");
const P99: Measure = Measure::new("requests: p99", "us");
const CPU: Measure = Measure::new("requests: CPU", "s/million");
const BULK: Measure = Measure::new("1 MiB", "MB/s");
const BULK_CPU: Measure = Measure::new("1 MiB: CPU", "s/GB");
const CONNECTED: Measure = Measure::new("connections", "/s");
const FAILED: Measure = Measure::new("failed", "requests");
const GET: Measure = Measure::new("redis: GET", "/s");
const SET: Measure = Measure::new("redis: SET", "/s");
const REDIS_CPU: Measure = Measure::new("redis: CPU", "s/million");
const GET_16: Measure = Measure::new("redis: GET, 16 at once", "/s");
const SET_16: Measure = Measure::new("redis: SET, 16 at once", "/s");
const REDIS_16_CPU: Measure = Measure::new("redis, 16 at once: CPU", "s/million");
const INWARD: Measure = Measure::new("iperf3: to it", "Gb/s");
const INWARD_CPU: Measure = Measure::new("iperf3: to it: CPU", "s/GB");
const OUTWARD: Measure = Measure::new("iperf3: from it", "Gb/s");
const OUTWARD_CPU: Measure = Measure::new("iperf3: from it: CPU", "s/GB");

/// What is measured, in the order of the report.
pub const ALL: [Measure; 17] = [
    REQUESTS,
    P99,
    CPU,
    BULK,
    BULK_CPU,
    CONNECTED,
    FAILED,
    GET,
    SET,
    REDIS_CPU,
    GET_16,
    SET_16,
    REDIS_16_CPU,
    INWARD,
    INWARD_CPU,
    OUTWARD,
    OUTWARD_CPU,
];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 6] = [
    ("requests", REQUESTS),
    ("bulk", BULK),
    ("connections", CONNECTED),
    ("redis", GET),
    ("iperf3-to", INWARD),
    ("iperf3-from", OUTWARD),
];
/// What was promised.
pub const PROMISES: [Promise; 10] = [
    promise(REQUESTS, Some(HOSTS), Bound::AtLeast(0.9)),
    promise(P99, Some(HOSTS), Bound::AtMost(1.5)),
    promise(BULK, Some(ALONE), Bound::AtLeast(0.8)),
    promise(GET, Some(HOSTS), Bound::AtLeast(0.9)),
    promise(SET, Some(HOSTS), Bound::AtLeast(0.9)),
    promise(GET_16, Some(HOSTS), Bound::AtLeast(0.9)),
    promise(SET_16, Some(HOSTS), Bound::AtLeast(0.9)),
    promise(INWARD, Some(HOSTS), Bound::AtLeast(0.9)),
    promise(OUTWARD, Some(HOSTS), Bound::AtLeast(0.9)),
    promise(FAILED, None, Bound::AtMost(0.0)),
];

const fn promise(measure: Measure, baseline: Option<&'static str>, bound: Bound) -> Promise {
    Promise {
        measure,
        contender: OURS,
        baseline,
        bound,
    }
}

/// For judging.
pub const FULL: Plan = Plan {
    rounds: 5,
    window: Window {
        warm_up: Duration::from_secs(1),
        measured: Duration::from_secs(4),
    },
};

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard`.
    pub outboard: PathBuf,
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The image `stack` for spt.
    pub image: PathBuf,
}

impl Programs {
    /// This tender with `outboard` beside it, and this image.
    pub fn beside(tender: &Path, image: &Path) -> Self {
        Self {
            outboard: tender.with_file_name("outboard"),
            tender: tender.to_owned(),
            image: image.to_owned(),
        }
    }
}

/// Takes all measurements, `say`ing how far it is. `folder` is for files of the programs; it must
/// not exist.
///
/// # Errors
/// The first thing that failed.
pub fn measure(
    plan: &Plan,
    programs: &Programs,
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    let large = folder.join("www").join(LARGE);
    prepare(folder)
        .and_then(|()| fs::write(large, vec![b'.'; LARGE_BYTES]))
        .map_err(|error| Error::File(folder.to_owned(), error))?;
    let mut samples = Samples::default();
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let name = CONTENDERS[index];
        for load in loads::all(folder) {
            // With questions enough for a figure, redis-benchmark ends without one.
            if name == SLIRP && load.first == GET {
                continue;
            }
            let (round_of, program) = (plan.rounds, load.name());
            say(&format!(
                "round {} of {round_of}: {name}: {program}",
                round + 1
            ));
            let started = contenders::start(name, programs, &load.words, load.port);
            // The program ends before the stack does.
            let (served, _program) = started.map_err(|error| Error::Contender(name, error))?;
            let mut add = |measure, value| samples.add(measure, name, round, value);
            let taken = (load.take)(&served, folder, plan.window, &mut add);
            taken.map_err(|error| Error::Measure(name, load.first, error))?;
        }
    }
    Ok(samples)
}
