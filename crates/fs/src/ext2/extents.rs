//! Where the blocks of a file of ext4 lie (the kernel's ext4 documentation, "Extent Tree"). They
//! are read alone.

use super::layout::Inode;
use super::{Core, Error, failed};
use alloc::vec;

/// Bytes of a header and of an entry, and what begins each node.
const SIZE: usize = 12;
const MAGIC: u16 = 0xf30a;
/// Deepest tree, as Linux has it.
const DEPTH_MAX: u16 = 5;
/// Longest extent; one that says more was reserved, and not written.
const LEN_MAX: u32 = 32768;

fn half(bytes: &[u8], at: usize) -> u16 {
    let half = bytes[at..].first_chunk();
    half.map_or(0, |half| u16::from_le_bytes(*half))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes[at..].first_chunk();
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

/// What a node says of a block.
enum Said {
    /// The node below knows, which lies in this block, and knows of no block from the second on.
    Below(u32, u32),
    /// It lies there, or in a hole (0), with so many from it on.
    Run(u32, u32),
}

/// What a node of this depth says of a block; it knows of none from `end` on.
fn ask(node: &[u8], depth: u16, index: u32, end: u32) -> Result<Said, Error> {
    let damaged = Error::Damaged("extents contradict themselves");
    let count = usize::from(half(node, 2));
    let is_sound =
        half(node, 0) == MAGIC && half(node, 6) == depth && (count + 1) * SIZE <= node.len();
    let entries = is_sound.then(|| &node[SIZE..(count + 1) * SIZE]);
    let mut entries = entries.ok_or(damaged)?.chunks_exact(SIZE).peekable();
    let mut found = None;
    while let Some(entry) = entries.next_if(|entry| word(entry, 0) <= index) {
        found = Some(entry);
    }
    let end = entries.peek().map_or(end, |next| word(next, 0).min(end));
    // A hole reaches to the next entry.
    let hole = end.saturating_sub(index);
    let Some(entry) = found else {
        return Ok(Said::Run(0, hole));
    };
    if depth > 0 {
        return match half(entry, 8) {
            0 => Ok(Said::Below(word(entry, 4), end)),
            _ => Err(damaged),
        };
    }
    let (said, skipped) = (u32::from(half(entry, 4)), index - word(entry, 0));
    let (len, is_written) = match said {
        0..=LEN_MAX => (said, true),
        _ => (said - LEN_MAX, false),
    };
    let start = word(entry, 8).checked_add(skipped);
    match (half(entry, 6), start) {
        _ if skipped >= len => Ok(Said::Run(0, hole)),
        _ if !is_written => Ok(Said::Run(0, len - skipped)),
        (0, Some(start @ 1..)) => Ok(Said::Run(start, len - skipped)),
        _ => Err(damaged),
    }
}

impl Core {
    /// The block of a file, none where it has a hole, and how many of `most` from this one on
    /// follow each other.
    pub(super) fn find_extent(
        &self,
        inode: &Inode,
        index: u64,
        most: usize,
    ) -> Result<(Option<u32>, usize), Error> {
        let index = u32::try_from(index).map_err(|_| Error::TooLarge)?;
        let root = inode.pointers();
        let depth = half(root, 6);
        if depth > DEPTH_MAX {
            return Err(Error::Damaged("extents are too deep"));
        }
        let mut said = ask(root, depth, index, u32::MAX)?;
        let mut node = vec![0; self.geometry.block as usize];
        for depth in (0..depth).rev() {
            let Said::Below(block, end) = said else {
                break;
            };
            self.check_block(block)?;
            let at = self.geometry.at(block);
            self.volume.read(at, &mut node).map_err(failed)?;
            said = ask(&node, depth, index, end)?;
        }
        let Said::Run(start, run) = said else {
            return Err(Error::Damaged("extents have no end"));
        };
        let run = (run as usize).clamp(1, most.max(1));
        if start == 0 {
            return Ok((None, run));
        }
        self.check_block(start)?;
        let last = start.checked_add(run as u32 - 1);
        self.check_block(last.ok_or(Error::Damaged("a block does not lie on the disk"))?)?;
        Ok((Some(start), run))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A node of this depth with these entries: block, and what is behind it.
    fn node(depth: u16, entries: &[(u32, [u16; 4])]) -> Vec<u8> {
        let mut node = vec![0; SIZE * (1 + entries.len())];
        for (at, value) in [(0, MAGIC), (2, entries.len() as u16), (6, depth)] {
            node[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        for (entry, (block, rest)) in node.chunks_exact_mut(SIZE).skip(1).zip(entries) {
            entry[..4].copy_from_slice(&block.to_le_bytes());
            for (bytes, half) in entry[4..].chunks_exact_mut(2).zip(rest) {
                bytes.copy_from_slice(&half.to_le_bytes());
            }
        }
        node
    }

    fn run(node: &[u8], index: u32, end: u32) -> Result<(u32, u32), Error> {
        match ask(node, 0, index, end)? {
            Said::Run(start, run) => Ok((start, run)),
            Said::Below(..) => panic!("it is a leaf"),
        }
    }

    #[test]
    fn blocks_and_holes_follow_each_other() {
        // Three blocks from 2 on, of which the first is 100; two from 9 on that were not written.
        let leaf = node(0, &[(2, [3, 0, 100, 0]), (9, [32770, 0, 200, 0])]);
        for (index, expected) in [
            (0, (0, 2)),
            (2, (100, 3)),
            (4, (102, 1)),
            (5, (0, 4)),
            (9, (0, 2)),
            (10, (0, 1)),
            (11, (0, 9)),
        ] {
            assert_eq!(run(&leaf, index, 20), Ok(expected), "{index}");
        }
    }

    /// What lies behind a node's last entry is a hole up to where the next node begins.
    #[test]
    fn nodes_end_where_others_begin() {
        let inner = node(1, &[(0, [7, 0, 0, 0]), (50, [8, 0, 0, 0])]);
        assert!(matches!(ask(&inner, 1, 49, 99), Ok(Said::Below(7, 50))));
        assert!(matches!(ask(&inner, 1, 50, 99), Ok(Said::Below(8, 99))));
    }

    #[test]
    fn what_contradicts_itself_is_damaged() {
        let leaf = node(0, &[(2, [3, 0, 100, 0])]);
        assert!(ask(&leaf, 1, 2, 9).is_err());
        assert!(ask(&leaf[..SIZE], 0, 2, 9).is_err());
        assert!(run(&node(0, &[(0, [1, 1, 5, 0])]), 0, 9).is_err());
        assert!(run(&node(0, &[(0, [9, 0, 0xffff, 0xffff])]), 1, 9).is_err());
        assert!(run(&node(0, &[(0, [1, 0, 0, 0])]), 0, 9).is_err());
        let far = node(1, &[(0, [7, 0, 1, 0])]);
        assert!(ask(&far, 1, 0, 9).is_err());
    }
}
