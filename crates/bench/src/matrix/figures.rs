//! What raw data of a run says, in few figures.

use super::ladder;
use super::outcome::{Counts, Outcome, Reads, Step, Traced};
use super::report::points;

/// Where frames can be lost, on their way there and back. See [`places`].
pub const PLACES: [&str; 9] = [
    "not taken from the sender",
    "queue of the tap",
    "between tap and guest",
    "guest's driver or XDP",
    "guest's socket",
    "between socket and guest's card",
    "between guest and tap",
    "tap, to the host",
    "sender's socket",
];

/// A figure: its name, its unit, and itself.
pub type Figure = (&'static str, &'static str, f64);

/// The figures of a run.
pub fn of(outcome: &Outcome) -> Vec<Figure> {
    let mut figures = of_steps(outcome);
    for (percent, suffix) in [(50, AT_HALF), (100, AT_LIMIT)] {
        let traced = outcome.traced.iter().find(|t| t.percent == percent);
        figures.extend(
            traced
                .into_iter()
                .flat_map(|traced| of_traced(traced, suffix)),
        );
    }
    for transfer in &outcome.transfers {
        let names = match transfer.direction.as_str() {
            "receive" => ["TCP, guest receives", "segments sent again to the guest"],
            _ => ["TCP, guest sends", "segments sent again by the guest"],
        };
        figures.push((names[0], "Mb/s", transfer.mbits));
        figures.push((names[1], "segments", transfer.retransmits as f64));
    }
    figures.extend(outcome.reads.iter().flat_map(of_reads));
    figures
}

