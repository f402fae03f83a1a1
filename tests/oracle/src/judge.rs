//! One file of rules and its frames before both judges.

use crate::bridge::{Bridge, Error, PORTS};
use crate::frame::Frame;
use crate::source::{Count, Source};
use nf::nft::{ErrorKind, Limits};
use nf::{Fragment, Key, Malformed, Moment, RuleIndex, RuleSet, Tally, Verdict, Way, protocol};
use std::fmt;
use std::mem::discriminant;
use std::thread;
use std::time::Duration;

/// Between two frames whose rules change a set without a size: the kernel makes the table of such
/// a set larger or smaller behind a frame, and adds nothing while two such changes wait
/// (`rhashtable_insert_rehash` of lib/rhashtable.c). A chosen difference: ours has its size at
/// once.
/// Whoever does that for the kernel may itself have to wait, so a disagreement is looked at again,
/// with more time.
const SETTLES: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// What became of a file and its frames.
#[derive(Debug, Default)]
pub struct Judgement {
    /// Frames that both judged.
    pub cases: u64,
    /// Those of them that `nf` accepted.
    pub accepted: u64,
    /// Frames that `nf` drops before any rule, by the reason's number. The kernel is not asked: it
    /// looks at what it can reach. A chosen difference.
    pub malformed: [u64; Malformed::ALL.len()],
    /// Later fragments in which the kernel would have taken payload for a transport header, and
    /// rules that ask for one. A chosen difference.
    pub fragments: u64,
    /// Files with a rule that nft takes and `nf` does not, because to nft it would mean something
    /// else than it says. A chosen difference.
    pub refused: u64,
    /// Counters that were compared.
    pub counters: u64,
    /// Those of them that counted something.
    pub counting: u64,
    /// Files whose counters nft counts but cannot print.
    pub unlisted: u64,
    /// The first disagreement, if there is one.
    pub disagreement: Option<Disagreement>,
}

impl Judgement {
    /// Adds what another file gave, apart from its disagreement.
    pub fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.accepted += other.accepted;
        for (sum, count) in self.malformed.iter_mut().zip(other.malformed) {
            *sum += count;
        }
        self.fragments += other.fragments;
        self.refused += other.refused;
        self.counters += other.counters;
        self.counting += other.counting;
        self.unlisted += other.unlisted;
    }
}

/// Where the judges differ.
#[derive(Clone, Debug)]
pub enum Disagreement {
    /// One takes the file and the other does not; what each says against it.
    Text {
        /// The kernel's.
        kernel: Option<String>,
        /// Ours.
        nf: Option<String>,
    },
    /// `nf` finds a well-formed frame malformed.
    Malformed {
        /// Number of the frame.
        frame: usize,
        /// Why.
        reason: Malformed,
    },
    /// A frame's fate.
    Verdict {
        /// Number of the frame.
        frame: usize,
        /// The kernel's.
        kernel: Verdict,
        /// Ours.
        nf: Verdict,
        /// The rule that gave ours.
        decider: RuleIndex,
    },
    /// What a rule has counted.
    Count {
        /// The rule.
        rule: RuleIndex,
        /// The kernel's.
        kernel: Option<Count>,
        /// Ours.
        nf: Option<Count>,
    },
}

impl Disagreement {
    /// Whether it is of the same kind, and about a file with the same message.
    pub fn is_like(&self, other: &Self) -> bool {
        let message = |said: &Option<String>| {
            let line = said.as_deref().and_then(|said| said.lines().next());
            line.map(str::to_owned)
        };
        match (self, other) {
            (Self::Text { nf, .. }, Self::Text { nf: before, .. }) => {
                message(nf) == message(before)
            }
            _ => discriminant(self) == discriminant(other),
        }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { kernel, nf } => {
                let says = |said: &Option<String>| match said {
                    Some(said) => format!("refuses the file: {}", said.trim_end()),
                    None => "takes the file".to_owned(),
                };
                write!(f, "the kernel {}; nf {}", says(kernel), says(nf))
            }
            Self::Malformed { frame, reason } => {
                write!(f, "frame {frame} is well-formed; nf says {reason}")
            }
            Self::Verdict {
                frame,
                kernel,
                nf,
                decider,
            } => write!(
                f,
                "frame {frame}: the kernel says {kernel}; nf says {nf}, by rule {decider}"
            ),
            Self::Count { rule, kernel, nf } => {
                write!(
                    f,
                    "rule {rule}: the kernel counts {kernel:?}; nf counts {nf:?}"
                )
            }
        }
    }
}

/// Asks both about a file and frames.
///
/// # Errors
/// The kernel cannot be asked.
pub fn judge(bridge: &Bridge, source: &Source, frames: &[Frame]) -> Result<Judgement, Error> {
    if !source.grows() {
        return judge_with(bridge, source, frames, Duration::ZERO);
    }
    let judgement = judge_with(bridge, source, frames, SETTLES[0])?;
    match judgement.disagreement {
        Some(_) => judge_with(bridge, source, frames, SETTLES[1]),
        None => Ok(judgement),
    }
}

