//! What a program's calls cost it that runs under `outboard proxy`: those that are none of the
//! proxy's, those that are answered, whole connections, nginx's, and a compiler's.
//!
//! ```text
//!   outboard     the program - outboard proxy - link - the stack's image
//!   the host's   the program - outboard proxy --net=host - Linux
//!   alone        the program - Linux
//! ```
//!
//! The program of the first part is this one ([`work`]). It makes a call many times over, in
//! batches, and says what the quickest batch took: what others take from the processor meanwhile is
//! none of the call's.
//!
//! Then come two ways that the bytes of a connection could take ([`ways`]).

use crate::http::{CLOSE, FILE, PORT, SCRIPT, behind_cable, load_of, prepare, spread_ports, words};
use crate::proxied::{Programs, on_stack};
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::served::Served;
use crate::turn::Error;
use crate::ways;
use rustix::net::sockopt::socket_type;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, getsockname, recv, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use testbed::contender::Process;
use testbed::meter;
use testbed::stats::turns;

const OURS: &str = "outboard";
const HOSTS: &str = "the host's";
const ALONE: &str = "alone";
const CONTENDERS: [&str; 3] = [OURS, HOSTS, ALONE];
/// Batches of each call.
const BATCHES: usize = 20;
/// How long a program may take, in looks.
const LOOKS: (u32, Duration) = (1200, Duration::from_millis(50));
/// Files that are compiled, and functions of each.
const FILES: usize = 12;
const FUNCTIONS: usize = 200;

/// A call, what it is measured as, and how often a batch has it.
struct Kind {
    measure: Measure,
    /// What the proxy adds to it, where that was promised.
    more: Option<Measure>,
    /// Nanoseconds of its unit.
    unit: f64,
    count: u32,
    call: fn(&Ends) -> io::Result<()>,
}

/// What the proxy adds to the first kinds of calls.
const MORE: [Measure; 3] = [
    Measure::new("getppid: more", "ns"),
    Measure::new("ioctl of a pipe: more", "ns"),
    Measure::new("getsockopt of the kernel's: more", "ns"),
];

const KINDS: [Kind; 6] = [
    Kind {
        measure: Measure::new("getppid", "ns"),
        more: Some(MORE[0]),
        unit: 1.0,
        count: 20_000,
        call: |_| {
            let _ = rustix::process::getppid();
            Ok(())
        },
    },
    Kind {
        measure: Measure::new("ioctl of a pipe", "ns"),
        more: Some(MORE[1]),
        unit: 1.0,
        count: 20_000,
        call: |ends| Ok(rustix::io::ioctl_fionread(&ends.near).map(drop)?),
    },
    Kind {
        measure: Measure::new("getsockopt of the kernel's", "ns"),
        more: Some(MORE[2]),
        unit: 1.0,
        count: 20_000,
        call: |ends| Ok(socket_type(&ends.near).map(drop)?),
    },
    Kind {
        measure: Measure::new("sendmsg and recv of unix(7)", "us"),
        more: None,
        unit: 1e3,
        count: 200,
        call: |ends| {
            let (bytes, mut control) = ([IoSlice::new(b"x")], SendAncillaryBuffer::default());
            sendmsg(&ends.near, &bytes, &mut control, SendFlags::empty())?;
            recv(&ends.far, &mut [0], RecvFlags::empty())?;
            Ok(())
        },
    },
    Kind {
        measure: Measure::new("getsockname", "us"),
        more: None,
        unit: 1e3,
        count: 200,
        call: |ends| Ok(getsockname(&ends.datagrams).map(drop)?),
    },
    Kind {
        measure: Measure::new("a connection, opened, accepted and closed", "us"),
        more: None,
        unit: 1e3,
        count: 20,
        call: |ends| {
            let client = TcpStream::connect(ends.listener.local_addr()?)?;
            let (server, _) = ends.listener.accept()?;
            drop((client, server));
            Ok(())
        },
    },
];

