//! What is said of a frame that was sent.

use super::PATIENCE;
use super::evidence::{Finding, Rise};
use crate::instance::Device;
use crate::rules::trace::{Rule, Trace};
use nf::{RuleIndex, Verdict};
use serde::Serialize;
use std::fmt;

/// What became of a frame.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    guest: String,
    port: String,
    interface: Option<String>,
    /// Bytes of the frame.
    bytes: usize,
    outcome: Outcome,
    /// `accept` or `drop`; missing if nobody knows.
    verdict: Option<&'static str>,
    /// Why it was dropped in front of all rules.
    reasons: Vec<&'static str>,
    /// Who decided, as far as the counters agree.
    rule: Option<Rule>,
    /// The rules that have counted frames in between, and how many.
    counted: Vec<Counted>,
    /// Frames that came into the guest in between, this one included.
    arrived: u64,
    /// Why the other port dropped frames that the rules accepted.
    lost: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Counted {
    rule: RuleIndex,
    frames: u64,
}

/// How much the counters say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    /// What was counted is this frame, and nothing else.
    Certain,
    /// What must be counted was, among other frames.
    Agreed,
    /// Something was counted, but not what must be.
    Contradicted,
    /// Nothing was counted.
    Nothing,
    /// The rules were replaced in between.
    Replaced,
}

impl Report {
    /// What `finding` means for a frame of which the rules' text says `trace`.
    pub fn new(
        guest: &str,
        device: &Device,
        bytes: usize,
        trace: Option<&Trace>,
        finding: Finding,
        rise: Option<&Rise>,
    ) -> Self {
        let counted: &[_] = rise.map_or(&[], |rise| &rise.rules);
        let arrived = rise.map_or(0, Rise::arrived);
        let outcome = match &finding {
            _ if rise.is_none() => Outcome::Replaced,
            Finding::Nothing => Outcome::Nothing,
            Finding::Contradicted => Outcome::Contradicted,
            Finding::Counted | Finding::Dropped(_) if arrived == 1 => Outcome::Certain,
            Finding::Counted | Finding::Dropped(_) => Outcome::Agreed,
        };
        let decided = match (&finding, trace) {
            (Finding::Counted, Some(Trace::Judged(judged))) => Some(judged),
            _ => None,
        };
        let reasons = match finding {
            Finding::Dropped(reasons) => reasons,
            Finding::Counted | Finding::Contradicted | Finding::Nothing => Vec::new(),
        };
        let verdict = match decided {
            Some(judged) => Some(name(judged.verdict)),
            None => (!reasons.is_empty()).then_some("drop"),
        };
        Self {
            guest: guest.to_owned(),
            port: device.name.clone(),
            interface: device.interface.clone(),
            bytes,
            outcome,
            verdict,
            reasons,
            rule: decided.map(|judged| judged.by.clone()),
            counted: counted
                .iter()
                .map(|&(rule, frames)| Counted { rule, frames })
                .collect(),
            arrived,
            lost: rise.map(Rise::lost).unwrap_or_default(),
        }
    }

    /// Whether it is known what became of the frame.
    pub fn is_known(&self) -> bool {
        matches!(self.outcome, Outcome::Certain | Outcome::Agreed)
    }

    /// The rule that alone has counted, where no text says which one decides.
    fn alone(&self) -> Option<&Counted> {
        match (&self.rule, &self.counted[..]) {
            (None, [counted]) => Some(counted),
            _ => None,
        }
    }

    fn fmt_counters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, counted) in self.counted.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}rule {} by {}", counted.rule, counted.frames)?;
        }
        Ok(())
    }
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accept => "accept",
        Verdict::Drop => "drop",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interface = self.interface.as_deref().unwrap_or("no interface");
        writeln!(
            f,
            "sent      {} bytes into {} of {}, through {interface}",
            self.bytes, self.port, self.guest
        )?;
        if let Some(verdict) = self.verdict {
            writeln!(f, "verdict   {verdict}")?;
        }
        if !self.reasons.is_empty() {
            writeln!(f, "reason    {}", self.reasons.join(" or "))?;
        }
        match (&self.rule, self.alone()) {
            (Some(rule), _) => writeln!(f, "rule      {rule}")?,
            (None, Some(counted)) => {
                writeln!(f, "rule      {}, by its counter alone", counted.rule)?;
            }
            (None, None) => {}
        }
        if !self.counted.is_empty() {
            f.write_str("counters  ")?;
            self.fmt_counters(f)?;
            writeln!(f)?;
        }
        if !self.lost.is_empty() {
            let lost = self.lost.join(" or ");
            writeln!(f, "lost      at the other port: {lost}")?;
        }
        writeln!(f, "certainty {}", Certainty(self))
    }
}

/// How much the counters say, in words.
struct Certainty<'a>(&'a Report);

impl fmt::Display for Certainty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { guest, arrived, .. } = self.0;
        match self.0.outcome {
            Outcome::Certain => f.write_str("no other frame came in: it was this one"),
            Outcome::Agreed => write!(
                f,
                "{} other frames came in: the counters agree, and prove nothing",
                arrived.saturating_sub(1)
            ),
            Outcome::Contradicted => {
                f.write_str("not as the rules say: send it again when less other traffic comes in")
            }
            Outcome::Nothing if *arrived == 0 => write!(
                f,
                "nothing came into {guest} within {} s: is the guest alive, and no filter on the \
                 interface?",
                PATIENCE.as_secs()
            ),
            Outcome::Nothing => write!(
                f,
                "it came into {guest}, and nothing was counted within {} s: has the guest rules?",
                PATIENCE.as_secs()
            ),
            Outcome::Replaced => {
                f.write_str("the rules were replaced at that moment: send it again")
            }
        }
    }
}
