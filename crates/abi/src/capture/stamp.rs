//! Timestamps without a system call for each.

/// Ticks of the counter for which a reading of the clock serves: 10 ms at 3 GHz.
const SPAN: u64 = 1 << 25;
/// Ticks between two readings from which the rate of the counter is taken.
const RATE_SPAN_MIN: u64 = 1 << 22;
/// Nanoseconds between them at most: the clock may be set in between.
const RATE_SPAN_MAX: u64 = 1 << 30;
/// Nanoseconds a tick, times 2^32: counters from 62 MHz to 16 GHz.
const RATES: core::ops::RangeInclusive<u64> = 1 << 28..=1 << 36;
/// What interpolation may be off, in nanoseconds; later stamps do not go back by less.
const ERROR: u64 = 1_000_000;

/// The wall clock, interpolated by a counter that runs at a steady rate, such as the CPU's
/// timestamp counter. The clock itself is asked a hundred times a second at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp {
    /// A reading of counter and clock.
    anchor: Option<(u64, u64)>,
    /// Nanoseconds a tick, times 2^32; 0 while it is not known.
    rate: u64,
    /// The last stamp.
    last: u64,
}

impl Stamp {
    /// Nanoseconds since 1970 when the counter is at `ticks`; `clock` is asked for them if it must.
    pub fn now(&mut self, ticks: u64, clock: impl FnOnce() -> u64) -> u64 {
        let time = self.interpolate(ticks).unwrap_or_else(|| {
            let time = clock();
            self.read(ticks, time);
            time
        });
        let backwards = self.last.saturating_sub(time);
        self.last = if backwards < ERROR {
            time.max(self.last)
        } else {
            time
        };
        self.last
    }

    fn interpolate(&self, ticks: u64) -> Option<u64> {
        let (first, time) = self.anchor?;
        let elapsed = ticks.checked_sub(first)?;
        let known = self.rate != 0 && elapsed < SPAN;
        known.then(|| time.wrapping_add((elapsed * self.rate) >> 32))
    }

    fn read(&mut self, ticks: u64, time: u64) {
        if let Some((first, start)) = self.anchor {
            let (ticks, time) = (ticks.wrapping_sub(first), time.wrapping_sub(start));
            if self.rate == 0 && ticks < RATE_SPAN_MIN {
                return;
            }
            let rate = match time {
                0..RATE_SPAN_MAX => (time << 32) / ticks.max(1),
                _ => 0,
            };
            self.rate = if RATES.contains(&rate) { rate } else { 0 };
        }
        self.anchor = Some((ticks, time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERTZ: u64 = 2_596_122_000;
    const START: u64 = 1_800_000_000_000_000_000;

    /// The clock's time at this tick.
    fn truth(ticks: u64) -> u64 {
        START + (u128::from(ticks) * 1_000_000_000 / u128::from(HERTZ)) as u64
    }

    #[test]
    fn stamps_follow_the_clock_which_is_seldom_asked() {
        let mut stamp = Stamp::default();
        let (mut asked, mut last) = (0, 0);
        // A frame a microsecond for two seconds.
        for ticks in (5_000..2 * HERTZ).step_by(HERTZ as usize / 1_000_000) {
            let time = stamp.now(ticks, || {
                asked += 1;
                truth(ticks)
            });
            assert!(time.abs_diff(truth(ticks)) < 1_000, "{ticks}");
            assert!(time >= last);
            last = time;
        }
        // Until the rate is known, each; then one in each span.
        assert!(asked < 2_500, "asked {asked} times");
    }

    #[test]
    fn after_a_pause_the_clock_is_asked() {
        let mut stamp = Stamp::default();
        for second in 0..5 {
            let ticks = second * HERTZ;
            assert_eq!(stamp.now(ticks, || truth(ticks)), truth(ticks));
        }
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let mut stamp = Stamp::default();
        let mut jump = 0;
        for (ticks, set) in (0..HERTZ).step_by(1_000_000).zip(0..) {
            if set == 500 {
                jump = 3_600_000_000_000;
            }
            let time = stamp.now(ticks, || truth(ticks) - jump);
            // It is noticed when the clock is asked next.
            if !(500..600).contains(&set) {
                assert!(time.abs_diff(truth(ticks) - jump) < 1_000_000, "{ticks}");
            }
        }
    }

    #[test]
    fn no_reading_makes_it_panic() {
        let mut stamp = Stamp::default();
        for (ticks, time) in [
            (0, 0),
            (u64::MAX, 1),
            (0, u64::MAX),
            (1 << 40, 5),
            (1, u64::MAX),
        ] {
            stamp.now(ticks, || time);
            stamp.now(ticks.wrapping_add(1 << 23), || time.wrapping_add(1 << 20));
        }
    }
}
