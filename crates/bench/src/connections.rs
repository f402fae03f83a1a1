//! Many connections of an image beside Linux's: idle ones, active ones, new ones, and a flood of
//! those that never come to be.
//!
//! ```text
//!   clients - Linux === tap  - the image echo on spt
//!   clients - Linux === veth - Linux - a server with epoll
//! ```
//!
//! Idle connections are measured of the image http as well, after one request each.
//!
//! But for idle connections, the server has one core and clients another. CPU time is that of
//! client and server together: a tap's process does what Linux does for the client when a frame
//! comes, and a veth's client does it for the server.

use crate::keep_alive;
use crate::placement::Apart;
use crate::plan::Plan;
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::served::{CLIENT, INTERFACE, SERVER, Served, at};
use crate::turn::Error;
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use testbed::contender::{self, Process};
use testbed::meter;
use testbed::segment::Address;
use testbed::stats::turns;
use testbed::traffic::many::{Connections, connections_max, open_and_reset};
use testbed::traffic::syn::Flood;
use testbed::traffic::{Window, echo};

const OURS: &str = "outboard";
const LINUX: &str = "Linux";
const CONTENDERS: [&str; 2] = [OURS, LINUX];
/// Guest memory.
const MEMORY: &str = "--mem=256";
/// What the image is told: addresses of a flood are reached through the client, which drops what
/// goes there.
const GATEWAY: &str = "--ipv4-gateway=10.0.0.1";
/// Where the server listens.
const TO: SocketAddrV4 = SocketAddrV4::new(SERVER, 7);
/// Where nobody does.
const OTHER: SocketAddrV4 = SocketAddrV4::new(SERVER, 9);
/// A tap that nobody reads, and all in its network.
const SINK: &str = "sink0";
const SINK_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 9, 0, 255), 9);
/// A flood's addresses, which are nobody's (RFC 2544, C.2.2).
const FLOOD_FROM: [u8; 2] = [198, 18];

/// Idle connections that are opened.
const IDLE: usize = 100_000;
/// Active ones.
const MANY: usize = 10_000;
const FEW: usize = 10;
/// Questions that are under way at a time, however many connections there are.
const OUTSTANDING: usize = 10;
/// Bytes of a question.
const QUESTION: usize = 1024;
/// New connections that are open at a time.
const AT_ONCE: usize = 16;
/// The clients' addresses: each has ports for a process that opens idle connections, or for another
/// load.
const ADDRESSES: u8 = 16;
const FOR_FEW: u8 = 1;
const FOR_MANY: u8 = 2;
const FOR_NEW: u8 = 3;
const FOR_IDLE: u8 = 4;

const ESTABLISHED: Measure = Measure::new("idle: opened", "connections");
const ANSWERING: Measure = Measure::new("idle: answered then", "connections");
const IDLE_BYTES: Measure = Measure::new("idle: memory, with the task", "bytes");
const HTTP_BYTES: Measure = Measure::new("idle: memory of http's, with the task", "bytes");
const TEN: Measure = Measure::new("10 connections", "answers/s");
const TEN_THOUSAND: Measure = Measure::new("10000 connections", "answers/s");
const TEN_CPU: Measure = Measure::new("10 connections: of a CPU second", "answers");
const TEN_THOUSAND_CPU: Measure = Measure::new("10000 connections: of a CPU second", "answers");
const PART: Measure = Measure::new("10000 connections: of ten's rate", "%");
const NEW: Measure = Measure::new("new connections", "/s");
const NEW_CPU: Measure = Measure::new("new connections: of a CPU second", "/s");
const SYNS_OFFERED: Measure = Measure::new("SYNs: offered at most", "kframes/s");
const SYNS_TAKEN: Measure = Measure::new("SYNs: taken then", "kframes/s");
const SYNS_CPU: Measure = Measure::new("SYNs: CPU of the image for one", "ns");
const TRANSFER: Measure = Measure::new("transfer", "Gb/s");
const NOWHERE_LEAVES: Measure = Measure::new("flood of nobody: leaves", "%");
const OTHER_LEAVES: Measure = Measure::new("flood of another port: leaves", "%");
const SAME_LEAVES: Measure = Measure::new("flood of the same port: leaves", "%");

