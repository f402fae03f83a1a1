//! When a driver looks at all of its commands, beside those that were answered.

use core::mem;

/// From one look at all commands to the next, in nanoseconds.
pub const INTERVAL: u64 = 100_000_000;
/// Looks that found answers, from one look at the clock to the next.
const BUSY_LOOKS: usize = 64;

/// Times of looks.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    /// When to look next.
    next: u64,
    busy: usize,
    /// Whether answers came since the last look at all commands, and when one found that.
    is_answered: bool,
    answered_at: u64,
}

impl Looks {
    /// Whether to look at the commands, and the time if so: after a look that found answers, or
    /// none.
    #[inline]
    pub fn is_due(&mut self, answered: bool, clock: &dyn Fn() -> u64) -> Option<u64> {
        if answered {
            self.busy += 1;
            self.is_answered = true;
            if self.busy < BUSY_LOOKS {
                return None;
            }
        }
        self.busy = 0;
        let now = clock();
        (now >= self.next).then_some(now)
    }

    /// They were looked at.
    pub fn looked(&mut self, now: u64) {
        if mem::take(&mut self.is_answered) {
            self.answered_at = now;
        }
        self.next = now.saturating_add(INTERVAL);
    }

    /// Until when the device worked, as its answers tell: 0 if it gave none. How healthy it was is
    /// counted by this, and not until somebody noticed that it hangs.
    pub fn worked_until(&self) -> u64 {
        self.answered_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_asked_when_nothing_comes_or_after_many_answers() {
        let mut looks = Looks::default();
        let clock = || INTERVAL;
        let asked = (0..2 * BUSY_LOOKS).filter(|_| looks.is_due(true, &clock).is_some());
        assert_eq!(asked.count(), 2);
        assert_eq!(looks.is_due(false, &clock), Some(INTERVAL));
        looks.looked(INTERVAL);
        assert_eq!(looks.is_due(false, &clock), None, "too soon");
        assert_eq!(looks.is_due(false, &|| u64::MAX), Some(u64::MAX));
        looks.looked(u64::MAX);
        assert_eq!(looks.is_due(false, &|| 5), None, "a clock that goes back");
    }

    #[test]
    fn a_device_worked_until_the_last_look_behind_an_answer() {
        let mut looks = Looks::default();
        looks.looked(5);
        assert_eq!(looks.worked_until(), 0, "it has said nothing");
        looks.is_due(true, &|| 0);
        looks.looked(7);
        looks.looked(9);
        assert_eq!(looks.worked_until(), 7);
    }
}
