//! The sockets of an image's TCP/IP stack: what it answers to a question about them
//! ([`crate::inquiry`]). The host believes nothing of it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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