/// What is measured, in the order of the report.
pub const ALL: [Measure; 18] = [
    ESTABLISHED,
    ANSWERING,
    IDLE_BYTES,
    HTTP_BYTES,
    TEN,
    TEN_CPU,
    TEN_THOUSAND,
    TEN_THOUSAND_CPU,
    PART,
    NEW,
    NEW_CPU,
    SYNS_OFFERED,
    SYNS_TAKEN,
    SYNS_CPU,
    TRANSFER,
    NOWHERE_LEAVES,
    OTHER_LEAVES,
    SAME_LEAVES,
];
/// What is drawn.
pub const PLOTTED: [(&str, Measure); 4] = [
    ("active", TEN_THOUSAND),
    ("active-part", PART),
    ("new", NEW_CPU),
    ("flood", OTHER_LEAVES),
];
/// What was promised.
pub const PROMISES: [Promise; 6] = [
    promise(ANSWERING, None, Bound::AtLeast(IDLE as f64)),
    promise(IDLE_BYTES, None, Bound::AtMost(2048.0)),
    promise(HTTP_BYTES, None, Bound::AtMost(2048.0)),
    promise(PART, None, Bound::AtLeast(90.0)),
    promise(NEW_CPU, Some(LINUX), Bound::AtLeast(1.0)),
    promise(OTHER_LEAVES, None, Bound::AtLeast(80.0)),
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
        measured: Duration::from_secs(3),
    },
};
/// For a glance.
pub const QUICK: Plan = Plan {
    rounds: 2,
    window: Window {
        warm_up: Duration::from_millis(500),
        measured: Duration::from_secs(1),
    },
};

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The image `echo` for spt.
    pub image: PathBuf,
    /// The image `http` for spt.
    pub http: PathBuf,
    /// This program, which is Linux's server, and holds idle connections.
    pub own: PathBuf,
}

/// Takes all measurements, `say`ing how far it is.
///
/// # Errors
/// The first thing that failed.
pub fn measure(plan: &Plan, programs: &Programs, say: &dyn Fn(&str)) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    connections_max();
    for round in 0..plan.rounds {
        say(&format!("round {} of {}: idle", round + 1, plan.rounds));
        let served = start(OURS, programs).map_err(|error| Error::Contender(OURS, error))?;
        let failed = |error| Error::Measure(OURS, IDLE_BYTES, error);
        idle(&served, programs, &mut |measure, value| {
            samples.add(measure, OURS, round, value);
        })
        .map_err(failed)?;
        let served = keep_alive::start(&programs.tender, &programs.http, &[MEMORY])
            .map_err(|error| Error::Contender(OURS, error))?;
        let bytes =
            keep_alive::memory(&served).map_err(|error| Error::Measure(OURS, HTTP_BYTES, error))?;
        if let Some(bytes) = bytes {
            samples.add(HTTP_BYTES, OURS, round, bytes);
        }
    }
    let mut most = 0.0;
    for (round, index) in turns(CONTENDERS.len(), plan.rounds) {
        let name = CONTENDERS[index];
        say(&format!("round {} of {}: {name}", round + 1, plan.rounds));
        if most == 0.0 {
            let served = start(OURS, programs).map_err(|error| Error::Contender(OURS, error))?;
            let failed = |error| Error::Measure(OURS, SYNS_TAKEN, error);
            let mut add = |measure, value| samples.add(measure, OURS, round, value);
            most = syns(&served, plan.window, &mut add).map_err(failed)?;
        }
        let served = start(name, programs).map_err(|error| Error::Contender(name, error))?;
        let mut add = |measure, value| samples.add(measure, name, round, value);
        let failed = |measure| move |error| Error::Measure(name, measure, error);
        active(&served, plan.window, &mut add).map_err(failed(PART))?;
        new(&served, plan.window, &mut add).map_err(failed(NEW))?;
        flooded(&served, plan.window, most / 2.0, &mut add).map_err(failed(TRANSFER))?;
    }
    Ok(samples)
}

fn client_at(number: u8) -> Ipv4Addr {
    let [a, b, c, _] = CLIENT.octets();
    Ipv4Addr::new(a, b, c, 100 + number)
}

