//! What a steady load costs its server: iperf3 as it is on the sockets of a stack in an image, the
//! image `iperf3`, iperf3 on Linux, and iperf3 on the user-mode stack of slirp4netns. The load
//! grows from 90 to 900 Mb/s. A second part sends for a minute without a limit.
//!
//! ```text
//!   program      iperf3 - Linux === tap  - the stack's image - link - outboard proxy - iperf3
//!   image        iperf3 - Linux === tap  - the image iperf3
//!   linux        iperf3 - Linux === veth - Linux - iperf3
//!   slirp4netns  iperf3 - Linux === veth - Linux - slirp4netns - tap - Linux - iperf3
//! ```
//!
//! A sample is a second. CPU time is that of all threads of client and contender, and of the
//! kernel's for what it leaves for later, in percent of one processor. It is what the scheduler
//! adds up at each switch (`testbed::meter::family`): a kernel that counts by its tick sees nothing
//! of work that is in step with that, as TCP at a steady rate is, and says 0 or 100 %. A load that
//! is known is measured first, to see that the meter is right. Datagrams are lost if the server
//! does not count them.
//!
//! Calls of the kernel are those of the contender without the client, in a second behind those
//! that count: to count them costs time. `perf` does that, if there is one.

use crate::plot::{self, Line};
use crate::proxied::{self, LISTENS_ANEW, SLIRP, on_slirp, on_stack};
use crate::samples::{Bound, Measure, Promise, Samples};
use crate::served::{SERVER, Served};
use crate::turn::Error;
use serde_json::Value;
use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};
use testbed::contender::{self, Process};
use testbed::meter;
use testbed::traffic::{Window, iperf3};

const PROGRAM: &str = "program";
const IMAGE: &str = "image";
const LINUX: &str = "linux";
const CONTENDERS: [&str; 4] = [PROGRAM, IMAGE, LINUX, SLIRP];
/// Where iperf3 listens.
const PORT: u16 = 5201;
const SECOND: Duration = Duration::from_secs(1);
/// What goes on behind the seconds that count, in which calls are counted.
const BEHIND: Duration = Duration::from_secs(2);
/// Guest memory.
const MEMORY: &str = "--mem=128";

/// What is sent: iperf3's words.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    words: &'static [&'static str],
}

/// As seed 004 sent it: with buffers of 85 KiB at both ends, and 128 KiB a write.
const TCP: Kind = Kind {
    name: "tcp",
    words: &["--congestion", "cubic", "--window", "85K"],
};
/// The same buffers, and datagrams that fit into a frame.
const UDP: Kind = Kind {
    name: "udp",
    words: &["--udp", "--length", "1448", "--window", "85K"],
};

/// A load in Mb/s, and what is measured under it.
struct Load {
    rate: u32,
    tcp: [Measure; 3],
    udp: [Measure; 3],
}

macro_rules! load {
    ($rate:literal) => {
        Load {
            rate: $rate,
            tcp: [
                Measure::new(concat!("TCP at ", $rate, " Mb/s"), "Mb/s"),
                Measure::new(concat!("TCP at ", $rate, " Mb/s: CPU"), "%"),
                Measure::new(concat!("TCP at ", $rate, " Mb/s: calls"), "/s"),
            ],
            udp: [
                Measure::new(concat!("UDP at ", $rate, " Mb/s"), "Mb/s"),
                Measure::new(concat!("UDP at ", $rate, " Mb/s: CPU"), "%"),
                Measure::new(concat!("UDP at ", $rate, " Mb/s: lost"), "%"),
            ],
        }
    };
}

const LOADS: [Load; 10] = [
    load!(90),
    load!(180),
    load!(270),
    load!(360),
    load!(450),
    load!(540),
    load!(630),
    load!(720),
    load!(810),
    load!(900),
];
/// Without a limit, for a minute.
const SERIES: [Measure; 2] = [
    Measure::new("TCP for a minute", "Mb/s"),
    Measure::new("TCP for a minute: CPU", "%"),
];

/// A load that is known: what a thread works of each of its periods, as long as a tick of many
/// kernels. What the meter says of it is to be the same, on a machine that is idle; where others
/// take the processor from it, it is less.
const KNOWN: Measure = Measure::new("a load of 30 %: CPU", "%");
const KNOWN_SHARE: (Duration, Duration) = (Duration::from_micros(1200), Duration::from_millis(4));
/// By whom.
const METER: &str = "meter";

