//! Points in time.

use core::time::Duration;

/// A point of the monotonic clock, in nanoseconds since some moment before the guest started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(pub u64);

impl Instant {
    /// Before the guest started: who waits until then looks and does not sleep.
    pub const PAST: Self = Self(0);
}

impl core::ops::Add<Duration> for Instant {
    type Output = Self;

    /// The end of time if the sum lies behind it.
    fn add(self, duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanoseconds))
    }
}

impl core::ops::Sub for Instant {
    type Output = Duration;

    /// Zero if `earlier` is the later one.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
