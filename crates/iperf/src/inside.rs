//! What TCP tells of itself while a test goes on: the numbers of the stock program's reports
//! (`iperf_tcp.c`).

use net::report::Report;
use serde::Serialize;

/// What was told of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inside {
    /// The last that was told; `None` before the first time.
    pub last: Option<Report>,
    most_window: u64,
    most_peer_window: u32,
    /// Round trips, in microseconds.
    longest: u64,
    shortest: u64,
    sum: u64,
    count: u64,
}

/// A sender's TCP at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Moment {
    /// Bytes.
    pub snd_cwnd: u64,
    snd_wnd: u32,
    rtt: u64,
    rttvar: u64,
    pmtu: u32,
}

/// A sender's TCP in all the time. Of the peer's nobody knows: zero, as the stock program has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Extremes {
    max_snd_cwnd: u64,
    max_snd_wnd: u32,
    max_rtt: u64,
    min_rtt: u64,
    mean_rtt: u64,
}

impl Inside {
    /// Takes in what TCP tells now; how many segments were sent again since the last time.
    pub fn take(&mut self, report: &Report) -> u32 {
        let before = self.last.map_or(0, |last| last.sent_again);
        self.last = Some(*report);
        self.most_window = self.most_window.max(report.window);
        self.most_peer_window = self.most_peer_window.max(report.peer_window);
        let micros = report.round_trip.as_micros() as u64;
        self.longest = self.longest.max(micros);
        self.shortest = match self.count {
            0 => micros,
            _ => self.shortest.min(micros),
        };
        self.sum += micros;
        self.count += 1;
        report.sent_again.saturating_sub(before)
    }

    /// The same without what was told up to now.
    #[must_use]
    pub fn omit(&self) -> Self {
        let last = self.last;
        Self {
            last,
            ..Self::default()
        }
    }

    /// As it was at the last time.
    pub fn moment(&self) -> Option<Moment> {
        let report = self.last?;
        Some(Moment {
            snd_cwnd: report.window,
            snd_wnd: report.peer_window,
            rtt: report.round_trip.as_micros() as u64,
            rttvar: report.variation.as_micros() as u64,
            pmtu: report.packet,
        })
    }

    /// What was seen in all the time.
    pub fn extremes(&self) -> Extremes {
        Extremes {
            max_snd_cwnd: self.most_window,
            max_snd_wnd: self.most_peer_window,
            max_rtt: self.longest,
            min_rtt: self.shortest,
            mean_rtt: self.sum.checked_div(self.count).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn extremes_are_of_all_that_counts() {
        let report = |sent_again, window, micros| Report {
            sent_again,
            window,
            peer_window: 5,
            round_trip: Duration::from_micros(micros),
            ..Report::default()
        };
        let mut inside = Inside::default();
        assert_eq!(inside.take(&report(7, 900, 900)), 7);
        inside = inside.omit();
        let again = [(9, 100, 20), (9, 300, 40), (10, 200, 30)]
            .map(|(again, window, micros)| inside.take(&report(again, window, micros)));
        assert_eq!(again, [2, 0, 1]);
        let expected = Extremes {
            max_snd_cwnd: 300,
            max_snd_wnd: 5,
            max_rtt: 40,
            min_rtt: 20,
            mean_rtt: 30,
        };
        assert_eq!(inside.extremes(), expected);
        assert_eq!(inside.moment().unwrap().snd_cwnd, 200);
    }
}
