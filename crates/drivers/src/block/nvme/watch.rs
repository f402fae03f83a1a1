//! Which commands take too long: times and slots, and no device.
//!
//! A slot's time begins with the first look at the clock after it was given away, so that giving it
//! away costs no look.

use super::queue::SLOTS;
use crate::net::recovery::HEALTHY_NANOSECONDS;

/// How long a command may take before it is aborted, in nanoseconds.
pub const COMMAND_NANOSECONDS: u64 = 5_000_000_000;
/// How long it may take then before the device is reset, in nanoseconds.
pub const ABORT_NANOSECONDS: u64 = 2_000_000_000;
/// Or one that is silent behind each reset would seem healthy in between.
const _: () = assert!(COMMAND_NANOSECONDS + ABORT_NANOSECONDS + INTERVAL < HEALTHY_NANOSECONDS);

/// From one look at all commands to the next, in nanoseconds.
const INTERVAL: u64 = 100_000_000;
/// Looks that found answers, from one look at the clock to the next.
const BUSY_LOOKS: usize = 64;

/// What is to be done about the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Well,
    /// To abort that of a slot.
    Abort(usize),
    /// To reset the device.
    Hangs,
}

/// Since when each slot is in use.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// None before the first look.
    since: [Option<u64>; SLOTS],
    /// Slots whose commands are being aborted, one bit each.
    aborting: u32,
    /// When to look next.
    next: u64,
    busy_looks: usize,
}

impl Watch {
    /// A slot is used from now on.
    #[inline]
    pub fn begins(&mut self, slot: usize) {
        self.since[slot] = None;
        self.aborting &= !(1 << slot);
    }

    /// Whether to look at the commands, and the time if so: after a look that found so many
    /// answers.
    #[inline]
    pub fn is_due(&mut self, answered: usize, clock: &dyn Fn() -> u64) -> Option<u64> {
        if answered > 0 {
            self.busy_looks += 1;
            if self.busy_looks < BUSY_LOOKS {
                return None;
            }
        }
        self.busy_looks = 0;
        let now = clock();
        (now >= self.next).then_some(now)
    }

    /// Looks at the slots that are in use, one bit each.
    pub fn look(&mut self, busy: u32, now: u64) -> Verdict {
        self.next = now.saturating_add(INTERVAL);
        let mut verdict = Verdict::Well;
        for slot in (0..SLOTS).filter(|slot| busy & 1 << slot != 0) {
            let since = *self.since[slot].get_or_insert(now);
            let is_aborting = self.aborting & 1 << slot != 0;
            match now.saturating_sub(since) {
                time if time >= COMMAND_NANOSECONDS + ABORT_NANOSECONDS => return Verdict::Hangs,
                time if time >= COMMAND_NANOSECONDS && !is_aborting => {
                    verdict = Verdict::Abort(slot);
                }
                _ => {}
            }
        }
        verdict
    }

    /// The command of a slot is being aborted.
    pub fn aborts(&mut self, slot: usize) {
        self.aborting |= 1 << slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_aborted_and_then_the_device_is_reset() {
        let mut watch = Watch::default();
        watch.begins(3);
        assert_eq!(watch.look(1 << 3, 7), Verdict::Well);
        let late = 7 + COMMAND_NANOSECONDS;
        assert_eq!(watch.look(1 << 3, late - 1), Verdict::Well);
        assert_eq!(watch.look(1 << 3, late), Verdict::Abort(3));
        watch.aborts(3);
        assert_eq!(watch.look(1 << 3, late), Verdict::Well);
        let over = late + ABORT_NANOSECONDS;
        assert_eq!(watch.look(1 << 3, over - 1), Verdict::Well);
        assert_eq!(watch.look(0, over), Verdict::Well, "it was answered");
        assert_eq!(watch.look(1 << 3, over), Verdict::Hangs);
        watch.begins(3);
        assert_eq!(watch.look(1 << 3, over), Verdict::Well, "another one");
    }

    #[test]
    fn the_clock_is_asked_when_nothing_comes_or_after_many_answers() {
        let mut watch = Watch::default();
        let clock = || INTERVAL;
        let asked = (0..2 * BUSY_LOOKS).filter(|_| watch.is_due(1, &clock).is_some());
        assert_eq!(asked.count(), 2);
        assert_eq!(watch.is_due(0, &clock), Some(INTERVAL));
        watch.look(0, INTERVAL);
        assert_eq!(watch.is_due(0, &clock), None, "too soon");
        assert_eq!(watch.is_due(0, &|| u64::MAX), Some(u64::MAX));
        watch.look(0, u64::MAX);
        assert_eq!(watch.is_due(0, &|| 5), None, "a clock that goes back");
    }
}
