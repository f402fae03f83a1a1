//! The header that taps and virtio NICs put in front of a frame (virtio 1.2, 5.1.6.1).

use crate::offload::{Checksum, Gso, GsoKind, Offload};
use crate::segment::{Layout, TCP_CHECKSUM, UDP_CHECKSUM};
use crate::transport::{TCP, Transport, UDP};

/// Size in bytes of `virtio_net_hdr` with `num_buffers`, all of its numbers little-endian.
pub const HEADER_SIZE: usize = 12;

/// Smallest payload of a segment, in bytes: what the least MSS of Linux leaves behind TCP's
/// longest options. Less would only multiply frames.
pub const GSO_SIZE_MIN: u16 = 8;

const FLAG_NEEDS_CSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_UDP: u8 = 3;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Why a header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Flags that were not negotiated.
    Flags,
    /// A kind of segmentation that does not exist.
    GsoType,
    /// Fragmentation or segmentation of UDP, which is not offered to whoever sends to us.
    GsoUdp,
    /// The checksum field is not that of the frame's TCP or UDP header.
    ChecksumField,
    /// Segmentation with a checksum that was not left to be completed.
    GsoWithoutChecksum,
    /// Segments of fewer than [`GSO_SIZE_MIN`] payload bytes.
    GsoSize,
    /// The frame is not one whole TCP packet of the IP version that the header says.
    GsoFrame,
}

impl core::fmt::Display for BadHeader {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Flags => "virtio-net header with unknown flags",
            Self::GsoType => "virtio-net header with an unknown kind of segmentation",
            Self::GsoUdp => "virtio-net header asks for segmentation of UDP, which is not offered",
            Self::ChecksumField => "virtio-net header names no TCP or UDP checksum of the frame",
            Self::GsoWithoutChecksum => "virtio-net header asks for segments without a checksum",
            Self::GsoSize => "virtio-net header asks for segments that are too small",
            Self::GsoFrame => "virtio-net header asks for segments of a frame that is not that TCP",
        })
    }
}

impl core::error::Error for BadHeader {}

/// Whether a header leaves nothing to be done: the checksum is complete, or the sender vouches for
/// it.
#[inline]
pub fn is_plain(header: &[u8; HEADER_SIZE]) -> bool {
    let both = u16::from_le_bytes([header[0] & !FLAG_DATA_VALID, header[1]]);
    both == GSO_NONE.into()
}

/// What `header` leaves to be done to `frame`, which follows it.
///
/// Stricter than virtio: the checksum field must be that of the packet's own TCP or UDP header.
/// Any other could be an address or a port, changed after a filter has read it.
///
/// # Errors
/// [`BadHeader`], if the header contradicts itself or the frame.
#[inline]
pub fn parse(header: &[u8; HEADER_SIZE], frame: &[u8]) -> Result<Offload, BadHeader> {
    if is_plain(header) {
        return Ok(Offload::NONE);
    }
    parse_work(header, frame)
}

fn parse_work(header: &[u8; HEADER_SIZE], frame: &[u8]) -> Result<Offload, BadHeader> {
    let [
        flags,
        gso_type,
        _,
        _,
        size_low,
        size_high,
        start_low,
        start_high,
        low,
        high,
        _,
        _,
    ] = *header;
    if flags & !(FLAG_NEEDS_CSUM | FLAG_DATA_VALID) != 0 {
        return Err(BadHeader::Flags);
    }
    let kind = match gso_type & !GSO_ECN {
        GSO_NONE if gso_type == GSO_NONE => None,
        GSO_TCPV4 => Some(GsoKind::TcpV4),
        GSO_TCPV6 => Some(GsoKind::TcpV6),
        GSO_UDP | GSO_UDP_L4 => return Err(BadHeader::GsoUdp),
        _ => return Err(BadHeader::GsoType),
    };
    if flags & FLAG_NEEDS_CSUM == 0 {
        return Err(BadHeader::GsoWithoutChecksum);
    }
    let checksum = Checksum {
        start: u16::from_le_bytes([start_low, start_high]),
        offset: u16::from_le_bytes([low, high]),
    };
    check_field(checksum, frame).ok_or(BadHeader::ChecksumField)?;

    let size = u16::from_le_bytes([size_low, size_high]);
    let gso = match kind {
        None => None,
        Some(_) if size < GSO_SIZE_MIN => return Err(BadHeader::GsoSize),
        Some(kind) => {
            let layout = Layout::read(frame, kind).ok_or(BadHeader::GsoFrame)?;
            Some(Gso {
                kind,
                size,
                // At most SEGMENT_HEADER_MAX. The header's own hdr_len is a hint (5.1.6.2.2).
                header: layout.header as u16,
                ecn: gso_type & GSO_ECN != 0,
            })
        }
    };
    Ok(Offload {
        checksum: Some(checksum),
        gso,
    })
}

/// Whether the field is the checksum of the frame's TCP or UDP header, wholly inside the frame.
fn check_field(checksum: Checksum, frame: &[u8]) -> Option<()> {
    let transport = Transport::find(frame)?;
    let (offset, header) = match transport.protocol {
        TCP => (TCP_CHECKSUM, 20),
        UDP => (UDP_CHECKSUM, 8),
        _ => return None,
    };
    let inside = transport.start + header <= frame.len();
    let named = (usize::from(checksum.start), usize::from(checksum.offset));
    (inside && named == (transport.start, offset)).then_some(())
}

/// The header that leaves `offload` to whoever takes the frame.
#[inline]
pub fn emit(offload: Offload) -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    if let Some(checksum) = offload.checksum {
        header[0] = FLAG_NEEDS_CSUM;
        header[6..8].copy_from_slice(&checksum.start.to_le_bytes());
        header[8..10].copy_from_slice(&checksum.offset.to_le_bytes());
    }
    if let Some(gso) = offload.gso {
        let kind = match gso.kind {
            GsoKind::TcpV4 => GSO_TCPV4,
            GsoKind::TcpV6 => GSO_TCPV6,
            GsoKind::UdpV4 | GsoKind::UdpV6 => GSO_UDP_L4,
        };
        header[1] = if gso.ecn { kind | GSO_ECN } else { kind };
        header[2..4].copy_from_slice(&gso.header.to_le_bytes());
        header[4..6].copy_from_slice(&gso.size.to_le_bytes());
    }
    header
}
