//! What one device leaves to the next: checksums and segmentation (virtio 1.2, 5.1.6).

use crate::checksum;
use crate::transport::{TCP, Transport, UDP};

/// What may be left to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// The checksum of TCP and UDP.
    pub checksum: bool,
    /// Segmentation of TCP over IPv4 and IPv6.
    pub tso: bool,
    /// Segmentation of UDP over IPv4 and IPv6: one datagram becomes several.
    pub uso: bool,
}

impl Offloads {
    /// Whether a frame may be left to be cut that way.
    #[inline]
    pub fn cuts(self, kind: GsoKind) -> bool {
        match kind {
            GsoKind::TcpV4 | GsoKind::TcpV6 => self.tso,
            GsoKind::UdpV4 | GsoKind::UdpV6 => self.uso,
        }
    }
}

/// What a frame's sender left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// The L4 checksum is still to be completed.
    pub checksum: Option<Checksum>,
    /// The frame is to be cut into segments.
    pub gso: Option<Gso>,
}

/// A checksum to be completed: over all bytes from `start` on, to be stored at `start + offset`,
/// where the sum of the pseudo header lies. Both in bytes; the field lies inside the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// First byte that is summed, from the start of the frame.
    pub start: u16,
    /// The field, from `start`.
    pub offset: u16,
}

/// How a frame is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// What is cut.
    pub kind: GsoKind,
    /// Payload bytes of each segment but the last; not zero.
    pub size: u16,
    /// Bytes in front of the payload, which each segment repeats: Ethernet, IP and TCP or UDP
    /// headers.
    pub header: u16,
    /// The first segment carries CWR (RFC 3168); virtio's ECN bit.
    pub ecn: bool,
}

/// What is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over IPv4.
    UdpV4,
    /// UDP over IPv6.
    UdpV6,
}

impl GsoKind {
    /// Whether a packet with these headers is of this kind.
    #[inline]
    pub fn fits(self, transport: &Transport) -> bool {
        let (protocol, ipv6) = match self {
            Self::TcpV4 => (TCP, false),
            Self::TcpV6 => (TCP, true),
            Self::UdpV4 => (UDP, false),
            Self::UdpV6 => (UDP, true),
        };
        transport.protocol == protocol && transport.ipv6 == ipv6
    }
}

impl Offload {
    /// Nothing is left to do.
    pub const NONE: Self = Self {
        checksum: None,
        gso: None,
    };

    /// Completes the checksum of `frame`, if that was left to do: in software, for a port that
    /// cannot. Segments need no such call: [`crate::segments`] completes theirs.
    #[inline]
    pub fn complete_checksum(self, frame: &mut [u8]) {
        if let Some(Checksum { start, offset }) = self.checksum {
            let start = usize::from(start);
            checksum::complete(frame, start, start + usize::from(offset));
        }
    }
}

impl Gso {
    /// Length in bytes of the longest segment, Ethernet header included.
    #[inline]
    pub fn segment_bytes(&self) -> usize {
        usize::from(self.header) + usize::from(self.size)
    }
}
