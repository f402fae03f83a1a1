//! Which commands take too long: times and slots, and no device.
//!
//! A slot's time begins with the first look at the clock after it was given away, so that giving it
//! away costs no look.

use super::queue::SLOTS;
use crate::block::looks::Looks;

/// How long a command may take before it is aborted, in nanoseconds. The specification has no
/// limit; Linux takes as much.
pub const COMMAND_NANOSECONDS: u64 = 30_000_000_000;
/// The same of one that moves no data, but may change all of the disk: flush, zeroes and discard.
pub const LONG_NANOSECONDS: u64 = 60_000_000_000;
/// How long it may take then before the device is reset, in nanoseconds.
pub const ABORT_NANOSECONDS: u64 = 2_000_000_000;

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
    pub looks: Looks,
}

impl Watch {
    /// A slot is used from now on.
    #[inline]
    pub fn begins(&mut self, slot: usize) {
        self.since[slot] = None;
        self.aborting &= !(1 << slot);
    }

    /// Looks at the slots that are in use, one bit each, and at those whose commands may take long.
    pub fn look(&mut self, busy: u32, long: u32, now: u64) -> Verdict {
        self.looks.looked(now);
        let mut verdict = Verdict::Well;
        for slot in (0..SLOTS).filter(|slot| busy & 1 << slot != 0) {
            let since = *self.since[slot].get_or_insert(now);
            let is_aborting = self.aborting & 1 << slot != 0;
            let most = match long & 1 << slot {
                0 => COMMAND_NANOSECONDS,
                _ => LONG_NANOSECONDS,
            };
            match now.saturating_sub(since) {
                time if time >= most + ABORT_NANOSECONDS => return Verdict::Hangs,
                time if time >= most && !is_aborting => {
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
        assert_eq!(watch.look(1 << 3, 1 << 4, 7), Verdict::Well);
        let late = 7 + COMMAND_NANOSECONDS;
        assert_eq!(watch.look(1 << 3, 1 << 4, late - 1), Verdict::Well);
        assert_eq!(watch.look(1 << 3, 1 << 4, late), Verdict::Abort(3));
        watch.aborts(3);
        assert_eq!(watch.look(1 << 3, 1 << 4, late), Verdict::Well);
        let over = late + ABORT_NANOSECONDS;
        assert_eq!(watch.look(1 << 3, 1 << 4, over - 1), Verdict::Well);
        assert_eq!(watch.look(0, 0, over), Verdict::Well, "it was answered");
        assert_eq!(watch.look(1 << 3, 1 << 4, over), Verdict::Hangs);
        watch.begins(3);
        assert_eq!(
            watch.look(1 << 3, 1 << 4, over),
            Verdict::Well,
            "another one"
        );
        watch.begins(4);
        assert_eq!(watch.look(1 << 4, 1 << 4, 0), Verdict::Well);
        let long = LONG_NANOSECONDS;
        assert_eq!(watch.look(1 << 4, 1 << 4, long - 1), Verdict::Well);
        assert_eq!(watch.look(1 << 4, 1 << 4, long), Verdict::Abort(4));
    }
}
