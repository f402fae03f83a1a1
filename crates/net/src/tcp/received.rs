//! What has arrived behind holes, and how the peer is told (RFC 2018, RFC 2883).

use super::segment::{SACK_BLOCKS_MAX, SackBlock};
use super::seq::Seq;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// Pieces between holes that are remembered. A peer that makes more has its data dropped, and sends
/// it again.
pub const PIECES_MAX: usize = 256;

/// Pieces of data behind the next number that is expected, with holes between them. Empty, it takes
/// no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Apart from each other and in order.
    pieces: Vec<SackBlock>,
    /// Where the last segments began, the last one first: what a SACK tells first.
    latest: ArrayVec<Seq, SACK_BLOCKS_MAX>,
    /// Data that had arrived before, to be told once (RFC 2883).
    duplicate: Option<SackBlock>,
}

impl Received {
    /// Whether there is no hole.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Data from `start` to `end`, which is behind a hole, has arrived. `false`, and nothing is
    /// remembered, if there are too many holes.
    pub fn insert(&mut self, start: Seq, end: Seq) -> bool {
        // All pieces that touch the new one: [first, last).
        let first = self
            .pieces
            .partition_point(|piece| piece.1.is_before(start));
        let touched = self.pieces[first..].iter();
        let last = first + touched.take_while(|piece| !end.is_before(piece.0)).count();
        if first == last {
            if self.pieces.len() == PIECES_MAX {
                return false;
            }
            self.pieces.insert(first, (start, end));
        } else {
            let (old_start, old_end) = (self.pieces[first].0, self.pieces[last - 1].1);
            let mut repeated = None;
            for piece in &self.pieces[first..last] {
                join(&mut repeated, (start.max(piece.0), end.min(piece.1)));
            }
            self.duplicate = repeated.or(self.duplicate);
            self.pieces[first] = (start.min(old_start), end.max(old_end));
            self.pieces.drain(first + 1..last);
        }
        self.latest.retain(|latest| *latest != start);
        if self.latest.is_full() {
            self.latest.pop();
        }
        self.latest.insert(0, start);
        true
    }

    /// Data from `start` to `end` had arrived before.
    pub fn repeated(&mut self, start: Seq, end: Seq) {
        self.duplicate = Some((start, end));
    }

    /// All before `next` has arrived; the number that is expected now, which lies further where a
    /// piece begins there.
    pub fn advance(&mut self, mut next: Seq) -> Seq {
        let done = self
            .pieces
            .iter()
            .take_while(|piece| !next.is_before(piece.0));
        let done = done.count();
        for piece in self.pieces.drain(..done) {
            join(&mut self.duplicate, (piece.0, next.min(piece.1)));
            next = next.max(piece.1);
        }
        if self.pieces.is_empty() && done > 0 {
            // An idle connection keeps no memory for holes.
            *self = Self {
                duplicate: self.duplicate,
                ..Self::default()
            };
        }
        next
    }

    /// Bytes in all pieces.
    pub fn bytes(&self) -> u32 {
        self.pieces.iter().map(|(start, end)| *end - *start).sum()
    }

    /// At most `room` blocks that tell the peer: a duplicate first (RFC 2883, 4), then the piece of
    /// the last segment, then others in the order in which they were told before (RFC 2018, 4).
    pub fn blocks(&self, room: usize) -> ArrayVec<SackBlock, SACK_BLOCKS_MAX> {
        let mut blocks: ArrayVec<_, SACK_BLOCKS_MAX> = self.duplicate.into_iter().collect();
        let first = blocks.len();
        for latest in &self.latest {
            let holds =
                |piece: &&SackBlock| !latest.is_before(piece.0) && latest.is_before(piece.1);
            if let Some(piece) = self.pieces.iter().find(holds)
                && !blocks[first..].contains(piece)
                && !blocks.is_full()
            {
                blocks.push(*piece);
            }
        }
        // The rest, if there is a place.
        for piece in &self.pieces {
            if blocks.is_full() {
                break;
            }
            if !blocks[first..].contains(piece) {
                blocks.push(*piece);
            }
        }
        blocks.truncate(room.min(SACK_BLOCKS_MAX));
        blocks
    }

    /// Whether there is a block to send.
    pub fn has_to_tell(&self) -> bool {
        self.duplicate.is_some() || !self.is_empty()
    }

    /// The blocks have been sent.
    pub fn told(&mut self) {
        self.duplicate = None;
    }

