//! Rings in memory that a guest of `hvt` shares with its tender: frames and sectors without a
//! hypercall for each.
//!
//! ```text
//! BASE            header: who sleeps
//! BASE + 4096     queue 0, queue 1, ...
//! ```
//!
//! Device `i` of the manifest has the queues `2 i` ([`receive`], of a disk all requests) and
//! `2 i + 1` ([`transmit`]). A queue is one array of entries and two indices, which only grow: the
//! guest writes requests and moves [`word::POSTED`]; the host serves them in their order, writes
//! the result into the same entry, and moves [`word::DONE`]. So each request has one answer, in
//! order, and nobody searches.
//!
//! A request names a buffer by address and length; the host reads or writes there and copies
//! nothing. Both sides keep their own indices to themselves and look whether those of the other
//! make sense ([`Jump`]); an entry is read once, since its writer may change it at any time.
//!
//! **Who sleeps says so.** Before the host's thread sleeps, it sets [`asleep`] bits and looks once
//! more; the guest, after it has posted, looks at them and writes [`KICK_VALUE`] to [`KICK_PORT`]
//! only where they are set. The other way round it is [`waiting`] and an event. A full fence stands
//! between writing the one and reading the other on both sides, so that one of the two always sees
//! it.
//!
//! A disk that a process of its own serves has rings like these in a region ([`crate::region`]):
//! see [`lanes`].

mod guest;
mod host;
#[cfg(all(test, loom))]
mod orders;
#[cfg(all(test, not(loom)))]
mod tests;

pub use guest::Client;
pub use host::Server;

use crate::manifest::ENTRIES_MAX;
use core::ops::Range;
use core::sync::atomic::Ordering;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU64, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, fence};

/// Guest-physical and virtual address of the rings: between the shared file and the BARs.
pub const BASE: u64 = 3 << 37;
/// Their size in bytes; pages that no device uses are never touched.
pub const BYTES: u64 = 2 << 20;
/// Entries of a queue, a power of two.
pub const ENTRIES: u64 = 256;
/// The port by which a guest wakes the host's thread up: without a way out of the kernel.
pub const KICK_PORT: u16 = 0x520;
/// What it writes there, 32 bits.
pub const KICK_VALUE: u32 = 0;

const WORD: usize = size_of::<u64>();
/// Words of a header, and of all rings.
const HEADER_WORDS: usize = 4096 / WORD;
/// All rings as words.
pub const WORDS: usize = BYTES as usize / WORD;
const ENTRY_WORDS: usize = 4;
const QUEUE_WORDS: usize = word::ENTRIES + ENTRIES as usize * ENTRY_WORDS;
const QUEUES: usize = 2 * ENTRIES_MAX;
const _: () = assert!(HEADER_WORDS + QUEUES * QUEUE_WORDS <= WORDS);
const _: () = assert!(ENTRIES.is_power_of_two());

/// Words of header and queues, counted from their start. Words that the guest writes and words
/// that the host writes lie in cache lines of their own.
pub mod word {
    /// Of the header: bits of [`super::asleep`]; the host's.
    pub const ASLEEP: usize = 0;
    /// Of the header: bits of [`super::waiting`]; the guest's.
    pub const WAITING: usize = 8;
    /// Of the header, in the region of a disk: not 0 once nobody serves it any more.
    pub const GONE: usize = 16;
    /// Of a queue: requests that were ever posted; the guest's.
    pub const POSTED: usize = 0;
    /// Of a queue: requests that were ever served; the host's.
    pub const DONE: usize = 8;
    /// Of a queue: its first entry.
    pub const ENTRIES: usize = 16;
    /// Of an entry: address of the buffer.
    pub const ADDRESS: usize = 0;
    /// Of an entry: length of the buffer in the lower half, [`super::Operation`] in the upper one.
    pub const LENGTH: usize = 1;
    /// Of an entry: where on a disk.
    pub const OFFSET: usize = 2;
    /// Of an entry: bytes that were transferred, or an error number of Linux below zero.
    pub const RESULT: usize = 3;
}

