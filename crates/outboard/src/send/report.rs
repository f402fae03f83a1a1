//! What is said of a frame that was sent.

use super::PATIENCE;
use super::evidence::{Finding, Rise};
use crate::instance::Device;
use crate::rules::trace::{Rule, Trace};
use crate::stats::snapshot::Port;
use crate::stats::{last, table};
use abi::extension::feature;
use nf::{RuleIndex, Verdict};
use serde::Serialize;
use std::fmt;

/// A frame, and where it went.
pub(super) struct Sent<'a> {
    pub guest: &'a str,
    /// Bits of [`feature`] that the guest's image has.
    pub features: u32,
    /// The port that it entered, then the others.
    pub ports: &'a [&'a Device],
    /// Bytes of the frame.
    pub bytes: usize,
}

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
    /// What each port has counted in between, the one that the frame entered first.
    ports: Vec<Port>,
    /// Whether the guest takes rules, which say more than its ports.
    #[serde(skip)]
    has_rules: bool,
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
    /// The guest counts nothing.
    Uncounted,
}

impl Report {
    /// What `finding` means for a frame of which the rules' text says `trace`.
    pub fn new(
        sent: &Sent<'_>,
        trace: Option<&Trace>,
        finding: Finding,
        rise: Option<&Rise>,
    ) -> Self {
        let counted: &[_] = rise.map_or(&[], |rise| &rise.rules);
        let arrived = rise.map_or(0, Rise::arrived);
        let outcome = match &finding {
            Finding::Uncounted => Outcome::Uncounted,
            Finding::Replaced => Outcome::Replaced,
            Finding::Nothing => Outcome::Nothing,
            Finding::Contradicted => Outcome::Contradicted,
            found if found.is_found() && arrived == 1 => Outcome::Certain,
            Finding::Counted | Finding::Dropped(_) | Finding::Arrived => Outcome::Agreed,
        };
        let decided = match (&finding, trace) {
            (Finding::Counted, Some(Trace::Judged(judged))) => Some(judged),
            _ => None,
        };
        let reasons = match finding {
            Finding::Dropped(reasons) => reasons,
            _ => Vec::new(),
        };
        let verdict = match decided {
            Some(judged) => Some(name(judged.verdict)),
            None => (!reasons.is_empty()).then_some("drop"),
        };
        let has_rules = sent.features & feature::RULES != 0;
        let blocks = rise.map_or(&[][..], Rise::ports);
        let ports = sent.ports.iter().zip(blocks);
        let entered = sent.ports.first();
        Self {
            guest: sent.guest.to_owned(),
            port: entered.map(|port| port.name.clone()).unwrap_or_default(),
            interface: entered.and_then(|port| port.interface.clone()),
            bytes: sent.bytes,
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
            ports: ports
                .map(|(port, block)| Port::new(port, block, has_rules))
                .collect(),
            has_rules,
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

fn has_counted(port: &Port) -> bool {
    let drops = port.drops.iter().map(|(_, count)| *count);
    let mut frames = drops.chain([port.receive.frames, port.transmit.frames]);
    frames.any(|frames| frames > 0)
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
        if !self.has_rules {
            for port in self.ports.iter().filter(|port| has_counted(port)) {
                writeln!(f, "counters  {}", last::port(port))?;
            }
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
            Outcome::Agreed => {
                let others = table::counted(arrived.saturating_sub(1), "other frame");
                write!(f, "{others} came in: the counters agree, and prove nothing")
            }
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
                "it came into {guest}, and no rule counted it within {} s: is the guest alive? \
                 type: outboard stats {guest}",
                PATIENCE.as_secs()
            ),
            Outcome::Uncounted => write!(
                f,
                "{guest} has an image that counts nothing: look at what it sends, with: tcpdump"
            ),
            Outcome::Replaced => {
                f.write_str("the rules were replaced at that moment: send it again")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::evidence::{Counts, Expected, find};
    use super::*;
    use crate::stats::snapshot::tests::{TEXT, description, raw};
    use abi::share::{COUNTERS_PER_PORT, PortCounter};

    const PRIVATE: usize = COUNTERS_PER_PORT;

    /// What is said of a frame into `private` of a guest with these features, when these counters
    /// have risen by one, and these rules.
    fn report(features: u32, expected: &Expected, risen: &[usize], rules: &[usize]) -> Report {
        let description = description();
        let ports = [&description.devices[0], &description.devices[1]];
        let (before, mut after) = (raw(), raw());
        for counter in risen {
            after.counters[*counter] += 1;
        }
        for rule in rules {
            after.rules[*rule].frames += 1;
        }
        let counts = |raw| Counts::new(raw, &[1, 2]);
        let rise = counts(&after).since(&counts(&before)).unwrap();
        let sent = Sent {
            guest: "fw",
            features,
            ports: &ports,
            bytes: 60,
        };
        let frame = crate::frame::read("tcp 10.0.0.1:999 > 10.0.0.2:7070").unwrap();
        let trace = Trace::new(TEXT, ["private", "public"], &frame.bytes, 0).unwrap();
        let trace = (*expected != Expected::Arrival).then_some(&trace);
        Report::new(&sent, trace, find(&rise, expected), Some(&rise))
    }

    fn received() -> usize {
        PRIVATE + PortCounter::RxFrames as usize
    }

    #[test]
    fn a_rule_is_named_by_its_text() {
        let expected = Expected::Counted(vec![0]);
        let report = report(feature::ALL, &expected, &[received()], &[0]);
        let text = "\
sent      60 bytes into private of fw, through tap0
verdict   accept
rule      0, line 5 of chain forward: tcp dport 7070 accept
counters  rule 0 by 1
certainty no other frame came in: it was this one
";
        assert_eq!(report.to_string(), text);
        assert!(report.is_known());
    }

    #[test]
    fn a_port_without_rules_says_what_it_counted() {
        let sent = 2 * COUNTERS_PER_PORT + PortCounter::TxFrames as usize;
        let features = feature::ALL & !feature::RULES;
        let report = |risen: &[usize]| report(features, &Expected::Arrival, risen, &[]);
        let text = "\
sent      60 bytes into private of fw, through tap0
counters  private: received 1 frame (0 bytes), sent 0 (0)
counters  public: received 0 frames (0 bytes), sent 1 (0)
certainty no other frame came in: it was this one
";
        assert_eq!(report(&[received(), sent]).to_string(), text);
        let text = "\
sent      60 bytes into private of fw, through tap0
verdict   drop
reason    rx_runt
counters  private: received 0 frames (0 bytes), sent 0 (0); dropped 1 rx_runt
certainty no other frame came in: it was this one
";
        let runt = PRIVATE + PortCounter::RxRunt as usize;
        assert_eq!(report(&[runt]).to_string(), text);
        let crowd = report(&[received(), received()]).to_string();
        let says = "certainty 1 other frame came in: the counters agree, and prove nothing\n";
        assert!(crowd.ends_with(says), "{crowd}");
    }

    #[test]
    fn what_is_not_known_says_where_to_look() {
        let anything = Expected::Anything;
        let silent = report(feature::ALL, &anything, &[], &[]);
        let says = "nothing came into fw within 5 s: is the guest alive, and no filter on the \
                    interface?\n";
        assert!(silent.to_string().ends_with(says), "{silent}");
        let stuck = report(feature::ALL, &anything, &[received()], &[]);
        let says = "it came into fw, and no rule counted it within 5 s: is the guest alive? type: \
                    outboard stats fw\n";
        assert!(stuck.to_string().ends_with(says), "{stuck}");
        let sent = Sent {
            guest: "fw",
            features: 0,
            ports: &[],
            bytes: 60,
        };
        let blind = Report::new(&sent, None, Finding::Uncounted, None);
        let says = "fw has an image that counts nothing: look at what it sends, with: tcpdump\n";
        assert!(blind.to_string().ends_with(says), "{blind}");
        assert!(![silent, stuck, blind].iter().any(Report::is_known));
    }
}
