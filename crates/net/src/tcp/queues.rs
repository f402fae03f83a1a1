//! The bytes of a connection: those that are to be sent until they are acknowledged, and those that
//! have arrived until they are read.

use super::seq::Seq;
use super::vault::{Berth, Stream};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::{Buf, Bytes};
use device::Frame;

/// Bytes of one piece of what is written from a slice.
const PIECE: usize = 16 << 10;
/// A frame stays as it came if its payload fills at least this part of its buffer: one of 64 KiB is
/// not held by a short segment.
const FILLED_PART: usize = 8;
/// And only while this part of the port's buffers is free for what arrives and leaves: then payload
/// is copied out, and readers that are slow hold no buffer of others.
const FREE_PART: usize = 3;
/// Room for so many pieces stays with an idle connection: one that keeps up asks for no memory.
const PIECES_KEPT: usize = 4;

/// Bytes to be sent.
#[derive(Debug, Default)]
pub struct SendQueue {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were acknowledged.
    done: usize,
    len: usize,
}

#[derive(Debug)]
enum Piece {
    /// Written from slices, and grows until it is full.
    Copied(Vec<u8>),
    /// Given by its owner.
    Given(Bytes),
    /// Copied into a buffer of the vault; grows until it is full.
    Kept(Frame),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Given(bytes) => bytes,
            Self::Kept(frame) => frame.bytes(),
        }
    }
}

impl SendQueue {
    /// Bytes that are queued.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to the end.
    pub fn write(&mut self, mut bytes: &[u8]) {
        self.len += bytes.len();
        while !bytes.is_empty() {
            let last = match self.pieces.back_mut() {
                Some(Piece::Copied(last)) if last.len() < PIECE => last,
                _ => {
                    // Small answers take little; long ones come in whole pieces.
                    let size = bytes.len().clamp(64, PIECE);
                    self.pieces
                        .push_back(Piece::Copied(Vec::with_capacity(size)));
                    continue;
                }
            };
            let count = bytes.len().min(PIECE - last.len());
            let (now, rest) = bytes.split_at(count);
            last.extend_from_slice(now);
            bytes = rest;
        }
    }

    /// Puts `bytes` at the end, uncopied.
    pub fn give(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.pieces.push_back(Piece::Given(bytes));
        }
    }

    /// Copies `bytes` to the end, into buffers of a vault; the first of them has the number `at`.
    /// How many found room: as many as [`Self::room`] says, at least.
    pub(super) fn keep(&mut self, berth: Berth, at: Seq, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        if let Some(Piece::Kept(last)) = self.pieces.back_mut() {
            rest = &rest[berth.append(last, rest)..];
        }
        while !rest.is_empty()
            && let Some(mut frame) = berth.alloc()
        {
            frame.truncate(rest.len());
            let (now, later) = rest.split_at(frame.len());
            frame.bytes_mut().copy_from_slice(now);
            // At most 4 GiB.
            let done = (bytes.len() - rest.len()) as u32;
            berth.note(Stream::Send, at + done, &frame);
            self.pieces.push_back(Piece::Kept(frame));
            rest = later;
        }
        let kept = bytes.len() - rest.len();
        self.len += kept;
        kept
    }

    /// Bytes for which there is room in a vault.
    pub(super) fn room(&self, berth: Berth) -> usize {
        let last = match self.pieces.back() {
            Some(Piece::Kept(frame)) => frame.tailroom(),
            _ => 0,
        };
        last + berth.vault().room()
    }

    /// Takes up what was kept.
    pub(super) fn take_up(frames: Vec<Frame>) -> Self {
        Self {
            done: 0,
            len: frames.iter().map(Frame::len).sum(),
            pieces: frames.into_iter().map(Piece::Kept).collect(),
        }
    }

    /// The frames of a vault that it holds.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Frame> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Kept(frame) => Some(frame),
            Piece::Copied(_) | Piece::Given(_) => None,
        })
    }

    /// Fills `place` with what is queued from `offset` bytes on; `false` if that is less.
    pub fn copy(&self, offset: usize, place: &mut [u8]) -> bool {
        let mut skip = offset + self.done;
        let mut filled = 0;
        for piece in &self.pieces {
            let bytes = piece.bytes();
            if skip >= bytes.len() {
                skip -= bytes.len();
                continue;
            }
            let count = (bytes.len() - skip).min(place.len() - filled);
            place[filled..filled + count].copy_from_slice(&bytes[skip..skip + count]);
            filled += count;
            skip = 0;
            if filled == place.len() {
                break;
            }
        }
        filled == place.len()
    }

    /// The first `count` bytes were acknowledged. In a vault, that was published.
    pub(super) fn acknowledged(&mut self, count: usize, berth: Option<Berth>) {
        let count = count.min(self.len);
        self.len -= count;
        self.done += count;
        while let Some(first) = self.pieces.front()
            && first.bytes().len() <= self.done
        {
            self.done -= first.bytes().len();
            if let (Piece::Kept(frame), Some(berth)) = (first, berth) {
                berth.forget(frame);
            }
            self.pieces.pop_front();
        }
        if self.pieces.is_empty() {
            // An idle connection keeps no memory.
            *self = Self::default();
        }
    }
}

