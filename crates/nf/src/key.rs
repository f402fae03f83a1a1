//! The one reading of a frame (IEEE 802.1Q, RFC 826, RFC 791, RFC 8200, RFC 9293, RFC 768,
//! RFC 792, RFC 4443).

use crate::malformed::Malformed;
use core::net::{Ipv4Addr, Ipv6Addr};

/// EtherTypes.
pub mod ether_type {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// An 802.1Q tag.
    pub const VLAN: u16 = 0x8100;
    /// An 802.1ad service tag.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
}

/// Protocol numbers of IPv4, and of IPv6's last header.
pub mod protocol {
    /// ICMP, over IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6, over IPv6.
    pub const ICMPV6: u8 = 58;
}

/// IPv6 extension headers that are looked through; more is [`Malformed::TooManyExtensions`].
pub const EXTENSIONS_MAX: usize = 8;

/// Destination, source and type.
const ETHERNET_SIZE: usize = 14;

/// What rules decide on: each header field of a frame, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Destination MAC address.
    pub destination: [u8; 6],
    /// Source MAC address.
    pub source: [u8; 6],
    /// The type in the Ethernet header: of a tagged frame, the tag's.
    pub link_type: u16,
    /// Identifier of the 802.1Q or 802.1ad tag, if there is one.
    pub vlan: Option<u16>,
    /// EtherType; of a tagged frame, the one behind the tag. A second tag is not looked through:
    /// then this is its type, and there is no IP.
    pub ether_type: u16,
    /// Addresses, if the frame is IP.
    pub addresses: Option<Addresses>,
    /// What the IP header itself says to follow it: IPv4's protocol, or IPv6's next header, which
    /// may be an extension.
    pub next_header: Option<u8>,
    /// Protocol, if the frame is IP: IPv4's protocol field, or the last next-header field of IPv6.
    /// Known in every fragment, except in a later one of IPv6 that begins with an extension.
    pub protocol: Option<u8>,
    /// Which part of an IP packet the frame is.
    pub fragment: Fragment,
    /// The transport header of TCP, UDP, ICMP and ICMPv6; never in a later fragment.
    pub l4: Option<L4>,
}

/// Addresses of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Of IPv4.
    V4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
    },
    /// Of IPv6.
    V6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address.
        destination: Ipv6Addr,
    },
}

/// Which part of an IP packet a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// All of it, or not IP.
    Whole,
    /// Its beginning, with the transport header.
    First,
    /// Another part, where the bytes behind the IP header are payload.
    Later,
}

/// The fields of a transport header that rules decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4 {
    /// TCP.
    Tcp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
        /// CWR, ECE, URG, ACK, PSH, RST, SYN, FIN, from the highest bit.
        flags: u8,
    },
    /// UDP.
    Udp {
        /// Source port.
        source: u16,
        /// Destination port.
        destination: u16,
    },
    /// ICMP, over either IP.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
    /// ICMPv6, over either IP.
    Icmpv6 {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
}