/// The same, with this time between two frames.
fn judge_with(
    bridge: &Bridge,
    source: &Source,
    frames: &[Frame],
    pause: Duration,
) -> Result<Judgement, Error> {
    let mut judgement = Judgement::default();
    let text = source.to_string();
    let kernel = bridge.load(&text)?;
    let ours = nf::load(&text, &PORTS, &Limits::DEFAULT);
    let rules = match (kernel, ours) {
        (Ok(()), Ok(rules)) => rules,
        (Err(_), Err(_)) => return Ok(judgement),
        (Ok(()), Err(error)) if matches!(error.kind, ErrorKind::Misleading(_)) => {
            judgement.refused += 1;
            return Ok(judgement);
        }
        (kernel, nf) => {
            let said = |error: nf::nft::Error| error.render("rules.nft", &text).to_string();
            judgement.disagreement = Some(Disagreement::Text {
                kernel: kernel.err(),
                nf: nf.map_err(said).err(),
            });
            return Ok(judgement);
        }
    };
    let mut counts = vec![Count::default(); rules.len() + 1];
    for (index, frame) in frames.iter().enumerate() {
        if !pause.is_zero() {
            thread::sleep(pause);
        }
        let asked = ask(bridge, &rules, source, frame, &mut counts, &mut judgement)?;
        if let Some(disagreement) = asked.disagreement(index) {
            judgement.disagreement = Some(disagreement);
            return Ok(judgement);
        }
    }
    compare_counters(bridge, source, &counts, &mut judgement)?;
    Ok(judgement)
}

/// What both said about a frame.
enum Asked {
    Both(Verdict, Verdict, RuleIndex),
    WronglyMalformed(Malformed),
    Skipped,
}

impl Asked {
    fn disagreement(self, frame: usize) -> Option<Disagreement> {
        match self {
            Self::Both(kernel, nf, decider) if kernel != nf => Some(Disagreement::Verdict {
                frame,
                kernel,
                nf,
                decider,
            }),
            Self::WronglyMalformed(reason) => Some(Disagreement::Malformed { frame, reason }),
            Self::Both(..) | Self::Skipped => None,
        }
    }
}

fn ask(
    bridge: &Bridge,
    rules: &RuleSet,
    source: &Source,
    frame: &Frame,
    counts: &mut [Count],
    judgement: &mut Judgement,
) -> Result<Asked, Error> {
    let key = match Key::parse(&frame.bytes) {
        Ok(key) => key,
        Err(reason) if frame.well_formed => return Ok(Asked::WronglyMalformed(reason)),
        Err(reason) => {
            judgement.malformed[reason.index()] += 1;
            return Ok(Asked::Skipped);
        }
    };
    if source.reads_l4 && is_misread(&key) {
        judgement.fragments += 1;
        return Ok(Asked::Skipped);
    }
    let way = Way {
        from: frame.from,
        to: 1 - frame.from,
    };
    let mut tally = Counting {
        counts,
        bytes: frame.counted_bytes(),
    };
    let (ours, decider) = rules.verdict(&key, way, &mut tally);
    let kernel = bridge.send(frame)?;
    judgement.cases += 1;
    judgement.accepted += u64::from(ours == Verdict::Accept);
    Ok(Asked::Both(kernel, ours, decider))
}

/// Whether the kernel takes what lies in a fragment for a transport header.
fn is_misread(key: &Key) -> bool {
    const READ: [u8; 4] = [
        protocol::TCP,
        protocol::UDP,
        protocol::ICMP,
        protocol::ICMPV6,
    ];
    let fields = key.fields();
    let read = |number| READ.contains(&number);
    fields.fragment == Fragment::Later && fields.protocol.is_some_and(read)
}

struct Counting<'a> {
    counts: &'a mut [Count],
    bytes: u64,
}

impl Tally for Counting<'_> {
    fn count(&mut self, rule: RuleIndex) {
        self.counts[rule].packets += 1;
        self.counts[rule].bytes += self.bytes;
    }

    fn log(&mut self, _: RuleIndex, _: &str, _: &Key, _: Way) {}

    /// Rules that are asked about have limits that no run lasts long enough to fill, and timeouts
    /// that none outlives.
    fn moment(&mut self) -> Moment {
        Moment {
            now: 0,
            bytes: self.bytes,
        }
    }
}

fn compare_counters(
    bridge: &Bridge,
    source: &Source,
    counts: &[Count],
    judgement: &mut Judgement,
) -> Result<(), Error> {
    let Some(kernel) = bridge.list()? else {
        judgement.unlisted += 1;
        return Ok(());
    };
    let rules: Vec<_> = source.rules().collect();
    if rules.len() != kernel.len() || rules.len() + 1 != counts.len() {
        return Err(Error::Listing("not the rules of the file".into()));
    }
    for (index, ((chain, rule), listed)) in rules.iter().zip(kernel).enumerate() {
        if *chain != listed.chain {
            return Err(Error::Listing("not the chains of the file".into()));
        }
        let nf = rule.counts().then_some(counts[index]);
        judgement.counters += u64::from(nf.is_some());
        judgement.counting += u64::from(nf.is_some_and(|count| count.packets > 0));
        if nf != listed.count {
            let (rule, kernel) = (index, listed.count);
            judgement.disagreement = Some(Disagreement::Count { rule, kernel, nf });
            return Ok(());
        }
    }
    Ok(())
}
