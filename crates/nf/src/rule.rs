//! What rules decide, and what they are told and tell besides.

use crate::fib::Routes;
use crate::key::Key;
use core::fmt;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Accept,
    /// It is dropped.
    #[default]
    Drop,
}

/// The way of a frame through the appliance: ports by their position in the manifest's order of
/// network devices, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where it came in: `iifname`.
    pub from: u8,
    /// Where it would go out: `oifname`.
    pub to: u8,
}

impl Way {
    /// The other way round.
    pub(crate) fn back(self) -> Self {
        Self {
            from: self.to,
            to: self.from,
        }
    }
}

/// What limits and sets that change depend on, besides a frame's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// A time in nanoseconds that does not go back.
    pub now: u64,
    /// Bytes of the frame, as counters count them.
    pub bytes: u64,
}

/// Takes down what rules do besides giving a verdict. `()` ignores it.
pub trait Tally {
    /// The counter of a rule, or of the policy, counts this frame.
    fn count(&mut self, rule: RuleIndex);
    /// A rule's `log` statement was reached, by a frame with this key on this way.
    fn log(&mut self, rule: RuleIndex, prefix: &str, key: &Key, way: Way);
    /// When this frame is judged, and how long it is. Who knows neither lets a burst of packets
    /// pass a `limit`, and any bytes, and no element of a set expires.
    fn moment(&mut self) -> Moment {
        Moment::default()
    }
    /// Bytes of the frame, as counters of rules count them. Who knows none takes it for empty.
    fn bytes(&self) -> u64 {
        0
    }
    /// What a router knows of addresses, for `fib`.
    fn routes(&self) -> Option<&dyn Routes> {
        None
    }
    /// Whether rules only say what they would do: limits and quotas are not exceeded then, and sets
    /// stay as they are.
    fn is_trial(&self) -> bool {
        false
    }
}

impl Tally for () {
    #[inline]
    fn count(&mut self, _: RuleIndex) {}
    #[inline]
    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}
}

/// Who decided: the position of a rule in its [`crate::RuleSet`], or the number of rules for the
/// policy. Fit to be the number of a counter.
pub type RuleIndex = usize;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Drop => "drop",
        })
    }
}
