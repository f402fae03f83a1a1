//! Power cuts during random changes: once a checker has mended what is left, all that was synced,
//! and not touched since, is there.

use super::recorded::{Event, Recorded, left};
use super::sequence::{Step, Tree, all, take};
use super::writable::Writable;
use super::written::{mounted, said};
use super::{expect, turns};
use crate::harness::temporary::TemporaryFolder;
use fastrand::Rng;
use libtest_mimic::Failed;
use std::fs;
use std::path::Path;

/// How many cuts of each kind, if somebody says so; `all` of them with a number that is larger than
/// what is written.
const TURNS: &str = "OUTBOARD_CUTS";
const TURNS_DEFAULT: u64 = 24;
const SEED: u64 = 1700;
/// Changes before, and cuts of the same run.
const STEPS: usize = 160;
const CUTS_OF_ONE: u64 = 12;

/// What happened, by the disk's events.
struct Run {
    new: Vec<u8>,
    events: Vec<Event>,
    /// What was there when it was last said to be on the disk, and from when on.
    synced: Vec<(usize, Tree)>,
    /// Changes, and when they began.
    steps: Vec<(usize, Step)>,
}

/// Cuts of several runs.
pub fn cuts(kind: &Writable) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("cuts")?;
    let image = folder.path.join("image");
    let new = kind.make(&image)?;
    let turns = turns(TURNS, TURNS_DEFAULT);
    let mut compared = 0;
    for (number, start) in (0..turns).step_by(CUTS_OF_ONE as usize).enumerate() {
        let seed = SEED + number as u64;
        let run = recorded(&new, seed)?;
        for turn in start..turns.min(start + CUTS_OF_ONE) {
            compared += cut(kind, &run, &image, turn)
                .map_err(|error| format!("seed {seed}, turn {turn}: {}", said(&error)))?;
        }
    }
    expect(compared as u64 > turns, || {
        format!("only {compared} paths were not touched")
    })
}

fn recorded(new: &[u8], seed: u64) -> Result<Run, Failed> {
    let disk = Recorded::new(new.to_vec());
    let files = mounted(&disk)?;
    let mut random = Rng::with_seed(seed);
    let mut tree = Tree::new();
    let (mut synced, mut steps) = (vec![(0, tree.clone())], Vec::new());
    for _ in 0..STEPS {
        let step = Step::random(&tree, &mut random);
        let began = disk.now();
        if take(&*files, &mut tree, &step)? && matches!(step, Step::Sync) {
            synced.push((disk.now(), tree.clone()));
        }
        steps.push((began, step));
    }
    drop(files);
    let events = disk.events.take();
    Ok(Run {
        new: new.to_vec(),
        events,
        synced,
        steps,
    })
}

/// One cut; of how many paths it was asked.
fn cut(kind: &Writable, run: &Run, image: &Path, turn: u64) -> Result<usize, Failed> {
    let mut random = Rng::with_seed(turn);
    let cut = random.usize(..run.events.len());
    fs::write(image, left(&run.new, &run.events, cut, &mut random))?;
    // Who finds it clean may write it: then it is.
    if let Ok(before) = mounted(&Recorded::new(fs::read(image)?)) {
        // What cannot be read of it is an error.
        let _ = all(&*before);
        if before.is_writable() && kind.says_clean {
            kind.check_clean(image)
                .map_err(|error| format!("said to be clean: {}", said(&error)))?;
        }
    }
    kind.mend(image)
        .map_err(|error| format!("by the checker: {}", said(&error)))?;
    let found = all(&*mounted(&Recorded::new(fs::read(image)?))?)?;
    kept(kind, run, cut, &found)
}

/// Whether all is there that was promised, and how much that is.
fn kept(kind: &Writable, run: &Run, cut: usize, found: &Tree) -> Result<usize, Failed> {
    let mut count = 0;
    let synced = run.synced.iter().rev().find(|(end, _)| *end <= cut);
    let (since, tree) = synced.ok_or("nothing was ever synced")?;
    let steps = run
        .steps
        .iter()
        .filter(|(began, _)| (*since..=cut).contains(began));
    let steps: Vec<&Step> = steps.map(|(_, step)| step).collect();
    let touches = |step: &&&Step, path: &str| {
        let touched = step.touches();
        touched.into_iter().any(|touched| {
            path.strip_prefix(touched)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    for (path, bytes) in tree {
        let touched: Vec<_> = steps.iter().filter(|step| touches(step, path)).collect();
        match &touched[..] {
            [] => {
                let there = found
                    .get(path)
                    .ok_or_else(|| format!("{path} is not there"))?;
                expect(there == bytes, || format!("{path} differs"))?;
                count += 1;
            }
            [Step::Rename(from, to)] if kind.renames_safely && from == path => {
                let others = steps.iter().filter(|step| touches(step, to)).count();
                let is_one = [from, to]
                    .into_iter()
                    .any(|path| found.get(path) == Some(bytes));
                expect(is_one || others > 1, || {
                    format!("{from}, renamed {to}, is gone")
                })?;
            }
            _ => {}
        }
    }
    Ok(count)
}