impl Key {
    /// Reads `frame`, from its Ethernet header on. Bytes behind the IP packet are padding.
    ///
    /// The checksum of the IPv4 header is verified; those of TCP, UDP and ICMP are left to the
    /// receiver, since offloads may not have filled them in.
    ///
    /// # Errors
    /// [`Malformed`], if a header is cut off or contradicts itself.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let (ethernet, rest) = frame
            .split_first_chunk::<ETHERNET_SIZE>()
            .ok_or(Malformed::Runt)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, high, low] = *ethernet;
        let link_type = u16::from_be_bytes([high, low]);
        let mut key = Self {
            destination: [d0, d1, d2, d3, d4, d5],
            source: [s0, s1, s2, s3, s4, s5],
            link_type,
            vlan: None,
            ether_type: link_type,
            addresses: None,
            next_header: None,
            protocol: None,
            fragment: Fragment::Whole,
            l4: None,
        };
        let mut payload = rest;
        if matches!(link_type, ether_type::VLAN | ether_type::SERVICE_VLAN) {
            let (tag, rest) = rest
                .split_first_chunk::<4>()
                .ok_or(Malformed::TruncatedVlan)?;
            key.vlan = Some(be16(tag, 0) & 0xfff);
            key.ether_type = be16(tag, 2);
            payload = rest;
        }
        match key.ether_type {
            ether_type::IPV4 => key.read_ipv4(payload)?,
            ether_type::IPV6 => key.read_ipv6(payload)?,
            ether_type::ARP => check_arp(payload)?,
            _ => {}
        }
        Ok(key)
    }

    /// Where the bytes begin that nft's counters count on a bridge: behind the Ethernet header and
    /// its tag.
    #[inline]
    pub fn network_offset(&self) -> usize {
        ETHERNET_SIZE + if self.vlan.is_some() { 4 } else { 0 }
    }

    /// RFC 791, 3.1.
    #[inline]
    fn read_ipv4(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let header: &[u8; 20] = bytes.first_chunk().ok_or(Malformed::TruncatedIp)?;
        let header_size = 4 * usize::from(header[0] & 0xf);
        if header[0] >> 4 != 4 || header_size < header.len() {
            return Err(Malformed::BadIpHeader);
        }
        let options = bytes
            .get(header.len()..header_size)
            .ok_or(Malformed::TruncatedIp)?;
        if !ipv4_checksum_holds(header, options) {
            return Err(Malformed::BadIpChecksum);
        }
        let total = usize::from(be16(header, 2));
        let payload = bytes
            .get(header_size..total)
            .ok_or(Malformed::BadIpLength)?;

        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        self.addresses = Some(Addresses::V4 {
            source: Ipv4Addr::new(s0, s1, s2, s3),
            destination: Ipv4Addr::new(d0, d1, d2, d3),
        });
        self.next_header = Some(header[9]);
        self.protocol = Some(header[9]);
        let flags_and_offset = be16(header, 6);
        self.fragment = fragment(flags_and_offset & 0x1fff, flags_and_offset & 0x2000 != 0);
        self.read_l4(header[9], payload)
    }

    /// RFC 8200, 3 and 4.
    #[inline]
    fn read_ipv6(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let (header, rest) = bytes
            .split_first_chunk::<40>()
            .ok_or(Malformed::TruncatedIp)?;
        if header[0] >> 4 != 6 {
            return Err(Malformed::BadIpHeader);
        }
        // Of a jumbogram (RFC 2675) this is 0, and its headers count as cut off.
        let len = usize::from(be16(header, 4));
        let payload = rest.get(..len).ok_or(Malformed::BadIpLength)?;

        let mut source = [0; 16];
        let mut destination = [0; 16];
        source.copy_from_slice(&header[8..24]);
        destination.copy_from_slice(&header[24..40]);
        self.addresses = Some(Addresses::V6 {
            source: source.into(),
            destination: destination.into(),
        });
        self.next_header = Some(header[6]);
        let (protocol, payload) = self.skip_extensions(header[6], payload)?;
        let hidden = is_passed(protocol) || protocol == extension::AUTHENTICATION;
        if hidden && self.fragment == Fragment::Later {
            return Ok(());
        }
        self.protocol = Some(protocol);
        self.read_l4(protocol, payload)
    }

    /// Walks the extension headers (RFC 8200, 4) and notes whether the packet is a
    /// fragment; returns the protocol behind them and its bytes. That of a later fragment may be an
    /// extension: nothing behind the fragment header can be read.
    #[inline]
    fn skip_extensions<'a>(
        &mut self,
        mut protocol: u8,
        mut payload: &'a [u8],
    ) -> Result<(u8, &'a [u8]), Malformed> {
        for _ in 0..=EXTENSIONS_MAX {
            if !is_passed(protocol) {
                return Ok((protocol, payload));
            }
            let header: &[u8; 8] = payload.first_chunk().ok_or(Malformed::TruncatedExtension)?;
            let size = match protocol {
                extension::FRAGMENT => 8,
                _ => 8 * (usize::from(header[1]) + 1),
            };
            let is_fragment = protocol == extension::FRAGMENT;
            protocol = header[0];
            payload = payload.get(size..).ok_or(Malformed::TruncatedExtension)?;
            if is_fragment {
                self.fragment = fragment(be16(header, 2) >> 3, header[3] & 1 != 0);
                if self.fragment == Fragment::Later {
                    return Ok((protocol, payload));
                }
            }
        }
        Err(Malformed::TooManyExtensions)
    }

    #[inline]
    fn read_l4(&mut self, protocol: u8, payload: &[u8]) -> Result<(), Malformed> {
        if self.fragment == Fragment::Later {
            return Ok(());
        }
        self.l4 = match protocol {
            protocol::TCP => Some(self.read_tcp(payload)?),
            protocol::UDP => {
                let header: &[u8; 8] = payload.first_chunk().ok_or(Malformed::TruncatedL4)?;
                Some(L4::Udp {
                    source: be16(header, 0),
                    destination: be16(header, 2),
                })
            }
            protocol::ICMP => {
                let [kind, code, ..] = *icmp(payload)?;
                Some(L4::Icmp { kind, code })
            }
            protocol::ICMPV6 => {
                let [kind, code, ..] = *icmp(payload)?;
                Some(L4::Icmpv6 { kind, code })
            }
            _ => None,
        };
        Ok(())
    }

    /// RFC 9293, 3.1.
    #[inline]
    fn read_tcp(&self, payload: &[u8]) -> Result<L4, Malformed> {
        let header: &[u8; 20] = payload.first_chunk().ok_or(Malformed::TruncatedL4)?;
        let size = 4 * usize::from(header[12] >> 4);
        if size < header.len() {
            return Err(Malformed::BadL4Header);
        }
        // A first fragment may end among the options.
        if size > payload.len() && self.fragment == Fragment::Whole {
            return Err(Malformed::TruncatedL4);
        }
        Ok(L4::Tcp {
            source: be16(header, 0),
            destination: be16(header, 2),
            flags: header[13],
        })
    }
}

