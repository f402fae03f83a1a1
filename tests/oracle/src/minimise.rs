//! The smallest case that still shows a disagreement.

use crate::bridge::{Bridge, Error};
use crate::frame::Frame;
use crate::judge::{Disagreement, judge};
use crate::source::Source;

/// Most times that the judges are asked again.
const TRIALS_MAX: usize = 3000;

/// A case that is being taken apart.
#[derive(Clone, Debug)]
pub struct Case {
    /// The rules.
    pub source: Source,
    /// What is sent through them.
    pub frames: Vec<Frame>,
    /// Where the judges differ.
    pub disagreement: Disagreement,
}

struct Minimiser<'a> {
    bridge: &'a Bridge,
    case: Case,
    trials: usize,
}

/// Leaves away what the disagreement does not need.
///
/// # Errors
/// The kernel cannot be asked.
pub fn minimise(bridge: &Bridge, case: Case) -> Result<Case, Error> {
    let mut minimiser = Minimiser {
        bridge,
        case,
        trials: 0,
    };
    minimiser.frames()?;
    // What one pass removes may let the next one remove more.
    for _ in 0..2 {
        minimiser.chains()?;
        minimiser.rules()?;
        minimiser.statements()?;
        minimiser.names()?;
    }
    Ok(minimiser.case)
}

impl Minimiser<'_> {
    /// Takes the smaller case if the judges differ on it in the same way; says whether.
    fn attempt(&mut self, source: Source, frames: Vec<Frame>) -> Result<bool, Error> {
        self.trials += 1;
        if self.trials > TRIALS_MAX {
            return Ok(false);
        }
        match judge(self.bridge, &source, &frames)?.disagreement {
            Some(found) if found.is_like(&self.case.disagreement) => {
                self.case = Case {
                    source,
                    frames,
                    disagreement: found,
                };
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn attempt_source(&mut self, change: impl FnOnce(&mut Source)) -> Result<bool, Error> {
        let mut source = self.case.source.clone();
        change(&mut source);
        self.attempt(source, self.case.frames.clone())
    }

    /// Halves the frames while one half will do, then tries to do without each.
    fn frames(&mut self) -> Result<(), Error> {
        let no_frames = self.attempt(self.case.source.clone(), Vec::new())?;
        while !no_frames && self.case.frames.len() > 1 {
            let frames = self.case.frames.clone();
            let (first, second) = frames.split_at(frames.len() / 2);
            if !self.attempt(self.case.source.clone(), first.to_vec())?
                && !self.attempt(self.case.source.clone(), second.to_vec())?
            {
                break;
            }
        }
        Ok(())
    }

    fn chains(&mut self) -> Result<(), Error> {
        for index in (0..self.case.source.chains.len()).rev() {
            // Without the base chain, all would be different.
            if !self.case.source.chains[index].head.is_empty() {
                continue;
            }
            self.attempt_source(|source| {
                source.chains.remove(index);
            })?;
        }
        Ok(())
    }

    fn rules(&mut self) -> Result<(), Error> {
        for chain in 0..self.case.source.chains.len() {
            for rule in (0..self.case.source.chains[chain].rules.len()).rev() {
                self.attempt_source(|source| {
                    source.chains[chain].rules.remove(rule);
                })?;
            }
        }
        Ok(())
    }

    fn statements(&mut self) -> Result<(), Error> {
        for chain in 0..self.case.source.chains.len() {
            for rule in 0..self.case.source.chains[chain].rules.len() {
                for at in (0..self.case.source.chains[chain].rules[rule].statements.len()).rev() {
                    if self.case.source.chains[chain].rules[rule].statements.len() == 1 {
                        break;
                    }
                    self.attempt_source(|source| {
                        source.chains[chain].rules[rule].statements.remove(at);
                    })?;
                }
            }
        }
        Ok(())
    }

    fn names(&mut self) -> Result<(), Error> {
        for index in (0..self.case.source.sets.len()).rev() {
            self.attempt_source(|source| {
                source.sets.remove(index);
            })?;
        }
        for index in (0..self.case.source.defines.len()).rev() {
            self.attempt_source(|source| {
                source.defines.remove(index);
            })?;
        }
        Ok(())
    }
}
