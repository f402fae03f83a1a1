//! Generated rules and frames, judged by the kernel's nftables and by `nf`.
//!
//! Each round makes a file of rules and frames from one number, its seed. The file goes to nft and
//! to [`nf::load`] as it is; each frame goes through a bridge of the kernel's and, in the same
//! order, through [`nf::Key`] and [`nf::RuleSet`]. What passed and what was counted must be the
//! same.
//!
//! Two kinds of frames are not compared, because `nf` differs on purpose: malformed ones, and,
//! where rules look behind the IP header, later fragments. `judge` counts them.

#![forbid(unsafe_code)]

mod bridge;
mod conclusions;
pub mod conversation;
mod frame;
mod joint;
mod judge;
mod minimise;
mod operand;
mod rules;
mod source;
pub mod translation;
mod values;

pub use bridge::{Bridge, Error, PORTS};
pub use frame::Frame;
pub use judge::{Disagreement, Judgement, judge};
pub use minimise::{Case, minimise};
pub use source::{Chain, Count, Rule, Source};

use fastrand::Rng;
use std::fmt;

/// Frames of a round with many rules.
pub const FRAMES: usize = 2000;
/// Frames of a round with few rules.
const FRAMES_FEW: usize = 300;

/// A round's seed and the smallest case in which the judges differ.
#[derive(Debug)]
pub struct Failure {
    /// What the round was made from.
    pub seed: u64,
    /// Before anything was left away.
    pub whole: Disagreement,
    /// The smallest case.
    pub case: Case,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = &self.case;
        writeln!(f, "seed {}: {}", self.seed, self.whole)?;
        writeln!(f, "smallest case: {}", case.disagreement)?;
        write!(f, "{}", case.source)?;
        for frame in case.frames.iter().take(4) {
            let port = PORTS[usize::from(frame.from)];
            writeln!(f, "frame in {port}: {}", frame.hex())?;
        }
        Ok(())
    }
}

/// One round; the failure, if the judges differ.
///
/// # Errors
/// The kernel cannot be asked.
pub fn round(bridge: &Bridge, seed: u64) -> Result<(Judgement, Option<Failure>), Error> {
    let mut rng = Rng::with_seed(seed);
    let (source, frames) = if rng.bool() {
        (rules::generate(&mut rng), FRAMES)
    } else {
        (conclusions::generate(&mut rng), FRAMES_FEW)
    };
    let frames: Vec<Frame> = (0..frames).map(|_| Frame::generate(&mut rng)).collect();
    let judgement = judge(bridge, &source, &frames)?;
    let Some(disagreement) = judgement.disagreement.clone() else {
        return Ok((judgement, None));
    };
    let whole = disagreement.clone();
    let case = Case {
        source,
        frames,
        disagreement,
    };
    let case = minimise(bridge, case)?;
    let failure = Failure { seed, whole, case };
    Ok((judgement, Some(failure)))
}