    /// Forgets all pieces: none of it was acknowledged, so the peer still has it (RFC 2018, 8).
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Data within `more` has come twice, if there is any: what is told is the first stretch of it
/// (RFC 2883, 4.2).
fn join(told: &mut Option<SackBlock>, more: SackBlock) {
    if !more.0.is_before(more.1) {
        return;
    }
    match told {
        None => *told = Some(more),
        Some(known) if !known.1.is_before(more.0) && !more.1.is_before(known.0) => {
            *known = (known.0.min(more.0), known.1.max(more.1));
        }
        Some(_) => {}
    }
}

#[cfg(test)]
impl Received {
    /// Bytes of the heap that it holds.
    pub fn allocated(&self) -> usize {
        self.pieces.capacity() * size_of::<SackBlock>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn pieces(received: &Received) -> Vec<(u32, u32)> {
        let numbers = |piece: &SackBlock| (piece.0.0, piece.1.0);
        received.pieces.iter().map(numbers).collect()
    }

    fn insert(received: &mut Received, start: u32, end: u32) -> bool {
        received.insert(Seq(start), Seq(end))
    }

    #[test]
    fn pieces_grow_together() {
        let mut received = Received::default();
        assert!(insert(&mut received, 100, 200) && insert(&mut received, 300, 400));
        assert!(insert(&mut received, 500, 600) && insert(&mut received, 200, 300));
        assert_eq!(pieces(&received), [(100, 400), (500, 600)]);
        assert!(insert(&mut received, 50, 700));
        assert_eq!(pieces(&received), [(50, 700)]);
        assert_eq!(received.advance(Seq(40)), Seq(40));
        assert_eq!(received.advance(Seq(50)), Seq(700));
        received.told();
        assert!(received.is_empty());
        assert_eq!(received, Received::default());
    }

    #[test]
    fn a_sack_begins_with_the_last_segment() {
        let mut received = Received::default();
        for start in [100, 300, 500, 700, 900] {
            assert!(insert(&mut received, start, start + 100));
        }
        let blocks = |room| -> Vec<u32> {
            let blocks = received.blocks(room);
            blocks.iter().map(|block| block.0.0).collect()
        };
        assert_eq!(blocks(4), [900, 700, 500, 300]);
        assert_eq!(blocks(3), [900, 700, 500]);
        assert_eq!(blocks(0), [0; 0]);
    }

    #[test]
    fn a_duplicate_is_told_once_and_first() {
        let mut received = Received::default();
        assert!(insert(&mut received, 100, 300) && insert(&mut received, 150, 200));
        let expected = [(Seq(150), Seq(200)), (Seq(100), Seq(300))];
        assert_eq!(received.blocks(4)[..], expected);
        received.told();
        assert_eq!(received.blocks(4)[..], expected[1..]);
    }

    /// RFC 2883, 4.2: of a segment that has come in part, the first stretch that has is told.
    #[test]
    fn a_part_that_came_twice_is_told() {
        let mut received = Received::default();
        assert!(insert(&mut received, 100, 200) && insert(&mut received, 150, 250));
        assert_eq!(received.duplicate, Some((Seq(150), Seq(200))));
        received.told();
        assert!(insert(&mut received, 300, 400) && insert(&mut received, 250, 280));
        assert_eq!(received.duplicate, None, "they only touch");
        assert!(insert(&mut received, 90, 500));
        assert_eq!(received.duplicate, Some((Seq(100), Seq(280))));
        received.told();
        assert_eq!(received.advance(Seq(120)), Seq(500));
        assert_eq!(received.duplicate, Some((Seq(90), Seq(120))));
    }

    #[test]
    fn holes_are_bounded() {
        let mut received = Received::default();
        for piece in 0..PIECES_MAX as u32 {
            assert!(insert(&mut received, piece * 10, piece * 10 + 5));
        }
        assert!(!insert(&mut received, 900_000, 900_001));
        assert!(insert(&mut received, 5, 10), "a filled hole needs no place");
        assert_eq!(received.pieces.len(), PIECES_MAX - 1);
    }

    proptest! {
        /// Against a set of numbers, across the wrap.
        #[test]
        fn equals_a_set(
            base in any::<u32>(),
            inserted in proptest::collection::vec((1u32..400, 1u32..60), 1..40),
            next in 0u32..500,
        ) {
            let mut received = Received::default();
            let mut set = BTreeSet::new();
            for (start, len) in inserted {
                prop_assert!(received.insert(Seq(base) + start, Seq(base) + start + len));
                set.extend(start..start + len);
            }
            prop_assert_eq!(received.bytes() as usize, set.len());
            let mut expected = next;
            while set.contains(&expected) {
                expected += 1;
            }
            // What lies before is done with, too.
            set.retain(|number| *number >= expected);
            prop_assert_eq!(received.advance(Seq(base) + next), Seq(base) + expected);
            prop_assert_eq!(received.bytes() as usize, set.len());
            for block in received.blocks(4) {
                prop_assert!(block.0.is_before(block.1));
            }
        }
    }
}