/// Names of figures at a share of the limit.
type Names = [&'static str; 4];
const AT_HALF: Names = [
    "accesses of registers at 50 %",
    "returns to user space at 50 %",
    "exits at 50 %",
    "switches at 50 %",
];
const AT_LIMIT: Names = [
    "accesses of registers at 100 %",
    "returns to user space at 100 %",
    "exits at 100 %",
    "switches at 100 %",
];

fn of_steps(outcome: &Outcome) -> Vec<Figure> {
    let Some(limit) = ladder::limit(&points(outcome)) else {
        return Vec::new();
    };
    let share = |step: &Step| 100.0 * step.rate as f64 / limit;
    let losing = outcome
        .steps
        .iter()
        .filter(|step| step.loss_percent() > 0.0);
    let first = losing.map(share).fold(f64::INFINITY, f64::min);
    let before = outcome.steps.iter().filter(|step| share(step) <= 95.5);
    let worst = before.map(Step::loss_percent).fold(0.0, f64::max);
    let mut figures = vec![
        ("load limit", "frames/s", limit),
        ("lost at up to 95 % of it", "%", worst),
    ];
    if first.is_finite() {
        figures.push(("least load that loses", "% of the limit", first));
    }
    if let Some((_, step)) = step_at(outcome, 50) {
        let us = |share| step.latency_ns(share).map_or(0.0, |ns| ns as f64 / 1e3);
        figures.push(("median latency at 50 %", "us", us(0.5)));
        figures.push(("p99 latency at 50 %", "us", us(0.99)));
    }
    figures
}

/// The step whose load is next to this share of the limit, and that share.
pub fn step_at(outcome: &Outcome, percent: u32) -> Option<(f64, &Step)> {
    let limit = ladder::limit(&points(outcome))?;
    let shares = outcome.steps.iter();
    shares
        .map(|step| (100.0 * step.rate as f64 / limit, step))
        .min_by(|(one, _), (other, _)| {
            let far = |share: f64| (share - f64::from(percent)).abs();
            far(*one).total_cmp(&far(*other))
        })
}

fn of_traced(traced: &Traced, names: Names) -> Vec<Figure> {
    let frames = traced.step.received.max(1) as f64;
    let counts = [
        registers_of_devices(&traced.events.registers),
        returns_for_devices(&traced.events.returns),
        sum(&traced.events.exits),
        sum(&traced.events.switches),
    ];
    let each = names.into_iter().zip(counts);
    each.map(|(name, count)| (name, "a frame", count as f64 / frames))
        .collect()
}

fn of_reads(reads: &Reads) -> Vec<Figure> {
    let each = reads.count.max(1) as f64;
    let rate = each * 1e9 / reads.elapsed_ns.max(1) as f64;
    let us = |name, share: f64| {
        let found = reads.latency.iter().find(|(of, _)| *of >= share);
        found.map(|(_, ns)| (name, "us", *ns as f64 / 1e3))
    };
    match (reads.events.registers.is_empty(), reads.depth) {
        (false, _) => vec![
            (
                "accesses of registers, depth 1",
                "a read",
                registers_of_devices(&reads.events.registers) as f64 / each,
            ),
            (
                "returns to user space, depth 1",
                "a read",
                returns_for_devices(&reads.events.returns) as f64 / each,
            ),
            (
                "switches, depth 1",
                "a read",
                sum(&reads.events.switches) as f64 / each,
            ),
        ],
        (true, 1) => std::iter::once(("reads, depth 1", "1/s", rate))
            .chain(us("median latency, depth 1", 0.5))
            .chain(us("p99 latency, depth 1", 0.99))
            .collect(),
        (true, _) => vec![("reads, depth 16", "1/s", rate)],
    }
}

/// Without those for ports, which are of the console.
fn returns_for_devices(counts: &Counts) -> u64 {
    let of_devices = counts.iter().filter(|(reason, _)| *reason != "port");
    of_devices.map(|(_, count)| count).sum()
}

fn sum(counts: &Counts) -> u64 {
    counts.values().sum()
}

/// Without those of interrupt controllers, which every guest has.
fn registers_of_devices(counts: &Counts) -> u64 {
    let of_devices = counts.iter().filter(|(name, _)| !name.contains("APIC"));
    of_devices.map(|(_, count)| count).sum()
}

/// How many frames of a step were lost in each of [`PLACES`]: what was counted where they went in,
/// without what was counted where they came out.
pub fn places(step: &Step) -> [u64; PLACES.len()] {
    let of = |name: &str| step.counts.get(name).copied().unwrap_or(0);
    let between = |before: &str, after: &str| of(before).saturating_sub(of(after));
    [
        step.refused,
        of("tap tx_dropped"),
        between("tap tx_packets", "guest card rx_packets"),
        of("guest card rx_dropped"),
        of("guest udp RcvbufErrors"),
        between("guest udp OutDatagrams", "guest card tx_packets"),
        between("guest card tx_packets", "tap rx_packets"),
        of("tap rx_dropped"),
        of("host udp RcvbufErrors"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::axes::Run;
    use std::time::Duration;
    use testbed::traffic::paced::Answered;

    fn step(rate: u64, received: u64, counts: &[(&str, u64)]) -> Step {
        let answered = Answered {
            sent: 1000,
            sending: Duration::from_secs_f64(1000.0 / rate as f64),
            latencies: vec![rate; received as usize],
            ..Answered::default()
        };
        let counts = counts.iter();
        let counts = counts.map(|(name, count)| ((*name).to_owned(), *count));
        Step::new(rate, &answered, counts.collect())
    }

    #[test]
    fn loss_is_found_before_the_limit() {
        let outcome = Outcome {
            run: Run::default(),
            steps: vec![
                step(8000, 500, &[]),
                step(2000, 1000, &[]),
                step(3000, 990, &[]),
                step(4000, 1000, &[]),
            ],
            traced: Vec::new(),
            transfers: Vec::new(),
            reads: Vec::new(),
            failure: None,
        };
        let figures = of(&outcome);
        let value = |name| figures.iter().find(|(other, ..)| *other == name).unwrap().2;
        assert_eq!(value("load limit"), 4000.0);
        assert_eq!(value("lost at up to 95 % of it"), 1.0);
        assert_eq!(value("least load that loses"), 75.0);
        assert_eq!(value("median latency at 50 %"), 2.0);
        assert!(
            of(&Outcome {
                steps: Vec::new(),
                ..outcome
            })
            .is_empty()
        );
    }

    #[test]
    fn a_frame_is_lost_between_two_counters() {
        let step = step(
            1000,
            900,
            &[
                ("tap tx_dropped", 40),
                ("tap tx_packets", 960),
                ("guest card rx_packets", 950),
                ("guest udp RcvbufErrors", 50),
                ("guest udp OutDatagrams", 900),
                ("guest card tx_packets", 900),
                ("tap rx_packets", 900),
            ],
        );
        assert_eq!(places(&step), [0, 40, 10, 0, 50, 0, 0, 0, 0]);
    }
}
