//! How many lines of a log may be written.

/// A bucket that fills with one token in each interval, up to a number of them. Whoever wants to
/// do something takes one first; where there is none, that is counted.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// Nanoseconds in which a token comes.
    interval: u64,
    /// Tokens that it holds at most.
    burst: u64,
    tokens: u64,
    /// When the last token came, in nanoseconds of the caller's clock.
    filled: u64,
    suppressed: u64,
}

impl TokenBucket {
    /// A full bucket that holds `burst` tokens and gets one every `interval` nanoseconds.
    pub const fn new(burst: u64, interval: u64) -> Self {
        Self {
            interval,
            burst,
            tokens: burst,
            filled: 0,
            suppressed: 0,
        }
    }

    /// Takes a token at `now`, in nanoseconds of a clock that does not run backwards. Returns how
    /// often there was none since one was taken last; `None` if there is none now.
    pub fn take(&mut self, now: u64) -> Option<u64> {
        let came = now.saturating_sub(self.filled) / self.interval.max(1);
        self.tokens = self.tokens.saturating_add(came).min(self.burst);
        // What is left of an interval counts towards the next token.
        self.filled += came * self.interval;
        if self.tokens == 0 {
            self.suppressed += 1;
            return None;
        }
        self.tokens -= 1;
        Some(core::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::TokenBucket;

    #[test]
    fn a_burst_passes_and_the_rest_is_counted() {
        let mut bucket = TokenBucket::new(3, 100);
        let taken = [1000; 5].map(|now| bucket.take(now));
        assert_eq!(taken, [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(bucket.take(1100), Some(2));
        assert_eq!(bucket.take(1199), None);
        assert_eq!(bucket.take(1200), Some(1));
    }

    #[test]
    fn a_long_silence_fills_it_and_no_more() {
        let mut bucket = TokenBucket::new(2, 100);
        for now in [0, u64::MAX / 2, u64::MAX] {
            let taken = [now; 3].map(|now| bucket.take(now).is_some());
            assert_eq!(taken, [true, true, false], "{now}");
        }
    }

    #[test]
    fn a_clock_that_runs_backwards_gives_nothing() {
        let mut bucket = TokenBucket::new(1, 100);
        assert_eq!(bucket.take(1000), Some(0));
        assert_eq!(bucket.take(0), None);
        assert_eq!(bucket.take(1100), Some(1));
    }

    #[test]
    fn in_the_long_run_it_lets_one_through_in_each_interval() {
        let mut bucket = TokenBucket::new(5, 100);
        let passed = (0..100_000).filter(|now| bucket.take(*now).is_some());
        assert_eq!(passed.count(), 5 + 999);
    }
}