const NGINX: Measure = Measure::new("calls of nginx's for a connection", "calls");
const CONNECTIONS: Measure = Measure::new("connections of nginx's", "/s");
const COMPILE: Measure = Measure::new("a compile", "s");
const COMPILE_CPU: Measure = Measure::new("a compile: CPU", "s");

/// What is measured, in the order of the report.
pub const ALL: [Measure; 17] = [
    KINDS[0].measure,
    MORE[0],
    KINDS[1].measure,
    MORE[1],
    KINDS[2].measure,
    MORE[2],
    KINDS[3].measure,
    KINDS[4].measure,
    KINDS[5].measure,
    NGINX,
    CONNECTIONS,
    COMPILE,
    COMPILE_CPU,
    ways::ALL[0],
    ways::ALL[1],
    ways::ALL[2],
    ways::ALL[3],
];
/// What was promised.
pub const PROMISES: [Promise; 5] = [
    promise(MORE[0], None, Bound::AtMost(130.0)),
    promise(MORE[1], None, Bound::AtMost(130.0)),
    promise(MORE[2], None, Bound::AtMost(130.0)),
    promise(NGINX, None, Bound::AtMost(2.0)),
    promise(COMPILE, Some(ALONE), Bound::AtMost(1.1)),
];

const fn promise(measure: Measure, baseline: Option<&'static str>, bound: Bound) -> Promise {
    Promise {
        measure,
        contender: HOSTS,
        baseline,
        bound,
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Turns of each contender.
    pub rounds: usize,
    /// How long nginx is asked.
    pub load: Duration,
}

/// For judging.
pub const FULL: Plan = Plan {
    rounds: 8,
    load: Duration::from_secs(3),
};
/// For a glance.
pub const QUICK: Plan = Plan {
    rounds: 2,
    load: Duration::from_secs(1),
};

/// What the calls are made on.
struct Ends {
    near: UnixStream,
    far: UnixStream,
    datagrams: UdpSocket,
    listener: TcpListener,
}

/// Makes all calls, and writes into a file what each took: a line of a number for each kind.
///
/// # Errors
/// A call has failed.
pub fn work(file: &Path) -> io::Result<()> {
    let (near, far) = UnixStream::pair()?;
    let ends = Ends {
        near,
        far,
        datagrams: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?,
        listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
    };
    let mut text = String::new();
    for kind in &KINDS {
        let mut quickest = Duration::MAX;
        for _ in 0..BATCHES {
            let begin = Instant::now();
            for _ in 0..kind.count {
                (kind.call)(&ends)?;
            }
            quickest = quickest.min(begin.elapsed());
        }
        let each = quickest.as_secs_f64() * 1e9 / f64::from(kind.count) / kind.unit;
        let _ = writeln!(text, "{each}");
    }
    fs::write(file, text)
}

/// Takes all measurements, `say`ing how far it is; `own` is this program. `folder` is for files; it
/// must not exist.
///
/// # Errors
/// The first thing that failed.
pub fn measure(
    plan: &Plan,
    programs: &Programs,
    own: &Path,
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    prepare(folder)
        .and_then(|()| write_project(folder))
        .map_err(|error| Error::File(folder.to_owned(), error))?;
    let mut samples = Samples::default();
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let name = CONTENDERS[index];
        say(&format!("round {} of {}: {name}", round + 1, plan.rounds));
        let contender = Contender {
            name,
            programs,
            folder,
        };
        let failed = |measure| move |error| Error::Measure(name, measure, error);
        let took = contender.calls(own).map_err(failed(KINDS[0].measure))?;
        for (kind, value) in KINDS.iter().zip(took) {
            samples.add(kind.measure, name, round, value);
        }
        if name != OURS {
            contender
                .nginx(plan.load, &mut |measure, value| {
                    samples.add(measure, name, round, value);
                })
                .map_err(failed(NGINX))?;
            let took = contender.compile().map_err(failed(COMPILE))?;
            for (measure, took) in [COMPILE, COMPILE_CPU].into_iter().zip(took) {
                samples.add(measure, name, round, took.as_secs_f64());
            }
        }
    }
    for round in 0..plan.rounds {
        say(&format!("round {} of {}: ways", round + 1, plan.rounds));
        ways::measure(plan.load, &mut |measure, name, value| {
            samples.add(measure, name, round, value);
        })
        .map_err(|error| Error::Measure("ways", ways::ALL[0], error))?;
    }
    add_more(&mut samples);
    Ok(samples)
}

