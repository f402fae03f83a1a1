//! When a device is reset, and when it is given up: one policy for all drivers, and nothing else.
//!
//! It knows times and events, and no device. A driver tells it what happened and does what it says.

/// Resets in a row before the device is given up.
pub const RESETS_MAX: u32 = 5;
/// A device that worked this long after a reset starts afresh, in nanoseconds.
pub const HEALTHY_NANOSECONDS: u64 = 10_000_000_000;
/// Frames that are not reported as sent for so long, with the link up: the device hangs. In
/// nanoseconds; nothing pauses the transmitter, so that milliseconds are long.
pub const HANG_NANOSECONDS: u64 = 2_000_000_000;

/// What to do with a device that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Reset it.
    Reset,
    /// Leave it alone for ever.
    GiveUp,
}

/// What decides on resets. Times are of the monotonic clock, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Resets without a healthy time in between.
    attempts: u32,
    /// When the device came up; none while it has failed since.
    up_since: Option<u64>,
    /// The first descriptor that is still to be sent, and since when it has been that.
    pending: Option<(usize, u64)>,
}

impl Recovery {
    /// The device lied, hangs, is gone, or did not come out of a reset.
    pub fn failed(&mut self, now: u64) -> Remedy {
        let worked = self.up_since.take().map(|since| now.saturating_sub(since));
        if worked.is_some_and(|worked| worked >= HEALTHY_NANOSECONDS) {
            self.attempts = 0;
        }
        if self.attempts == RESETS_MAX {
            return Remedy::GiveUp;
        }
        self.attempts += 1;
        Remedy::Reset
    }

    /// A reset is over, and the device is brought up now; it may fail in that.
    pub fn comes_up(&mut self, now: u64) {
        self.up_since = Some(now);
        self.pending = None;
    }

    /// Whether the device hangs: `pending` is the first descriptor that it has not reported as
    /// sent, a number that grows, and none while the link is down. To be asked again and again.
    pub fn hangs(&mut self, now: u64, pending: Option<usize>) -> bool {
        self.pending = pending.map(|first| match self.pending {
            Some((same, since)) if same == first => (same, since),
            _ => (first, now),
        });
        self.pending
            .is_some_and(|(_, since)| now.saturating_sub(since) >= HANG_NANOSECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_in_a_row_are_counted_and_the_last_one_gives_up() {
        let mut recovery = Recovery::default();
        for n in 0..u64::from(RESETS_MAX) {
            assert_eq!(recovery.failed(n), Remedy::Reset);
            recovery.comes_up(n);
        }
        assert_eq!(recovery.failed(9), Remedy::GiveUp);
        assert_eq!(recovery.failed(10), Remedy::GiveUp, "and it stays so");
    }

    #[test]
    fn a_healthy_time_counts_once_though_no_reset_ends() {
        let mut recovery = Recovery::default();
        recovery.comes_up(0);
        for n in 0..u64::from(RESETS_MAX) {
            let now = HEALTHY_NANOSECONDS + n;
            assert_eq!(recovery.failed(now), Remedy::Reset);
        }
        let later = 3 * HEALTHY_NANOSECONDS;
        assert_eq!(recovery.failed(later), Remedy::GiveUp);
    }

    #[test]
    fn a_healthy_time_forgets_what_was_before_and_a_shorter_one_does_not() {
        for (time, verdict) in [
            (HEALTHY_NANOSECONDS - 1, Remedy::GiveUp),
            (HEALTHY_NANOSECONDS, Remedy::Reset),
        ] {
            let mut recovery = Recovery::default();
            for _ in 0..RESETS_MAX {
                assert_eq!(recovery.failed(7), Remedy::Reset);
            }
            recovery.comes_up(7);
            assert_eq!(recovery.failed(7 + time), verdict);
        }
    }

    #[test]
    fn a_clock_that_goes_back_neither_forgets_nor_hangs() {
        let mut recovery = Recovery::default();
        recovery.comes_up(u64::MAX);
        assert!(!recovery.hangs(u64::MAX, Some(1)) && !recovery.hangs(0, Some(1)));
        let resets = (0..10).filter(|_| recovery.failed(0) == Remedy::Reset);
        assert_eq!(resets.count(), RESETS_MAX as usize);
    }

    #[test]
    fn only_the_same_descriptor_for_long_is_a_hang() {
        let mut recovery = Recovery::default();
        // Long idle before the first frame.
        assert!(!recovery.hangs(0, None) && !recovery.hangs(1 << 40, Some(0)));
        let late = (1 << 40) + HANG_NANOSECONDS;
        assert!(!recovery.hangs(late - 1, Some(0)) && recovery.hangs(late, Some(0)));
        // Progress, a link that was down, and a reset each start afresh.
        assert!(!recovery.hangs(late, Some(1)));
        assert!(!recovery.hangs(2 * late, None) && !recovery.hangs(2 * late, Some(1)));
        recovery.comes_up(2 * late);
        assert!(!recovery.hangs(3 * late, Some(1)) && recovery.hangs(4 * late, Some(1)));
    }
}
