//! What became of a captured frame, in words.

use crate::stats::raw;
use abi::share::{
    CAPTURE_PASSED, CAPTURE_RULE, CONTROL_OFFSET, Control, PORT_APPLIANCE, PORT_COUNTERS,
};
use nf::conntrack::Refused;
use nf::nft::Limits;
use nf::{Listing, Malformed};
use rustix::io::pread;
use std::os::fd::OwnedFd;
use zerocopy::{FromZeros, IntoBytes};

/// Who knows the reasons of one guest.
pub struct Reasons {
    /// Whether the image counts the reasons of [`Malformed`].
    reads_frames: bool,
    /// The generation that was found last, and what its rules are called.
    generation: u64,
    rules: Option<Listing>,
}

impl Reasons {
    /// Of a guest whose image counts the reasons of [`Malformed`] if `reads_frames`.
    pub fn new(reads_frames: bool) -> Self {
        Self {
            reads_frames,
            generation: 0,
            rules: None,
        }
    }

    /// The comment on a frame with this fate, when the rules of this generation were in force;
    /// empty if it was not dropped. Rules are named by their text in the shared file, if it is
    /// there still.
    pub fn comment(&mut self, share: &OwnedFd, fate: u32, generation: u64) -> String {
        if fate == CAPTURE_PASSED {
            return String::new();
        }
        match fate.checked_sub(CAPTURE_RULE) {
            Some(rule) => self.rule(share, rule as usize, generation),
            None => self.counter(fate as usize),
        }
    }

    fn rule(&mut self, share: &OwnedFd, rule: usize, generation: u64) -> String {
        // What is known is kept, so that a guest that makes generations up costs little.
        if generation != self.generation
            && let Some(rules) = listing(share, generation)
        {
            (self.generation, self.rules) = (generation, Some(rules));
        }
        let rules = self.rules.as_ref();
        let rules = rules.filter(|_| generation == self.generation);
        match rules.and_then(|rules| rules.get(rule)) {
            Some(listed) => format!(
                "dropped by line {} of generation {generation}, chain {}: {}",
                listed.line, listed.chain, listed.text
            ),
            None => format!("dropped by rule {rule} of generation {generation}"),
        }
    }

    /// Why a frame could not belong to a connection.
    fn refused(&self, number: usize) -> Option<Refused> {
        let mut all = Refused::ALL.into_iter().filter(|_| self.reads_frames);
        all.find(|reason| PORT_APPLIANCE + reason.index() == number)
    }

    fn counter(&self, number: usize) -> String {
        let malformed = number.checked_sub(PORT_APPLIANCE);
        let malformed = malformed.filter(|_| self.reads_frames);
        let malformed = malformed.and_then(|index| Malformed::ALL.get(index));
        match (PORT_COUNTERS.get(number), malformed) {
            (Some(name), _) => format!("dropped: {name}"),
            (None, Some(reason)) => format!("dropped: malformed, {reason}"),
            (None, None) if let Some(reason) = self.refused(number) => {
                format!("dropped: {reason}")
            }
            (None, None) => format!("dropped: counter_{number}"),
        }
    }
}

/// What the rules of this generation are called; `None` if their text is not in the shared file, or
/// not any more.
fn listing(share: &OwnedFd, generation: u64) -> Option<Listing> {
    let control = || {
        let mut control = Control::new_zeroed();
        let read = pread(share, control.as_mut_bytes(), CONTROL_OFFSET as u64).ok()?;
        let is_it = read == size_of::<Control>() && control.generation == generation;
        (is_it && generation != 0).then_some(control)
    };
    let text = raw::text(share, control()?.slot).ok()??;
    // The slot may have got another text meanwhile.
    control()?;
    Listing::new(str::from_utf8(&text).ok()?, &Limits::DEFAULT).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::capture::Fate;
    use abi::share::{BYTES, PortCounter};
    use rustix::fs::MemfdFlags;

    const TEXT: &str = "table bridge t {\n  chain c {\n    type filter hook forward priority 0; \
                        policy drop;\n    tcp dport 1234 drop\n  }\n}\n";

    fn share() -> OwnedFd {
        let share = rustix::fs::memfd_create("share", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&share, BYTES).unwrap();
        share
    }

    #[test]
    fn each_fate_has_its_words() {
        let share = share();
        let mut reasons = Reasons::new(true);
        let truncated = (PORT_APPLIANCE + Malformed::TruncatedIp.index()) as u16;
        for (fate, words) in [
            (Fate::Passed, ""),
            (Fate::Rule(3), "dropped by rule 3 of generation 2"),
            (PortCounter::TxTooBig.into(), "dropped: too_big"),
            (Fate::Counter(truncated), "dropped: malformed, truncated_ip"),
            (Fate::Counter(63), "dropped: counter_63"),
        ] {
            assert_eq!(reasons.comment(&share, fate.number(), 2), words);
        }
        let words = Reasons::new(false).comment(&share, truncated.into(), 0);
        assert_eq!(words, format!("dropped: counter_{truncated}"));
    }

    #[test]
    fn a_rule_is_named_while_its_text_is_there() {
        let share = share();
        tender::rules::publish(&share, TEXT.as_bytes(), false).unwrap();
        let mut reasons = Reasons::new(true);
        let mut comment =
            |rule, generation| reasons.comment(&share, Fate::Rule(rule).number(), generation);
        assert_eq!(
            comment(0, 1),
            "dropped by line 4 of generation 1, chain c: tcp dport 1234 drop"
        );
        assert_eq!(
            comment(1, 1),
            "dropped by line 3 of generation 1, chain c: policy drop"
        );
        assert_eq!(comment(2, 1), "dropped by rule 2 of generation 1");
        assert_eq!(comment(0, 7), "dropped by rule 0 of generation 7");
        assert_eq!(comment(0, 0), "dropped by rule 0 of generation 0");
    }
}
