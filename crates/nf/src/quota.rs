//! `quota`: how many bytes a rule takes in all, as the kernel counts them
//! (`net/netfilter/nft_quota.c`): what goes beyond it is counted, too.

use crate::limit::in_units;
use crate::rule::{RuleIndex, Tally};
use core::fmt::{self, Display, Formatter};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a rule says: `[over] BYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// So many bytes.
    pub bytes: u64,
    /// `over`: what exceeds them passes, and nothing else.
    pub over: bool,
}

/// As nft prints it.
impl Display for Allowance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (unit, count) = in_units(self.bytes);
        write!(f, "{}{count} {unit}", if self.over { "over " } else { "" })
    }
}

/// A quota at work. One thread asks it, as with [`crate::Limit`].
#[derive(Debug)]
pub(crate) struct Quota {
    allowance: Allowance,
    used: AtomicU64,
    /// Of one that has a name: which of the named objects counts what it has seen.
    pub(crate) object: Option<u32>,
}

impl Quota {
    pub(crate) fn new(allowance: Allowance, object: Option<u32>) -> Self {
        Self {
            allowance,
            used: AtomicU64::new(0),
            object,
        }
    }

    /// The same, of which nothing is used.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.allowance, self.object)
    }

    /// So many bytes are used.
    pub(crate) fn set_used(&self, bytes: u64) {
        self.used.store(bytes, Relaxed);
    }

    /// Whether the packet that `tally` knows passes, which is counted if the quota has a name: the
    /// counters of named objects stand from `first_named` on.
    #[cold]
    pub(crate) fn ask(&self, first_named: RuleIndex, tally: &mut impl Tally) -> bool {
        if let Some(object) = self.object {
            tally.count(first_named + object as usize);
        }
        self.passes(tally.bytes())
    }

    /// Whether a packet passes that exceeds nothing.
    pub(crate) fn would_pass(&self) -> bool {
        !self.allowance.over
    }

    /// Whether a packet of so many bytes passes.
    fn passes(&self, bytes: u64) -> bool {
        let used = self.used.load(Relaxed).saturating_add(bytes);
        self.used.store(used, Relaxed);
        (used <= self.allowance.bytes) != self.allowance.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn what_is_used_up_is_exceeded() {
        let quota = |over| Quota::new(Allowance { bytes: 300, over }, None);
        let until = quota(false);
        let passed = [100, 200, 1, 0].map(|bytes| until.passes(bytes));
        assert_eq!(passed, [true, true, false, false]);
        let over = quota(true);
        let passed = [100, 200, 1, 0].map(|bytes| over.passes(bytes));
        assert_eq!(passed, [false, false, true, true]);
        over.set_used(0);
        assert!(!over.passes(300));
        over.set_used(u64::MAX);
        assert!(over.passes(u64::MAX) && !until.anew().passes(u64::MAX));
    }

    #[test]
    fn it_is_printed_as_nft_prints_it() {
        let says = |bytes, over| Allowance { bytes, over }.to_string();
        assert_eq!(says(10 << 20, true), "over 10 mbytes");
        assert_eq!(says(1500, false), "1500 bytes");
    }
}