/// Payload that has arrived, as its reader gets it without a copy.
#[derive(Debug)]
pub struct Payload(Arrived);

#[derive(Debug)]
enum Arrived {
    /// In the frame in which it came.
    Frame(Frame),
    /// Copied out of it.
    Copied(Bytes),
}

impl Payload {
    /// Whether it may wait in the buffer in which it came.
    fn may_stay(&self) -> bool {
        let Arrived::Frame(frame) = &self.0 else {
            return true;
        };
        let pool = frame.pool();
        self.fills(pool.frame_bytes_max()) && pool.free() * FREE_PART >= pool.count()
    }

    /// Cuts it to its first `len` bytes.
    fn truncate(&mut self, len: usize) {
        match &mut self.0 {
            Arrived::Frame(frame) => frame.truncate(len),
            Arrived::Copied(bytes) => bytes.truncate(len),
        }
    }

    /// Whether it is worth a buffer of this size.
    fn fills(&self, buffer: usize) -> bool {
        self.len() * FILLED_PART >= buffer
    }

    /// The frame in which it lies, if it does.
    pub(super) fn frame(&self) -> Option<&Frame> {
        match &self.0 {
            Arrived::Frame(frame) => Some(frame),
            Arrived::Copied(_) => None,
        }
    }

    /// As many of its first bytes as fit into a buffer of a vault; `None` if there is none.
    fn copied(&self, berth: Berth) -> Option<Frame> {
        let mut frame = berth.alloc()?;
        frame.truncate(self.len());
        let len = frame.len();
        frame.bytes_mut().copy_from_slice(&self[..len]);
        Some(frame)
    }
}

impl From<Frame> for Payload {
    fn from(frame: Frame) -> Self {
        Self(Arrived::Frame(frame))
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        Self(Arrived::Copied(bytes))
    }
}

impl core::ops::Deref for Payload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Arrived::Frame(frame) => frame.bytes(),
            Arrived::Copied(bytes) => bytes,
        }
    }
}

impl Buf for Payload {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        self
    }

    fn advance(&mut self, count: usize) {
        match &mut self.0 {
            Arrived::Frame(frame) => assert!(frame.pop_front(count), "past the end"),
            Arrived::Copied(bytes) => bytes.advance(count),
        }
    }
}

/// Bytes that have arrived, in order and behind holes.
#[derive(Debug, Default)]
pub struct ReceiveQueue {
    /// In order of their places, none of which overlap.
    pieces: VecDeque<(Seq, Payload)>,
    bytes: usize,
}

impl ReceiveQueue {
    /// Keeps `len` bytes of `frame` from `skip` on, of which the first has number `at`: those that
    /// are not there. With a vault, which takes them, they are kept there.
    pub(super) fn insert(
        &mut self,
        at: Seq,
        frame: Frame,
        skip: usize,
        len: u32,
        berth: Option<Berth>,
    ) {
        let mut piece = Payload::from(frame);
        piece.advance(skip);
        piece.truncate(len as usize);
        let mut at = at;
        // Behind the last one whose place is not behind; mostly the last of all.
        let index = match self.pieces.back() {
            Some((start, _)) if at.is_before(*start) => self
                .pieces
                .partition_point(|(start, _)| !at.is_before(*start)),
            _ => self.pieces.len(),
        };
        if let Some((start, before)) = index.checked_sub(1).map(|last| &self.pieces[last]) {
            let end = *start + before.len() as u32;
            let overlap = (end - at) as usize;
            if overlap >= piece.len() {
                return;
            }
            piece.advance(overlap);
            at = at.max(end);
        }
        // Later ones that it covers go; one that it touches bounds it.
        let end = at + piece.len() as u32;
        while let Some((start, next)) = self.pieces.get(index)
            && start.is_before(end)
        {
            let next_end = *start + next.len() as u32;
            if end.is_before(next_end) {
                piece.truncate((*start - at) as usize);
                break;
            }
            if let Some((_, covered)) = self.pieces.remove(index) {
                self.bytes -= covered.len();
                if let (Some(berth), Some(frame)) = (berth, covered.frame()) {
                    berth.forget(frame);
                }
            }
        }
        if piece.is_empty() {
            return;
        }
        if let Some(berth) = berth {
            self.keep(berth, index, at, piece);
            return;
        }
        if !piece.may_stay() {
            piece = Bytes::copy_from_slice(&piece).into();
        }
        self.bytes += piece.len();
        match index == self.pieces.len() {
            true => self.pieces.push_back((at, piece)),
            false => self.pieces.insert(index, (at, piece)),
        }
    }

