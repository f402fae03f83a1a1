//! What kills have done: gaps, frames and connections lost. Decided by times alone.

use serde::Serialize;
use std::time::Duration;
use testbed::table;

/// A component that was killed, and what followed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kill {
    pub component: &'static str,
    /// From the last datagram that came back before it to the first one behind it.
    pub gap_milliseconds: f64,
    /// Datagrams that were sent until the next kill and never came back.
    pub lost: u64,
}

/// A datagram: when it was sent, and when it came back, if it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    pub sent: Duration,
    pub back: Option<Duration>,
}

/// What became of the connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Connections {
    pub held: usize,
    pub lost: usize,
    /// Why each of the lost ones is.
    pub errors: Vec<String>,
    pub bytes_compared: u64,
    pub bytes_wrong: u64,
}

impl Connections {
    pub fn and(self, other: Self) -> Self {
        Self {
            held: self.held + other.held,
            lost: self.lost + other.lost,
            errors: [self.errors, other.errors].concat(),
            bytes_compared: self.bytes_compared + other.bytes_compared,
            bytes_wrong: self.bytes_wrong + other.bytes_wrong,
        }
    }
}

/// All kills of one component.
#[derive(Debug, PartialEq, Serialize)]
struct Row {
    component: &'static str,
    kills: usize,
    gap_milliseconds_median: f64,
    gap_milliseconds_p99: f64,
    gap_milliseconds_longest: f64,
    lost: u64,
}

/// What there is to report.
#[derive(Debug, Serialize)]
pub struct Report {
    datagrams_per_second: u32,
    components: Vec<Row>,
    connections: Connections,
    pub held: bool,
    kills: Vec<Kill>,
}

/// The longest time without a datagram that came back, from the last one before a kill on, `to` the
/// next one. `back` is in order.
fn gap(back: &[Duration], from: Duration, to: Duration) -> Duration {
    let first = back.partition_point(|time| *time <= from);
    let before = first.checked_sub(1).map_or(from, |last| back[last]);
    let within = back[first..].iter().copied().take_while(|time| *time < to);
    let mut last = before;
    let mut longest = Duration::ZERO;
    for time in within.chain([to]) {
        longest = longest.max(time - last);
        last = time;
    }
    longest
}

/// What followed each kill: a component, and when.
pub fn kills(
    killed: &[(&'static str, Duration)],
    end: Duration,
    datagrams: &[Datagram],
) -> Vec<Kill> {
    let mut back: Vec<_> = datagrams.iter().filter_map(|one| one.back).collect();
    back.sort_unstable();
    let ends = killed.iter().skip(1).map(|(_, at)| *at).chain([end]);
    let judged = killed.iter().zip(ends).map(|(&(component, at), to)| {
        let lost = datagrams
            .iter()
            .filter(|one| (at..to).contains(&one.sent) && one.back.is_none());
        Kill {
            component,
            gap_milliseconds: gap(&back, at, to).as_secs_f64() * 1000.0,
            lost: lost.count() as u64,
        }
    });
    judged.collect()
}

/// Of sorted values, the one that so many hundredths do not exceed.
fn percentile(sorted: &[f64], hundredths: usize) -> f64 {
    let place = (sorted.len() * hundredths).div_ceil(100);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn row(component: &'static str, kills: &[Kill]) -> Row {
    let its = || kills.iter().filter(|kill| kill.component == component);
    let mut gaps: Vec<_> = its().map(|kill| kill.gap_milliseconds).collect();
    gaps.sort_unstable_by(f64::total_cmp);
    Row {
        component,
        kills: gaps.len(),
        gap_milliseconds_median: percentile(&gaps, 50),
        gap_milliseconds_p99: percentile(&gaps, 99),
        gap_milliseconds_longest: percentile(&gaps, 100),
        lost: its().map(|kill| kill.lost).sum(),
    }
}

impl Report {
    pub fn new(
        components: &[&'static str],
        datagrams_per_second: u32,
        kills: Vec<Kill>,
        connections: Connections,
    ) -> Self {
        Self {
            datagrams_per_second,
            components: components.iter().map(|name| row(name, &kills)).collect(),
            held: connections.lost == 0 && connections.bytes_wrong == 0,
            connections,
            kills,
        }
    }

    pub fn text(&self) -> String {
        let milliseconds = |gap: f64| format!("{gap:.1} ms");
        let rows = self.components.iter().map(|row| {
            vec![
                row.component.to_owned(),
                row.kills.to_string(),
                milliseconds(row.gap_milliseconds_median),
                milliseconds(row.gap_milliseconds_p99),
                milliseconds(row.gap_milliseconds_longest),
                row.lost.to_string(),
            ]
        });
        let rows: Vec<_> = rows.collect();
        let header = ["killed", "times", "gap, median", "p99", "longest", "lost"];
        let Connections {
            held,
            lost,
            errors,
            bytes_compared,
            bytes_wrong,
        } = &self.connections;
        let errors: String = errors.iter().map(|why| format!("Lost: {why}.\n")).collect();
        format!(
            "\n{}\nA gap is from the last datagram to the first one, of {} a second; `lost` are \
             datagrams.\n{held} connections that end in the stack, {lost} of them lost; {} MB sent \
             there and back, {bytes_wrong} bytes wrong.\n{errors}",
            table::render(&header, &rows),
            self.datagrams_per_second,
            bytes_compared / 1_000_000,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_gap_is_the_longest_silence_that_a_kill_is_followed_by() {
        let back = [1, 2, 3, 9, 10, 11, 14, 30].map(at);
        assert_eq!(gap(&back, at(4), at(12)), at(6));
        // What comes behind the next kill is that one's.
        assert_eq!(gap(&back, at(12), at(20)), at(6));
        assert_eq!(gap(&back, at(31), at(50)), at(20));
        assert_eq!(gap(&[], at(5), at(9)), at(4));
    }

    #[test]
    fn what_never_came_back_is_the_kills_before_it() {
        let sent = |n: u64, back: bool| Datagram {
            sent: at(n),
            back: back.then(|| at(n + 1)),
        };
        let all = [
            sent(1, true),
            sent(5, false),
            sent(6, true),
            sent(12, false),
        ];
        let killed = [("a", at(4)), ("b", at(10))];
        let judged = kills(&killed, at(20), &all);
        assert_eq!([judged[0].lost, judged[1].lost], [1, 1]);
        let report = Report::new(&["a", "b"], 1000, judged, Connections::default());
        assert!(report.held && report.text().contains("| a      | 1 "));
        let lost = Connections {
            lost: 1,
            errors: vec!["reset".into()],
            ..Connections::default()
        };
        let report = Report::new(&["a"], 1000, Vec::new(), lost);
        assert!(!report.held && report.text().ends_with("Lost: reset.\n"));
    }

    #[test]
    fn percentiles_are_of_what_was_seen() {
        let sorted: Vec<_> = (1..=100).map(f64::from).collect();
        let found = [50, 99, 100].map(|n| percentile(&sorted, n));
        assert_eq!(found, [50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[], 50), 0.0);
        assert_eq!(percentile(&[7.0], 99), 7.0);
    }
}
