//! Plays a script to both ends, and compares what they answer.

use crate::differences::{DIFFERENCES, Difference, Kind};
use crate::kernel::Kernel;
use crate::ours::Ours;
use crate::peer::{Answer, Left, Peer};
use crate::script::{Place, Step, rst};
use crate::side::{Said, Side};
use std::fmt;
use std::io;

/// Peers have ports from here on, each script another one: what the kernel keeps of old connections
/// is then none of a new one's.
const PORTS: std::ops::Range<u16> = 10_000..60_000;
/// A difference is one if it comes so often: a machine that stands still for the fifth of a second
/// lets the kernel's timers run.
const TIMES: usize = 3;
/// Frames that are read and answered for one step: more of them would be a loop without end.
const ROUNDS_MAX: usize = 100;

/// What one end did in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// What the user was told.
    pub said: Said,
    /// What left.
    pub answers: Vec<Answer>,
}

/// A step in which both ends differ, and those before it.
pub struct Moment<'a> {
    /// The last one is that in which they differ.
    pub steps: &'a [Step],
    /// What Linux did.
    pub linux: &'a [Turn],
    /// What net did.
    pub ours: &'a [Turn],
}

/// What came of a script.
#[derive(Debug)]
pub enum Verdict {
    /// Both ends do the same.
    Same,
    /// They differ as chosen.
    Chosen(Vec<&'static str>),
    /// They differ.
    Differs(Failure),
}

/// A script and how both ends differ.
#[derive(Clone, Debug)]
pub struct Failure {
    steps: Vec<Step>,
    linux: Vec<Turn>,
    ours: Vec<Turn>,
}

/// Both ends.
pub struct Witness {
    kernel: Kernel,
    ours: Ours,
    port: u16,
}

impl Witness {
    /// A kernel in a network of its own, and our stack.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            kernel: Kernel::new()?,
            ours: Ours::default(),
            port: PORTS.start,
        })
    }

    /// Plays a script to both, and compares.
    ///
    /// # Errors
    /// What the system says.
    pub fn judge(&mut self, steps: &[Step]) -> io::Result<Verdict> {
        let mut verdict = Verdict::Same;
        for _ in 0..TIMES {
            verdict = self.once(steps)?;
            if !matches!(verdict, Verdict::Differs(_)) {
                break;
            }
        }
        Ok(verdict)
    }

    fn once(&mut self, steps: &[Step]) -> io::Result<Verdict> {
        self.port = match self.port + 1 {
            port if PORTS.contains(&port) => port,
            _ => PORTS.start,
        };
        let linux = play(&mut self.kernel, self.port, steps)?;
        let ours = play(&mut self.ours, self.port, steps)?;
        if steps.iter().any(narrows) {
            // The kernel remembers paths longer than connections.
            self.kernel = Kernel::new()?;
        }
        Ok(compare(steps, &linux, &ours))
    }

    /// The smallest script that is found to fail, by leaving steps out.
    ///
    /// # Errors
    /// What the system says.
    pub fn minimise(&mut self, mut failure: Failure) -> io::Result<Failure> {
        let mut at = failure.steps.len();
        while at > 0 {
            at -= 1;
            if at >= failure.steps.len() {
                continue;
            }
            let mut fewer = failure.steps.clone();
            fewer.remove(at);
            if let Verdict::Differs(smaller) = self.judge(&fewer)? {
                failure = smaller;
            }
        }
        Ok(failure)
    }
}

/// Whether a step makes the path narrower.
fn narrows(step: &Step) -> bool {
    matches!(step, Step::Report(report) if report.mtu > 0)
}

/// Finds the first step in which they differ otherwise than chosen.
fn compare(steps: &[Step], linux: &[Turn], ours: &[Turn]) -> Verdict {
    let mut found = Vec::new();
    for at in 0..steps.len() {
        if linux[at] == ours[at] {
            continue;
        }
        let moment = Moment {
            steps: &steps[..=at],
            linux: &linux[..=at],
            ours: &ours[..=at],
        };
        match moment.chosen() {
            Chosen::Part(names) => found.extend(names),
            Chosen::State(name) => {
                found.push(name);
                break;
            }
            Chosen::Not => {
                return Verdict::Differs(Failure {
                    steps: moment.steps.to_vec(),
                    linux: moment.linux.to_vec(),
                    ours: moment.ours.to_vec(),
                });
            }
        }
    }
    match found.is_empty() {
        true => Verdict::Same,
        false => Verdict::Chosen(found),
    }
}

