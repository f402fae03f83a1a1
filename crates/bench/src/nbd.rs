//! A file served over the network block device protocol by the image `nbd` beside `nbd-server`,
//! with nbdcopy as the client of both.
//!
//! ```text
//!   nbdcopy - Linux === tap  - the image on spt
//!   nbdcopy - Linux === veth - Linux - nbd-server
//! ```
//!
//! CPU time is that of the server's processes, and what Linux does on their behalf: the client's
//! half of TCP runs there in part, for both alike.

use crate::disks;
use crate::samples::{Measure, Promise, Samples};
use crate::served::{SERVER, Served};
use crate::turn::Error;
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fs, io};
use testbed::contender;
use testbed::stats::turns;

/// The protocol's port (IANA).
const PORT: u16 = 10809;
const MEMORY: &str = "--mem=64";
const GB: f64 = 1e9;
/// Copies of the file in one turn.
const COPIES: usize = 2;
/// Turns of each contender.
pub const ROUNDS: usize = 5;
/// The same for a glance.
pub const ROUNDS_QUICK: usize = 1;

const CONTENDERS: [&str; 3] = ["nbd-server", "spt", "spt, queue"];

const READ: Measure = Measure::new("read", "GB/s");
const READ_CPU: Measure = Measure::new("read", "CPU s/GB");
const WRITE: Measure = Measure::new("write", "GB/s");
const WRITE_CPU: Measure = Measure::new("write", "CPU s/GB");

/// What is measured, in the order of the report.
pub const ALL: [Measure; 4] = [READ, READ_CPU, WRITE, WRITE_CPU];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 2] = [("nbd-read", READ), ("nbd-write", WRITE)];
/// Nothing was promised.
pub const PROMISES: [Promise; 0] = [];

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The image `nbd` for spt.
    pub image: PathBuf,
    /// The same, whose disk has a queue.
    pub queue: PathBuf,
}

/// Takes all measurements, `say`ing how far it is. `folder` is for files; it must not exist.
///
/// # Errors
/// The first thing that failed.
pub fn measure(
    rounds: usize,
    programs: &Programs,
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    let files = Files::make(folder).map_err(|error| Error::File(folder.to_owned(), error))?;
    let mut samples = Samples::default();
    for (round, index) in turns(CONTENDERS.len(), rounds) {
        let name = CONTENDERS[index];
        say(&format!("round {} of {rounds}: {name}", round + 1));
        for (writes, rate, cost) in [(false, READ, READ_CPU), (true, WRITE, WRITE_CPU)] {
            let (time, cpu) = take(name, programs, &files, writes)
                .map_err(|error| Error::Measure(name, rate, error))?;
            let moved = (COPIES * disks::FILE_BYTES) as f64 / GB;
            samples.add(rate, name, round, moved / time);
            samples.add(cost, name, round, cpu / moved);
        }
    }
    Ok(samples)
}

/// What is served, what is written there, and what nbd-server needs.
struct Files {
    disk: PathBuf,
    source: PathBuf,
    configuration: PathBuf,
    pid: PathBuf,
}

impl Files {
    fn make(folder: &Path) -> io::Result<Self> {
        fs::create_dir(folder)?;
        let files = Self {
            disk: folder.join("disk"),
            source: folder.join("source"),
            configuration: folder.join("nbd-server.conf"),
            pid: folder.join("pid"),
        };
        disks::fill(&files.disk)?;
        disks::fill(&files.source)?;
        disks::inherit_orphans()?;
        let disk = files.disk.display();
        let text = format!(
            "[generic]\n user = root\n group = root\n listenaddr = {SERVER}\n port = {PORT}\n\
             [disk]\n exportname = {disk}\n"
        );
        fs::write(&files.configuration, text)?;
        Ok(files)
    }
}

/// Seconds of copying, and seconds of the server's CPU time.
fn take(name: &str, programs: &Programs, files: &Files, writes: bool) -> io::Result<(f64, f64)> {
    disks::warm(&files.disk)?;
    disks::warm(&files.source)?;
    let served = match name {
        "spt" => image(programs, &programs.image, files),
        "spt, queue" => image(programs, &programs.queue, files),
        _ => nbd_server(files),
    };
    let mut served = served.map_err(io::Error::other)?;
    served.listens(PORT)?;
    let uri = format!("nbd://{SERVER}/disk");
    let mut copy = Command::new("nbdcopy");
    match writes {
        true => copy.arg(&files.source).arg(uri),
        false => copy.args([&uri, "null:"]),
    };
    copy.stdin(Stdio::null());
    let (begin, mut client) = (Instant::now(), linux::process::children_cpu());
    let before = client;
    for _ in 0..COPIES {
        let status = served.client.run(|| copy.status())?;
        if !status.success() {
            return Err(io::Error::other(format!("nbdcopy: {status}")));
        }
    }
    let time = begin.elapsed().as_secs_f64();
    client = linux::process::children_cpu() - before;
    end(&mut served, files)?;
    let all = linux::process::children_cpu() - before;
    Ok((time, (all - client).as_secs_f64()))
}

/// Ends the server, whose time counts from then on.
fn end(served: &mut Served, files: &Files) -> io::Result<()> {
    drop(served.process.take());
    if let Ok(pid) = fs::read_to_string(&files.pid) {
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("nbd-server has no number"))?;
        rustix::process::kill_process(pid, Signal::TERM)?;
        // It may have done so itself.
        let _ = fs::remove_file(&files.pid);
    }
    disks::reap()
}

fn image(programs: &Programs, image: &Path, files: &Files) -> Result<Served, contender::Error> {
    let disk = format!("--block:disk={}", files.disk.display());
    Served::image(&programs.tender, image, &[MEMORY, &disk], &[])
}

/// It goes into the background, and is found by the file that it leaves.
fn nbd_server(files: &Files) -> Result<Served, contender::Error> {
    let served = Served::linux()?;
    let mut server = Command::new("nbd-server");
    server.arg("-C").arg(&files.configuration);
    server.arg("-p").arg(&files.pid).stdin(Stdio::null());
    let started = match &served.server {
        Some(segment) => segment.run(|| server.status()),
        None => server.status(),
    };
    started.map_err(|error| contender::Error::Spawn("nbd-server".into(), error))?;
    Ok(served)
}
