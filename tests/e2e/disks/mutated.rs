//! File systems in which bytes were changed: what is read of them ends, with an error or without.

use super::made::{Kind, Tree};
use super::{mounted, turns, walk};
use fastrand::Rng;
use libtest_mimic::Failed;

/// How many, and by which seed, if somebody says so.
pub const TURNS: &str = "OUTBOARD_MUTATIONS";
pub const TURNS_DEFAULT: u64 = 40;
const SEED: u64 = 17;
/// Changes of one image.
const CHANGES: std::ops::Range<usize> = 1..40;
/// Files and folders that are looked at, and names of each folder.
const MOST: usize = 40;

/// An image in which bytes were changed.
pub fn mutations(image: &[u8], turn: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(SEED.wrapping_add(turn));
    let mut bytes = image.to_vec();
    for _ in 0..random.usize(CHANGES) {
        // Most of what matters lies at the beginning.
        let ends = [4096, 64 << 10, 256 << 10, bytes.len()];
        let end = ends[random.usize(0..ends.len())];
        bytes[random.usize(0..end)] = random.u8(..);
    }
    bytes
}

/// Each walk ends, and panics nowhere.
pub fn walks(kind: &Kind) -> Result<(), Failed> {
    let tree = Tree::new()?;
    let image = tree.image("whole");
    kind.make(&tree.root(), &image)?;
    let image = std::fs::read(&image)?;
    let mut read = 0;
    for turn in 0..turns(TURNS, TURNS_DEFAULT) {
        if let Ok(files) = mounted(mutations(&image, turn)) {
            let (found, errors) = walk(&*files, MOST);
            read += found.len() - errors.min(found.len());
        }
    }
    // Not all of it is refused at once.
    match read {
        0 => Err("no file of any image could be read".into()),
        _ => Ok(()),
    }
}