/// Why the host's thread wants to be woken up.
pub mod asleep {
    /// It sleeps: whatever was posted, room to receive left out.
    pub const IDLE: u64 = 1 << 0;
    /// A device has something, and there is no room to receive it.
    pub const NO_BUFFER: u64 = 1 << 1;
}

/// Several requests of one disk in flight, in a region of the kind
/// [`QUEUE`](crate::region::kind::QUEUE):
///
/// ```text
/// 0              the rings: queue n is lane n, and no other is used
/// DATA_OFFSET    buffers, which both sides write
/// ```
///
/// Each lane is a queue of requests that are done one after the other; those of different lanes are
/// done at the same time. The address in a request counts from the start of the region. The word of
/// [`asleep`] bits is a number here: how many of the threads that serve the lanes sleep.
pub mod lanes {
    use super::ENTRIES;

    /// Lanes of a disk.
    pub const LANES: usize = 8;
    /// Where the buffers begin.
    pub const DATA_OFFSET: u64 = super::BYTES;
    /// Most bytes of one transfer.
    pub const TRANSFER_BYTES_MAX: u64 = 1 << 20;
    /// Most requests in flight: no lane is ever full, however they are spread.
    pub const REQUESTS_MAX: usize = ENTRIES as usize;

    /// Bytes of a region with so many bytes of buffers; `None` if there is no such region.
    pub const fn region_bytes(buffers: u64) -> Option<u64> {
        match buffers <= crate::region::REGION_BYTES_MAX {
            true if is_region(DATA_OFFSET + buffers) => Some(DATA_OFFSET + buffers),
            _ => None,
        }
    }

    /// Whether a region can have so many bytes.
    pub const fn is_region(bytes: u64) -> bool {
        bytes > DATA_OFFSET
            && bytes <= crate::region::REGION_BYTES_MAX
            && bytes.is_multiple_of(crate::PAGE_SIZE)
    }
}

/// What a guest waits for. Above the bits stands the number of its sleep, so that the host wakes it
/// up once from each.
pub mod waiting {
    /// Frames, and transfers of disks.
    pub const RECEIVE: u64 = 1 << 0;
    /// Its own buffers, which are about to be sent.
    pub const SENT: u64 = 1 << 1;
    /// The number 1 of a sleep.
    pub const SLEEP: u64 = 1 << 2;
}

/// The queue of room to receive of the device with this index in the manifest; for a disk, that of
/// all its requests.
pub const fn receive(device: usize) -> usize {
    2 * device
}

/// The queue of frames to be sent of this device.
pub const fn transmit(device: usize) -> usize {
    2 * device + 1
}

/// Where the queue with this number begins, in words.
pub const fn first_word(queue: usize) -> usize {
    HEADER_WORDS + queue * QUEUE_WORDS
}

/// What is to be done with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Operation {
    /// Fill it: with the next frame, or from the disk.
    Read = 0,
    /// Send it, or write it to the disk.
    Write = 1,
    /// Disks with [`crate::extension::device_flag::DISK`]: make what was written durable.
    Flush = 2,
    /// The same disks: zeroes, which take no room. There is no buffer.
    Discard = 3,
}

