//! The lab's half of the matrix: boots the guest of each run, loads it, and prints what came of it.

mod counters;
mod guest;
mod trace;
mod wire;

use super::axes::{self, Reflector, Run};
use super::ladder::{self, Point};
use super::outcome::{Counts, Outcome, Reads, Step, Traced, Transfer, growth};
use super::plan::Plans;
use guest::{DISK, Guest, TAP};
use serde_json::Value;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;
use testbed::traffic::paced::{Answered, OVERHEAD_BYTES};
use wire::Wire;

/// What a line with raw data begins with.
pub const RAW: &str = "matrix: raw ";

const HOST: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
const PREFIX: u8 = 24;
/// The reflector's port, and that of our image, which is echo's (RFC 862).
const PORT: u16 = 9;
const PORT_OF_OURS: u16 = 7;
/// Fewest frames of a step: fewer say nothing about loss.
const FRAMES_MIN: u64 = 100;
/// Before the first step: rate and frames, until all come back. Links come up, addresses are
/// resolved, code is paged in.
const WARM_UP: (u64, u64) = (500, 100);
/// So often at most.
const WARM_UPS_MAX: usize = 20;
/// Shares of the limit at which events are counted.
const TRACED_PERCENT: [u32; 2] = [50, 100];
/// A transfer's length. With clocks that count instructions, a second takes minutes.
const TRANSFER_BYTES: &str = "4M";
const DISK_BYTES: u64 = 64 << 20;
/// Depths at which a disk is read, and how often.
const READS: [(u32, u64); 2] = [(1, 1000), (16, 2000)];
/// Those that are counted, event by event.
const READS_TRACED: u64 = 500;

/// Runs these, `say`ing raw data of each in a line of its own.
pub fn run_all(plans: &Plans, runs: &[Run], own: &str, say: &dyn Fn(&str)) {
    for run in runs {
        say(&format!("matrix: begin {}", run.name()));
        let mut outcome = Outcome {
            run: run.clone(),
            steps: Vec::new(),
            traced: Vec::new(),
            transfers: Vec::new(),
            reads: Vec::new(),
            failure: None,
        };
        let world = World { plans, own, say };
        if let Err(error) = world.run(&mut outcome) {
            outcome.failure = Some(error.to_string());
        }
        match serde_json::to_string(&outcome) {
            Ok(text) => say(&format!("{RAW}{text}")),
            Err(error) => say(&format!("matrix: {}: {error}", run.name())),
        }
    }
}

struct World<'a> {
    plans: &'a Plans,
    /// This program, which is the generator, too.
    own: &'a str,
    say: &'a dyn Fn(&str),
}

