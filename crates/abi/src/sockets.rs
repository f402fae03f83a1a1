//! The sockets of an image's TCP/IP stack, in free space of the shared file ([`crate::share`]).
//!
//! The host asks with an [`Ask`], in its own part of the file, and the guest answers with an
//! [`Answer`] and as many [`Record`]s as fit behind it. More are had by asking again, from where
//! the answer ended. The host believes nothing of it.

use crate::manifest::ENTRIES_MAX;
use crate::share::{
    CONTROL_OFFSET, MTUS_OFFSET, NET_COUNTERS, NET_COUNTERS_MAX, RULES_STATUS_OFFSET,
};
use crate::share::{COUNTERS, COUNTERS_OFFSET};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Offset of [`Ask`], in the page of [`crate::share::Control`].
pub const ASK_OFFSET: usize = CONTROL_OFFSET + 2048;
/// Offset of [`Answer`], behind all counters that are in use.
pub const ANSWER_OFFSET: usize = COUNTERS_OFFSET + (NET_COUNTERS + NET_COUNTERS_MAX) * 8;
/// Offset of the first [`Record`].
pub const RECORDS_OFFSET: usize = ANSWER_OFFSET + size_of::<Answer>();
/// Most records of an answer.
pub const RECORDS_MAX: usize = (RULES_STATUS_OFFSET - RECORDS_OFFSET) / size_of::<Record>();

const _: () = assert!(MTUS_OFFSET + ENTRIES_MAX * size_of::<u64>() <= ASK_OFFSET);
const _: () = assert!(NET_COUNTERS + NET_COUNTERS_MAX < COUNTERS && RECORDS_MAX > 100);

/// What the host asks.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Ask {
    /// Another number for each question; written after the rest.
    pub number: u64,
    /// Where the list is to begin: 0, or [`Answer::next`] of the answer before.
    pub from: u64,
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
    /// Connections that peers have begun to open, of which there are no records.
    pub half_open: u64,
    /// Connections in TIME-WAIT of which there are no records.
    pub time_wait: u64,
    /// Zero.
    pub reserved: [u64; 3],
}

/// What a socket does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// It waits for connections.
    Listener = 1,
    /// It is a connection.
    Connection = 2,
    /// It takes datagrams.
    Datagrams = 3,
}

/// A socket. Addresses are those of IPv6, and of IPv4 as IPv6 has them (RFC 4291, 2.5.5.2); zero
/// stands for all addresses of ours, and for no peer.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Record {
    /// A [`Kind`].
    pub kind: u8,
    /// Of a connection: its state, in the order of `net::tcp::State`.
    pub state: u8,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// Zero.
    pub reserved: u16,
    /// Our address.
    pub local: [u8; 16],
    /// The peer's address.
    pub remote: [u8; 16],
    /// Bytes that nobody has read; datagrams; connections that wait to be accepted.
    pub receive_queue: u32,
    /// Bytes that the peer has not acknowledged; of a listener, how many connections may wait.
    pub send_queue: u32,
    /// The smoothed round trip in microseconds, or 0.
    pub round_trip: u32,
    /// How much it varies, in microseconds (RTTVAR of RFC 6298).
    pub variation: u32,
    /// The retransmission time-out in microseconds.
    pub timeout: u32,
    /// The congestion window in bytes.
    pub window: u32,
    /// The slow start threshold in bytes.
    pub threshold: u32,
    /// Bytes that are on their way.
    pub in_flight: u32,
    /// The largest segment that the peer takes, in bytes.
    pub segment: u32,
    /// The window that we offer, in bytes.
    pub receive_window: u32,
    /// The window that the peer offers, in bytes.
    pub send_window: u32,
    /// Segments that were sent again.
    pub sent_again: u32,
    /// Zero.
    pub more: u64,
}
