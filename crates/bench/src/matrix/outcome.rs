//! What a run leaves behind: raw data, a file of JSON for each.

use super::axes::Run;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use testbed::traffic::paced::Answered;

/// Counters by their names.
pub type Counts = BTreeMap<String, u64>;

/// Shares of answers whose latency is kept: enough to draw how they are distributed.
const SHARES: [f64; 16] = [
    0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0,
];
/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// What one run gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What was run.
    pub run: Run,
    /// Loads of frames, in the order in which they were offered.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// What was counted, event by event, at shares of the load limit.
    #[serde(default)]
    pub traced: Vec<Traced>,
    /// Transfers by iperf3.
    #[serde(default)]
    pub transfers: Vec<Transfer>,
    /// Reads of a disk.
    #[serde(default)]
    pub reads: Vec<Reads>,
    /// Why it ended early, if it did.
    #[serde(default)]
    pub failure: Option<String>,
}

/// A load, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Frames a second that were to be sent.
    pub rate: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that the kernel did not take from the sender.
    pub refused: u64,
    /// Frames that came back.
    pub received: u64,
    /// How long the sender sent, in nanoseconds.
    pub sending_ns: u64,
    /// How long it took until the last came back.
    pub elapsed_ns: u64,
    /// Shares of the answers, and the latency in nanoseconds that they have at most.
    pub latency: Vec<(f64, u64)>,
    /// What counters of kernel and guest grew by.
    pub counts: Counts,
}

impl Step {
    /// A step of these figures.
    pub fn new(rate: u64, answered: &Answered, counts: Counts) -> Self {
        Self {
            rate,
            sent: answered.sent,
            refused: answered.refused,
            received: answered.latencies.len() as u64,
            sending_ns: answered.sending.as_nanos() as u64,
            elapsed_ns: answered.elapsed.as_nanos() as u64,
            latency: distribution(&answered.latencies),
            counts,
        }
    }

    /// Percent of the frames that did not come back.
    pub fn loss_percent(&self) -> f64 {
        let all = self.sent + self.refused;
        100.0 * all.saturating_sub(self.received) as f64 / all.max(1) as f64
    }

    /// Frames that came back, a second.
    pub fn reflected(&self) -> f64 {
        let over = self.elapsed_ns.max(self.sending_ns).max(1);
        self.received as f64 * 1e9 / over as f64
    }

    /// The latency of this share of the answers, in nanoseconds.
    pub fn latency_ns(&self, share: f64) -> Option<u64> {
        let found = self.latency.iter().find(|(of, _)| *of >= share)?;
        Some(found.1)
    }
}

/// Latencies of the shares that are kept.
pub fn distribution(latencies: &[u64]) -> Vec<(f64, u64)> {
    let Ok(mut histogram) = Histogram::<u64>::new(DIGITS) else {
        return Vec::new();
    };
    for latency in latencies {
        // It grows as it must, and takes all that fit a number.
        let _ = histogram.record(*latency);
    }
    if histogram.is_empty() {
        return Vec::new();
    }
    let of = |share: f64| (share, histogram.value_at_quantile(share));
    SHARES.into_iter().map(of).collect()
}

/// Events of the kernel; none where they were not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Events {
    /// Accesses of registers and of interrupt controllers, by their names and `r` or `w`.
    pub registers: Counts,
    /// Returns to user space, by reason.
    pub returns: Counts,
    /// Exits of the guest, by reason.
    pub exits: Counts,
    /// Switches to a thread, by its name.
    pub switches: Counts,
}

/// A load during which events of the kernel were counted, which takes some instructions each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    /// Of the load limit.
    pub percent: u32,
    /// The load.
    pub step: Step,
    /// The events.
    #[serde(flatten)]
    pub events: Events,
}

/// A transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transfer {
    /// `receive` or `send`, as the guest sees it.
    pub direction: String,
    /// Megabits of payload a second.
    pub mbits: f64,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// What counters grew by.
    pub counts: Counts,
}

/// Reads of a disk, 4 KiB each, at random places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// How many at a time.
    pub depth: u32,
    /// How many in all.
    pub count: u64,
    /// How long they took, in nanoseconds.
    pub elapsed_ns: u64,
    /// As of frames.
    pub latency: Vec<(f64, u64)>,
    /// What counters grew by.
    #[serde(default)]
    pub counts: Counts,
    /// The events, if they were counted.
    #[serde(flatten)]
    pub events: Events,
}

/// What counters grew by; those that did not are left out.
pub fn growth(before: &Counts, after: &Counts) -> Counts {
    let grown = |(name, value): (&String, &u64)| {
        let by = value.saturating_sub(before.get(name).copied().unwrap_or(0));
        (by > 0).then(|| (name.clone(), by))
    };
    after.iter().filter_map(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_step_tells_loss_and_latency() {
        let answered = Answered {
            sent: 9,
            refused: 1,
            sending: Duration::from_millis(10),
            elapsed: Duration::from_millis(8),
            latencies: vec![100_000, 200_000, 300_000, 400_000, 500_000],
        };
        let step = Step::new(1000, &answered, Counts::new());
        assert_eq!(step.loss_percent(), 50.0);
        assert_eq!(step.reflected(), 500.0);
        assert!(
            step.latency_ns(0.5)
                .is_some_and(|ns| ns.abs_diff(300_000) < 300)
        );
        assert!(
            step.latency_ns(1.0)
                .is_some_and(|ns| ns.abs_diff(500_000) < 500)
        );
        let none = Step::new(1000, &Answered::default(), Counts::new());
        assert_eq!((none.latency_ns(0.5), none.loss_percent()), (None, 0.0));
    }

    #[test]
    fn events_lie_beside_the_rest() {
        let text = r#"{"depth":1,"count":2,"elapsed_ns":3,"latency":[[0.5,4]],"counts":{},
            "registers":{"QueueNotify w":5},"returns":{},"switches":{}}"#;
        let reads: Reads = serde_json::from_str(text).unwrap();
        assert_eq!(reads.latency, [(0.5, 4)]);
        assert_eq!(reads.events.registers["QueueNotify w"], 5);
        assert!(reads.events.exits.is_empty());
        let text = serde_json::to_string(&reads).unwrap();
        assert!(text.contains(r#""registers":{"QueueNotify w":5}"#) && !text.contains("events"));
    }

    #[test]
    fn what_did_not_grow_is_left_out() {
        let counts = |values: &[(&str, u64)]| -> Counts {
            let of = |(name, value): &(&str, u64)| ((*name).to_owned(), *value);
            values.iter().map(of).collect()
        };
        let before = counts(&[("a", 1), ("b", 2), ("c", 9)]);
        let after = counts(&[("a", 1), ("b", 5), ("c", 0), ("d", 4)]);
        assert_eq!(growth(&before, &after), counts(&[("b", 3), ("d", 4)]));
    }
}
