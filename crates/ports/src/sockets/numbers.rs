//! Numbers and shapes of Linux's calls about sockets.

use super::{ADDRESS_BYTES, Event, SLICES_MAX, Transport};

/// Types of sockets (socket(2)).
const STREAM: usize = 1;
const DATAGRAM: usize = 2;
/// No call waits.
pub const NON_BLOCKING: usize = 0o4000;
/// No other program has the socket.
pub const CLOSE_ON_EXEC: usize = 0o2_000_000;
/// Options of all sockets (socket(7)).
pub const LEVEL_SOCKET: usize = 1;
/// What remains of earlier connections does not matter.
pub const REUSE_ADDRESS: usize = 2;
/// Why it does not go on.
pub const ERROR: usize = 4;
/// Peers of idle connections are asked whether they are still there.
pub const KEEP_ALIVE: usize = 9;
/// Other sockets of this user have the same port.
pub const REUSE_PORT: usize = 15;
/// Options of TCP (tcp(7)).
pub const LEVEL_TCP: usize = 6;
/// Small writes leave at once.
pub const NO_DELAY: usize = 1;
/// A connection whose peer may have vanished is idle for so long, in seconds.
pub const KEEP_IDLE: usize = 4;
/// The most that the kernel takes for it.
pub const KEEP_IDLE_MAX: u32 = 32_767;
/// What is known of a connection.
pub const INFO: usize = 11;
/// Options of IPv6 (ipv6(7)).
pub const LEVEL_IPV6: usize = 41;
/// It does not take IPv4.
pub const V6_ONLY: usize = 26;
/// Of shutdown(2): no more is sent.
pub const WRITES: usize = 1;
/// Of epoll_ctl(2): it is watched.
pub const ADD: usize = 1;
/// What sockets are watched for: reading, writing and the peer's end, each change once.
pub const WATCHED: u32 = IN | OUT | RDHUP | EDGE;
/// An address of no family, `AF_UNSPEC`: who connects to it has no peer any more (connect(2)).
pub const NOBODY: [u8; ADDRESS_BYTES] = [0; ADDRESS_BYTES];

const IN: u32 = 1;
const OUT: u32 = 4;
const ERR: u32 = 8;
const HUP: u32 = 0x10;
const RDHUP: u32 = 0x2000;
const EDGE: u32 = 1 << 31;

/// The type of a new socket, and what comes with it (socket(2)).
pub fn kind(transport: Transport) -> usize {
    let kind = match transport {
        Transport::Stream => STREAM,
        Transport::Datagrams => DATAGRAM,
    };
    kind | NON_BLOCKING | CLOSE_ON_EXEC
}

/// What an event of epoll says of the socket with this number.
pub fn event(events: u32, number: u64) -> Event {
    Event {
        number: number as u32,
        readable: events & (IN | RDHUP | HUP | ERR) != 0,
        ended: events & (RDHUP | HUP | ERR) != 0,
        writable: events & (OUT | HUP | ERR) != 0,
    }
}

/// A piece of what is sent (`struct iovec`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Piece {
    address: usize,
    bytes: usize,
}

impl Piece {
    /// The first [`SLICES_MAX`] of them.
    pub fn of(slices: &[&[u8]]) -> [Self; SLICES_MAX] {
        let mut pieces = [Self::default(); SLICES_MAX];
        for (piece, slice) in pieces.iter_mut().zip(slices) {
            *piece = Self {
                address: slice.as_ptr().addr(),
                bytes: slice.len(),
            };
        }
        pieces
    }
}

/// What is sent, and where to (`struct msghdr`, sendmsg(2)).
#[derive(Debug, Default)]
#[repr(C)]
pub struct Message {
    to: usize,
    to_bytes: usize,
    pieces: usize,
    count: usize,
    control: usize,
    control_bytes: usize,
    flags: usize,
}

impl Message {
    /// The first `count` of these pieces, or all, to the peer.
    pub fn of(pieces: &[Piece], count: usize) -> Self {
        Self {
            pieces: pieces.as_ptr().addr(),
            count: count.min(pieces.len()),
            ..Self::default()
        }
    }
}
