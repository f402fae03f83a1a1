//! Memory that outlives the image, with all that is needed to go on with its connections.
//!
//! A vault has what [cookies](super::cookie) are made with, a record for each connection, a pool of
//! buffers, and a label for each buffer that says which numbers of which stream lie in it. All of
//! it is plain data, little endian. There are no pointers in it, and no lists: whoever takes it up
//! looks which labels a connection's numbers need, and all other buffers are free.
//!
//! It can be taken up whenever the image ends, between any two of its stores:
//!
//! - A record has two copies and says which one counts. A new one is written whole beside the old
//!   one before that word changes ("published").
//! - A label is written before a record needs it, and its owner behind the rest of it.
//! - A buffer comes free after the record that does not need it is published.
//!
//! And a peer never knows more than what is published: that happens before a segment leaves.

mod layout;
mod taken_up;
#[cfg(test)]
mod tests;

pub use layout::{ALIGN, Contents, Lying, Piece, Shape, Unfit, VERSION, inspect};
pub(super) use layout::{Body, Stream};

use super::seq::Seq;
use crate::stores::in_order;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use device::{Frame, HEADROOM, Pool};
use layout::{Header, Keys, Label, Layout, Record, WORDS, owner};
use zerocopy::{FromBytes, IntoBytes};

/// Writers leave this part of the buffers to what arrives, and so does what lies behind a hole:
/// what fills the hole must have a place.
const HALF: usize = 2;
/// What arrives leaves this part to the port, which may have its buffers here.
const QUARTER: usize = 4;

