//! Guests at one moment, and what they have done between two: pure.

use super::process::Cost;
use crate::stats::rates::{Rate, Rates};
use crate::stats::snapshot::Snapshot;
use net::metrics::Kind;
use serde::Serialize;
use std::cmp::Reverse;
use std::time::Duration;

/// A guest at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// The process id of its monitor, and when it was started: another run is another guest.
    pub run: (u32, u64),
    /// What it costs, if it runs.
    pub cost: Option<Cost>,
    /// What it has counted; none if it does not run, or cannot be read.
    pub snapshot: Option<Snapshot>,
    /// `running`, or what the supervisor calls its state.
    pub state: String,
    /// How often it was started again, if it is a component of `outboard up`.
    pub restarts: Option<u64>,
}

/// What a guest does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// `running`, or what the supervisor calls its state.
    pub state: String,
    /// How often it was started again, if it is a component of `outboard up`.
    pub restarts: Option<u64>,
    /// Processors that it keeps busy, in percent of one.
    pub cpu_percent: Option<f64>,
    /// Its memory in RAM, and its monitor's.
    pub memory_bytes: Option<u64>,
    /// Connections that it tracks, or else those of its TCP/IP stack.
    pub connections: Option<u64>,
    /// What its ports and its TCP/IP stack drop in a second. What a rule drops, the rule counts.
    pub drops_per_second: Option<f64>,
    /// Its ports.
    pub ports: Vec<PortRow>,
}

/// What a port does in a second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PortRow {
    /// Its name.
    pub name: String,
    /// The host's interface, if it has one.
    pub interface: Option<String>,
    /// What comes in.
    pub receive: Option<PerSecond>,
    /// What goes out.
    pub transmit: Option<PerSecond>,
    /// What it drops.
    pub drops_per_second: Option<f64>,
}

/// Frames and bits in a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerSecond {
    /// Frames.
    pub frames: f64,
    /// Bits.
    pub bits: f64,
}

impl From<Rate> for PerSecond {
    fn from(Rate { frames, bits }: Rate) -> Self {
        Self { frames, bits }
    }
}

/// What guests are put in order by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Their names.
    Name,
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
    /// Bits in a second, of all ports.
    Traffic,
    /// Connections.
    Connections,
    /// Drops in a second.
    Drops,
}

