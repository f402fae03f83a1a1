//! What a disk holds, over HTTP and copied to another disk: by images beside nginx and cp on the
//! kernel's file systems, from the same disk.
//!
//! ```text
//!   outboard   wrk - Linux === tap  - the image - the host's file
//!   remote     wrk - Linux === tap  - the image - a queue - a process - the host's file
//!   linux      wrk - Linux === veth - Linux - nginx - ext4 - loop device - the host's file
//! ```
//!
//! The disk is ext4 and lies in the host's memory; it is copied to ext2, until all of that is in
//! the host's memory as well. CPU time is that of the whole machine, the client's included.

use crate::files::ended;
use crate::http::{FILE, LARGE, LARGE_BYTES, PORT, SCRIPT, nginx, prepare, reached, spread_ports};
use crate::plan::Plan;
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::served::Served;
use crate::turn::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{fs, io};
use testbed::meter;
use testbed::stats::turns;
use testbed::traffic::Window;
use testbed::traffic::wrk;

const OURS: &str = "outboard";
const REMOTE: &str = "remote";
const LINUX: &str = "linux";
const CONTENDERS: [&str; 3] = [OURS, REMOTE, LINUX];
/// So many files of 1 MiB are more than an image keeps in its memory.
const MANY: usize = 64;
/// Small files in a folder, and the bytes of one.
const SMALL: (usize, usize) = (1000, 4096);
/// What wrk runs to ask for the many files in turn.
const IN_TURN: &str = "in-turn.lua";
/// Guest memory.
const MEMORY: &str = "--mem=128";

const REQUESTS: Measure = Measure::new("1 KiB", "/s");
const P99: Measure = Measure::new("1 KiB: p99", "us");
const CPU: Measure = Measure::new("1 KiB: CPU", "s/million");
const BULK: Measure = Measure::new("1 MiB", "MB/s");
const BULK_CPU: Measure = Measure::new("1 MiB: CPU", "s/GB");
const TURNS: Measure = Measure::new("64 files of 1 MiB in turn", "MB/s");
const TURNS_CPU: Measure = Measure::new("64 files of 1 MiB in turn: CPU", "s/GB");
const COPY: Measure = Measure::new("copy", "MB/s");
const COPY_CPU: Measure = Measure::new("copy: CPU", "s/GB");
const FAILED: Measure = Measure::new("failed", "requests");

/// What is measured, in the order of the report.
pub const ALL: [Measure; 10] = [
    REQUESTS, P99, CPU, BULK, BULK_CPU, TURNS, TURNS_CPU, COPY, COPY_CPU, FAILED,
];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 4] = [
    ("small", REQUESTS),
    ("large", BULK),
    ("in-turn", TURNS),
    ("copy", COPY),
];
/// What was promised.
pub const PROMISES: [Promise; 2] = [none_fails(OURS), none_fails(REMOTE)];

const fn none_fails(contender: &'static str) -> Promise {
    Promise {
        measure: FAILED,
        contender,
        baseline: None,
        bound: Bound::AtMost(0.0),
    }
}

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// Those whose calls are the disk's.
    pub local: Pair,
    /// Those whose disks are served by a process.
    pub remote: Pair,
}

/// Images for spt.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The image `http` with a disk.
    pub http: PathBuf,
    /// The image `files`.
    pub files: PathBuf,
}

impl Programs {
    /// The images of a contender; none of Linux's.
    fn images(&self, contender: &str) -> Option<&Pair> {
        match contender {
            OURS => Some(&self.local),
            REMOTE => Some(&self.remote),
            _ => None,
        }
    }
}

/// Takes all measurements, `say`ing how far it is. `folder` is for disks and files of nginx and
/// wrk; it must not exist.
///
/// # Errors
/// The first thing that failed.
pub fn measure(
    plan: &Plan,
    programs: &Programs,
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    say("making the disk");
    let disks = Disks::make(folder).map_err(|error| Error::File(folder.to_owned(), error))?;
    let mut samples = Samples::default();
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let name = CONTENDERS[index];
        say(&format!("round {} of {}: {name}", round + 1, plan.rounds));
        let mut add = |measure, value| samples.add(measure, name, round, value);
        disks
            .serve(name, programs, plan.window, &mut add)
            .map_err(|error| Error::Measure(name, REQUESTS, error))?;
        disks
            .copy(name, programs, &mut add)
            .map_err(|error| Error::Measure(name, COPY, error))?;
    }
    Ok(samples)
}

/// The disk that is served and copied, and the one that it is copied to.
struct Disks {
    folder: PathBuf,
    from: PathBuf,
    to: PathBuf,
    bytes: usize,
}

impl Disks {
    fn make(folder: &Path) -> io::Result<Self> {
        prepare(folder)?;
        let in_turn = format!(
            "local number = 0\nrequest = function()\n   number = (number + 1) % {MANY}\n   \
             return wrk.format(\"GET\", \"/many/\" .. number)\nend\n{}",
            wrk::SCRIPT
        );
        fs::write(folder.join(IN_TURN), in_turn)?;
        let tree = folder.join("tree");
        let bytes = write_tree(&tree)?;
        let from = folder.join("from");
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-b4096", "-t", "ext4", "-d"]).arg(tree);
        ended(make.arg(&from).arg("256M"))?;
        Ok(Self {
            folder: folder.to_owned(),
            from,
            to: folder.join("to"),
            bytes,
        })
    }

