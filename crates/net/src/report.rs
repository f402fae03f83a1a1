//! What an application is told of its connection: numbers that Linux tells in `TCP_INFO` (tcp(7)),
//! windows in bytes.

use crate::tcp::connection::Connection;
use crate::tcp::socket::Socket;
use core::net::SocketAddr;
use core::time::Duration;

/// Bytes of IP's header, without options (RFC 791, 3.1; RFC 8200, 3).
const IPV4_HEADER: u32 = 20;
/// As above.
const IPV6_HEADER: u32 = 40;

/// Bytes of `struct tcp_info` of Linux that are looked at: those of Linux 5.4 and later.
pub const TCP_INFO_BYTES: usize = 232;
/// Where its fields begin (`include/uapi/linux/tcp.h`).
const STATE: usize = 0;
const SEGMENT: usize = 16;
const UNACKNOWLEDGED: usize = 24;
const PACKET: usize = 60;
const ROUND_TRIP: usize = 68;
const VARIATION: usize = 72;
const WINDOW: usize = 80;
const SENT_AGAIN: usize = 100;
const UNSENT: usize = 144;
const PEER_WINDOW: usize = 228;
/// The state of a connection that is no more (`TCP_CLOSE`).
const CLOSED: u8 = 7;

/// Whether a connection of Linux's is no more.
pub(crate) fn is_closed(info: &[u8; TCP_INFO_BYTES]) -> bool {
    info[STATE] == CLOSED
}

/// Whether the peer of a connection of Linux's has acknowledged all, the FIN included if there was
/// one; `None` if Linux is too old to tell.
pub(crate) fn is_acknowledged(info: &[u8]) -> Option<bool> {
    let word = |at: usize| info.get(at..at + 4)?.first_chunk().copied();
    let (unacknowledged, unsent): ([u8; 4], [u8; 4]) = (word(UNACKNOWLEDGED)?, word(UNSENT)?);
    Some(unacknowledged == [0; 4] && unsent == [0; 4])
}

/// Numbers of a connection at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes that were written and are not acknowledged. Of a socket of the host's, those that have
    /// left count as whole segments.
    pub waiting: u64,
    /// Segments that were sent again.
    pub sent_again: u32,
    /// Bytes that may be on their way: the congestion window.
    pub window: u64,
    /// Bytes that the peer takes.
    pub peer_window: u32,
    /// Smoothed; zero before it was measured.
    pub round_trip: Duration,
    /// How much that varies (RTTVAR of RFC 6298).
    pub variation: Duration,
    /// The largest packet that leaves, in bytes, with all headers; of a socket of the host's, that
    /// which the path takes.
    pub packet: u32,
    /// Payload of a full segment, in bytes.
    pub segment: u32,
}

impl Report {
    /// Of a connection of ours; `None` if it has failed.
    pub(crate) fn of(socket: &Socket) -> Option<Self> {
        let connection: &Connection = socket.connection();
        if connection.failure().is_some() {
            return None;
        }
        let below = match socket.ends().remote() {
            SocketAddr::V4(_) => IPV4_HEADER,
            SocketAddr::V6(_) => IPV6_HEADER,
        };
        let round_trip = connection.round_trip();
        Some(Self {
            waiting: connection.unsent_or_unacknowledged().into(),
            sent_again: socket.sent_again(),
            window: connection.congestion_window().into(),
            peer_window: connection.send_window(),
            round_trip: round_trip.smoothed().unwrap_or_default(),
            variation: round_trip.variation(),
            packet: connection.longest_segment() + below,
            segment: connection.report().segment,
        })
    }

    /// Of one of Linux's; `None` if it is no more, or Linux is too old to tell.
    pub(crate) fn from_kernel(info: &[u8]) -> Option<Self> {
        let info: &[u8; TCP_INFO_BYTES] = info.try_into().ok()?;
        if info[STATE] == CLOSED {
            return None;
        }
        let word = |at: usize| {
            let [a, b, c, d] = [info[at], info[at + 1], info[at + 2], info[at + 3]];
            u32::from_ne_bytes([a, b, c, d])
        };
        let segments = |at| u64::from(word(at)) * u64::from(word(SEGMENT));
        Some(Self {
            waiting: segments(UNACKNOWLEDGED) + u64::from(word(UNSENT)),
            sent_again: word(SENT_AGAIN),
            window: segments(WINDOW),
            peer_window: word(PEER_WINDOW),
            round_trip: Duration::from_micros(word(ROUND_TRIP).into()),
            variation: Duration::from_micros(word(VARIATION).into()),
            packet: word(PACKET),
            segment: word(SEGMENT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_segments_and_what_has_not_left() {
        let mut info = [0; TCP_INFO_BYTES];
        assert_eq!(is_acknowledged(&info), Some(true));
        for at in [UNACKNOWLEDGED, UNSENT] {
            info[at] = 1;
            assert_eq!(is_acknowledged(&info), Some(false));
            info[at] = 0;
        }
        assert_eq!(is_acknowledged(&info[..UNSENT]), None);
        info[STATE] = CLOSED;
        assert!(is_closed(&info));
    }

    #[test]
    fn what_linux_tells_is_read() {
        let mut info = [0; TCP_INFO_BYTES];
        for (at, value) in [
            (SEGMENT, 1448u32),
            (UNACKNOWLEDGED, 3),
            (PACKET, 1500),
            (ROUND_TRIP, 250),
            (VARIATION, 80),
            (WINDOW, 10),
            (SENT_AGAIN, 4),
            (UNSENT, 100),
            (PEER_WINDOW, 65_536),
        ] {
            info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        info[STATE] = 1;
        let report = Report {
            waiting: 3 * 1448 + 100,
            sent_again: 4,
            window: 14_480,
            peer_window: 65_536,
            round_trip: Duration::from_micros(250),
            variation: Duration::from_micros(80),
            packet: 1500,
            segment: 1448,
        };
        assert_eq!(Report::from_kernel(&info), Some(report));
        assert_eq!(Report::from_kernel(&info[..TCP_INFO_BYTES - 1]), None);
        info[STATE] = CLOSED;
        assert_eq!(Report::from_kernel(&info), None);
    }
}