/// A vault that is in use; a handle to it, as [`Pool`] is.
#[derive(Clone, Copy)]
pub struct Vault(&'static Tables);

struct Tables {
    keys: &'static Keys,
    records: &'static [Record],
    labels: &'static [Label],
    pool: Pool,
}

/// A vault, and what lay in it.
#[must_use]
pub struct Opened {
    pub(super) vault: Vault,
    pub(super) heirs: Vec<Heir>,
    /// Places whose bytes were no connection; they are free now.
    pub refused: u32,
    /// Why nothing was taken up, if the vault is a new one.
    pub fresh: Option<Unfit>,
}

/// A connection with its buffers.
pub(super) struct Heir {
    pub place: u32,
    pub body: Body,
    /// What is to be sent, and what has arrived.
    pub frames: [Vec<Frame>; 2],
}

/// The place of a connection in a vault.
#[derive(Clone, Copy, Debug)]
pub(super) struct Berth {
    vault: Vault,
    place: u32,
}

impl Opened {
    /// The buffers. A port that has its own here hands payload over uncopied.
    pub fn pool(&self) -> Pool {
        self.vault.0.pool
    }
}

impl Vault {
    /// Takes up what lies in `memory`; if that is no vault of this shape, makes an empty one there.
    ///
    /// # Errors
    /// [`Unfit::Size`] or [`Unfit::Alignment`], if there can be none.
    pub fn open(memory: &'static mut [u8], shape: Shape) -> Result<Opened, Unfit> {
        let layout = Layout::new(shape, memory.len())?;
        if !memory.as_ptr().addr().is_multiple_of(ALIGN) {
            return Err(Unfit::Alignment);
        }
        let (contents, fresh) = match inspect(memory, shape) {
            Ok(contents) => (contents, None),
            Err(why) => {
                format(memory, &layout);
                (Contents::default(), Some(why))
            }
        };
        let vault = Self(Box::leak(Box::new(Tables::over(memory, &layout)?)));
        for place in &contents.refused {
            vault.berth(*place).retract();
        }
        Ok(Opened {
            vault,
            // Below 2^24.
            refused: contents.refused.len() as u32,
            heirs: vault.claim(contents.connections),
            fresh,
        })
    }

    /// Takes those buffers out that are needed; all others are free.
    fn claim(self, connections: Vec<Lying>) -> Vec<Heir> {
        let mut frames: Vec<Option<Frame>> = self.0.labels.iter().map(|_| None).collect();
        while let Some(frame) = self.0.pool.alloc_max() {
            let index = frame.index() as usize;
            frames[index] = Some(frame);
        }
        let mut take = |piece: &Piece| {
            let mut frame = frames.get_mut(piece.buffer as usize)?.take()?;
            // Behind a hole, or never published: it will come again, in another buffer.
            let label = &self.0.labels[piece.buffer as usize];
            label.len.store(piece.end, Relaxed);
            let skip = piece.start as usize + piece.done as usize - HEADROOM;
            let kept = frame.pop_front(skip);
            frame.truncate((piece.end - piece.done) as usize);
            kept.then_some(frame)
        };
        let heirs = connections.into_iter().map(|lying| Heir {
            place: lying.place,
            body: lying.body,
            frames: lying
                .pieces
                .map(|pieces| pieces.iter().filter_map(&mut take).collect()),
        });
        let heirs = heirs.collect();
        for frame in frames.into_iter().flatten() {
            self.forget(&frame);
        }
        heirs
    }

    /// The buffers.
    pub fn pool(&self) -> Pool {
        self.0.pool
    }

    /// How many connections have a place.
    pub fn connections(&self) -> usize {
        self.0.records.len()
    }

    /// What an earlier image made cookies with, and the last period in which one left.
    pub(super) fn keys(&self) -> Option<([u8; 16], u32)> {
        let Keys {
            secret,
            period,
            published,
        } = self.0.keys;
        let words = secret.each_ref().map(|word| word.load(Relaxed));
        let are_published = published.load(Relaxed) == 1;
        are_published.then(|| (zerocopy::transmute!(words), period.load(Relaxed)))
    }

    /// This image makes cookies with this.
    pub(super) fn keep_keys(self, secret: [u8; 16], period: u32) {
        let keys = self.0.keys;
        let words: [u32; 4] = zerocopy::transmute!(secret);
        for (place, word) in keys.secret.iter().zip(words) {
            place.store(word, Relaxed);
        }
        keys.period.store(period, Relaxed);
        in_order();
        keys.published.store(1, Relaxed);
        in_order();
    }

    /// A cookie of this period leaves.
    pub(super) fn keep_period(self, period: u32) {
        self.0.keys.period.store(period, Relaxed);
        in_order();
    }

    /// Bytes for which writers have room in buffers that are free.
    pub(super) fn room(&self) -> usize {
        let pool = self.0.pool;
        pool.free().saturating_sub(pool.count() / HALF) * pool.frame_bytes_max()
    }

    /// Whether `len` bytes that arrive in `frame` can be kept, which fill no hole if they lie
    /// `behind` one.
    pub(super) fn takes(&self, frame: &Frame, len: usize, behind: bool) -> bool {
        let pool = self.0.pool;
        let needed = match self.has(frame) {
            true => 0,
            false => len.div_ceil(pool.frame_bytes_max()),
        };
        let part = if behind { HALF } else { QUARTER };
        pool.free() >= pool.count() / part + needed
    }

    /// Whether a frame lies in it, with no header in front of its headroom.
    fn has(&self, frame: &Frame) -> bool {
        frame.pool() == self.0.pool && frame.headroom() >= HEADROOM
    }

    pub(super) fn berth(self, place: u32) -> Berth {
        Berth { vault: self, place }
    }

    fn forget(self, frame: &Frame) {
        if self.has(frame) {
            let label = &self.0.labels[frame.index() as usize];
            label.owner.store(0, Relaxed);
            in_order();
        }
    }
}

impl core::fmt::Debug for Vault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Vault")
            .field("connections", &self.connections())
            .field("buffers", &self.0.pool.count())
            .finish()
    }
}

