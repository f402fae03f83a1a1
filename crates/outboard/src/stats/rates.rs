//! How fast counters grow: a pure function of two snapshots and the time between them.

use super::snapshot::{Snapshot, Traffic};
use std::time::Duration;

/// Frames and bits in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Frames per second.
    pub frames: f64,
    /// Bits per second.
    pub bits: f64,
}

/// The rates between two snapshots. One is missing where nothing can be said: the counter has
/// shrunk, or belongs to other rules now.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Receiving and transmitting, for each port.
    pub ports: Vec<[Option<Rate>; 2]>,
    /// For each rule and the policy.
    pub rules: Vec<Option<Rate>>,
}

impl Rates {
    /// The rates from `before` to `after`, which is `elapsed` later.
    pub fn between(before: &Snapshot, after: &Snapshot, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        let ports = after.ports.iter().enumerate().map(|(number, port)| {
            let former = before.ports.get(number);
            [
                rate(former.map(|port| port.receive), port.receive, seconds),
                rate(former.map(|port| port.transmit), port.transmit, seconds),
            ]
        });
        let same = before.rules.as_ref().map(|rules| rules.generation)
            == after.rules.as_ref().map(|rules| rules.generation);
        let former = before.rules.as_ref().filter(|_| same);
        let rules = after.rules.iter().flat_map(|rules| &rules.entries);
        let rules = rules.enumerate().map(|(number, rule)| {
            let former = former.and_then(|rules| rules.entries.get(number));
            rate(former.map(|rule| rule.counted), rule.counted, seconds)
        });
        Self {
            ports: ports.collect(),
            rules: rules.collect(),
        }
    }
}

fn rate(before: Option<Traffic>, after: Traffic, seconds: f64) -> Option<Rate> {
    let before = before?;
    let frames = after.frames.checked_sub(before.frames)?;
    let bytes = after.bytes.checked_sub(before.bytes)?;
    (seconds > 0.0).then(|| Rate {
        frames: frames as f64 / seconds,
        bits: bytes as f64 * 8.0 / seconds,
    })
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::snapshot;
    use super::*;

    #[test]
    fn rates_are_differences_over_time() {
        let before = snapshot();
        let mut after = before.clone();
        after.ports[0].receive.frames += 10;
        after.ports[0].receive.bytes += 1000;
        let rates = Rates::between(&before, &after, Duration::from_secs(2));
        let expected = Rate {
            frames: 5.0,
            bits: 4000.0,
        };
        assert_eq!(rates.ports[0][0], Some(expected));
        assert_eq!(rates.ports[0][1].unwrap().frames, 0.0);
        assert_eq!(rates.rules.len(), 3);
    }

    #[test]
    fn no_rate_is_better_than_a_wrong_one() {
        let before = snapshot();
        let mut after = before.clone();
        after.ports[0].receive.frames = 0;
        after.rules.as_mut().unwrap().generation += 1;
        let rates = Rates::between(&before, &after, Duration::from_secs(1));
        assert_eq!(rates.ports[0][0], None);
        assert_eq!(rates.rules, [None; 3]);
        assert_eq!(
            Rates::between(&before, &before, Duration::ZERO).rules,
            [None; 3]
        );
    }
}
