//! A file of the host's as the disk of an image, beside fio on the same file.
//!
//! | contender | what it is |
//! |---|---|
//! | `fio, psync` | `pread` and `pwrite`, one in flight, whatever the depth |
//! | `fio, io_uring` | as many in flight as the depth says |
//! | `process`, `spt` | the image, which waits for each, whatever the depth |
//! | `process, queue`, `spt, queue` | the image, with a queue that a disk process serves |
//!
//! CPU time of an image is that of all of its processes, their starts and ends included; that of
//! fio is what it says of its job, without its own start.
//!
//! Before each turn the file is in the page cache; requests that pass it by come last.

use crate::samples::{Bound, Measure, Promise, Samples};
use crate::turn::Error;
use rustix::process::WaitOptions;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testbed::stats::turns;

/// Bytes of the file.
pub(crate) const FILE_BYTES: usize = 256 << 20;
/// Guest memory.
const MEMORY: &str = "--mem=64";
/// How long a contender works on a load.
const LENGTH: Duration = Duration::from_millis(400);
/// Turns of each contender.
pub const ROUNDS: usize = 5;
/// The same for a glance.
pub const ROUNDS_QUICK: usize = 1;

const PSYNC: &str = "fio, psync";
const URING: &str = "fio, io_uring";

/// Who works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Fio(&'static str),
    /// The guest and its host.
    Image(&'static str, &'static str),
}

/// A contender, and whether the depth is anything to it.
struct Contender {
    name: &'static str,
    who: Who,
    is_deep: bool,
}

const fn contender(name: &'static str, who: Who, is_deep: bool) -> Contender {
    Contender { name, who, is_deep }
}

const CONTENDERS: [Contender; 6] = [
    contender(PSYNC, Who::Fio("psync"), false),
    contender(URING, Who::Fio("io_uring"), true),
    contender("process", Who::Image("disk_load", "process"), false),
    contender("spt", Who::Image("disk_load", "spt"), false),
    contender("process, queue", Who::Image(QUEUE, "process"), true),
    contender("spt, queue", Who::Image(QUEUE, "spt"), true),
];
/// The guest whose disk has a queue.
const QUEUE: &str = "disk_load_queue";

/// A load, and what is measured in it.
struct Load {
    is_direct: bool,
    writes: bool,
    random: bool,
    bytes: usize,
    /// Of each depth: how many requests a second, and in a second of CPU time.
    measures: [(usize, Measure, Measure); 3],
}

macro_rules! depth {
    ($name:literal, $depth:literal) => {
        (
            $depth,
            Measure::new(concat!($name, ", depth ", $depth), "/s"),
            Measure::new(concat!($name, ", depth ", $depth), "/CPU s"),
        )
    };
}

macro_rules! load {
    ($name:literal, $direct:literal, $writes:literal, $random:literal, $bytes:expr) => {
        Load {
            is_direct: $direct,
            writes: $writes,
            random: $random,
            bytes: $bytes,
            measures: [depth!($name, 1), depth!($name, 4), depth!($name, 32)],
        }
    };
}

const LOADS: [Load; 8] = [
    load!("4 KiB random read", false, false, true, 4 << 10),
    load!("4 KiB random write", false, true, true, 4 << 10),
    load!("1 MiB sequential read", false, false, false, 1 << 20),
    load!("1 MiB sequential write", false, true, false, 1 << 20),
    load!("direct 4 KiB random read", true, false, true, 4 << 10),
    load!("direct 4 KiB random write", true, true, true, 4 << 10),
    load!("direct 1 MiB sequential read", true, false, false, 1 << 20),
    load!("direct 1 MiB sequential write", true, true, false, 1 << 20),
];

/// What is measured, in the order of the report.
pub const ALL: [Measure; 48] = all();
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 4] = [
    ("read", LOADS[0].measures[0].2),
    ("write", LOADS[1].measures[0].2),
    ("direct-read-1", LOADS[4].measures[0].1),
    ("direct-read-32", LOADS[4].measures[2].1),
];
/// What was promised: who waits for each request is not slower than psync.
pub const PROMISES: [Promise; 8] = [
    promise("process", 0),
    promise("process", 1),
    promise("process", 2),
    promise("process", 3),
    promise("spt", 0),
    promise("spt", 1),
    promise("spt", 2),
    promise("spt", 3),
];

