//! What a router reads and changes in a packet. Numbers lie where RFC 791, 3.1 and RFC 8200, 3 say.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use device::ethernet::{HEADER_SIZE, TYPE_IPV4, TYPE_IPV6};
use device::{Frame, Gso, Offload};

/// Bytes of a header of IPv4 without options.
const IPV4_SIZE: usize = 20;
/// Bytes of the header of IPv6.
const IPV6_SIZE: usize = 40;
/// IPv4: the packet may not be cut.
const DONT_FRAGMENT: u16 = 0x4000;
/// IPv4: where in its packet a fragment lies, and whether there is more behind.
const FRAGMENT: u16 = 0x3fff;
const UDP: u8 = 17;
/// From a server of DHCP to a client (RFC 2131, 4.1).
const LENDS: [u8; 4] = [0, 67, 0, 68];

/// A packet, as a router sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who has sent it.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Hops that it may make.
    pub hops: u8,
    /// Bytes that it has, its header included.
    pub bytes: usize,
    /// Whether routers may cut it.
    pub may_be_cut: bool,
}

/// Whether a frame is one of IP.
pub fn is_ip(frame: &Frame) -> bool {
    let [a, b] = ether_type(frame).unwrap_or_default();
    matches!(u16::from_be_bytes([a, b]), TYPE_IPV4 | TYPE_IPV6)
}

fn ether_type(frame: &Frame) -> Option<[u8; 2]> {
    frame.bytes().get(12..)?.first_chunk().copied()
}

/// Whether a frame of IPv4 is from a station that has no address yet: a client of DHCP.
pub fn is_from_nobody(frame: &Frame) -> bool {
    let source = frame.bytes().get(HEADER_SIZE + 12..HEADER_SIZE + 16);
    ether_type(frame) == Some(TYPE_IPV4.to_be_bytes()) && source == Some(&[0; 4])
}

/// Whether a frame is a whole datagram of IPv4 from a server of DHCP to a client.
pub fn is_lent(frame: &Frame) -> bool {
    let read = || {
        let packet = frame.bytes().get(HEADER_SIZE..)?;
        let header: &[u8; IPV4_SIZE] = packet.first_chunk()?;
        let fragment = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT;
        let is_udp = header[0] >> 4 == 4 && header[9] == UDP && fragment == 0;
        let ports = packet.get(usize::from(header[0] & 0xf) * 4..)?;
        Some(is_udp && ports.starts_with(&LENDS))
    };
    ether_type(frame) == Some(TYPE_IPV4.to_be_bytes()) && read().unwrap_or(false)
}

impl Packet {
    /// Reads the packet in a frame whose header rules have read before. `None` if it is none.
    pub fn read(frame: &Frame) -> Option<Self> {
        let packet = frame.bytes().get(HEADER_SIZE..)?;
        match u16::from_be_bytes(ether_type(frame)?) {
            TYPE_IPV4 => Self::read4(packet),
            TYPE_IPV6 => Self::read6(packet),
            _ => None,
        }
    }

    fn read4(packet: &[u8]) -> Option<Self> {
        let header: &[u8; IPV4_SIZE] = packet.first_chunk()?;
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 4] = *header.get(at..)?.first_chunk()?;
            Some(Ipv4Addr::from(bytes).into())
        };
        let bytes = u16::from_be_bytes([header[2], header[3]]).into();
        let flags = u16::from_be_bytes([header[6], header[7]]);
        let is_whole = header[0] >> 4 == 4 && (IPV4_SIZE..=packet.len()).contains(&bytes);
        is_whole.then_some(Self {
            source: address(12)?,
            destination: address(16)?,
            hops: header[8],
            bytes,
            may_be_cut: flags & DONT_FRAGMENT == 0,
        })
    }

    fn read6(packet: &[u8]) -> Option<Self> {
        let header: &[u8; IPV6_SIZE] = packet.first_chunk()?;
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 16] = *header.get(at..)?.first_chunk()?;
            Some(Ipv6Addr::from(bytes).into())
        };
        let payload: usize = u16::from_be_bytes([header[4], header[5]]).into();
        let bytes = IPV6_SIZE + payload;
        let is_whole = header[0] >> 4 == 6 && bytes <= packet.len();
        is_whole.then_some(Self {
            source: address(8)?,
            destination: address(24)?,
            hops: header[7],
            bytes,
            may_be_cut: false,
        })
    }

    /// Whether routers send packets between such stations on (RFC 1812, 5.3.7; RFC 4291, 2.5 to
    /// 2.7): not from or to groups, everybody, nobody, the station itself, or the link alone.
    pub fn may_pass(&self) -> bool {
        is_routable(self.source) && is_routable(self.destination)
    }
}

fn is_routable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, ..] = address.octets();
            // 0.0.0.0/8, and what is reserved or means everybody.
            !(first == 0
                || first >= 240
                || address.is_loopback()
                || address.is_multicast()
                || address.is_link_local())
        }
        IpAddr::V6(address) => {
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_unicast_link_local())
        }
    }
}

/// Bytes of the largest packet that a frame makes on the wire.
pub fn on_wire(frame: &Frame, packet: &Packet) -> usize {
    match frame.offload() {
        Offload { gso: Some(gso), .. } => on_wire_of(&gso),
        Offload { gso: None, .. } => packet.bytes,
    }
}

/// Bytes of each packet that the port cuts, without Ethernet's header.
fn on_wire_of(gso: &Gso) -> usize {
    gso.segment_bytes().saturating_sub(HEADER_SIZE)
}

/// Takes a hop from a packet that has two at least, and keeps the header's checksum right (RFC
/// 1141).
pub fn take_hop(frame: &mut Frame) {
    let Some(packet) = frame.bytes_mut().get_mut(HEADER_SIZE..) else {
        return;
    };
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            if let Some(header) = packet.first_chunk_mut::<IPV4_SIZE>() {
                header[8] = header[8].wrapping_sub(1);
                let sum = u16::from_be_bytes([header[10], header[11]]);
                let (sum, carry) = sum.overflowing_add(0x100);
                let sum = sum.wrapping_add(carry.into());
                header[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Some(6) => {
            if let Some(hops) = packet.get_mut(7) {
                *hops = hops.wrapping_sub(1);
            }
        }
        _ => {}
    }
}
