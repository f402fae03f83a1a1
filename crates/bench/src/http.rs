//! Files over HTTP of an image beside nginx with one worker, with wrk as the client of both.
//!
//! CPU time is that of the whole machine, the client's included: most of Linux's work for TCP has
//! no process. What the server costs is therefore understated, for both alike.

use crate::plan::Plan;
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::served::{SERVER, Served};
use crate::turn::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};
use testbed::meter;
use testbed::stats::turns;
use testbed::traffic::Window;
use testbed::traffic::wrk::{self, Load};
use testbed::{contender, segment::Segment};

const OURS: &str = "outboard";
const NGINX: &str = "nginx";
const CONTENDERS: [&str; 2] = [OURS, NGINX];
pub(crate) const PORT: u16 = 80;
/// 1 KiB, of the folder that is part of the image.
pub(crate) const FILE: &str = "1k";
/// A file of 1 MiB, where there is one.
pub(crate) const LARGE: &str = "1m";
pub(crate) const LARGE_BYTES: usize = 1 << 20;
/// Connections of the client at a time.
const CONNECTIONS: u32 = 64;
/// What ends a connection after each request.
pub(crate) const CLOSE: &str = "Connection: close";
/// Guest memory.
const MEMORY: &str = "--mem=128";
/// Settings of the client's network: each connection takes a port, and there are no more than these
/// in the second after which a port may be taken again (Linux,
/// Documentation/networking/ip-sysctl.rst).
const PORTS: [(&str, &str); 2] = [("ip_local_port_range", "1024 65535"), ("tcp_tw_reuse", "1")];

const REQUESTS: Measure = Measure::new("requests", "/s");
const P99: Measure = Measure::new("requests: p99", "us");
const CPU: Measure = Measure::new("requests: CPU", "s/million");
const CONNECTED: Measure = Measure::new("connections", "/s");
const CONNECTED_CPU: Measure = Measure::new("connections: of a CPU second", "/s");
const FAILED: Measure = Measure::new("failed", "requests");

/// What is measured, in the order of the report.
pub const ALL: [Measure; 6] = [REQUESTS, P99, CPU, CONNECTED, CONNECTED_CPU, FAILED];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 3] = [
    ("requests", REQUESTS),
    ("requests-p99", P99),
    ("connections", CONNECTED),
];
/// What was promised.
pub const PROMISES: [Promise; 4] = [
    promise(REQUESTS, Some(NGINX), Bound::AtLeast(1.0)),
    promise(P99, Some(NGINX), Bound::AtMost(1.0)),
    promise(CONNECTED_CPU, Some(NGINX), Bound::AtLeast(1.0)),
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
    rounds: 8,
    window: Window {
        warm_up: Duration::from_secs(1),
        measured: Duration::from_secs(5),
    },
};
/// For a glance.
pub const QUICK: Plan = Plan {
    rounds: 2,
    window: Window {
        warm_up: Duration::from_secs(1),
        measured: Duration::from_secs(1),
    },
};

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The image `http` for spt.
    pub image: PathBuf,
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
    prepare(folder).map_err(|error| Error::File(folder.to_owned(), error))?;
    let mut samples = Samples::default();
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let name = CONTENDERS[index];
        say(&format!("round {} of {}: {name}", round + 1, plan.rounds));
        let served = match name {
            OURS => Served::image(&programs.tender, &programs.image, &[MEMORY], &[]),
            _ => nginx(folder),
        };
        let served = served.map_err(|error| Error::Contender(name, error))?;
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
    let run = |header| reached(&served.client, &script, FILE, header, window);
    let kept = run(None)?;
    for (measure, value) in [REQUESTS, P99, CPU].into_iter().zip(kept.requests()) {
        add(measure, value);
    }
    let Reached { load: closed, cpu } = run(Some(CLOSE))?;
    add(CONNECTED, closed.requests_per_second());
    add(CONNECTED_CPU, closed.requests as f64 / cpu.as_secs_f64());
    add(FAILED, (kept.load.failed + closed.failed) as f64);
    Ok(())
}

/// What wrk reached, and CPU time of the machine.
pub(crate) struct Reached {
    pub load: Load,
    pub cpu: Duration,
}