const fn all() -> [Measure; 48] {
    let mut all = [LOADS[0].measures[0].1; 48];
    let mut at = 0;
    while at < 24 {
        let (_, rate, efficiency) = LOADS[at / 3].measures[at % 3];
        all[2 * at] = rate;
        all[2 * at + 1] = efficiency;
        at += 1;
    }
    all
}

const fn promise(contender: &'static str, load: usize) -> Promise {
    Promise {
        measure: LOADS[load].measures[0].2,
        contender,
        baseline: Some(PSYNC),
        bound: Bound::AtLeast(1.0),
    }
}

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The folder of tiny guests.
    pub guests: PathBuf,
}

/// Takes all measurements, `say`ing how far it is. `file` is the disk; it must not exist.
///
/// # Errors
/// The first thing that failed.
pub fn measure(
    rounds: usize,
    programs: &Programs,
    file: &Path,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    fill(file).map_err(|error| Error::File(file.to_owned(), error))?;
    inherit_orphans().map_err(|error| Error::File(file.to_owned(), error))?;
    let mut samples = Samples::default();
    for (round, index) in turns(CONTENDERS.len(), rounds) {
        let contender = &CONTENDERS[index];
        say(&format!(
            "round {} of {rounds}: {}",
            round + 1,
            contender.name
        ));
        let warmed = warm(file);
        warmed.map_err(|error| Error::File(file.to_owned(), error))?;
        for load in &LOADS {
            take(contender, load, programs, file, &mut |measure, value| {
                samples.add(measure, contender.name, round, value);
            })?;
        }
    }
    Ok(samples)
}

/// What outlives a contender is a child of this process from then on, so that its time counts.
pub(crate) fn inherit_orphans() -> io::Result<()> {
    let own = rustix::process::getpid();
    Ok(rustix::process::set_child_subreaper(Some(own))?)
}

/// Bytes that are no zeroes, in the page cache and on the storage.
pub(crate) fn fill(path: &Path) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let piece = vec![0xa5; 1 << 20];
    for _ in 0..FILE_BYTES / piece.len() {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

/// Has the page cache hold all of it: what passed it by has thrown it out.
pub(crate) fn warm(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; 1 << 20];
    while file.read(&mut piece)? > 0 {}
    file.sync_all()
}

/// One load of a contender. Where the depth is nothing to it, its figure stands for each.
fn take(
    contender: &Contender,
    load: &Load,
    programs: &Programs,
    file: &Path,
    add: &mut dyn FnMut(Measure, f64),
) -> Result<(), Error> {
    let mut last = None;
    for (depth, rate, efficiency) in load.measures {
        let figures = match last {
            Some(figures) if !contender.is_deep => figures,
            _ => {
                let depth = if contender.is_deep { depth } else { 0 };
                let ran = run(contender.who, load, depth, programs, file);
                ran.map_err(|error| Error::Measure(contender.name, rate, error))?
            }
        };
        last = Some(figures);
        let (count, time, cpu) = figures;
        add(rate, count / time);
        add(efficiency, count / cpu);
    }
    Ok(())
}

/// Requests, the seconds that they took, and seconds of CPU time.
fn run(
    who: Who,
    load: &Load,
    depth: usize,
    programs: &Programs,
    file: &Path,
) -> io::Result<(f64, f64, f64)> {
    let mut command = match who {
        Who::Fio(engine) => fio(engine, load, depth, file),
        Who::Image(guest, host) => image(guest, host, load, depth, programs, file),
    };
    let before = linux::process::children_cpu();
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()?;
    reap()?;
    let cpu = linux::process::children_cpu() - before;
    let said = String::from_utf8_lossy(&output.stdout);
    let counted = match who {
        Who::Fio(_) => fio_figures(&said),
        Who::Image(..) => {
            guest_figures(&said).map(|(count, time)| (count, time, cpu.as_secs_f64()))
        }
    };
    counted.filter(|_| output.status.success()).ok_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        io::Error::other(format!("{command:?} says {said}{errors}"))
    })
}