/// A server that listens, and clients' addresses.
fn start(name: &str, programs: &Programs) -> Result<Served, contender::Error> {
    let Programs {
        tender, image, own, ..
    } = programs;
    let served = match name {
        OURS => Served::image(tender, image, &[MEMORY], &[GATEWAY])?,
        _ => {
            let mut served = Served::linux()?;
            let mut command = Command::new(own);
            command.args(["echo", &SERVER.to_string(), &TO.port().to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            let started = match &served.server {
                Some(segment) => {
                    segment.netlink(|netlink| netlink.add_gateway(CLIENT.into()))?;
                    segment.run(|| command.spawn())
                }
                None => command.spawn(),
            };
            let failed = |error| contender::Error::Spawn(own.clone(), error);
            served.process = Some(started.map_err(failed)?.into());
            served
        }
    };
    served.client.netlink(|netlink| {
        (0..ADDRESSES).try_for_each(|number| {
            netlink.add_address(INTERFACE, client_at(number).into(), at(CLIENT).prefix)
        })
    })?;
    served
        .listens(TO.port())
        .map_err(contender::Error::Socket)?;
    Ok(served)
}

type Add<'a> = &'a mut dyn FnMut(Measure, f64);

fn server(served: &Served) -> Option<u32> {
    served.process.as_ref().map(Process::id)
}

/// Opens them, and asks each once, after all were opened.
fn idle(served: &Served, programs: &Programs, add: Add) -> io::Result<()> {
    let resident = || server(served).map_or(Ok(0), |id| meter::resident_kib(id, 0));
    // Its first connections have taken what the image needs in any case.
    let warm = served
        .client
        .run(|| Connections::open(client_at(FOR_FEW), TO, FEW))?;
    let before = resident();
    let mut holders = Vec::new();
    let (mut opened, mut answered) = (0, 0);
    let each = connections_max();
    for number in (FOR_IDLE..ADDRESSES).take(IDLE.div_ceil(each)) {
        let count = each.min(IDLE - opened.min(IDLE));
        let mut holder = Holder::start(served, programs, client_at(number), count)?;
        opened += holder.number()?;
        holders.push(holder);
    }
    let after = resident();
    for holder in &mut holders {
        answered += holder.ask()?;
    }
    drop(warm);
    add(ESTABLISHED, opened as f64);
    add(ANSWERING, answered as f64);
    // An ordinary user may not look, and the promise is then reported as not measured.
    if let (Ok(before), Ok(after)) = (before, after) {
        let bytes = after.saturating_sub(before) * 1024;
        add(IDLE_BYTES, bytes as f64 / opened as f64);
    }
    Ok(())
}

/// A process that holds idle connections: one alone may not have so many descriptors.
struct Holder {
    child: Process,
    input: std::process::ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(
        served: &Served,
        programs: &Programs,
        from: Ipv4Addr,
        count: usize,
    ) -> io::Result<Self> {
        let mut command = Command::new(&programs.own);
        command.args([
            "hold",
            &from.to_string(),
            &TO.to_string(),
            &count.to_string(),
        ]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child: Child = served.client.run(|| command.spawn())?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let child = child.into();
        let (Some(input), Some(output)) = (input, output.map(BufReader::new)) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Self {
            child,
            input,
            output,
        })
    }

    /// What it says.
    fn number(&mut self) -> io::Result<usize> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let silent = || io::Error::other(format!("process {} has ended", self.child.id()));
        line.trim().parse().map_err(|_| silent())
    }

    fn ask(&mut self) -> io::Result<usize> {
        self.input.write_all(b"\n")?;
        self.number()
    }
}

/// What a `Holder`'s process does: opens connections, says how many, and with the next line of
/// standard input how many of them answer; then it waits for the end of standard input.
///
/// # Errors
/// There is no socket.
pub fn hold(from: Ipv4Addr, to: SocketAddrV4, count: usize) -> io::Result<()> {
    connections_max();
    let mut all = Connections::open(from, to, count)?;
    println!("{}", all.len());
    let mut lines = io::stdin().lines();
    if lines.next().is_some() {
        println!("{}", all.ask_all(OUTSTANDING)?);
        lines.for_each(drop);
    }
    Ok(())
}

/// The same load over few connections and over many.
fn active(served: &Served, window: Window, add: Add) -> io::Result<()> {
    let _apart = Apart::new(server(served))?;
    let run = |number, count| {
        let open = || Connections::open(client_at(number), TO, count);
        let mut all = served.client.run(open)?;
        if all.len() < count {
            return Err(io::Error::other(format!("{} of {count} opened", all.len())));
        }
        // Each once: what is measured is not how they begin.
        all.ask_all(OUTSTANDING)?;
        let mut load = |time| all.ask(QUESTION, OUTSTANDING, &|_, passed| passed < time);
        load(window.warm_up)?;
        let before = cpu_of_both(served)?;
        let answered = load(window.measured)?;
        let cpu = cpu_of_both(served)?.saturating_sub(before);
        let of_a_second = answered.answers as f64 / cpu.as_secs_f64();
        Ok((answered.per_second(), of_a_second))
    };
    let (few, many) = (run(FOR_FEW, FEW)?, run(FOR_MANY, MANY)?);
    add(TEN, few.0);
    add(TEN_CPU, few.1);
    add(TEN_THOUSAND, many.0);
    add(TEN_THOUSAND_CPU, many.1);
    add(PART, 100.0 * many.0 / few.0);
    Ok(())
}

/// One connection after the other.
fn new(served: &Served, window: Window, add: Add) -> io::Result<()> {
    let _apart = Apart::new(server(served))?;
    let (opened, cpu) = served.client.run(|| {
        let run = |time| open_and_reset(client_at(FOR_NEW), TO, AT_ONCE, time);
        run(window.warm_up)?;
        let before = cpu_of_both(served)?;
        let opened = run(window.measured)?;
        let cpu = cpu_of_both(served)?.saturating_sub(before);
        Ok::<_, io::Error>((opened, cpu))
    })?;
    add(NEW, opened.per_second());
    add(NEW_CPU, opened.answers as f64 / cpu.as_secs_f64());
    Ok(())
}

/// CPU time of this thread, which is the client, and of the server.
fn cpu_of_both(served: &Served) -> io::Result<Duration> {
    let own = clock_gettime(ClockId::ThreadCPUTime);
    let own = Duration::new(own.tv_sec.cast_unsigned(), own.tv_nsec as u32);
    Ok(own + cpu_of_server(served)?)
}

fn cpu_of_server(served: &Served) -> io::Result<Duration> {
    server(served).map_or(Ok(Duration::ZERO), meter::cpu_time)
}

fn flood(served: &Served, to: SocketAddrV4) -> io::Result<Flood> {
    served.client.run(|| Flood::new(FLOOD_FROM, to))
}

/// As many SYNs as go: those that the tap has not dropped, in a second.
fn syns(served: &Served, window: Window, add: Add) -> io::Result<f64> {
    let _apart = Apart::new(server(served))?;
    let (flood, over) = (flood(served, OTHER)?, AtomicBool::new(false));
    let dropped = || meter::frames_not_sent(&served.client, INTERFACE);
    let before = (dropped()?, cpu_of_server(served)?);
    let offered = thread::scope(|scope| {
        let sender = scope.spawn(|| flood.run(None, &over));
        thread::sleep(window.measured);
        over.store(true, Relaxed);
        sender.join().expect("a flood does not panic")
    })?;
    let (dropped, cpu) = (dropped()? - before.0, cpu_of_server(served)? - before.1);
    let taken = offered - dropped as f64 / window.measured.as_secs_f64();
    add(SYNS_OFFERED, offered / 1000.0);
    add(SYNS_TAKEN, taken / 1000.0);
    let nanoseconds = cpu.as_nanos() as f64 / window.measured.as_secs_f64();
    add(SYNS_CPU, nanoseconds / taken);
    Ok(taken)
}

/// What floods of `rate` SYNs a second leave of a transfer.
fn flooded(served: &Served, window: Window, rate: f64, add: Add) -> io::Result<()> {
    let address = Address {
        ip: SINK_ADDRESS,
        ..at(CLIENT)
    };
    let sink = served.client.tap(SINK, false, address);
    let _sink = sink.map_err(io::Error::other)?;
    let _apart = Apart::new(server(served))?;
    let transfer = || served.client.run(|| echo::transfer(TO, window));
    let quiet = transfer()?;
    add(TRANSFER, quiet);
    for (measure, to) in [
        (NOWHERE_LEAVES, NOWHERE),
        (OTHER_LEAVES, OTHER),
        (SAME_LEAVES, TO),
    ] {
        let (flood, over) = (flood(served, to)?, AtomicBool::new(false));
        let left = thread::scope(|scope| {
            let sender = scope.spawn(|| flood.run(Some(rate), &over));
            let left = transfer();
            over.store(true, Relaxed);
            sender.join().expect("a flood does not panic")?;
            left
        })?;
        add(measure, 100.0 * left / quiet);
    }
    Ok(())
}