impl Sort {
    /// Every order, each with the key that chooses it.
    pub const ALL: [(u8, &'static str, Self); 6] = [
        (b'n', "name", Self::Name),
        (b'c', "cpu", Self::Cpu),
        (b'm', "memory", Self::Memory),
        (b't', "traffic", Self::Traffic),
        (b'k', "connections", Self::Connections),
        (b'd', "drops", Self::Drops),
    ];
}

/// What guests have done since the samples `before`, which were taken `elapsed` ago.
pub fn rows(before: &[Sample], now: &[Sample], elapsed: Duration) -> Vec<Row> {
    let same = |sample: &Sample| {
        let mut before = before.iter();
        before.find(|one| one.name == sample.name && one.run == sample.run)
    };
    now.iter()
        .map(|sample| row(same(sample), sample, elapsed))
        .collect()
}

/// Puts guests in order: those with most first, and those with the same by their names.
pub fn sort(rows: &mut [Row], sort: Sort) {
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    // Bits of numbers that are not negative are in the order of the numbers.
    let float = |number: Option<f64>| number.map_or(0, |number| number.max(0.0).to_bits());
    match sort {
        Sort::Name => {}
        Sort::Cpu => rows.sort_by_key(|row| Reverse(float(row.cpu_percent))),
        Sort::Memory => rows.sort_by_key(|row| Reverse(row.memory_bytes)),
        Sort::Connections => rows.sort_by_key(|row| Reverse(row.connections)),
        Sort::Drops => rows.sort_by_key(|row| Reverse(float(row.drops_per_second))),
        Sort::Traffic => rows.sort_by_key(|row| {
            let ways = row
                .ports
                .iter()
                .flat_map(|port| [port.receive, port.transmit]);
            // A sum of none would be -0.
            let bits = ways.flatten().fold(0.0, |sum, rate| sum + rate.bits);
            Reverse(float(Some(bits)))
        }),
    }
}

fn row(before: Option<&Sample>, now: &Sample, elapsed: Duration) -> Row {
    let seconds = elapsed.as_secs_f64();
    let busy = before.and_then(|before| {
        let spent = now.cost?.cpu.checked_sub(before.cost?.cpu)?;
        (seconds > 0.0).then(|| 100.0 * spent.as_secs_f64() / seconds)
    });
    let former = before.and_then(|before| before.snapshot.as_ref());
    let snapshot = now.snapshot.as_ref();
    let per_second = |number: fn(&Snapshot) -> u64| {
        let more = number(snapshot?).checked_sub(number(former?))?;
        (seconds > 0.0).then(|| more as f64 / seconds)
    };
    Row {
        name: now.name.clone(),
        state: now.state.clone(),
        restarts: now.restarts,
        cpu_percent: busy,
        memory_bytes: now.cost.map(|cost| cost.memory),
        connections: snapshot.and_then(connections),
        drops_per_second: per_second(drops),
        ports: snapshot.map_or_else(Vec::new, |snapshot| ports(former, snapshot, elapsed)),
    }
}

fn ports(before: Option<&Snapshot>, now: &Snapshot, elapsed: Duration) -> Vec<PortRow> {
    let rates = before.map(|before| Rates::between(before, now, elapsed));
    let seconds = elapsed.as_secs_f64();
    let row = |(number, port): (usize, &crate::stats::snapshot::Port)| {
        let [receive, transmit] = rates
            .as_ref()
            .and_then(|rates| rates.ports.get(number).copied())
            .unwrap_or_default();
        let sum = |snapshot: &Snapshot| {
            let port = snapshot.ports.get(number)?;
            Some(saturating_sum(port.drops.iter().map(|(_, count)| *count)))
        };
        let dropped = before.and_then(|before| sum(now)?.checked_sub(sum(before)?));
        let dropped = dropped.filter(|_| seconds > 0.0);
        PortRow {
            name: port.name.clone(),
            interface: port.interface.clone(),
            receive: receive.map(PerSecond::from),
            transmit: transmit.map(PerSecond::from),
            drops_per_second: dropped.map(|count| count as f64 / seconds),
        }
    };
    now.ports.iter().enumerate().map(row).collect()
}

/// A guest may count anything.
fn saturating_sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn connections(snapshot: &Snapshot) -> Option<u64> {
    if let Some(connections) = &snapshot.connections {
        return Some(saturating_sum(
            connections.open.iter().map(|(_, count)| *count),
        ));
    }
    let states = snapshot.net.as_ref()?.numbers_of(Kind::State);
    let open = states.filter(|number| number.name != "closed");
    Some(saturating_sum(open.map(|number| number.value)))
}

fn drops(snapshot: &Snapshot) -> u64 {
    let ports = snapshot.ports.iter().flat_map(|port| &port.drops);
    let ports = ports.map(|(_, count)| *count);
    let net = snapshot
        .net
        .iter()
        .flat_map(|net| net.numbers_of(Kind::Drop));
    saturating_sum(ports.chain(net.map(|number| number.value)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::stats::snapshot::Connections;
    use crate::stats::snapshot::tests::snapshot;

    /// A firewall with some traffic behind it.
    pub fn sample(name: &str) -> Sample {
        let mut snapshot = snapshot();
        snapshot.connections = Some(Connections {
            capacity: 64,
            open: vec![("udp".into(), 3), ("icmp".into(), 2)],
            events: Vec::new(),
        });
        Sample {
            name: name.into(),
            run: (42, 7),
            cost: Some(Cost {
                cpu: Duration::from_secs(10),
                memory: 64 << 20,
            }),
            snapshot: Some(snapshot),
            state: "running".into(),
            restarts: Some(2),
        }
    }

    /// The same two seconds later.
    pub fn later(name: &str) -> Sample {
        let mut sample = sample(name);
        sample.cost = Some(Cost {
            cpu: Duration::from_millis(10_500),
            memory: 65 << 20,
        });
        let snapshot = sample.snapshot.as_mut().unwrap();
        snapshot.ports[0].receive.frames += 3000;
        snapshot.ports[0].receive.bytes += 1_000_000;
        snapshot.ports[0].drops[0].1 += 8;
        sample
    }

    pub const TWO: Duration = Duration::from_secs(2);

    #[test]
    fn what_a_guest_does_is_the_difference() {
        let rows = rows(&[sample("fw")], &[later("fw")], TWO);
        let row = &rows[0];
        assert_eq!(
            (row.cpu_percent, row.memory_bytes),
            (Some(25.0), Some(65 << 20))
        );
        assert_eq!((row.connections, row.restarts), (Some(5), Some(2)));
        assert_eq!(row.drops_per_second, Some(4.0));
        let expected = PerSecond {
            frames: 1500.0,
            bits: 4_000_000.0,
        };
        let port = &row.ports[0];
        assert_eq!(
            (port.receive, port.drops_per_second),
            (Some(expected), Some(4.0))
        );
        assert_eq!(row.ports[1].receive.map(|rate| rate.bits), Some(0.0));
    }

    #[test]
    fn another_run_has_no_rates_yet() {
        let mut other = later("fw");
        other.run = (43, 9);
        let rows = rows(&[sample("fw")], &[other], TWO);
        assert_eq!(
            (rows[0].cpu_percent, rows[0].drops_per_second),
            (None, None)
        );
        assert_eq!(rows[0].ports[0].receive, None);
        let hostile = {
            let mut sample = later("fw");
            let snapshot = sample.snapshot.as_mut().unwrap();
            snapshot.ports[0]
                .drops
                .iter_mut()
                .for_each(|drop| drop.1 = u64::MAX);
            sample
        };
        let hostile = std::slice::from_ref(&hostile);
        let rows = super::rows(hostile, hostile, Duration::ZERO);
        assert_eq!(rows[0].drops_per_second, None);
    }

    #[test]
    fn guests_stand_in_each_order() {
        let idle = |name: &str| {
            let mut sample = sample(name);
            sample.snapshot = None;
            sample
        };
        let before = [sample("b"), idle("a"), sample("c")];
        let now = [later("b"), idle("a"), sample("c")];
        let mut rows = rows(&before, &now, TWO);
        let mut names = |by| {
            sort(&mut rows, by);
            rows.iter().map(|row| row.name.as_str()).collect::<String>()
        };
        for (by, expected) in [
            (Sort::Name, "abc"),
            (Sort::Cpu, "bac"),
            (Sort::Memory, "bac"),
            (Sort::Traffic, "bac"),
            (Sort::Connections, "bca"),
            (Sort::Drops, "bac"),
        ] {
            assert_eq!(names(by), expected, "{by:?}");
        }
    }
}
