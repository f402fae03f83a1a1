//! Where the headers of a frame lie.

use super::checksum::{fold, sum, word};

/// Bytes of an Ethernet header without tags.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of a VLAN tag (IEEE 802.1Q).
pub(crate) const TAG: usize = 4;
/// Shortest frame on a wire, without its check sequence; a sender pads to it (IEEE 802.3, 4.2.3.3).
pub(crate) const FRAME_MIN: usize = 60;
/// Longest IP packet.
pub(crate) const IP_BYTES_MAX: usize = 0xffff;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// EtherType of a VLAN tag.
pub(crate) const VLAN: u16 = 0x8100;

/// Protocol numbers (IANA).
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const SCTP: u8 = 132;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// Extension headers of IPv6 that are looked through.
const EXTENSIONS_MAX: usize = 8;

/// Bytes of a header of UDP (RFC 768).
pub(crate) const UDP_HEADER: usize = 8;
/// Offset of the checksum in a header.
pub(crate) const TCP_CHECKSUM: usize = 16;
pub(crate) const UDP_CHECKSUM: usize = 6;
pub(crate) const IPV4_CHECKSUM: usize = 10;

/// An IP packet in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    /// Where its header begins.
    pub(crate) start: usize,
    /// Where its payload begins, behind options and extension headers.
    pub(crate) payload: usize,
    /// Where the packet ends by its own account; inside the frame.
    pub(crate) end: usize,
    /// Version 6, not 4.
    pub(crate) v6: bool,
    /// It has options or extension headers.
    pub(crate) extended: bool,
    /// A part of a larger packet.
    pub(crate) fragment: bool,
    /// What the payload is.
    pub(crate) protocol: u8,
}

impl Ip {
    /// Finds the packet in `frame`, behind at most one VLAN tag; `None` if there is none that is
    /// whole.
    pub(crate) fn find(frame: &[u8]) -> Option<Self> {
        Self::find_in(frame, frame.len())
    }

    /// The same in a frame of so many bytes, of which `frame` has at least the headers.
    pub(crate) fn find_in(frame: &[u8], bytes: usize) -> Option<Self> {
        let (start, kind) = match word(frame, ETHERNET - 2)? {
            VLAN => (ETHERNET + TAG, word(frame, ETHERNET + TAG - 2)?),
            kind => (ETHERNET, kind),
        };
        match kind {
            IPV4 => Self::v4(frame, bytes, start),
            IPV6 => Self::v6(frame, bytes, start),
            _ => None,
        }
    }

    fn v4(frame: &[u8], bytes: usize, start: usize) -> Option<Self> {
        let header: &[u8; 20] = frame.get(start..)?.first_chunk()?;
        let header_len = 4 * usize::from(header[0] & 15);
        let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let end = start + len;
        if header[0] >> 4 != 4 || header_len < 20 || len < header_len || end > bytes {
            return None;
        }
        Some(Self {
            start,
            payload: start + header_len,
            end,
            v6: false,
            extended: header_len > 20,
            fragment: u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0,
            protocol: header[9],
        })
    }

    fn v6(frame: &[u8], bytes: usize, start: usize) -> Option<Self> {
        let header: &[u8; 40] = frame.get(start..)?.first_chunk()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let end = start + header.len() + len;
        if header[0] >> 4 != 6 || end > bytes {
            return None;
        }
        let mut ip = Self {
            start,
            payload: start + header.len(),
            end,
            v6: true,
            extended: false,
            fragment: false,
            protocol: header[6],
        };
        for _ in 0..EXTENSIONS_MAX {
            if !matches!(ip.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION) {
                break;
            }
            let rest = frame.get(ip.payload..end.min(frame.len()))?;
            let (&[next, units], _) = rest.split_first_chunk::<2>()?;
            let len = if ip.protocol == FRAGMENT {
                8
            } else {
                8 + 8 * usize::from(units)
            };
            if rest.len() < len {
                return None;
            }
            ip.fragment |= ip.protocol == FRAGMENT;
            ip.extended = true;
            ip.protocol = next;
            ip.payload += len;
        }
        Some(ip)
    }

    /// What lies at the start of the payload, if all of its fixed header does.
    pub(crate) fn transport(&self, frame: &[u8]) -> Option<Transport> {
        if self.fragment {
            return None;
        }
        let len = self.end.checked_sub(self.payload)?;
        match self.protocol {
            TCP if len >= 20 => {
                let header = 4 * usize::from(frame.get(self.payload + 12)? >> 4);
                (20..=len)
                    .contains(&header)
                    .then_some(Transport::Tcp { header })
            }
            UDP if len >= UDP_HEADER => Some(Transport::Udp),
            SCTP if len >= 12 => Some(Transport::Sctp),
            _ => None,
        }
    }

    /// Sum of the pseudo header (RFC 9293, 3.1; RFC 8200, 8.1) for a payload of `len` bytes.
    pub(crate) fn pseudo_header(&self, frame: &[u8], len: usize) -> u64 {
        let addresses = if self.v6 { 8..40 } else { 12..20 };
        let header = &frame[self.start..];
        sum(&header[addresses]) + u64::from(self.protocol) + (len as u64 & 0xffff)
    }

    /// Whether the checksum of an IPv4 header is right.
    pub(crate) fn header_is_sound(&self, frame: &[u8]) -> bool {
        self.v6 || {
            let header = 4 * usize::from(frame[self.start] & 15);
            fold(sum(&frame[self.start..self.start + header])) == 0xffff
        }
    }

    /// Whether the checksum of TCP or UDP is right; `None` if the sender made none.
    pub(crate) fn payload_is_sound(&self, frame: &[u8]) -> Option<bool> {
        let payload = &frame[self.payload..self.end];
        if self.protocol == UDP && !self.v6 && word(payload, UDP_CHECKSUM) == Some(0) {
            return None;
        }
        let total = self.pseudo_header(frame, payload.len()) + sum(payload);
        Some(fold(total) == 0xffff)
    }
}

/// A transport protocol that NICs know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp {
        /// Bytes of its header.
        header: usize,
    },
    Udp,
    Sctp,
}