/// What the proxy adds, round by round.
fn add_more(samples: &mut Samples) {
    for kind in &KINDS {
        let Some(more) = kind.more else { continue };
        for name in [OURS, HOSTS] {
            let both = samples.values(kind.measure, name).into_iter();
            let both = both.zip(samples.values(kind.measure, ALONE));
            for (round, (with, without)) in both.enumerate() {
                samples.add(more, name, round, with - without);
            }
        }
    }
}

/// Who has its turn.
struct Contender<'a> {
    name: &'static str,
    programs: &'a Programs,
    folder: &'a Path,
}

impl Contender<'_> {
    /// A program of the host's network: by the proxy, or alone.
    fn command(&self, words: &[OsString]) -> Command {
        let mut command;
        if self.name == HOSTS {
            command = Command::new(&self.programs.outboard);
            command.args(["proxy", "--net=host", "--counts", "--"]);
            command.arg(&words[0]);
        } else {
            command = Command::new(&words[0]);
        }
        command.args(&words[1..]).stdin(Stdio::null());
        command
    }

    /// What each kind of call takes, in its unit.
    fn calls(&self, own: &Path) -> io::Result<Vec<f64>> {
        let file = self.folder.join("took");
        let _ = fs::remove_file(&file);
        let words = [own.into(), "calls-of".into(), file.clone().into_os_string()];
        if self.name == OURS {
            let (_served, _program) = on_stack(self.programs, &words).map_err(io::Error::other)?;
            return until(|| numbers(&file));
        }
        let status = self.command(&words).stderr(Stdio::null()).status()?;
        match status.success() {
            true => until(|| numbers(&file)),
            false => Err(io::Error::other(format!("the calls ended with {status}"))),
        }
    }

    /// Connections that nginx accepts, of which each has one request; and the calls of a
    /// connection that were passed to the proxy, beyond those of its start and end.
    fn nginx(&self, load: Duration, add: &mut dyn FnMut(Measure, f64)) -> io::Result<()> {
        let (_, idle) = self.served(None)?;
        let (requests, counts) = self.served(Some(load))?;
        add(CONNECTIONS, requests);
        if let (Some(idle), Some(counts)) = (idle, counts) {
            let calls = counts.calls.saturating_sub(idle.calls);
            let connections = counts.connections.saturating_sub(idle.connections);
            add(NGINX, calls as f64 / connections as f64);
        }
        Ok(())
    }

    /// nginx, which is asked for so long: connections in a second, and what the proxy has counted
    /// until the end.
    fn served(&self, load: Option<Duration>) -> io::Result<(f64, Option<Counts>)> {
        let said = self.folder.join("said");
        let mut command = self.command(&words(self.folder));
        command.stderr(File::create(&said)?).stdout(Stdio::null());
        let mut served = behind_cable(command).map_err(io::Error::other)?;
        served.listens(PORT)?;
        let requests = match load {
            Some(load) => self.asked(&served, load)?,
            None => 0.0,
        };
        let Some(process) = served.process.take() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        end(&process)?;
        let counts = match self.name {
            HOSTS => Some(until(|| counts(&fs::read_to_string(&said)?))?),
            _ => None,
        };
        Ok((requests, counts))
    }

    fn asked(&self, served: &Served, load: Duration) -> io::Result<f64> {
        spread_ports(&served.client)?;
        let script = self.folder.join(SCRIPT);
        let reached = load_of(&served.client, &script, FILE, Some(CLOSE), load)?;
        Ok(reached.load.requests_per_second())
    }

    /// How long it takes to compile the project, and how much CPU time.
    fn compile(&self) -> io::Result<[Duration; 2]> {
        let script = "for file in *.c; do cc -O1 -c $file || exit 1; done; cc -o all *.o";
        let words = ["sh", "-c", script].map(OsString::from);
        let (begin, before) = (Instant::now(), meter::ended()?);
        let mut command = self.command(&words);
        let status = command
            .current_dir(project(self.folder))
            .stderr(Stdio::null())
            .status()?;
        match status.success() {
            true => Ok([begin.elapsed(), meter::ended()? - before]),
            false => Err(io::Error::other(format!(
                "the compiler ended with {status}"
            ))),
        }
    }
}

