//! Questions of the host about what an image has in its memory, in free space of the shared file
//! ([`crate::share`]).
//!
//! The host asks with an [`Ask`], in its own part of the file, and the guest answers with an
//! [`Answer`] and as many records as fit behind it: [`crate::sockets::Record`],
//! [`crate::flows::Record`] or [`crate::elements::Record`]. More are had by asking again, from
//! where the answer ended. One question waits at a time, whatever it is about. The host believes
//! nothing of an answer.

use crate::manifest::ENTRIES_MAX;
use crate::share::{
    CONTROL_OFFSET, MTUS_OFFSET, NET_COUNTERS, NET_COUNTERS_MAX, RULES_STATUS_OFFSET,
};
use crate::share::{COUNTERS, COUNTERS_OFFSET};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Offset of [`Ask`], in the page of [`crate::share::Control`].
pub const ASK_OFFSET: usize = CONTROL_OFFSET + 2048;
/// Offset of what a question is about in particular, in the same page.
pub const DETAILS_OFFSET: usize = ASK_OFFSET + 64;
/// Bytes of that.
pub const DETAILS_BYTES: usize = CONTROL_OFFSET + crate::PAGE_SIZE as usize - DETAILS_OFFSET;
/// Offset of [`Answer`], behind all counters that are in use.
pub const ANSWER_OFFSET: usize = COUNTERS_OFFSET + (NET_COUNTERS + NET_COUNTERS_MAX) * 8;
/// Offset of the first record.
pub const RECORDS_OFFSET: usize = ANSWER_OFFSET + size_of::<Answer>();
/// Bytes of all records of an answer.
pub const RECORDS_BYTES: usize = RULES_STATUS_OFFSET - RECORDS_OFFSET;

const _: () = assert!(MTUS_OFFSET + ENTRIES_MAX * size_of::<u64>() <= ASK_OFFSET);
const _: () = assert!(NET_COUNTERS + NET_COUNTERS_MAX < COUNTERS);
const _: () = assert!(ASK_OFFSET + size_of::<Ask>() <= DETAILS_OFFSET);

/// Most records of this type in an answer.
pub const fn records_max<R>() -> usize {
    RECORDS_BYTES / size_of::<R>()
}

/// What the host asks.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Ask {
    /// Another number for each question; written after the rest.
    pub number: u64,
    /// Where the list is to begin: 0, or [`Answer::next`] of the answer before. Of
    /// [`Subject::FlowsEnd`] and of changes of elements, how many details there are.
    pub from: u64,
    /// A [`Subject`]. Images that were built before there was more than one see none here, and
    /// answer about sockets.
    pub subject: u64,
}

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Subject {
    /// Sockets of the image's TCP/IP stack.
    Sockets = 0,
    /// Connections that the image tracks.
    Flows = 1,
    /// Some of them, which are to end: [`crate::flows::Name`]s at [`DETAILS_OFFSET`].
    FlowsEnd = 2,
    /// Elements of sets that rules change.
    Elements = 3,
    /// Some, which are to be added, or to stay for longer: [`crate::elements::Change`]s at
    /// [`DETAILS_OFFSET`].
    ElementsAdd = 4,
    /// The same, which are to go.
    ElementsDelete = 5,
}

/// What the guest answers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Answer {
    /// The question's number; written after the rest.
    pub number: u64,
    /// Where the list goes on, or 0 at its end.
    pub next: u64,
    /// How many records follow.
    pub count: u64,
    /// Of sockets: connections that peers have begun to open, of which there are no records.
    pub half_open: u64,
    /// Of sockets: connections in TIME-WAIT of which there are no records.
    pub time_wait: u64,
    /// What was asked: a [`Subject`].
    pub subject: u64,
    /// Of flows that were to end: how many did. Of changes: how many were made.
    pub ended: u64,
    /// Zero.
    pub reserved: u64,
}