/// Waits for what outlived the command, so that its time counts.
pub(crate) fn reap() -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(errno) => return Err(errno.into()),
            Ok(None) if begin.elapsed() > Duration::from_secs(2) => {
                return Err(io::Error::other("a process outlives its contender"));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn fio(engine: &str, load: &Load, depth: usize, file: &Path) -> Command {
    let kind = match (load.random, load.writes) {
        (true, false) => "randread",
        (true, true) => "randwrite",
        (false, false) => "read",
        (false, true) => "write",
    };
    let mut command = Command::new("fio");
    command
        .args([
            "--name=disk",
            "--norandommap",
            "--gtod_reduce=1",
            "--overwrite=1",
        ])
        // The page cache stays as it is.
        .args(["--invalidate=0", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--size={FILE_BYTES}"))
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--rw={kind}"))
        .arg(format!("--bs={}", load.bytes))
        .arg(format!("--iodepth={}", depth.max(1)))
        .arg(format!("--direct={}", u8::from(load.is_direct)))
        .arg(format!("--runtime={}ms", LENGTH.as_millis()));
    command
}

fn image(
    guest: &str,
    host: &str,
    load: &Load,
    depth: usize,
    programs: &Programs,
    file: &Path,
) -> Command {
    let mut command = Command::new(&programs.tender);
    command
        .args([&format!("--host={host}"), MEMORY])
        .arg(format!("--block:disk={}", file.display()))
        .args(load.is_direct.then_some("--block-direct:disk=on"))
        .arg("--")
        .arg(programs.guests.join(guest))
        .arg(if load.writes { "write" } else { "read" })
        .arg(if load.random { "random" } else { "sequential" })
        .args([load.bytes, depth].map(|number| number.to_string()))
        .arg(LENGTH.as_millis().to_string());
    command
}

/// Requests, seconds and seconds of CPU time, as fio says them.
fn fio_figures(said: &str) -> Option<(f64, f64, f64)> {
    let said: Value = serde_json::from_str(said.get(said.find('{')?..)?).ok()?;
    let job = said.get("jobs")?.get(0)?;
    let figure = |way: &str, name: &str| job.get(way)?.get(name)?.as_f64();
    let sum = |name| Some(figure("read", name)? + figure("write", name)?);
    // In milliseconds, and percent of that time.
    let time = sum("runtime")? / 1000.0;
    let percent = |name| job.get(name)?.as_f64();
    let cpu = time * (percent("usr_cpu")? + percent("sys_cpu")?) / 100.0;
    Some((sum("total_ios")?, time, cpu)).filter(|_| cpu > 0.0)
}

/// Requests and seconds, as the guest says them.
fn guest_figures(said: &str) -> Option<(f64, f64)> {
    let (count, nanoseconds) = said.trim().split_once(' ')?;
    Some((count.parse().ok()?, nanoseconds.parse::<f64>().ok()? / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contenders_say_is_read() {
        assert_eq!(guest_figures("700 500000000\n"), Some((700.0, 0.5)));
        assert_eq!(guest_figures("a transfer failed\n"), None);
        let said = r#"note: {"jobs": [{"read": {"total_ios": 90, "runtime": 400},
                      "write": {"total_ios": 0, "runtime": 0}, "usr_cpu": 10, "sys_cpu": 40}]}"#;
        assert_eq!(fio_figures(said), Some((90.0, 0.4, 0.2)));
        assert_eq!(fio_figures("fio: no such engine"), None);
    }

    #[test]
    fn each_measure_has_its_name() {
        for (number, measure) in ALL.iter().enumerate() {
            assert!(
                !ALL[..number].contains(measure),
                "{measure:?} is there twice"
            );
        }
        assert_eq!(ALL[47].name, "direct 1 MiB sequential write, depth 32");
    }
}