/// Has a process end as it wants to.
fn end(process: &Process) -> io::Result<()> {
    let id = Pid::from_raw(process.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(kill_process(id, Signal::TERM)?)
}

/// What `look` finds, as soon as it finds it.
fn until<T>(look: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut looks = 0;
    loop {
        match look() {
            Err(_) if looks < LOOKS.0 => thread::sleep(LOOKS.1),
            found => return found,
        }
        looks += 1;
    }
}

/// A number in each line, of all kinds.
fn numbers(file: &Path) -> io::Result<Vec<f64>> {
    let text = fs::read_to_string(file)?;
    let numbers: Result<Vec<f64>, _> = text.lines().map(str::parse).collect();
    let numbers = numbers.map_err(io::Error::other)?;
    match numbers.len() == KINDS.len() {
        true => Ok(numbers),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// What `outboard proxy --counts` says at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    calls: u64,
    connections: u64,
}

/// `... 16 calls, 0 of them none of ours; 2 connections; ...`
fn counts(text: &str) -> io::Result<Counts> {
    let before = |word: &str| {
        let (before, _) = text.split_once(word)?;
        before.split_ascii_whitespace().last()?.parse().ok()
    };
    match (before(" calls,"), before(" connections;")) {
        (Some(calls), Some(connections)) => Ok(Counts { calls, connections }),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn project(folder: &Path) -> PathBuf {
    folder.join("project")
}

/// A program of several files in C, each of which takes headers and has functions that call one
/// another.
fn write_project(folder: &Path) -> io::Result<()> {
    let folder = project(folder);
    fs::create_dir(&folder)?;
    for file in 0..FILES {
        let mut text = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
        for number in 0..FUNCTIONS {
            let called = match number {
                0 => "(int)strlen(text)".to_owned(),
                _ => format!("f{file}_{}(n + {number}, text)", number - 1),
            };
            let _ = writeln!(
                text,
                "int f{file}_{number}(int n, const char *text) {{\n    \
                 for (int i = 0; i < n % 7; i++) n = n * 31 + text[i % 3];\n    \
                 return n > {number} ? {called} : n;\n}}"
            );
        }
        let last = FUNCTIONS - 1;
        if file == 0 {
            let _ = writeln!(
                text,
                "int main(void) {{ printf(\"%d\\n\", f0_{last}(3, \"abc\")); return 0; }}"
            );
        }
        fs::write(folder.join(format!("part{file}.c")), text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_read() {
        let text = "nginx: hello\noutboard-proxy: 16 calls, 0 of them none of ours; 2 connections; \
                    1 sockets left\n";
        let expected = Counts {
            calls: 16,
            connections: 2,
        };
        assert_eq!(counts(text).unwrap(), expected);
        assert!(counts("").is_err() && counts("outboard-proxy: 16 calls, 0").is_err());
    }

    #[test]
    fn what_the_proxy_adds_is_that_of_each_round() {
        let mut samples = Samples::default();
        for (round, (with, without)) in [(300.0, 250.0), (420.0, 400.0)].into_iter().enumerate() {
            samples.add(KINDS[0].measure, HOSTS, round, with);
            samples.add(KINDS[0].measure, ALONE, round, without);
        }
        add_more(&mut samples);
        assert_eq!(samples.values(MORE[0], HOSTS), [50.0, 20.0]);
    }
}