/// What is measured, in the order of the report.
pub const ALL: [Measure; 63] = all();
/// What was promised at the highest load.
pub const PROMISES: [Promise; 4] = [
    promise(LOADS[9].tcp[1], Some(LINUX), Bound::AtMost(1.0)),
    promise(LOADS[9].udp[1], Some(LINUX), Bound::AtMost(1.0)),
    promise(LOADS[9].udp[2], None, Bound::AtMost(0.0)),
    Promise {
        contender: IMAGE,
        ..promise(LOADS[9].tcp[1], Some(LINUX), Bound::AtMost(1.0))
    },
];

const fn promise(measure: Measure, baseline: Option<&'static str>, bound: Bound) -> Promise {
    Promise {
        measure,
        contender: PROGRAM,
        baseline,
        bound,
    }
}

const fn all() -> [Measure; 63] {
    let mut all = [KNOWN; 63];
    let mut at = 0;
    while at < LOADS.len() {
        let mut which = 0;
        while which < 3 {
            all[1 + 3 * at + which] = LOADS[at].tcp[which];
            all[31 + 3 * at + which] = LOADS[at].udp[which];
            which += 1;
        }
        at += 1;
    }
    all[61] = SERIES[0];
    all[62] = SERIES[1];
    all
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Seconds that count, each a sample, of each load and contender.
    pub samples: usize,
    /// What goes before them.
    pub warm_up: Duration,
    /// Seconds without a limit.
    pub series: usize,
}

/// For judging, in 20 minutes. Seed 004 has seven samples behind ten seconds, because its machines
/// took that long to be steady.
pub const FULL: Plan = Plan {
    samples: 5,
    warm_up: Duration::from_secs(3),
    series: 60,
};
/// For a glance.
pub const QUICK: Plan = Plan {
    samples: 2,
    warm_up: SECOND,
    series: 3,
};

/// What is started.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `outboard`, its tender, and the image `stack` for spt.
    pub stack: proxied::Programs,
    /// The image `iperf3` for spt.
    pub image: PathBuf,
}

/// Takes all measurements, `say`ing how far it is, and draws them into the folder `out`.
///
/// # Errors
/// The first thing that failed.
pub fn measure(
    plan: &Plan,
    programs: &Programs,
    out: &Path,
    say: &dyn Fn(&str),
) -> Result<Samples, Error> {
    let mut samples = Samples::default();
    for round in 0..plan.samples {
        let known = known_load().map_err(|error| Error::Measure(METER, KNOWN, error))?;
        samples.add(KNOWN, METER, round, known);
    }
    for load in &LOADS {
        for (kind, measures) in [(TCP, &load.tcp[..]), (UDP, &load.udp[..])] {
            for name in CONTENDERS {
                say(&format!("{} at {} Mb/s: {name}", kind.name, load.rate));
                let window = Window {
                    warm_up: plan.warm_up,
                    measured: SECOND * plan.samples as u32,
                };
                let taken = turn(name, programs, (kind, Some(load.rate)), window)
                    .map_err(|error| Error::Measure(name, measures[0], error))?;
                taken.add(measures, name, &mut samples);
            }
        }
    }
    for name in CONTENDERS {
        say(&format!("{} seconds of TCP: {name}", plan.series));
        let window = Window {
            warm_up: plan.warm_up,
            measured: SECOND * plan.series as u32,
        };
        let taken = turn(name, programs, (TCP, None), window)
            .map_err(|error| Error::Measure(name, SERIES[0], error))?;
        taken.add(&SERIES, name, &mut samples);
    }
    draw(&samples, out).map_err(|error| Error::File(out.to_owned(), error))?;
    Ok(samples)
}

/// What came of a load: for each second, Mb/s and percent of a processor; and what is said of all
/// of them: percent of what was lost, or calls of the kernel in a second.
struct Taken {
    seconds: Vec<(f64, f64)>,
    of_all: Option<f64>,
}

impl Taken {
    fn add(&self, measures: &[Measure], name: &'static str, samples: &mut Samples) {
        for (round, (rate, cpu)) in self.seconds.iter().enumerate() {
            samples.add(measures[0], name, round, *rate);
            samples.add(measures[1], name, round, *cpu);
        }
        if let (Some(measure), Some(value)) = (measures.get(2), self.of_all) {
            samples.add(*measure, name, 0, value);
        }
    }
}

