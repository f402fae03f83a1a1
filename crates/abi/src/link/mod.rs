//! Links: two images that hand each other frames through memory, and trust each other with nothing
//! else.
//!
//! A link is two files. Each end writes its own file, and can only read the other's: no word is
//! written by both, so that neither can undo what the other says.
//!
//! ```text
//! 0               header: words of this end's, see [`word`]
//! HEAD_BYTES      slot 0, slot 1, ...: the frames that this end sends
//! ```
//!
//! **Frames.** The sender writes a frame into one of its slots, describes it in the next entry, and
//! moves [`word::SENT`]. The receiver copies it out, looks whether all this was still the same
//! sender's, and moves [`word::TAKEN`], in its own file. Entries are taken in their order, so the
//! slots of those that were taken are the sender's again, and no list of slots goes back: there is
//! none in which a slot could be named twice, be named by who does not have it, or be missing. Who
//! owns which slot is known to the sender alone, in memory of its own. The copy is what lets the
//! receiver judge a frame: its sender may change a slot at any time.
//!
//! **The other end is hostile.** Both ends keep their indices to themselves; [`End`] looks whether
//! those of the other make sense, once, where they come in, and says what is wrong ([`Fault`]). The
//! end that finds a fault takes the link down until the other end begins anew.
//!
//! **Up and down.** [`word::STATE`] counts how often an end has come up. An end that sees another
//! number there forgets what was in flight to it, says so with [`word::SEEN`], and sends only where
//! the other end has seen its own number. Whoever begins finds its indices in its file and goes on
//! from there, wherever the one before it was killed: what is in a file is a state to go on from
//! after each store.
//!
//! **Left to another image.** An end that leaves for another one, with all that it has sent posted
//! and all that it has taken released, says so with [`word::LEFT`]. If nothing has changed since,
//! whoever begins there next has the same state, and the other end does not notice: frames wait for
//! it in the slots of either end.
//!
//! **Notifications.** What an end is to look at is a set of [`badge`]s. Each is there while a word
//! of the other end's differs from what this end knows of it: to signal one twice is to signal it
//! once, and to look is to take it. An end that sleeps says so in [`word::WAITING`] and looks once
//! more; the other, once it has moved a word, looks there and rings. A full fence stands between
//! writing the one and reading the other on both sides, so that one of the two always sees it. The
//! word also holds the number of the sleep: one sleep is ended once, and an end that is awake is
//! left alone until it says again that it sleeps.

mod end;
mod fault;
#[cfg(all(test, loom))]
mod orders;
#[cfg(all(test, not(loom)))]
mod tests;

pub use end::{End, Event};
pub use fault::Fault;

#[cfg(not(loom))]
use core::sync::atomic::AtomicU64;
#[cfg(loom)]
use loom::sync::atomic::AtomicU64;

/// Entries of an end, a power of two: frames that may be under way in one direction.
pub const ENTRIES: u64 = 256;
/// Bytes of a slot: the largest frame, and room in front of it. An odd number of cache lines, so
/// that the first lines of successive slots fall into different sets of the cache.
pub const SLOT_BYTES: usize = 16 * 4096 + 3 * 64;
/// Bytes in front of the first slot.
pub const HEAD_BYTES: usize = 3 * crate::PAGE_SIZE as usize;
/// Most slots of an end that are of use.
pub const SLOTS_MAX: usize = ENTRIES as usize;
/// Largest payload of an Ethernet frame on a link of which nothing else is said, in bytes.
pub const MTU: u16 = 1500;
/// The least that can be said: IPv4 needs so much (RFC 791, 3.2).
pub const MTU_MIN: u16 = 68;

const WORD: usize = size_of::<u64>();
/// Words of a header, entries included.
pub const HEAD_WORDS: usize = word::ENTRIES + ENTRIES as usize * ENTRY_WORDS;
const ENTRY_WORDS: usize = 4;
const _: () = assert!(HEAD_WORDS * WORD <= HEAD_BYTES);
const _: () = assert!(ENTRIES.is_power_of_two() && SLOT_BYTES.is_multiple_of(64));

