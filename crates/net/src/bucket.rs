//! A limit on how often something is done: so often at once, and so often a second.

use core::time::Duration;
use ports::Instant;

/// A token bucket.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// Time that one token takes to come back.
    interval: Duration,
    /// When the bucket is full again. A token is there while that is less than `burst - 1`
    /// intervals away.
    full: Instant,
    burst: u32,
}

impl Bucket {
    /// `burst` tokens, of which `per_second` come back.
    pub fn new(per_second: u32, burst: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / per_second.max(1),
            full: Instant::PAST,
            burst,
        }
    }

    /// When a token will be there, if none is.
    pub fn ready(&self) -> Instant {
        let slack = self.interval * self.burst.saturating_sub(1);
        Instant(self.full.0.saturating_sub(slack.as_nanos() as u64))
    }

    /// Takes a token; `false` if there is none.
    pub fn take(&mut self, now: Instant) -> bool {
        let there = self.ready() <= now;
        if there {
            self.full = self.full.max(now) + self.interval;
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut bucket = Bucket::new(10, 3);
        let start = Instant::PAST + Duration::from_secs(5);
        let taken = (0..9).filter(|_| bucket.take(start)).count();
        assert_eq!(taken, 3);
        assert_eq!(bucket.ready(), start + Duration::from_millis(100));
        // Ten seconds of asking every millisecond: ten a second.
        let taken = (1..=10_000)
            .filter(|&ms| bucket.take(start + Duration::from_millis(ms)))
            .count();
        assert_eq!(taken, 100);
    }
}
