//! Where the transport header of a packet lies: what checksum and segmentation offloads need
//! (RFC 791, RFC 8200).

use crate::ethernet::{HEADER_SIZE, TYPE_IPV4, TYPE_IPV6, TYPE_VLAN, VLAN_TAG_SIZE};

/// EtherType of a service tag (802.1ad).
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
/// VLAN tags that are looked through: a customer's inside a service's.
const VLAN_TAGS_MAX: usize = 2;
/// IPv6 extension headers that are looked through.
const EXTENSIONS_MAX: usize = 8;

/// Protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// Protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// Where the headers of an IP packet lie in a frame, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// The IP header.
    pub ip: usize,
    /// Whether the IP header is version 6.
    pub ipv6: bool,
    /// The transport header; it may lie at or behind the end of the frame.
    pub start: usize,
    /// Protocol of the transport header.
    pub protocol: u8,
}

impl Transport {
    /// Looks for the transport header; `None` if `frame` is not IP, is a fragment or is malformed.
    pub fn find(frame: &[u8]) -> Option<Self> {
        let mut ip = HEADER_SIZE;
        for _ in 0..=VLAN_TAGS_MAX {
            match be16(frame, ip - 2)? {
                TYPE_VLAN | TYPE_SERVICE_VLAN => ip += VLAN_TAG_SIZE,
                TYPE_IPV4 => return Self::find_v4(frame, ip),
                TYPE_IPV6 => return Self::find_v6(frame, ip),
                _ => return None,
            }
        }
        None
    }

    fn find_v4(frame: &[u8], ip: usize) -> Option<Self> {
        let header: &[u8; 20] = frame.get(ip..)?.first_chunk()?;
        let words = usize::from(header[0] & 0xf);
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        (header[0] >> 4 == 4 && words >= 5 && !fragment).then_some(Self {
            ip,
            ipv6: false,
            start: ip + 4 * words,
            protocol: header[9],
        })
    }

    fn find_v6(frame: &[u8], ip: usize) -> Option<Self> {
        let header: &[u8; 40] = frame.get(ip..)?.first_chunk()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut start = ip + header.len();
        let mut protocol = header[6];
        for _ in 0..=EXTENSIONS_MAX {
            match protocol {
                // Hop-by-hop options, routing, destination options.
                0 | 43 | 60 => {
                    let [next, units] = *frame.get(start..)?.first_chunk()?;
                    protocol = next;
                    start += 8 * (usize::from(units) + 1);
                }
                _ => {
                    return Some(Self {
                        ip,
                        ipv6: true,
                        start,
                        protocol,
                    });
                }
            }
        }
        None
    }

    /// Bytes from the IP header on, as that header says; `None` if it is cut off.
    pub(crate) fn ip_bytes(&self, frame: &[u8]) -> Option<usize> {
        if self.ipv6 {
            Some(usize::from(be16(frame, self.ip + 4)?) + 40)
        } else {
            Some(usize::from(be16(frame, self.ip + 2)?))
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
