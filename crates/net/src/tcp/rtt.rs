//! Round-trip times and the retransmission time-out (RFC 6298).

use core::time::Duration;

/// What the time-out is before anything was measured (RFC 6298, 2.1).
const INITIAL: Duration = Duration::from_secs(1);
/// What it is behind a SYN that was sent again (RFC 6298, 5.7).
const INITIAL_SLOW: Duration = Duration::from_secs(3);
/// What is added to the round trip at least. RFC 6298, 2.4 asks for a time-out of a second and
/// calls that conservative; Linux and the BSDs take less, so that a lost tail of a short answer
/// does not cost a second. Peers put acknowledgements off for up to 200 ms: that is no loss,
/// however regular a long path is.
const MARGIN_MIN: Duration = Duration::from_millis(200);
/// RFC 6298, 2.5: at least 60 s.
const MAX: Duration = Duration::from_secs(120);
/// Doublings after which the time-out grows no more: more of them than from [`MARGIN_MIN`] to
/// [`MAX`].
const BACKOFF_MAX: u8 = 12;
/// The shortest round trip is forgotten after so long (RFC 8985, 6.2 proposes minutes).
const SHORTEST_AGE: u64 = 300 * 1_000_000_000;

/// What is known of a path's round-trip time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrip {
    /// SRTT in nanoseconds; 0 before the first measurement.
    smoothed: u64,
    /// RTTVAR in nanoseconds.
    variation: u64,
    /// The shortest one of the last minutes, in nanoseconds.
    shortest: u64,
    /// When that was measured, in nanoseconds.
    shortest_at: u64,
    /// How often the time-out was doubled since it was last heard from the peer.
    backoff: u8,
    /// A SYN was sent again.
    slow: bool,
}

impl RoundTrip {
    /// Takes in a measurement of a segment that was sent once (Karn; RFC 6298, 3), made at `now`,
    /// in nanoseconds.
    #[inline]
    pub fn measured(&mut self, sample: Duration, now: u64) {
        // A round trip longer than the connection's longest patience is bounded, and none is zero.
        let sample = sample.clamp(Duration::from_nanos(1), MAX).as_nanos() as u64;
        if self.smoothed == 0 {
            self.smoothed = sample;
            self.variation = sample / 2;
        } else {
            let error = self.smoothed.abs_diff(sample);
            self.variation = self.variation - self.variation / 4 + error / 4;
            self.smoothed = self.smoothed - self.smoothed / 8 + sample / 8;
        }
        let old = now.saturating_sub(self.shortest_at) > SHORTEST_AGE;
        if self.shortest == 0 || sample <= self.shortest || old {
            self.shortest = sample;
            self.shortest_at = now;
        }
    }

    /// How much it varies (RTTVAR).
    pub fn variation(&self) -> Duration {
        Duration::from_nanos(self.variation)
    }

    /// The retransmission time-out (RFC 6298, 2.3, 5.5).
    #[inline]
    pub fn timeout(&self) -> Duration {
        let base = match self.smoothed().zip(Some(self.variation)) {
            None if self.slow => INITIAL_SLOW,
            None => INITIAL,
            Some((smoothed, variation)) => {
                let variation = Duration::from_nanos(variation);
                smoothed + (4 * variation).max(MARGIN_MIN)
            }
        };
        base.saturating_mul(1 << self.backoff).min(MAX)
    }

    /// The time-out has passed: the next one is twice as long.
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// A SYN was sent again: the first time-out of data is a longer one.
    pub fn begin_slowly(&mut self) {
        self.slow = true;
    }

    /// Whether the time-out has passed since something new was acknowledged.
    pub fn has_backed_off(&self) -> bool {
        self.backoff > 0
    }

    /// Something new was acknowledged.
    #[inline]
    pub fn heard(&mut self) {
        self.backoff = 0;
    }

    /// The smoothed round-trip time, once one was measured.
    #[inline]
    pub fn smoothed(&self) -> Option<Duration> {
        (self.smoothed != 0).then_some(Duration::from_nanos(self.smoothed))
    }

    /// The shortest one of the last minutes, once one was measured.
    #[inline]
    pub fn shortest(&self) -> Option<Duration> {
        (self.shortest != 0).then_some(Duration::from_nanos(self.shortest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_first_measurement_sets_all() {
        let mut path = RoundTrip::default();
        assert_eq!((path.timeout(), path.smoothed()), (ms(1000), None));
        path.measured(ms(100), 0);
        assert_eq!(path.smoothed(), Some(ms(100)));
        // SRTT + 4 * RTT / 2.
        assert_eq!(path.timeout(), ms(300));
    }

    #[test]
    fn it_doubles_to_a_bound_and_comes_back() {
        let mut path = RoundTrip::default();
        path.measured(ms(10), 0);
        assert_eq!(path.timeout(), ms(210));
        path.back_off();
        assert_eq!(path.timeout(), ms(420));
        (0..100).for_each(|_| path.back_off());
        assert_eq!(path.timeout(), MAX);
        path.heard();
        assert_eq!(path.timeout(), ms(210));
    }

    #[test]
    fn the_shortest_is_forgotten_after_minutes() {
        let mut path = RoundTrip::default();
        path.measured(ms(10), 0);
        path.measured(ms(90), 1_000_000);
        assert_eq!(path.shortest(), Some(ms(10)));
        path.measured(ms(90), SHORTEST_AGE + 1);
        assert_eq!(path.shortest(), Some(ms(90)));
    }

    proptest! {
        /// RFC 6298 as it stands there, in floating point, with our minimum.
        #[test]
        fn equals_the_definition(samples in proptest::collection::vec(1u64..5_000_000_000, 1..60)) {
            let mut path = RoundTrip::default();
            let (mut smoothed, mut variation) = (0.0, 0.0);
            for (count, sample) in samples.iter().enumerate() {
                path.measured(Duration::from_nanos(*sample), 0);
                let sample = *sample as f64;
                if count == 0 {
                    (smoothed, variation) = (sample, sample / 2.0);
                } else {
                    variation = 0.75 * variation + 0.25 * f64::abs(smoothed - sample);
                    smoothed = 0.875 * smoothed + 0.125 * sample;
                }
            }
            let timeout = (smoothed + (4.0 * variation).max(2e8)).min(1.2e11);
            let error = (path.timeout().as_nanos() as f64 - timeout).abs();
            prop_assert!(error < 1000.0, "{:?} is not {timeout}", path.timeout());
        }
    }
}
