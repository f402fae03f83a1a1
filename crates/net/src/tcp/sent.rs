//! What is on its way and not acknowledged: when each piece was sent, whether it has arrived behind
//! a hole (RFC 2018), and whether it is lost (RACK; RFC 8985, 6.2).

use super::segment::SackBlock;
use super::seq::Seq;
use alloc::collections::VecDeque;
use core::time::Duration;

/// Pieces that are remembered. No new data leaves while there are so many; a peer that acknowledges
/// single bytes finds that its blocks are rounded to the pieces that there are.
pub const PIECES_MAX: usize = 2048;

/// So many segments behind a hole make it a loss, where reordering was never seen (RFC 5681, 3.2;
/// RFC 8985, 6.2, step 4).
const DUPLICATES: u32 = 3;
/// For so many recoveries a wider reordering window persists after a spurious retransmission
/// (RFC 8985, 6.2, step 4).
const WIDENED: u8 = 16;

/// Data with one fate, sent in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: Seq,
    end: Seq,
    /// When it was last sent, in nanoseconds.
    at: u64,
    /// It has arrived behind a hole.
    sacked: bool,
    /// It is taken to be lost, and was not sent again since.
    lost: bool,
    /// It was sent more than once.
    again: bool,
}

/// Data that is not acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Without holes and in order.
    pieces: VecDeque<Piece>,
    sacked: u32,
    lost: u32,
    rack: Rack,
}

/// RFC 8985, 5.2 and 6.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rack {
    /// When the segment was sent that was sent last of all that have arrived, in nanoseconds.
    at: u64,
    /// The number behind it.
    end: Seq,
    /// Its round trip, in nanoseconds.
    rtt: u64,
    /// The highest number that has arrived.
    forward: Seq,
    /// Segments have arrived out of order.
    reordered: bool,
    /// Quarters of the shortest round trip in the reordering window, less one.
    widened: u8,
    /// For how many more recoveries.
    persists: u8,
}

/// What an acknowledgement has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Bytes that were not known to have arrived before.
    pub bytes: u32,
    /// The round trip of the last segment among them that was sent once.
    pub round_trip: Option<Duration>,
}

/// What is known of the path where a loss is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Bytes of payload of a full segment.
    pub segment: u32,
    /// The shortest round trip.
    pub shortest: Duration,
    /// The smoothed round trip.
    pub smoothed: Duration,
    /// A loss was found before, and is being repaired.
    pub recovering: bool,
}

/// What looking for losses has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Bytes.
    pub bytes: u32,
    /// When to look again, in nanoseconds: segments were overtaken, and may only be late.
    pub again_at: Option<u64>,
}

impl Sent {
    /// Bytes that are on their way: sent, neither arrived nor lost ("pipe" of RFC 6675, 4).
    #[inline]
    pub fn in_flight(&self) -> u32 {
        let all = match (self.pieces.front(), self.pieces.back()) {
            (Some(first), Some(last)) => last.end - first.start,
            _ => 0,
        };
        all - self.sacked - self.lost
    }