/// What is sent to a server, and how much, in Mb/s; nothing limits it if that is `None`.
type Sent = (Kind, Option<u32>);

fn turn(name: &str, programs: &Programs, (kind, rate): Sent, window: Window) -> io::Result<Taken> {
    let (served, _program) = start(name, programs).map_err(io::Error::other)?;
    served.listens(PORT)?;
    thread::sleep(LISTENS_ANEW);
    let whole = Window {
        measured: window.measured + BEHIND,
        ..window
    };
    let mut client = iperf3::client(SERVER.into(), whole);
    client.args(kind.words);
    // Without a limit it would be 1 Mb/s of datagrams.
    let rate = rate.map_or("0".into(), |rate| format!("{rate}M"));
    client.args(["--bitrate", &rate]).stdout(Stdio::piped());
    let mut client = served.client.run(|| client.spawn())?;
    let begin = Instant::now();
    let mut cpu = Vec::new();
    thread::sleep(window.warm_up);
    let mut before = used()?;
    for second in 1..=window.measured.as_secs() as u32 {
        let until = begin + window.warm_up + SECOND * second;
        thread::sleep(until.saturating_duration_since(Instant::now()));
        let now = used()?;
        // Less if a thread has ended meanwhile, whose time is gone with it.
        cpu.push(now.saturating_sub(before).as_secs_f64() * 100.0);
        before = now;
    }
    let calls = match kind.name == TCP.name {
        true => calls(client.id())?,
        false => None,
    };
    let mut output = Vec::new();
    if let Some(stdout) = &mut client.stdout {
        stdout.read_to_end(&mut output)?;
    }
    client.wait()?;
    let (rates, lost) = figures(&output).map_err(io::Error::other)?;
    let arrived = lost.map_or(1.0, |lost| 1.0 - lost / 100.0);
    let seconds = rates.into_iter().zip(cpu);
    Ok(Taken {
        seconds: seconds.map(|(rate, cpu)| (rate * arrived, cpu)).collect(),
        of_all: lost.or(calls),
    })
}

/// CPU time of this process, of all that it has started, and of what the kernel leaves for later.
fn used() -> io::Result<Duration> {
    Ok(meter::family(std::process::id())? + meter::softirqs()?)
}

/// What the meter says of a second of a load that is known, in percent.
fn known_load() -> io::Result<f64> {
    let (share, period) = KNOWN_SHARE;
    let begin = Instant::now();
    let before = used()?;
    let worker = thread::spawn(move || {
        let mut next = begin;
        while next < begin + SECOND {
            while next.elapsed() < share {}
            next += period;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        used()
    });
    let after = worker.join().map_err(|_| io::ErrorKind::Other)??;
    Ok((after - before).as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0)
}

/// Calls of the kernel in a second, of all that this process has started but the `client`; `None`
/// where there is no `perf`, or it may not count them.
fn calls(client: u32) -> io::Result<Option<f64>> {
    let all = meter::descendants(std::process::id())?;
    let servers: Vec<_> = all.iter().filter(|id| **id != client).collect();
    let servers: Vec<_> = servers.iter().map(|id| id.to_string()).collect();
    let mut perf = Command::new("perf");
    perf.args([
        "stat",
        "--field-separator=,",
        "--event=raw_syscalls:sys_enter",
    ]);
    perf.args(["--pid", &servers.join(","), "--", "sleep", "1"]);
    match perf.stdin(Stdio::null()).output() {
        Ok(output) => Ok(counted(&String::from_utf8_lossy(&output.stderr))),
        Err(_) => Ok(None),
    }
}

/// perf-stat(1): a line of fields with commas, the first of which is the count.
fn counted(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("raw_syscalls"))?;
    line.split(',').next()?.parse().ok()
}

