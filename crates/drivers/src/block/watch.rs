//! Which requests take too long, where nothing aborts one: times and slots, and no device.
//!
//! A slot's time begins with the first look at the clock after it was given away, so that giving it
//! away costs no look.

use super::looks::Looks;

/// Slots of a device, at most.
const SLOTS: usize = 32;
/// How long a transfer may take before its device is reset, in nanoseconds. ACS-2 has no limit: a
/// disk in standby spins up first, and tries a bad sector again and again. Manuals of disks name
/// 30 seconds, which is what Linux takes.
pub const TRANSFER_NANOSECONDS: u64 = 30_000_000_000;
/// The same of what moves no data: flush, discard, zeroes. A disk says nothing until all of its
/// cache is written (ACS-2, FLUSH CACHE EXT, allows for more than 30 seconds).
pub const SLOW_NANOSECONDS: u64 = 60_000_000_000;

/// Since when each slot is in use, of a driver's up to 32.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// None before the first look.
    since: [Option<u64>; SLOTS],
    /// When to look next.
    pub looks: Looks,
}

impl Watch {
    /// A slot is used from now on.
    #[inline]
    pub fn begins(&mut self, slot: usize) {
        self.since[slot] = None;
    }

    /// Whether one of the slots that are in use, one bit each, took longer than `most` nanoseconds.
    pub fn hangs(&mut self, busy: u32, most: u64, now: u64) -> bool {
        self.looks.looked(now);
        (0..SLOTS)
            .filter(|slot| busy & 1 << slot != 0)
            .fold(false, |hangs, slot| {
                let since = *self.since[slot].get_or_insert(now);
                hangs || now.saturating_sub(since) >= most
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_hangs_and_another_one_does_not() {
        let mut watch = Watch::default();
        watch.begins(3);
        assert!(!watch.hangs(1 << 3, 50, 7));
        assert!(!watch.hangs(1 << 3, 50, 56));
        assert!(!watch.hangs(0, 50, 57), "it was answered");
        assert!(watch.hangs(1 << 3, 50, 57));
        watch.begins(3);
        assert!(!watch.hangs(1 << 3, 50, 57), "another one");
        assert!(!watch.hangs(1 << 3, 50, 5), "a clock that goes back");
    }
}
