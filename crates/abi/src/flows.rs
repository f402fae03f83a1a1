//! Connections that an image tracks: what it answers to a question about them
//! ([`crate::inquiry`]). The host believes nothing of it.

use crate::inquiry::DETAILS_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// [`Name::family`] of a flow of IPv4.
pub const FAMILY_V4: u8 = 4;
/// [`Name::family`] of a flow of IPv6.
pub const FAMILY_V6: u8 = 6;

/// Most names behind one question.
pub const NAMES_MAX: usize = DETAILS_BYTES / size_of::<Name>();

/// What names a flow: the direction in which it began. An address of IPv4 is the first four bytes,
/// and the others are zero. Numbers of more than a byte are native-endian.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(8))]
pub struct Name {
    /// Who began it.
    pub source: [u8; 16],
    /// With whom.
    pub destination: [u8; 16],
    /// Their ports, of TCP and UDP. Of ICMP, the identifier, and type and code.
    pub ports: [u16; 2],
    /// Identifier of the VLAN, number of the zone that this direction is in, or 0.
    pub place: u16,
    /// Number of the protocol over IP.
    pub protocol: u8,
    /// [`FAMILY_V4`] or [`FAMILY_V6`].
    pub family: u8,
}

/// A flow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Record {
    /// What names it.
    pub name: Name,
    /// Who answers: the destination, unless that is translated.
    pub reply_source: [u8; 16],
    /// Whom the answers go to: the source, unless that is translated.
    pub reply_destination: [u8; 16],
    /// Ports of the answers.
    pub reply_ports: [u16; 2],
    /// `ct mark`.
    pub mark: u32,
    /// Packets of either direction, that of the name first.
    pub packets: [u64; 2],
    /// Their bytes.
    pub bytes: [u64; 2],
    /// Milliseconds for which it stays without a packet.
    pub left: u32,
    /// A class of the tracker's, by its number.
    pub class: u8,
    /// Bits of `ct status`, the lowest six; and [`STATUS_ZONE`].
    pub status: u8,
    /// Number of the zone that the answers are in, if this or [`Name::place`] is one: then
    /// [`Record::status`] has [`STATUS_ZONE`].
    pub reply_zone: u16,
}

/// In [`Record::status`]: the connection is in a zone.
pub const STATUS_ZONE: u8 = 0x80;