/// Makes an empty vault.
fn format(memory: &mut [u8], layout: &Layout) {
    memory[..layout.records.start].fill(0);
    in_order();
    memory[layout.records.start..layout.labels.end].fill(0);
    in_order();
    let header = layout.header();
    memory[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    in_order();
}

impl Tables {
    fn over(memory: &'static mut [u8], layout: &Layout) -> Result<Self, Unfit> {
        let (tables, buffers) = memory.split_at_mut(layout.buffers.start);
        let (records, labels) = tables.split_at_mut(layout.labels.start);
        let (head, records) = records.split_at_mut(layout.records.start);
        let keys = head.split_at_mut(size_of::<Header>()).1;
        let labels = labels.split_at_mut(layout.labels.len()).0;
        let buffers = buffers.split_at_mut(layout.buffers.len()).0;
        let (Ok(keys), Ok(records), Ok(labels)) = (
            Keys::mut_from_bytes(keys),
            <[Record]>::mut_from_bytes(records),
            <[Label]>::mut_from_bytes(labels),
        ) else {
            return Err(Unfit::Alignment);
        };
        Ok(Self {
            keys,
            records,
            labels,
            pool: Pool::new(buffers, layout.shape.buffer_size as usize),
        })
    }
}

impl Berth {
    /// The vault.
    pub fn vault(self) -> Vault {
        self.vault
    }

    /// From here on, this is the connection.
    pub fn publish(self, body: Body) {
        let words: [u32; WORDS] = zerocopy::transmute!(body);
        let record = &self.vault.0.records[self.place as usize];
        let old = record.published.load(Relaxed);
        let counts = record.copies.get((old as usize).wrapping_sub(1));
        let same = |copy: &[AtomicU32; WORDS]| {
            let mut pairs = copy.iter().zip(&words);
            pairs.all(|(there, word)| there.load(Relaxed) == *word)
        };
        if counts.is_some_and(same) {
            return;
        }
        let at = usize::from(old == 1);
        for (place, word) in record.copies[at].iter().zip(words) {
            in_order();
            place.store(word, Relaxed);
        }
        in_order();
        record.published.store(at as u32 + 1, Relaxed);
        in_order();
    }

    /// There is no connection any more.
    pub fn retract(self) {
        let record = &self.vault.0.records[self.place as usize];
        record.published.store(0, Relaxed);
        in_order();
    }

    /// The bytes of a frame are those of a stream from `at` on. It is one of [`Self::alloc`], or
    /// one that [`Self::has`].
    pub fn note(self, stream: Stream, at: Seq, frame: &Frame) {
        let label = &self.vault.0.labels[frame.index() as usize];
        label.owner.store(0, Relaxed);
        in_order();
        label.at.store(at.0, Relaxed);
        // Both are less than a buffer's size.
        label.start.store(frame.headroom() as u32, Relaxed);
        label.len.store(frame.len() as u32, Relaxed);
        in_order();
        label.owner.store(owner(self.place, stream), Relaxed);
        in_order();
    }

    /// Copies what fits of `bytes` behind the bytes of a frame that was noted; how many.
    pub fn append(self, frame: &mut Frame, bytes: &[u8]) -> usize {
        let count = bytes.len().min(frame.tailroom());
        if self.has(frame)
            && let Some(place) = frame.push_back(count)
        {
            place.copy_from_slice(&bytes[..count]);
            let label = &self.vault.0.labels[frame.index() as usize];
            let len = label.len.load(Relaxed) + count as u32;
            in_order();
            label.len.store(len, Relaxed);
            return count;
        }
        0
    }

    /// Nobody needs this frame any more.
    pub fn forget(self, frame: &Frame) {
        self.vault.forget(frame);
    }

    /// Whether the vault has this frame.
    pub fn has(self, frame: &Frame) -> bool {
        self.vault.has(frame)
    }

    /// Bytes that a buffer takes.
    pub fn buffer(self) -> usize {
        self.vault.0.pool.frame_bytes_max()
    }

    /// A frame of so many bytes.
    pub fn alloc(self) -> Option<Frame> {
        self.vault.0.pool.alloc_max()
    }
}