/// Whether a difference is one of those that we have chosen.
enum Chosen {
    /// It concerns parts of answers.
    Part(Vec<&'static str>),
    /// What comes behind cannot be compared.
    State(&'static str),
    /// It is not.
    Not,
}

impl Moment<'_> {
    fn chosen(&self) -> Chosen {
        let parts = DIFFERENCES
            .iter()
            .filter(|difference| match difference.kind {
                Kind::Part(holds, _) => holds(self),
                Kind::State(_) => false,
            });
        let parts: Vec<_> = parts.collect();
        if self.are_alike(&parts) {
            // Those without which they would not be.
            let needed = |at: &usize| {
                let mut others = parts.clone();
                others.remove(*at);
                !self.are_alike(&others)
            };
            let needed = (0..parts.len()).filter(needed);
            return Chosen::Part(needed.map(|at| parts[at].name).collect());
        }
        let state = DIFFERENCES.iter().find(|difference| match difference.kind {
            Kind::State(holds) => holds(self),
            Kind::Part(..) => false,
        });
        state.map_or(Chosen::Not, |difference| Chosen::State(difference.name))
    }

    /// Whether both ends have done the same but for these differences.
    fn are_alike(&self, but: &[&Difference]) -> bool {
        let last = self.steps.len() - 1;
        let [linux, ours] = [self.linux, self.ours].map(|turns| {
            let mut turn = turns[last].clone();
            for difference in but {
                if let Kind::Part(_, alike) = difference.kind {
                    turn.answers.iter_mut().for_each(alike);
                }
            }
            turn
        });
        linux == ours
    }
}

/// Plays a script to one end.
fn play(side: &mut impl Side, port: u16, steps: &[Step]) -> io::Result<Vec<Turn>> {
    // Some ports' numbers wrap at once.
    let isn = u32::from(port).wrapping_mul(0x9e37_79b1);
    let isn = if port.is_multiple_of(4) {
        u32::MAX - isn % 3000
    } else {
        isn
    };
    let mut peer = Peer::new(port, isn, isn.rotate_left(7) | 1);
    side.begin(port)?;
    side.arrives(&peer.greeting())?;
    collect(side, &mut peer)?;
    let mut turns = Vec::with_capacity(steps.len());
    for step in steps {
        let said = match step {
            Step::Arrives(sent) => {
                side.arrives(&peer.frame(sent))?;
                Said::Done
            }
            Step::Report(report) => {
                side.arrives(&peer.report(*report))?;
                Said::Done
            }
            Step::Call(call) => side.call(*call)?,
        };
        let answers = collect(side, &mut peer)?;
        turns.push(Turn { said, answers });
    }
    side.arrives(&peer.frame(&rst(Place::Acked(0))))?;
    collect(side, &mut peer)?;
    Ok(turns)
}

/// What has left, until nothing more does.
fn collect(side: &mut impl Side, peer: &mut Peer) -> io::Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let frames = side.left()?;
        if frames.is_empty() {
            return Ok(answers);
        }
        for frame in frames {
            match peer.read(&frame) {
                Left::Answer(answer) => answers.push(answer),
                Left::Asked(reply) => side.arrives(&reply)?,
                Left::Else => {}
            }
        }
    }
    Err(io::Error::other("an end does not come to rest"))
}

fn show(f: &mut fmt::Formatter<'_>, who: &str, turn: &Turn) -> fmt::Result {
    if turn.said != Said::Done {
        writeln!(f, "      {who} says {}", turn.said)?;
    }
    for answer in &turn.answers {
        writeln!(f, "      {who} {answer}")?;
    }
    if turn.answers.is_empty() && turn.said == Said::Done {
        writeln!(f, "      {who} nothing")?;
    }
    Ok(())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = self.linux.iter().zip(&self.ours);
        for (step, (linux, ours)) in self.steps.iter().zip(turns) {
            writeln!(f, "  {step}")?;
            if linux == ours {
                show(f, "both ", linux)?;
            } else {
                show(f, "Linux", linux)?;
                show(f, "net  ", ours)?;
            }
        }
        Ok(())
    }
}