/// Bytes of the file of an end with so many slots, at most [`SLOTS_MAX`].
pub const fn file_bytes(slots: usize) -> u64 {
    ((HEAD_BYTES + slots * SLOT_BYTES) as u64).next_multiple_of(crate::PAGE_SIZE)
}

/// How many slots there are in a file of so many bytes.
pub const fn slots(bytes: u64) -> usize {
    let slots = bytes.saturating_sub(HEAD_BYTES as u64) / SLOT_BYTES as u64;
    if slots < SLOTS_MAX as u64 {
        slots as usize
    } else {
        SLOTS_MAX
    }
}

/// Whether the file of an end can have so many bytes: it has a slot, and no more than its slots.
pub const fn is_file(bytes: u64) -> bool {
    let slots = slots(bytes);
    slots > 0 && bytes == file_bytes(slots)
}

/// Words of a header. Those that change at different times lie in cache lines of their own.
pub mod word {
    /// [`super::MAGIC`] once this end has begun.
    pub const MAGIC: usize = 0;
    /// How often this end has come up, times two, plus 1 while it is up.
    pub const STATE: usize = 1;
    /// The other end's [`STATE`] to which this end has adjusted itself.
    pub const SEEN: usize = 2;
    /// The MAC address of this end, the first byte lowest; 0 if it has none yet. The tender writes
    /// it, so that it outlives the image.
    pub const MAC: usize = 3;
    /// What [`STATE`] said when the image at this end left, so that the next one goes on without
    /// the other end noticing; 0 otherwise.
    pub const LEFT: usize = 4;
    /// Frames that were ever sent.
    pub const SENT: usize = 8;
    /// Frames of the other end's that were ever taken.
    pub const TAKEN: usize = 16;
    /// For what this end waits: bits of [`super::badge`], and above them the number of its sleep.
    pub const WAITING: usize = 24;
    /// The first entry.
    pub const ENTRIES: usize = 64;
    /// Of an entry: number of the slot in the lower half, and in the upper one where in the slot
    /// the frame begins, in bytes.
    pub const PLACE: usize = 0;
    /// Of an entry: length of the frame in bytes.
    pub const LENGTH: usize = 1;
    /// Of an entry: the first eight bytes of what is left to be done to the frame, as a
    /// `virtio_net_hdr_v1` (virtio 1.2, 5.1.6).
    pub const HEADER: usize = 2;
    /// Of an entry: the other four.
    pub const HEADER_END: usize = 3;
}

/// Value of [`word::MAGIC`], "OBLINK" and the version of this layout.
pub const MAGIC: u64 = u64::from_le_bytes(*b"OBLINK\x01\0");

/// Bit of [`word::STATE`] of an end that is up.
pub const UP: u64 = 1;

/// What there is to look at.
pub mod badge {
    /// Frames came.
    pub const FRAMES: u64 = 1 << 0;
    /// Frames were taken.
    pub const ROOM: u64 = 1 << 1;
    /// The other end came up, went down, or has seen that this one did.
    pub const STATE: u64 = 1 << 2;
    /// The number 1 of a sleep.
    pub const SLEEP: u64 = 1 << 3;
}

/// A frame in a slot, as its sender describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Number of the slot.
    pub slot: u32,
    /// Where in the slot the frame begins, in bytes.
    pub offset: u32,
    /// Its length in bytes.
    pub length: u32,
    /// What is left to be done to it, a `virtio_net_hdr_v1`; unchecked.
    pub header: [u8; 12],
}

/// The header of one end.
#[derive(Clone, Copy, Debug)]
struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    /// The words of the entry for this index, whatever it is.
    #[inline]
    fn entry(self, index: u64) -> &'a [AtomicU64] {
        let start = word::ENTRIES + (index % ENTRIES) as usize * ENTRY_WORDS;
        &self.0[start..start + ENTRY_WORDS]
    }
}