    /// Bytes that have arrived behind holes.
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes that are to be sent again.
    #[inline]
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Whether nothing waits for an acknowledgement.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether there is a place for more new data.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.pieces.len() < PIECES_MAX
    }

    /// New data, which follows what was sent before, left at `now`.
    #[inline]
    pub fn push(&mut self, start: Seq, end: Seq, now: u64) {
        self.pieces.push_back(Piece {
            start,
            end,
            at: now,
            sacked: false,
            lost: false,
            again: false,
        });
    }

    /// Data from `start` to `end` left once more at `now`.
    pub fn push_again(&mut self, start: Seq, end: Seq, now: u64) {
        self.split(start);
        self.split(end);
        let first = self.find(start);
        for piece in self.pieces.range_mut(first..) {
            if !piece.start.is_before(end) {
                break;
            }
            if piece.lost {
                self.lost -= piece.end - piece.start;
            }
            piece.lost = false;
            piece.again = true;
            piece.at = now;
        }
    }

    /// All before `ack` has arrived, the receiver says at `now`. `echo`: when the segment left that
    /// it answers, if timestamps tell, in nanoseconds.
    #[inline]
    pub fn acknowledge(&mut self, ack: Seq, now: u64, shortest: Option<Duration>) -> Arrived {
        let mut arrived = Arrived::default();
        while let Some(&first) = self.pieces.front() {
            if !first.start.is_before(ack) {
                break;
            }
            let done = Piece {
                end: first.end.min(ack),
                ..first
            };
            if done.end == first.end {
                self.pieces.pop_front();
            } else {
                self.pieces[0].start = done.end;
            }
            let bytes = done.end - done.start;
            if first.lost {
                self.lost -= bytes;
            }
            if first.sacked {
                self.sacked -= bytes;
            } else {
                arrived.bytes += bytes;
                self.rack.arrived(done, now, shortest, &mut arrived);
            }
        }
        arrived
    }

    /// Data of this block, which lies within what was sent, has arrived behind a hole.
    pub fn sack(&mut self, block: SackBlock, now: u64, shortest: Option<Duration>) -> Arrived {
        let (start, end) = block;
        self.split(start);
        self.split(end);
        let mut arrived = Arrived::default();
        let first = self.find(start);
        let mut next = first;
        while let Some(piece) = self.pieces.get_mut(next)
            && !end.is_before(piece.end)
        {
            // Where there was no place for a split, a piece begins before the block.
            if !piece.sacked && !piece.start.is_before(start) {
                let bytes = piece.end - piece.start;
                piece.sacked = true;
                arrived.bytes += bytes;
                self.sacked += bytes;
                if piece.lost {
                    piece.lost = false;
                    self.lost -= bytes;
                }
                self.rack.arrived(*piece, now, shortest, &mut arrived);
            }
            next += 1;
        }
        if arrived.bytes > 0 {
            self.merge(first.saturating_sub(1), next);
        }
        arrived
    }

    /// Makes one piece of those that follow each other in `first..=last` and have arrived.
    fn merge(&mut self, first: usize, last: usize) {
        let mut kept = first;
        let last = last.min(self.pieces.len() - 1);
        for at in first + 1..=last {
            let piece = self.pieces[at];
            if self.pieces[kept].sacked && piece.sacked {
                self.pieces[kept].end = piece.end;
            } else {
                kept += 1;
                self.pieces[kept] = piece;
            }
        }
        self.pieces.drain(kept + 1..=last);
    }

    /// Index of the piece in which `seq` lies.
    fn find(&self, seq: Seq) -> usize {
        self.pieces
            .partition_point(|piece| !seq.is_before(piece.end))
    }

    /// Lets a piece begin at `at`, if it lies inside of one that has not arrived, and there is a
    /// place.
    fn split(&mut self, at: Seq) {
        let index = self.find(at);
        let Some(&piece) = self.pieces.get(index) else {
            return;
        };
        // Twice as many as whole sends: those that a receiver's holes make.
        let room = self.pieces.len() < 2 * PIECES_MAX;
        if piece.start.is_before(at) && !piece.sacked && room {
            self.pieces[index].end = at;
            self.pieces.insert(index + 1, Piece { start: at, ..piece });
        }
    }

    /// Looks for segments that later ones have overtaken for too long (RFC 8985, 6.2, steps 4, 5).
    pub fn look_for_losses(&mut self, path: Path, now: u64) -> Losses {
        let window = self.rack.window(path, self.sacked);
        let rack = self.rack;
        let mut losses = Losses::default();
        for piece in self
            .pieces
            .iter_mut()
            .filter(|piece| !piece.sacked && !piece.lost)
        {
            if !rack.is_behind(piece) {
                continue;
            }
            let until = piece.at.saturating_add(rack.rtt).saturating_add(window);
            if until <= now {
                piece.lost = true;
                losses.bytes += piece.end - piece.start;
            } else {
                losses.again_at = Some(losses.again_at.map_or(until, |at| at.max(until)));
            }
        }
        self.lost += losses.bytes;
        losses
    }

    /// The first `bytes` are lost: what a receiver without SACK lets a sender conclude from its
    /// duplicates (RFC 6582, 3.2).
    pub fn first_is_lost(&mut self, bytes: u32) {
        if let Some(first) = self.pieces.front() {
            let start = first.start;
            self.split(start + bytes);
            let first = &mut self.pieces[0];
            if !first.lost && !first.sacked {
                first.lost = true;
                self.lost += first.end - first.start;
            }
        }
    }

    /// What was sent in one go and is longer than `bytes` did not fit a path that has become
    /// narrower, but for what is known to have arrived.
    pub fn longer_is_lost(&mut self, bytes: u32) {
        for piece in &mut self.pieces {
            let len = piece.end - piece.start;
            if len > bytes && !piece.sacked && !piece.lost {
                piece.lost = true;
                self.lost += len;
            }
        }
    }

    /// The retransmission timer has run out: all that is on its way is lost (RFC 6298, 5.4; RFC
    /// 8985, 6.3). If the first piece is said to have arrived, the receiver has thrown away what it
    /// had told of, and all the rest may be gone as well (RFC 2018, 8).
    pub fn all_is_lost(&mut self) {
        let reneged = self.pieces.front().is_some_and(|piece| piece.sacked);
        for piece in &mut self.pieces {
            if reneged {
                piece.sacked = false;
            }
            piece.lost = !piece.sacked;
        }
        let bytes_of = |which: fn(&Piece) -> bool| -> u32 {
            let pieces = self.pieces.iter().filter(|piece| which(piece));
            pieces.map(|piece| piece.end - piece.start).sum()
        };
        (self.sacked, self.lost) = (bytes_of(|piece| piece.sacked), bytes_of(|piece| piece.lost));
    }

    /// Where data lies that is to be sent again, if there is any: the first piece.
    pub fn first_lost(&self) -> Option<(Seq, Seq)> {
        if self.lost == 0 {
            return None;
        }
        let piece = self.pieces.iter().find(|piece| piece.lost)?;
        Some((piece.start, piece.end))
    }

    /// The last piece that has not arrived: what a probe repeats (RFC 8985, 7.3).
    pub fn last(&self) -> Option<(Seq, Seq)> {
        let mut unknown = self.pieces.iter().rev().filter(|piece| !piece.sacked);
        unknown.next().map(|piece| (piece.start, piece.end))
    }

    /// When the piece that waits longest was sent, in nanoseconds.
    pub fn oldest_at(&self) -> Option<u64> {
        self.pieces.front().map(|piece| piece.at)
    }

    /// The receiver has got something twice: it was late, and not lost (RFC 8985, 6.2, step 4).
    pub fn was_spurious(&mut self) {
        self.rack.widened = self.rack.widened.saturating_add(1);
        self.rack.persists = WIDENED;
    }

    /// All that was lost has been repaired.
    pub fn recovered(&mut self) {
        self.rack.persists = self.rack.persists.saturating_sub(1);
        if self.rack.persists == 0 {
            self.rack.widened = 0;
        }
    }

    /// Gives memory back that an idle connection does not need.
    pub fn shrink(&mut self) {
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
    }
}