/// Mb/s that were sent in each second, and percent of datagrams that were lost, from the client's
/// output.
fn figures(output: &[u8]) -> Result<(Vec<f64>, Option<f64>), String> {
    let report: Value = serde_json::from_slice(output).map_err(|error| error.to_string())?;
    if let Some(error) = report["error"].as_str() {
        return Err(error.to_owned());
    }
    let intervals = report["intervals"].as_array().ok_or("no intervals")?;
    let sums = intervals.iter().map(|interval| &interval["sum"]);
    let counted = sums.filter(|sum| sum["omitted"] == false);
    let rates = counted.map(|sum| sum["bits_per_second"].as_f64().map(|bits| bits / 1e6));
    let rates = rates.collect::<Option<_>>().ok_or("no bits_per_second")?;
    Ok((rates, report["end"]["sum"]["lost_percent"].as_f64()))
}

fn start(name: &str, programs: &Programs) -> Result<(Served, Option<Process>), contender::Error> {
    let words = ["iperf3", "--server"];
    match name {
        PROGRAM => {
            let words = words.map(OsString::from);
            let (served, program) = on_stack(&programs.stack, &words)?;
            Ok((served, Some(program)))
        }
        IMAGE => {
            let tender = &programs.stack.tender;
            let served = Served::image(tender, &programs.image, &[MEMORY], &["-s"])?;
            Ok((served, None))
        }
        LINUX => {
            let mut server = Command::new(words[0]);
            server.arg(words[1]).stdout(Stdio::null());
            Ok((crate::http::behind_cable(server)?, None))
        }
        _ => {
            let words = words.map(OsString::from);
            let passed = [TCP, UDP].map(|kind| (kind.name, PORT));
            Ok((on_slirp(&words, &passed)?, None))
        }
    }
}

/// Over the load: what arrived, CPU time, and what was lost; and over a minute, what arrived.
fn draw(samples: &Samples, out: &Path) -> io::Result<()> {
    fs::create_dir_all(out)?;
    type Of = fn(&Load) -> Measure;
    let over_load: [(&str, &str, &str, Of); 6] = [
        ("tcp", "TCP", "Mb/s", |load| load.tcp[0]),
        ("tcp-cpu", "TCP: CPU", "%", |load| load.tcp[1]),
        ("tcp-calls", "TCP: calls of the kernel", "/s", |load| {
            load.tcp[2]
        }),
        ("udp", "UDP", "Mb/s", |load| load.udp[0]),
        ("udp-cpu", "UDP: CPU", "%", |load| load.udp[1]),
        ("udp-lost", "UDP: lost", "%", |load| load.udp[2]),
    ];
    for (file, title, unit, of) in over_load {
        let lines = CONTENDERS.map(|name| Line {
            name: name.into(),
            points: LOADS
                .iter()
                .filter_map(|load| {
                    let summary = samples.summary(of(load), name)?;
                    Some((f64::from(load.rate), summary.median))
                })
                .collect(),
        });
        let svg = plot::lines(title, ["load, Mb/s", unit], &lines);
        fs::write(out.join(format!("{file}.svg")), svg)?;
    }
    let lines = CONTENDERS.map(|name| Line {
        name: name.into(),
        points: (1..)
            .map(f64::from)
            .zip(samples.values(SERIES[0], name))
            .collect(),
    });
    let svg = plot::lines(SERIES[0].name, ["seconds", "Mb/s"], &lines);
    fs::write(out.join("minute.svg"), svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_count_are_read() {
        let output = br#"{"intervals":[
            {"sum":{"bits_per_second":1e6,"omitted":true}},
            {"sum":{"bits_per_second":9e7,"omitted":false}}],
            "end":{"sum":{"lost_percent":0.5}}}"#;
        assert_eq!(figures(output), Ok((vec![90.0], Some(0.5))));
    }

    #[test]
    fn a_count_is_read() {
        let text = "\n144,,raw_syscalls:sys_enter,1000123,100.00,0.144,K/sec\n";
        assert_eq!(counted(text), Some(144.0));
        assert_eq!(
            counted("<not counted>,,raw_syscalls:sys_enter,0,0.00,,"),
            None
        );
        assert_eq!(counted("perf: not found"), None);
    }

    #[test]
    fn every_measure_is_reported_once() {
        for (at, measure) in ALL.iter().enumerate() {
            assert!(!ALL[..at].contains(measure), "{}", measure.name);
        }
    }

    #[test]
    fn what_iperf3_says_is_passed_on() {
        assert_eq!(
            figures(br#"{"error":"no route"}"#),
            Err("no route".to_owned())
        );
        assert!(figures(b"{}").is_err());
    }
}
