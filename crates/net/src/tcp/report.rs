//! What monitoring and tests are told of a connection.

use super::connection::Connection;
use super::segment::HEADER_SIZE;

/// Numbers of a connection at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Payload of a full segment, in bytes; not 0.
    pub segment: u32,
    /// Below this congestion window, in bytes, it grows by slow start; `None` before a first loss.
    pub threshold: Option<u32>,
    /// Bytes that were sent and are not acknowledged.
    pub unacknowledged: u32,
    /// Bytes among them that have arrived behind holes.
    pub sacked: u32,
    /// Bytes among them that are lost and were not sent again since.
    pub lost: u32,
    /// A loss is being repaired.
    pub recovering: bool,
    /// It is one that the retransmission timer has found.
    pub after_timeout: bool,
    /// Both ends send timestamps.
    pub timestamps: bool,
    /// Both ends take SACK.
    pub sack: bool,
    /// Windows are scaled.
    pub scales: bool,
}

impl Connection {
    /// Bytes of TCP's header and payload of a full segment, as it last left.
    pub fn longest_segment(&self) -> u32 {
        let full = match self.sent_full {
            0 => self.full_segment(),
            full => full,
        };
        (HEADER_SIZE + self.options_size()) as u32 + full
    }

    /// Its numbers now.
    pub fn report(&self) -> Report {
        Report {
            segment: self.full_segment(),
            threshold: self.congestion.known_threshold(),
            unacknowledged: self.next - self.una,
            sacked: self.sent.sacked(),
            lost: self.sent.lost(),
            recovering: self.congestion.is_recovering(),
            after_timeout: self.congestion.is_after_timeout(),
            timestamps: self.stamps.is_some(),
            sack: self.sack,
            scales: self.peer_scale > 0 || self.scale > 0,
        }
    }
}