impl World<'_> {
    fn run(&self, outcome: &mut Outcome) -> io::Result<()> {
        let run = outcome.run.clone();
        if !run.is_card() {
            File::create(DISK)?.set_len(DISK_BYTES)?;
            let mut guest = Guest::boot(&run)?;
            return self.disk(&mut guest, outcome);
        }
        let wire = Wire::lay(&run)?;
        let mut guest = Guest::boot(&run)?;
        wire.join()?;
        if run.reflector == Reflector::Xdp {
            guest.ask(". /lab/xdp")?;
        }
        self.warm_up(&run)?;
        let mut points = Vec::new();
        while let Some(rate) = ladder::next(&points, &self.plans.percent) {
            let step = self.step(&mut guest, &run, rate)?;
            points.push(Point {
                offered: rate as f64,
                reflected: step.reflected(),
            });
            (self.say)(&format!(
                "matrix: {rate}/s offered, {:.0}/s came back, {:.2} % lost",
                step.reflected(),
                step.loss_percent()
            ));
            outcome.steps.push(step);
        }
        let limit = ladder::limit(&points).ok_or_else(|| io::Error::other("nothing came back"))?;
        for percent in TRACED_PERCENT {
            let rate = (limit * f64::from(percent) / 100.0) as u64;
            let (step, events) = trace::during(run.bus, || self.step(&mut guest, &run, rate))?;
            outcome.traced.push(Traced {
                percent,
                step,
                events,
            });
        }
        // Our image echoes, and does no more.
        let directions: &[&str] = match run.guest {
            axes::Guest::Linux => &["receive", "send"],
            axes::Guest::Ours => &[],
        };
        for direction in directions {
            let transfer = self.transfer(&mut guest, direction)?;
            outcome.transfers.push(transfer);
        }
        Ok(())
    }

    fn warm_up(&self, run: &Run) -> io::Result<()> {
        let (rate, count) = WARM_UP;
        for _ in 0..WARM_UPS_MAX {
            if self.offer(run, rate, count)?.latencies.len() as u64 == count {
                return Ok(());
            }
        }
        Err(io::Error::other("frames do not come back"))
    }

    /// A load, with what counters grew by.
    fn step(&self, guest: &mut Guest, run: &Run, rate: u64) -> io::Result<Step> {
        let count = (rate * self.plans.step_ms / 1000).max(FRAMES_MIN);
        let (answered, counts) = counted(guest, Some(TAP), || self.offer(run, rate, count))?;
        Ok(Step::new(rate, &answered, counts))
    }

    /// Offers a load from a process that nobody else may hold up: a generator on another machine
    /// would not wait for this one's processor either.
    fn offer(&self, run: &Run, rate: u64, count: u64) -> io::Result<Answered> {
        let bytes = (run.packet_bytes as usize).saturating_sub(OVERHEAD_BYTES);
        let port = match run.guest {
            axes::Guest::Linux => PORT,
            axes::Guest::Ours => PORT_OF_OURS,
        };
        let output = Command::new("chrt")
            .args(["-f", "50", self.own, "paced"])
            .arg(format!("{GUEST}:{port}"))
            .args([rate.to_string(), count.to_string(), bytes.to_string()])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        read_answered(&text).ok_or_else(|| {
            let why = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("the generator: {}", why.trim()))
        })
    }

    fn transfer(&self, guest: &mut Guest, direction: &str) -> io::Result<Transfer> {
        let run = || {
            let mut client = Command::new("iperf3");
            client.args(["--json", "--client", &GUEST.to_string()]);
            client.args(["--bytes", TRANSFER_BYTES]);
            if direction == "send" {
                client.arg("--reverse");
            }
            let report: Value = serde_json::from_slice(&client.output()?.stdout)?;
            Ok(report)
        };
        let (report, counts) = counted(guest, Some(TAP), run)?;
        let sums = &report["end"];
        let bits = sums["sum_received"]["bits_per_second"].as_f64();
        let bits = bits.ok_or_else(|| io::Error::other(format!("iperf3: {}", report["error"])))?;
        Ok(Transfer {
            direction: direction.to_owned(),
            mbits: bits / 1e6,
            retransmits: sums["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
            counts,
        })
    }

    fn disk(&self, guest: &mut Guest, outcome: &mut Outcome) -> io::Result<()> {
        let read = |guest: &mut Guest, depth: u32, count: u64| {
            let before = counters::read(None, guest)?;
            let lines = guest.ask(&format!("outboard-bench reads /dev/vda {depth} {count}"))?;
            let after = counters::read(None, guest)?;
            let text = lines.first().map_or("", String::as_str);
            let mut reads: Reads = serde_json::from_str(text)?;
            reads.counts = growth(&before, &after);
            Ok::<_, io::Error>(reads)
        };
        // Code is paged in, and places of the file are made.
        read(guest, 1, FRAMES_MIN)?;
        for (depth, count) in READS {
            let reads = read(guest, depth, count)?;
            (self.say)(&format!(
                "matrix: depth {depth}: {:.0} reads a second",
                reads.count as f64 * 1e9 / reads.elapsed_ns.max(1) as f64
            ));
            outcome.reads.push(reads);
        }
        let (reads, events) = trace::during(outcome.run.bus, || read(guest, 1, READS_TRACED))?;
        outcome.reads.push(Reads { events, ..reads });
        Ok(())
    }
}

/// Does something, and tells what counters grew by meanwhile.
fn counted<T>(
    guest: &mut Guest,
    interface: Option<&str>,
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<(T, Counts)> {
    let before = counters::read(interface, guest)?;
    let done = act()?;
    let after = counters::read(interface, guest)?;
    Ok((done, growth(&before, &after)))
}

/// What [`print_answered`] printed.
fn read_answered(text: &str) -> Option<Answered> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let (sent, refused, sending, elapsed) = (next()?, next()?, next()?, next()?);
    Some(Answered {
        sent,
        refused,
        sending: std::time::Duration::from_nanos(sending),
        elapsed: std::time::Duration::from_nanos(elapsed),
        latencies: numbers.collect::<Option<_>>()?,
    })
}

/// What the generator prints: numbers.
pub fn print_answered(answered: &Answered) -> String {
    let head = [
        answered.sent,
        answered.refused,
        answered.sending.as_nanos() as u64,
        answered.elapsed.as_nanos() as u64,
    ];
    let numbers = head.iter().chain(&answered.latencies);
    numbers.map(|number| format!("{number}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_the_generator_prints_is_read_back() {
        let answered = Answered {
            sent: 3,
            refused: 1,
            sending: Duration::from_nanos(70),
            elapsed: Duration::from_nanos(90),
            latencies: vec![5, 6],
        };
        assert_eq!(read_answered(&print_answered(&answered)), Some(answered));
        assert_eq!(read_answered("1 2 3"), None);
        assert_eq!(read_answered("1 2 3 4 x"), None);
    }
}