impl Rack {
    /// Takes in that `piece` has arrived at `now` (RFC 8985, 6.2, steps 1 to 3).
    #[inline]
    fn arrived(&mut self, piece: Piece, now: u64, shortest: Option<Duration>, all: &mut Arrived) {
        let rtt = now.saturating_sub(piece.at);
        if piece.again {
            // Too early to be the answer to the retransmission.
            if shortest.is_some_and(|shortest| rtt < shortest.as_nanos() as u64) {
                return;
            }
        } else {
            all.round_trip = Some(Duration::from_nanos(rtt));
        }
        if self.at == 0 || self.forward.is_before(piece.end) {
            self.forward = piece.end;
        } else {
            self.reordered |= !piece.again && piece.end.is_before(self.forward);
        }
        if (piece.at, piece.end.after(self.end)) > (self.at, 0) {
            (self.at, self.end, self.rtt) = (piece.at, piece.end, rtt);
        }
    }

    /// Whether something has arrived that was sent after `piece`.
    #[inline]
    fn is_behind(&self, piece: &Piece) -> bool {
        self.at > piece.at || (self.at == piece.at && piece.end.is_before(self.end))
    }

    /// For how long a segment may be late, in nanoseconds (RFC 8985, 6.2, step 4).
    fn window(&self, path: Path, sacked: u32) -> u64 {
        let enough = sacked > (DUPLICATES - 1) * path.segment;
        if !self.reordered && (path.recovering || enough) {
            return 0;
        }
        let quarter = path.shortest / 4;
        let window = quarter.saturating_mul(1 + u32::from(self.widened));
        window.min(path.smoothed).as_nanos() as u64
    }
}