    fn block(&self, name: &str, path: &Path) -> String {
        format!("--block:{name}={}", path.display())
    }

    /// One turn over HTTP: each load is run for nothing before it counts.
    fn serve(
        &self,
        name: &str,
        programs: &Programs,
        window: Window,
        add: &mut dyn FnMut(Measure, f64),
    ) -> io::Result<()> {
        let disk = self.block("files", &self.from);
        let mut mounted = None;
        let served = match programs.images(name) {
            Some(images) => Served::image(&programs.tender, &images.http, &[MEMORY, &disk], &[]),
            None => {
                // Where nginx finds its pages.
                mounted = Some(Mounted::new(&self.from, self.folder.join("www"), "ro")?);
                nginx(&self.folder)
            }
        };
        let served = served.map_err(io::Error::other)?;
        let taken = self.load(&served, window, add);
        // nginx ends before what it has pages of.
        drop(served);
        drop(mounted);
        taken
    }

    fn load(
        &self,
        served: &Served,
        window: Window,
        add: &mut dyn FnMut(Measure, f64),
    ) -> io::Result<()> {
        served.listens(PORT)?;
        spread_ports(&served.client)?;
        let run = |script: &str, file: &str| {
            let script = self.folder.join(script);
            reached(&served.client, &script, file, None, window)
        };
        let small = run(SCRIPT, FILE)?;
        let large = run(SCRIPT, LARGE)?;
        let in_turn = run(IN_TURN, LARGE)?;
        let measures = [REQUESTS, P99, CPU, BULK, BULK_CPU, TURNS, TURNS_CPU];
        let [large_values, turn_values] = [&large, &in_turn].map(|one| one.bytes(LARGE_BYTES));
        let values = small
            .requests()
            .into_iter()
            .chain(large_values)
            .chain(turn_values);
        let measured = measures.into_iter().zip(values);
        measured.for_each(|(measure, value)| add(measure, value));
        let failed = small.load.failed + large.load.failed + in_turn.load.failed;
        add(FAILED, failed as f64);
        Ok(())
    }

    /// One turn of copying all of it to an empty disk.
    fn copy(
        &self,
        name: &str,
        programs: &Programs,
        add: &mut dyn FnMut(Measure, f64),
    ) -> io::Result<()> {
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-F", "-b4096", "-t", "ext2"]);
        ended(make.arg(&self.to).arg("256M"))?;
        let (begin, before) = (Instant::now(), meter::machine()?);
        match programs.images(name) {
            Some(images) => self.copy_by(&programs.tender, &images.files)?,
            None => self.copy_by_linux()?,
        }
        let (time, cpu) = (begin.elapsed(), meter::machine()? - before);
        let megabytes = self.bytes as f64 / 1e6;
        add(COPY, megabytes / time.as_secs_f64());
        add(COPY_CPU, cpu.as_secs_f64() / (megabytes / 1e3));
        Ok(())
    }

    fn copy_by(&self, tender: &Path, image: &Path) -> io::Result<()> {
        let mut copy = Command::new(tender);
        copy.arg(MEMORY).arg(self.block("from", &self.from));
        copy.arg(self.block("to", &self.to)).arg("--").arg(image);
        ended(copy.args(["copy", "from", "to"]))
    }

    fn copy_by_linux(&self) -> io::Result<()> {
        let from = Mounted::new(&self.from, self.folder.join("www"), "ro")?;
        let to = Mounted::new(&self.to, self.folder.join("copied"), "rw")?;
        let mut copy = Command::new("cp");
        copy.arg("-R").arg(from.0.join(".")).arg(&to.0);
        ended(&mut copy)
    }
}

/// A disk that Linux has mounted. When this is dropped it is not any more, and all that was written
/// is in the host's file.
struct Mounted(PathBuf);

impl Mounted {
    fn new(disk: &Path, folder: PathBuf, mode: &str) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut mount = Command::new("mount");
        mount.arg(format!("-oloop,noatime,{mode}")).arg(disk);
        ended(mount.arg(&folder))?;
        Ok(Self(folder))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // The next turn says it, should this fail.
        let _ = ended(Command::new("umount").arg(&self.0));
    }
}

/// Returns how many bytes the files have.
fn write_tree(root: &Path) -> io::Result<usize> {
    let large = vec![b'.'; LARGE_BYTES];
    fs::create_dir_all(root.join("many"))?;
    fs::create_dir_all(root.join("small"))?;
    fs::write(root.join(FILE), &large[..1024])?;
    fs::write(root.join(LARGE), &large)?;
    for number in 0..MANY {
        fs::write(root.join(format!("many/{number}")), &large)?;
    }
    for number in 0..SMALL.0 {
        let name = root.join(format!("small/{number}.txt"));
        fs::write(name, &large[..SMALL.1])?;
    }
    Ok(1024 + (MANY + 1) * LARGE_BYTES + SMALL.0 * SMALL.1)
}
