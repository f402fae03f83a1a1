//! nginx as it is, on three kinds of sockets, with wrk as its client.
//!
//! ```text
//!   outboard     wrk - Linux === tap  - the stack's image - link - outboard proxy - nginx
//!   the host's   wrk - Linux === veth - Linux - outboard proxy --net=host - nginx
//!   alone        wrk - Linux === veth - Linux - nginx
//! ```
//!
//! The second is what a relay from sockets of unix(7) to the host's TCP does. CPU time is that of
//! the whole machine, the client's included.

use crate::http::{
    CLOSE, FILE, LARGE, LARGE_BYTES, PORT, SCRIPT, behind_cable, nginx, prepare, reached,
    spread_ports, words,
};
use crate::plan::Plan;
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::served::{CLIENT, INTERFACE, Served, at};
use crate::turn::Error;
use linux::link;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};
use testbed::contender::{self, Port, Process};
use testbed::segment::Segment;
use testbed::stats::turns;
use testbed::traffic::Window;

const OURS: &str = "outboard";
const HOSTS: &str = "the host's";
const ALONE: &str = "alone";
const CONTENDERS: [&str; 3] = [OURS, HOSTS, ALONE];
/// Slots of each end of the link, as manifests have them that say nothing.
const SLOTS: usize = image::manifest::SLOTS as usize;
/// Guest memory.
const MEMORY: &str = "--mem=128";

const REQUESTS: Measure = Measure::new("requests", "/s");
const P99: Measure = Measure::new("requests: p99", "us");
const CPU: Measure = Measure::new("requests: CPU", "s/million");
const BULK: Measure = Measure::new("1 MiB", "MB/s");
const BULK_CPU: Measure = Measure::new("1 MiB: CPU", "s/GB");
const CONNECTED: Measure = Measure::new("connections", "/s");
const FAILED: Measure = Measure::new("failed", "requests");

/// What is measured, in the order of the report.
pub const ALL: [Measure; 7] = [REQUESTS, P99, CPU, BULK, BULK_CPU, CONNECTED, FAILED];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 3] = [
    ("requests", REQUESTS),
    ("bulk", BULK),
    ("connections", CONNECTED),
];
/// What was promised.
pub const PROMISES: [Promise; 4] = [
    promise(REQUESTS, Some(HOSTS), Bound::AtLeast(0.9)),
    promise(P99, Some(HOSTS), Bound::AtMost(1.5)),
    promise(BULK, Some(ALONE), Bound::AtLeast(0.8)),
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

/// Takes all measurements, `say`ing how far it is. `folder` is for files of nginx and wrk; it must
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
        say(&format!("round {} of {}: {name}", round + 1, plan.rounds));
        let running = match name {
            OURS => on_stack(programs, &words(folder)).map(|(served, nginx)| (served, Some(nginx))),
            HOSTS => on_host(programs, folder).map(|served| (served, None)),
            _ => nginx(folder).map(|served| (served, None)),
        };
        // It ends before the stack does.
        let (served, _nginx) = running.map_err(|error| Error::Contender(name, error))?;
        take(&served, plan.window, folder, &mut |measure, value| {
            samples.add(measure, name, round, value);
        })
        .map_err(|error| Error::Measure(name, REQUESTS, error))?;
    }
    Ok(samples)
}

/// One turn: each load is run for nothing before it counts.
fn take(
    served: &Served,
    window: Window,
    folder: &Path,
    add: &mut dyn FnMut(Measure, f64),
) -> io::Result<()> {
    served.listens(PORT)?;
    spread_ports(&served.client)?;
    let script = folder.join(SCRIPT);
    let run = |file, header| reached(&served.client, &script, file, header, window);
    let kept = run(FILE, None)?;
    let large = run(LARGE, None)?;
    let measures = [REQUESTS, P99, CPU, BULK, BULK_CPU].into_iter();
    let values = kept.requests().into_iter().chain(large.bytes(LARGE_BYTES));
    measures
        .zip(values)
        .for_each(|(measure, value)| add(measure, value));
    let closed = run(FILE, Some(CLOSE))?.load;
    add(CONNECTED, closed.requests_per_second());
    let failed = kept.load.failed + large.load.failed + closed.failed;
    add(FAILED, failed as f64);
    Ok(())
}

/// A program and its arguments, on the sockets of a stack in an image, which is jailed. The program
/// is to end before the stack does.
pub(crate) fn on_stack(
    programs: &Programs,
    program: &[OsString],
) -> Result<(Served, Process), contender::Error> {
    let client = Segment::new()?;
    let tap = client.tap(INTERFACE, true, at(CLIENT))?;
    let io = |error: io::Error| contender::Error::Spawn(programs.outboard.clone(), error);
    let [theirs, ours] = link::make([SLOTS; 2]).map_err(io)?;
    theirs.inherit().and_then(|()| ours.inherit()).map_err(io)?;
    let link = format!("--link:app={}", theirs.value());
    let options = ["--host=spt", MEMORY, &link];
    let port = Port::tap(tap);
    let process = crate::served::start(&programs.tender, &programs.image, &port, &options, &[])?;
    let program = Command::new(&programs.outboard)
        .arg("proxy")
        .arg(format!("--link={}", ours.value()))
        .arg("--")
        .args(program)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let served = Served {
        process: Some(process),
        nic: None,
        client,
        server: None,
    };
    Ok((served, program.map_err(io)?.into()))
}

/// nginx on the host's sockets, by the way of programs on a stack's.
fn on_host(programs: &Programs, folder: &Path) -> Result<Served, contender::Error> {
    let mut nginx = Command::new(&programs.outboard);
    nginx
        .args(["proxy", "--net=host", "--"])
        .args(words(folder));
    behind_cable(nginx)
}
