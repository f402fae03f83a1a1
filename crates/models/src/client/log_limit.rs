//! How much a client can make the log say: it decides what is refused, and how often.

use std::time::Duration;

/// Lines that are said at once.
const LINES_MAX: u32 = 16;
/// How long it takes until one more may be said.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Decides which lines about clients are said: `LINES_MAX` at once, and one more each
/// `LINE_EVERY`. Times are since some start.
#[derive(Clone, Debug)]
pub struct LogLimit {
    /// Lines that may be said now.
    lines: u32,
    /// Since when the next one is waited for.
    since: Duration,
    left_out: u64,
}

impl Default for LogLimit {
    fn default() -> Self {
        Self {
            lines: LINES_MAX,
            since: Duration::ZERO,
            left_out: 0,
        }
    }
}

impl LogLimit {
    /// Whether a line is to be said `now`, and how many were left out before it since the last one;
    /// `None` if it is left out too.
    pub fn admit(&mut self, now: Duration) -> Option<u64> {
        let waited = now.saturating_sub(self.since);
        let more = waited.as_nanos() / LINE_EVERY.as_nanos();
        let lines = u128::from(self.lines) + more;
        if lines < u128::from(LINES_MAX) {
            self.lines = lines as u32;
            self.since += LINE_EVERY * more as u32;
        } else {
            (self.lines, self.since) = (LINES_MAX, self.since.max(now));
        }
        if let Some(lines) = self.lines.checked_sub(1) {
            self.lines = lines;
            return Some(std::mem::take(&mut self.left_out));
        }
        self.left_out += 1;
        None
    }

    /// Lines that were left out since the last one that was said.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_wrong_now_and_then_is_heard_each_time() {
        let mut limit = LogLimit::default();
        for second in 0..1000 {
            assert_eq!(limit.admit(LINE_EVERY * second), Some(0));
        }
        assert_eq!(limit.left_out(), 0);
    }

    #[test]
    fn a_client_that_does_nothing_else_gets_a_line_a_second_and_all_are_counted() {
        let mut limit = LogLimit::default();
        let (count, step) = (500_000u64, Duration::from_micros(10));
        let admitted: Vec<_> = (0..count as u32)
            .filter_map(|n| limit.admit(step * n))
            .collect();
        assert_eq!(admitted.len(), LINES_MAX as usize + 4, "in 5 seconds");
        assert!(admitted[..LINES_MAX as usize].iter().all(|left| *left == 0));
        assert!(
            admitted[LINES_MAX as usize..]
                .iter()
                .all(|left| *left > 90_000)
        );
        let said = admitted.len() as u64;
        assert_eq!(
            admitted.iter().sum::<u64>() + said + limit.left_out(),
            count
        );
    }

    #[test]
    fn quiet_gives_no_more_than_the_most_and_time_that_goes_back_gives_nothing() {
        let mut limit = LogLimit::default();
        let late = Duration::MAX;
        let at = |limit: &mut LogLimit, now| (0..100).filter_map(|_| limit.admit(now)).count();
        assert_eq!(at(&mut limit, late), LINES_MAX as usize);
        assert_eq!(at(&mut limit, late), 0);
        assert_eq!(at(&mut limit, Duration::ZERO), 0);
    }
}