    /// Puts a piece at `index`, in buffers of a vault.
    fn keep(&mut self, berth: Berth, mut index: usize, mut at: Seq, mut piece: Payload) {
        self.bytes += piece.len();
        let small = !piece.fills(berth.buffer());
        let may_stay = !small && piece.frame().is_some_and(|frame| berth.has(frame));
        if small
            && let Some((start, Payload(Arrived::Frame(last)))) =
                index.checked_sub(1).map(|last| &mut self.pieces[last])
            && *start + last.len() as u32 == at
        {
            let count = berth.append(last, &piece);
            piece.advance(count);
            at = at + count as u32;
        }
        while !piece.is_empty() {
            // There is room, as was asked before; what finds none all the same is lost with the
            // image.
            let copied = match may_stay {
                true => None,
                false => piece.copied(berth),
            };
            let now = match copied {
                Some(frame) => {
                    piece.advance(frame.len());
                    frame.into()
                }
                None => core::mem::replace(&mut piece, Bytes::new().into()),
            };
            if let Some(frame) = now.frame().filter(|frame| berth.has(frame)) {
                berth.note(Stream::Receive, at, frame);
            }
            let len = now.len() as u32;
            self.pieces.insert(index, (at, now));
            index += 1;
            at = at + len;
        }
    }

    /// Takes up what was kept: frames with bytes that follow each other, of which the first has the
    /// number `at`.
    pub(super) fn take_up(mut at: Seq, frames: Vec<Frame>) -> Self {
        let mut queue = Self::default();
        for frame in frames {
            let len = frame.len();
            queue.bytes += len;
            queue.pieces.push_back((at, frame.into()));
            at = at + len as u32;
        }
        queue
    }

    /// The frames that it holds.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Frame> {
        self.pieces.iter().filter_map(|(_, piece)| piece.frame())
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first piece; nothing if there is none.
    pub(super) fn first(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |(_, first)| first)
    }

    /// The bytes from number `at` on that lie in one piece; none if that one has not come.
    pub(super) fn from(&self, at: Seq) -> &[u8] {
        let behind = |(start, _): &(Seq, Payload)| !at.is_before(*start);
        let index = self.pieces.partition_point(behind);
        let piece = index.checked_sub(1).map(|index| &self.pieces[index]);
        let bytes = piece.and_then(|(start, piece)| piece.get((at - *start) as usize..));
        bytes.unwrap_or_default()
    }

    /// Lets go of the first `count` bytes, which are of the first piece; that one, if they are all
    /// of it.
    pub(super) fn skip(&mut self, count: usize) -> Option<Payload> {
        let (at, first) = self.pieces.front_mut()?;
        let count = count.min(first.len());
        first.advance(count);
        *at = *at + count as u32;
        self.bytes -= count;
        if !first.is_empty() {
            return None;
        }
        let (_, piece) = self.pieces.pop_front()?;
        self.rest();
        Some(piece)
    }

    /// Takes the first piece, of at most `most` bytes, which are there.
    pub fn take(&mut self, most: usize) -> Option<Payload> {
        let (_, first) = self.pieces.front()?;
        if most == 0 || first.len() > most {
            return None;
        }
        let (_, first) = self.pieces.pop_front()?;
        self.bytes -= first.len();
        self.rest();
        Some(first)
    }

    /// Copies the first bytes, at most `most`, into `place`; how many. Pieces that were read whole
    /// are given to `done`.
    pub fn read(&mut self, most: usize, place: &mut [u8], mut done: impl FnMut(Payload)) -> usize {
        let wanted = place.len().min(most);
        let mut filled = 0;
        while filled < wanted
            && let Some((at, first)) = self.pieces.front_mut()
        {
            let count = first.len().min(wanted - filled);
            place[filled..filled + count].copy_from_slice(&first[..count]);
            filled += count;
            first.advance(count);
            *at = *at + count as u32;
            if first.is_empty()
                && let Some((_, piece)) = self.pieces.pop_front()
            {
                done(piece);
            }
        }
        self.bytes -= filled;
        self.rest();
        filled
    }

    /// An idle connection keeps little memory.
    fn rest(&mut self) {
        if self.pieces.is_empty() && self.pieces.capacity() > PIECES_KEPT {
            self.pieces = VecDeque::new();
        }
    }
}