#[cfg(test)]
impl Sent {
    /// Bytes of the heap that it holds.
    pub fn allocated(&self) -> usize {
        self.pieces.capacity() * size_of::<Piece>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MS: u64 = 1_000_000;

    fn path() -> Path {
        Path {
            segment: 100,
            shortest: Duration::from_millis(20),
            smoothed: Duration::from_millis(20),
            recovering: false,
        }
    }

    /// Ten segments of 100 bytes, sent a millisecond apart from 1 ms on.
    fn ten() -> Sent {
        let mut sent = Sent::default();
        for count in 0..10 {
            let start = Seq(u32::MAX - 300) + 100 * count;
            sent.push(start, start + 100, u64::from(count + 1) * MS);
        }
        sent
    }

    fn at(bytes: u32) -> Seq {
        Seq(u32::MAX - 300) + bytes
    }

    fn lost(sent: &Sent) -> Vec<u32> {
        let lost = sent.pieces.iter().filter(|piece| piece.lost);
        lost.map(|piece| piece.start - at(0)).collect()
    }

    #[test]
    fn an_acknowledgement_takes_pieces_off() {
        let mut sent = ten();
        let arrived = sent.acknowledge(at(250), 22 * MS, None);
        assert_eq!(arrived.bytes, 250);
        assert_eq!(arrived.round_trip, Some(Duration::from_millis(19)));
        assert_eq!((sent.in_flight(), sent.oldest_at()), (750, Some(3 * MS)));
        sent.acknowledge(at(1000), 30 * MS, None);
        assert!(sent.is_empty());
        assert_eq!(sent.in_flight(), 0);
    }

    #[test]
    fn three_segments_behind_a_hole_make_it_a_loss() {
        let mut sent = ten();
        sent.sack((at(100), at(300)), 25 * MS, None);
        let losses = sent.look_for_losses(path(), 25 * MS);
        // The window is a quarter of the shortest round trip: 1 + (25 - 3) + 5 ms.
        assert_eq!((losses.bytes, losses.again_at), (0, Some(28 * MS)));
        sent.sack((at(300), at(400)), 25 * MS, None);
        assert_eq!(sent.look_for_losses(path(), 25 * MS).bytes, 100);
        assert_eq!(lost(&sent), [0]);
        assert_eq!((sent.in_flight(), sent.sacked()), (600, 300));
        assert_eq!(sent.first_lost(), Some((at(0), at(100))));
        sent.push_again(at(0), at(100), 25 * MS);
        assert_eq!((sent.in_flight(), sent.lost()), (700, 0));
        let arrived = sent.acknowledge(at(400), 46 * MS, None);
        assert_eq!(
            arrived,
            Arrived {
                bytes: 100,
                round_trip: None
            }
        );
    }

    #[test]
    fn what_is_only_late_is_lost_later() {
        let mut sent = ten();
        sent.sack((at(100), at(200)), 22 * MS, None);
        // Sent at 1 ms, round trip 20 ms, window 5 ms.
        let losses = sent.look_for_losses(path(), 22 * MS);
        assert_eq!(losses.again_at, Some(26 * MS));
        assert_eq!(sent.look_for_losses(path(), 26 * MS).bytes, 100);
    }

    #[test]
    fn a_lost_retransmission_is_found() {
        let mut sent = ten();
        sent.sack((at(100), at(500)), 25 * MS, None);
        sent.look_for_losses(path(), 25 * MS);
        sent.push_again(at(0), at(100), 25 * MS);
        // What was sent after it arrives, and it does not.
        sent.push(at(1000), at(1100), 26 * MS);
        sent.sack((at(500), at(1100)), 47 * MS, None);
        let recovering = Path {
            recovering: true,
            ..path()
        };
        assert_eq!(sent.look_for_losses(recovering, 47 * MS).bytes, 100);
        assert_eq!(lost(&sent), [0]);
    }

    #[test]
    fn reordering_that_was_seen_widens_the_window() {
        let mut sent = ten();
        sent.sack((at(100), at(500)), 22 * MS, None);
        sent.acknowledge(at(500), 23 * MS, None);
        sent.sack((at(600), at(1000)), 28 * MS, None);
        let losses = sent.look_for_losses(path(), 28 * MS);
        assert_eq!((losses.bytes, losses.again_at.is_some()), (0, true));
        sent.was_spurious();
        let wider = sent.look_for_losses(path(), 28 * MS);
        assert_eq!(wider.again_at.unwrap() - losses.again_at.unwrap(), 5 * MS);
        (0..WIDENED).for_each(|_| sent.recovered());
        assert_eq!(sent.look_for_losses(path(), 28 * MS), losses);
    }

    #[test]
    fn after_a_timeout_what_has_arrived_is_not_sent_again() {
        let mut sent = ten();
        sent.sack((at(200), at(400)), 25 * MS, None);
        sent.all_is_lost();
        assert_eq!(
            (sent.in_flight(), sent.lost(), sent.sacked()),
            (0, 800, 200)
        );
        // The receiver has thrown away what it had.
        sent.acknowledge(at(200), 30 * MS, None);
        sent.all_is_lost();
        assert_eq!((sent.lost(), sent.sacked()), (800, 0));
    }

    #[test]
    fn pieces_that_have_arrived_grow_together() {
        let mut sent = ten();
        for start in [8, 2, 4, 6, 3, 7, 5] {
            sent.sack((at(start * 100), at(start * 100 + 100)), 25 * MS, None);
        }
        assert_eq!(sent.pieces.len(), 4);
        assert_eq!((sent.sacked(), sent.in_flight()), (700, 300));
        sent.sack((at(250), at(850)), 25 * MS, None);
        assert_eq!((sent.pieces.len(), sent.sacked()), (4, 700));
    }

    #[test]
    fn a_peer_that_acknowledges_single_bytes_takes_no_memory() {
        let mut sent = Sent::default();
        sent.push(Seq(0), Seq(100_000), MS);
        for byte in (1..99_999).step_by(2) {
            sent.sack((Seq(byte), Seq(byte + 1)), 2 * MS, None);
        }
        assert!(sent.pieces.len() <= 2 * PIECES_MAX);
        assert!(!sent.has_room());
        assert_eq!(sent.in_flight() + sent.sacked(), 100_000);
    }
}