impl Reached {
    /// Requests a second, microseconds of the slowest hundredth, and CPU seconds for a million.
    pub fn requests(&self) -> [f64; 3] {
        [
            self.load.requests_per_second(),
            self.load.p99.as_secs_f64() * 1e6,
            self.cpu.as_secs_f64() * 1e6 / self.load.requests as f64,
        ]
    }

    /// MB/s, and CPU seconds for a GB, of answers of so many bytes.
    pub fn bytes(&self, answer: usize) -> [f64; 2] {
        let megabytes = answer as f64 / 1e6;
        let gigabytes = self.load.requests as f64 * megabytes / 1e3;
        [
            self.load.requests_per_second() * megabytes,
            self.cpu.as_secs_f64() / gigabytes,
        ]
    }
}

/// What wrk reaches with this script and this file, which it has run for nothing before.
pub(crate) fn reached(
    client: &Segment,
    script: &Path,
    file: &str,
    header: Option<&str>,
    window: Window,
) -> io::Result<Reached> {
    load_of(client, script, file, header, window.warm_up)?;
    load_of(client, script, file, header, window.measured)
}

pub(crate) fn load_of(
    client: &Segment,
    script: &Path,
    file: &str,
    header: Option<&str>,
    time: Duration,
) -> io::Result<Reached> {
    let url = format!("http://{SERVER}:{PORT}/{file}");
    let mut wrk = wrk::client(&url, CONNECTIONS, time, script);
    wrk.args(header.iter().flat_map(|header| ["--header", header]));
    let before = meter::machine()?;
    let output = client.run(|| wrk.output())?;
    let cpu = meter::machine()? - before;
    let load = Load::read(&output.stdout).map_err(io::Error::other)?;
    match load.requests {
        0 => Err(io::Error::other("no request was answered")),
        _ => Ok(Reached { load, cpu }),
    }
}

pub(crate) fn spread_ports(client: &Segment) -> io::Result<()> {
    client.run(|| {
        PORTS
            .iter()
            .try_for_each(|(name, value)| fs::write(format!("/proc/sys/net/ipv4/{name}"), value))
    })
}

/// Name of wrk's script.
pub(crate) const SCRIPT: &str = "figures.lua";
/// Name of nginx's configuration.
const CONFIGURATION: &str = "nginx.conf";

/// As one would tune it for small files, with as many requests of a connection as the image allows.
/// Without a master the one process serves as well, and ends when it is told to.
fn configuration() -> String {
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders = folders.map(|name| format!("{name}_temp_path {name};"));
    format!(
        "daemon off; master_process off; worker_processes 1; pid pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
    access_log off; sendfile on; open_file_cache max=16; keepalive_requests 10000;
    {}
    server {{ listen {PORT}; root www; }}
}}
",
        folders.concat()
    )
}

pub(crate) fn prepare(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    fs::create_dir(folder.join("www"))?;
    fs::write(folder.join("www").join(FILE), [b'.'; 1024])?;
    fs::write(folder.join(SCRIPT), wrk::SCRIPT)?;
    fs::write(folder.join(CONFIGURATION), configuration())
}

/// nginx and its arguments.
pub(crate) fn words(folder: &Path) -> [OsString; 7] {
    let configuration = folder.join(CONFIGURATION).into_os_string();
    let [p, c, e] = ["-p", "-c", "-e"].map(OsString::from);
    let (folder, errors) = (folder.as_os_str().to_owned(), "stderr".into());
    [NGINX.into(), p, folder, c, configuration, e, errors]
}

pub(crate) fn nginx(folder: &Path) -> Result<Served, contender::Error> {
    let mut nginx = Command::new(NGINX);
    nginx.args(&words(folder)[1..]);
    behind_cable(nginx)
}

/// A program behind a cable.
pub(crate) fn behind_cable(mut program: Command) -> Result<Served, contender::Error> {
    let mut served = Served::linux()?;
    program.stdin(Stdio::null());
    let started = match &served.server {
        Some(segment) => segment.run(|| program.spawn()),
        None => program.spawn(),
    };
    let failed = |error| contender::Error::Spawn(program.get_program().into(), error);
    served.process = Some(started.map_err(failed)?.into());
    Ok(served)
}