#[cfg(test)]
impl SendQueue {
    /// Bytes of the heap that it holds.
    pub fn allocated(&self) -> usize {
        let pieces = self.pieces.iter().map(|piece| match piece {
            Piece::Copied(bytes) => bytes.capacity(),
            Piece::Given(_) | Piece::Kept(_) => 0,
        });
        self.pieces.capacity() * size_of::<Piece>() + pieces.sum::<usize>()
    }
}

#[cfg(test)]
impl ReceiveQueue {
    /// Bytes of the heap that it holds, but for what has arrived.
    pub fn allocated(&self) -> usize {
        self.pieces.capacity() * size_of::<(Seq, Payload)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Pool;
    use proptest::prelude::*;
    use std::vec;

    fn frame(pool: Pool, bytes: &[u8]) -> Frame {
        let mut frame = pool.alloc(bytes.len()).unwrap();
        frame.bytes_mut().copy_from_slice(bytes);
        frame
    }

    fn pool() -> Pool {
        Pool::new(vec![0; 20 * 20_100].leak(), 20_100)
    }

    proptest! {
        /// Against a vector.
        #[test]
        fn a_send_queue_is_a_vector(
            steps in proptest::collection::vec((0u8..3, 0usize..40_000, 0usize..40_000), 1..30),
        ) {
            let mut queue = SendQueue::default();
            let mut all: Vec<u8> = Vec::new();
            let mut next = 0u8;
            for (step, a, b) in steps {
                match step {
                    0 | 1 => {
                        let bytes: Vec<u8> = (0..a).map(|_| {
                            next = next.wrapping_mul(5).wrapping_add(1);
                            next
                        }).collect();
                        all.extend(&bytes);
                        if step == 0 { queue.write(&bytes) } else { queue.give(bytes.into()) }
                    }
                    _ => {
                        queue.acknowledged(a, None);
                        all.drain(..a.min(all.len()));
                    }
                }
                prop_assert_eq!(queue.len(), all.len());
                let offset = b.min(all.len());
                let mut place = vec![0; (all.len() - offset).min(5000)];
                prop_assert!(queue.copy(offset, &mut place));
                prop_assert_eq!(&place[..], &all[offset..offset + place.len()]);
                let mut more = vec![0; all.len() - offset + 1];
                prop_assert!(!queue.copy(offset, &mut more));
            }
        }

        /// Whatever overlaps, each byte is read once and in order.
        #[test]
        fn pieces_in_any_order_are_a_stream(
            base in any::<u32>(),
            pieces in proptest::collection::vec((0u32..30_000, 1u32..12_000), 1..40),
            most in 1usize..20_000,
        ) {
            let pool = pool();
            let byte = |place: u32| (place.wrapping_mul(0x9e37_79b1) >> 24) as u8;
            let mut queue = ReceiveQueue::default();
            let mut there = vec![false; 42_000];
            for (start, len) in pieces {
                let bytes: Vec<u8> = (start..start + len).map(byte).collect();
                queue.insert(Seq(base) + start, frame(pool, &bytes), 0, len, None);
                there[start as usize..(start + len) as usize].fill(true);
            }
            prop_assert!((pool.free() + 1) * FREE_PART >= pool.count());
            let whole = there.iter().take_while(|there| **there).count();
            let mut read = 0;
            while read < whole {
                let mut place = vec![0; most];
                let mut got = queue.read(whole - read, &mut place, drop);
                if got == 0 {
                    place = queue.take(whole - read).unwrap().to_vec();
                    got = place.len();
                }
                for (offset, got) in place[..got].iter().enumerate() {
                    prop_assert_eq!(*got, byte((read + offset) as u32));
                }
                read += got;
            }
            drop(queue);
            prop_assert_eq!(pool.free(), pool.count());
        }
    }

    #[test]
    fn large_payloads_stay_in_their_frames_and_small_ones_free_them() {
        let pool = pool();
        let mut queue = ReceiveQueue::default();
        queue.insert(Seq(0), frame(pool, &[1; 100]), 50, 50, None);
        assert_eq!(pool.free(), 20);
        queue.insert(Seq(50), frame(pool, &[2; 20_000]), 40, 19_960, None);
        assert_eq!(pool.free(), 19);
        assert_eq!(queue.take(50).unwrap()[..], [1; 50]);
        let large = queue.take(20_000).unwrap();
        assert_eq!((large.len(), pool.free()), (19_960, 19));
        drop(large);
        assert_eq!(pool.free(), 20);
        for count in 0..19 {
            let frame = frame(pool, &[3; 10_000]);
            queue.insert(Seq(count * 10_000), frame, 0, 10_000, None);
        }
        let least = pool.count().div_ceil(FREE_PART);
        assert!(
            (least - 1..=least).contains(&pool.free()),
            "{}",
            pool.free()
        );
    }
}