/// Extension headers of IPv6 (RFC 8200, 4; RFC 4302).
mod extension {
    pub const HOP_BY_HOP: u8 = 0;
    pub const ROUTING: u8 = 43;
    pub const FRAGMENT: u8 = 44;
    pub const AUTHENTICATION: u8 = 51;
    pub const DESTINATION: u8 = 60;
}

/// Whether what follows a header is read too. As in nft, what follows an authentication header is
/// not: that is the packet's protocol.
#[inline]
fn is_passed(protocol: u8) -> bool {
    use extension::{DESTINATION, FRAGMENT, HOP_BY_HOP, ROUTING};
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
}

/// The header common to all ICMP and ICMPv6 messages: type, code and checksum.
#[inline]
fn icmp(payload: &[u8]) -> Result<&[u8; 4], Malformed> {
    payload.first_chunk().ok_or(Malformed::TruncatedL4)
}

#[inline]
fn fragment(offset: u16, more: bool) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

/// Whether an ARP packet is all there (RFC 826): its two address lengths say how long it is.
#[inline]
fn check_arp(bytes: &[u8]) -> Result<(), Malformed> {
    let header: &[u8; 8] = bytes.first_chunk().ok_or(Malformed::TruncatedArp)?;
    let size = header.len() + 2 * (usize::from(header[4]) + usize::from(header[5]));
    if bytes.len() < size {
        return Err(Malformed::TruncatedArp);
    }
    Ok(())
}

/// Whether the words of an IPv4 header, its checksum included, sum up to ones (RFC 1071). Words
/// may be taken in the machine's own byte order, and two at a time.
#[inline]
fn ipv4_checksum_holds(header: &[u8; 20], options: &[u8]) -> bool {
    // Apart from the options, which are rare, the number of words is known: no loop.
    let mut total = sum(header);
    if !options.is_empty() {
        total += sum(options);
    }
    // One's complement: 2^16 is 1, so a sum of ones is a multiple of 2^16 - 1. It is never 0, as
    // the header's first byte is not.
    total.is_multiple_of(0xffff)
}

/// Sum of 32-bit words in the machine's byte order.
#[inline(always)]
fn sum(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<4>();
    words
        .iter()
        .map(|word| u64::from(u32::from_ne_bytes(*word)))
        .sum()
}

#[inline]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests;