impl Operation {
    /// The one of this number; any other is a read.
    fn of(number: u64) -> Self {
        match number {
            1 => Self::Write,
            2 => Self::Flush,
            3 => Self::Discard,
            _ => Self::Read,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Guest-physical address of the buffer, unchecked.
    pub address: u64,
    /// Its length in bytes, unchecked.
    pub length: u32,
    /// Disks: what is to be done. The queues of a network do one thing each.
    pub operation: Operation,
    /// Disks: where, in bytes, unchecked.
    pub offset: u64,
}

/// An index of the other side's makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The index that it was compared with.
    pub from: u64,
    /// The index.
    pub to: u64,
}

/// Moves `word` to the index `now`, of which the other side was `told` less; whether it was less.
/// What was written before is seen by whoever sees the index.
#[inline]
pub(crate) fn tell(word: &AtomicU64, told: &mut u64, now: u64) -> bool {
    if *told == now {
        return false;
    }
    *told = now;
    word.store(now, Ordering::Release);
    true
}

/// The other side's index in `word`, which has been at `from` and may have moved on by `most`.
///
/// # Errors
/// It has moved further, or back.
#[inline]
pub(crate) fn heard(word: &AtomicU64, from: u64, most: u64) -> Result<u64, Jump> {
    let to = word.load(Ordering::Acquire);
    match to.wrapping_sub(from) <= most {
        true => Ok(to),
        false => Err(Jump { from, to }),
    }
}

/// All words of the rings.
#[derive(Clone, Copy, Debug)]
pub struct Rings<'a>(&'a [AtomicU64]);

impl<'a> Rings<'a> {
    /// The rings in these words; `None` unless there are [`WORDS`].
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        words.get(..WORDS).map(Self)
    }

    /// One side of who sleeps.
    pub fn sleepers(self) -> Sleepers<'a> {
        Sleepers(&self.0[..HEADER_WORDS])
    }

    /// The guest's end of the queue with this number; `None` if there is none.
    pub fn client(self, queue: usize) -> Option<Client<'a>> {
        self.queue(queue).map(Client::new)
    }

    /// The host's end.
    pub fn server(self, queue: usize) -> Option<Server<'a>> {
        self.queue(queue).map(Server::new)
    }

    fn queue(self, queue: usize) -> Option<Words<'a>> {
        if queue >= QUEUES {
            return None;
        }
        let start = first_word(queue);
        Some(Words(&self.0[start..start + QUEUE_WORDS]))
    }
}

/// The words of one queue.
#[derive(Clone, Copy, Debug)]
struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    /// The words of the entry for this index, whatever it is.
    #[inline]
    fn entry(self, index: u64) -> &'a [AtomicU64] {
        let start = word::ENTRIES + (index % ENTRIES) as usize * ENTRY_WORDS;
        let words: Range<usize> = start..start + ENTRY_WORDS;
        &self.0[words]
    }
}

/// Who sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Sleepers<'a>(&'a [AtomicU64]);

impl Sleepers<'_> {
    /// The host says that it sleeps, with bits of [`asleep`], or that it does not. What follows
    /// sees all that was posted before the guest could read this.
    #[inline]
    pub fn host_sleeps(self, bits: u64) {
        self.0[word::ASLEEP].store(bits, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// One more of several threads of the host's sleeps, in the region of a disk. What follows sees
    /// all that was posted before the guest could read this.
    #[inline]
    pub fn one_sleeps(self) {
        self.0[word::ASLEEP].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// One of them is awake again.
    #[inline]
    pub fn one_wakes(self) {
        self.0[word::ASLEEP].fetch_sub(1, Ordering::Relaxed);
    }

    /// Nobody serves the region of a disk any more, or the guest has no use for whoever does.
    pub fn say_gone(self) {
        self.0[word::GONE].store(1, Ordering::Release);
    }

    /// Whether nobody serves it any more.
    #[inline]
    pub fn is_gone(self) -> bool {
        self.0[word::GONE].load(Ordering::Acquire) != 0
    }

    /// For what the guest waits, as [`waiting`] says, after all that the host has done before.
    #[inline]
    pub fn guest_waits(self) -> u64 {
        fence(Ordering::SeqCst);
        self.0[word::WAITING].load(Ordering::Relaxed)
    }

    /// The guest says for what it waits, as [`waiting`] says, or with 0 that it does not.
    #[inline]
    pub fn guest_sleeps(self, bits: u64) {
        self.0[word::WAITING].store(bits, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Bits of [`asleep`], after all that the guest has posted before.
    #[inline]
    pub fn host_waits(self) -> u64 {
        fence(Ordering::SeqCst);
        self.0[word::ASLEEP].load(Ordering::Relaxed)
    }
}
