//! The one reading of a frame (IEEE 802.1Q, RFC 826, RFC 791, RFC 8200, RFC 9293, RFC 768,
//! RFC 792, RFC 4443).

mod first;

use crate::fields::{ABSENT, NARROW_OF_FRAME, Slot};
use crate::malformed::Malformed;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// What rules decide on: each header field of a frame, read once. It is laid out for look-ups;
/// [`Key::fields`] says what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// By number of the slot; a power of two of them, so that a mask bounds the number.
    narrow: [u32; NARROW_OF_FRAME.next_power_of_two()],
    destination: [u8; 6],
    source: [u8; 6],
    ether_type: u16,
    fragment: Fragment,
    /// Addresses of IPv6: source, then destination.
    ip6: [[u8; 16]; 2],
    /// Of IP: bytes from the network header to the transport header, and to the end.
    transport: u32,
    end: u32,
    /// Of a fragment: what it has in common with the other parts of its packet.
    identification: u32,
}

/// The IP packet in a frame: what tracking needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) addresses: Addresses,
    pub(crate) protocol: u8,
    /// Identifier of the VLAN, or 0.
    pub(crate) vlan: u16,
    /// Offsets in the frame: the IP header, what is behind it and its extensions, and the end.
    pub(crate) network: usize,
    pub(crate) transport: usize,
    pub(crate) end: usize,
}

/// EtherTypes below this one are lengths (IEEE 802.3, 3.2.6).
const ETHER_TYPE_MIN: u16 = 0x600;
/// ETH_P_802_2, what the kernel has as the protocol (`meta protocol`) of such a frame.
const LLC: u16 = 4;

/// The fields of a [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
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
    /// Of no frame.
    pub const EMPTY: Self = Self {
        narrow: [ABSENT; NARROW_OF_FRAME.next_power_of_two()],
        destination: [0; 6],
        source: [0; 6],
        ether_type: 0,
        fragment: Fragment::Whole,
        ip6: [[0; 16]; 2],
        transport: 0,
        end: 0,
        identification: 0,
    };

    /// Reads `frame`, from its Ethernet header on. Bytes behind the IP packet are padding.
    ///
    /// The checksum of the IPv4 header is verified; those of TCP, UDP and ICMP are left to the
    /// receiver, since offloads may not have filled them in.
    ///
    /// # Errors
    /// [`Malformed`], if a header is cut off or contradicts itself.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let mut key = Self::EMPTY;
        key.read(frame)?;
        Ok(key)
    }

    /// The same in place, whatever was there: to move a key out of a result costs as much as a few
    /// rules.
    ///
    /// # Errors
    /// As [`Self::parse`]; the key is then of no frame.
    #[inline]
    pub fn read(&mut self, frame: &[u8]) -> Result<(), Malformed> {
        let (ethernet, rest) = frame
            .split_first_chunk::<ETHERNET_SIZE>()
            .ok_or(Malformed::Runt)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, high, low] = *ethernet;
        let link_type = u16::from_be_bytes([high, low]);
        self.narrow = Self::EMPTY.narrow;
        self.ip6 = Self::EMPTY.ip6;
        self.fragment = Fragment::Whole;
        self.destination = [d0, d1, d2, d3, d4, d5];
        self.source = [s0, s1, s2, s3, s4, s5];
        self.set(Slot::LinkType, link_type);
        let (mut ether_type, mut payload) = (link_type, rest);
        if matches!(link_type, ether_type::VLAN | ether_type::SERVICE_VLAN) {
            let (tag, rest) = rest
                .split_first_chunk::<4>()
                .ok_or(Malformed::TruncatedVlan)?;
            self.set(Slot::VlanId, be16(tag, 0) & 0xfff);
            (ether_type, payload) = (be16(tag, 2), rest);
        }
        self.ether_type = ether_type;
        self.set(Slot::Protocol, ether_type);
        match ether_type {
            ether_type::IPV4 => self.read_ipv4(payload),
            ether_type::IPV6 => self.read_ipv6(payload),
            ether_type::ARP => check_arp(payload),
            ..ETHER_TYPE_MIN => {
                self.set(Slot::Protocol, LLC);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn set(&mut self, slot: Slot, value: impl Into<u32>) {
        self.narrow[slot as usize] = value.into();
    }

    /// The value of a narrow field, by its number.
    #[inline]
    pub(crate) fn narrow(&self, slot: u8) -> u32 {
        self.narrow[usize::from(slot) % NARROW_OF_FRAME.next_power_of_two()]
    }

    /// The value of a wide field; 0 for an address of IPv6 in a frame without one, for it is never
    /// compared without [`Slot::Protocol`].
    pub(crate) fn wide(&self, slot: Slot) -> u128 {
        let mac = |[a, b, c, d, e, f]: [u8; 6]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        match slot {
            Slot::EtherSource => mac(self.source).into(),
            Slot::EtherDestination => mac(self.destination).into(),
            Slot::Ip6Source => u128::from_be_bytes(self.ip6[0]),
            Slot::Ip6Destination => u128::from_be_bytes(self.ip6[1]),
            _ => 0,
        }
    }

    /// One end of the packet has another address from now on, and another port if there is one.
    pub(crate) fn translate(&mut self, is_source: bool, address: IpAddr, port: Option<u16>) {
        let (ip4, transport, ip6) = match is_source {
            true => (Slot::Ip4Source, Slot::SourcePort, 0),
            false => (Slot::Ip4Destination, Slot::DestinationPort, 1),
        };
        match address {
            IpAddr::V4(address) => self.set(ip4, address.to_bits()),
            IpAddr::V6(address) => self.ip6[ip6] = address.octets(),
        }
        if let Some(port) = port {
            self.set(transport, port);
        }
    }

    /// What is in it.
    pub fn fields(&self) -> Fields {
        let get = |slot: Slot| Some(self.narrow[slot as usize]).filter(|v| *v != ABSENT);
        let short = |slot| get(slot).map(|value| value as u16);
        let byte = |slot| get(slot).map(|value| value as u8);
        let protocol = byte(Slot::L4Protocol);
        let ports = short(Slot::SourcePort).zip(short(Slot::DestinationPort));
        let (flags, kind) = (byte(Slot::TcpFlags), byte(Slot::IcmpType));
        let code = byte(Slot::IcmpCode).unwrap_or_default();
        let l4 = match (ports, flags, kind) {
            (Some((source, destination)), Some(flags), _) => Some(L4::Tcp {
                source,
                destination,
                flags,
            }),
            (Some((source, destination)), None, _) => Some(L4::Udp {
                source,
                destination,
            }),
            (None, _, Some(kind)) if protocol == Some(protocol::ICMPV6) => {
                Some(L4::Icmpv6 { kind, code })
            }
            (None, _, Some(kind)) => Some(L4::Icmp { kind, code }),
            (None, _, None) => None,
        };
        let ip4 = |slot: Slot| Ipv4Addr::from_bits(self.narrow[slot as usize]);
        let addresses = match self.ether_type {
            ether_type::IPV4 => Some(Addresses::V4 {
                source: ip4(Slot::Ip4Source),
                destination: ip4(Slot::Ip4Destination),
            }),
            ether_type::IPV6 => Some(Addresses::V6 {
                source: self.ip6[0].into(),
                destination: self.ip6[1].into(),
            }),
            _ => None,
        };
        Fields {
            destination: self.destination,
            source: self.source,
            link_type: self.narrow[Slot::LinkType as usize] as u16,
            vlan: short(Slot::VlanId),
            ether_type: self.ether_type,
            addresses,
            next_header: byte(Slot::NextHeader),
            protocol,
            fragment: self.fragment,
            l4,
        }
    }

    /// Where the bytes begin that nft's counters count on a bridge: behind the Ethernet header and
    /// its tag.
    #[inline]
    pub fn network_offset(&self) -> usize {
        ETHERNET_SIZE
            + if self.narrow[Slot::VlanId as usize] == ABSENT {
                0
            } else {
                4
            }
    }

    /// The IP packet; none if there is none, or if it does not say which protocol it is.
    #[inline]
    pub(crate) fn packet(&self) -> Option<Packet> {
        let addresses = match self.ether_type {
            ether_type::IPV4 => Addresses::V4 {
                source: Ipv4Addr::from_bits(self.narrow[Slot::Ip4Source as usize]),
                destination: Ipv4Addr::from_bits(self.narrow[Slot::Ip4Destination as usize]),
            },
            ether_type::IPV6 => Addresses::V6 {
                source: self.ip6[0].into(),
                destination: self.ip6[1].into(),
            },
            _ => return None,
        };
        let protocol = self.narrow[Slot::L4Protocol as usize];
        let vlan = self.narrow[Slot::VlanId as usize];
        let network = self.network_offset();
        Some(Packet {
            addresses,
            protocol: u8::try_from(protocol).ok()?,
            vlan: if vlan == ABSENT { 0 } else { vlan as u16 },
            network,
            transport: network + self.transport as usize,
            end: network + self.end as usize,
        })
    }

    /// Whether it is TCP.
    pub(crate) fn is_tcp(&self) -> bool {
        self.narrow[Slot::L4Protocol as usize] == u32::from(protocol::TCP)
    }

    /// Flags of a segment of TCP; all of them if the frame has none.
    #[inline(always)]
    pub(crate) fn tcp_flags(&self) -> u8 {
        self.narrow[Slot::TcpFlags as usize] as u8
    }

    /// Identifier of the VLAN, or 0.
    #[inline(always)]
    pub(crate) fn vlan(&self) -> u16 {
        match self.narrow[Slot::VlanId as usize] {
            ABSENT => 0,
            vlan => vlan as u16,
        }
    }

    /// Bytes of the IP packet.
    #[inline(always)]
    pub(crate) fn packet_length(&self) -> u32 {
        self.end
    }

    /// Where in the frame the payload of the IP packet is.
    #[inline(always)]
    pub(crate) fn payload(&self) -> core::ops::Range<usize> {
        let network = self.network_offset();
        network + self.transport as usize..network + self.end as usize
    }

    /// Source and destination of IPv4.
    #[inline(always)]
    pub(crate) fn ends4(&self) -> Option<[[u8; 4]; 2]> {
        let ends = [Slot::Ip4Source, Slot::Ip4Destination];
        let ends = ends.map(|slot| self.narrow[slot as usize].to_be_bytes());
        (self.ether_type == ether_type::IPV4).then_some(ends)
    }

    /// Source and destination of IPv6, if that is what the frame is.
    #[inline(always)]
    pub(crate) fn ends6(&self) -> [[u8; 16]; 2] {
        self.ip6
    }

    /// Which part of an IP packet the frame is.
    #[inline]
    pub(crate) fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// Of a fragment: what it has in common with the other parts of its packet.
    pub(crate) fn identification(&self) -> u32 {
        self.identification
    }

    /// RFC 791, 3.1.
    #[inline]
    fn read_ipv4(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let header: &[u8; 20] = bytes.first_chunk().ok_or(Malformed::TruncatedIp)?;
        let options = match header[0] {
            IPV4_WITHOUT_OPTIONS => &[],
            _ => ipv4_options(bytes)?,
        };
        let header_size = header.len() + options.len();
        if !ipv4_checksum_holds(header, options) {
            return Err(Malformed::BadIpChecksum);
        }
        let total = usize::from(be16(header, 2));
        let payload = bytes
            .get(header_size..total)
            .ok_or(Malformed::BadIpLength)?;

        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
        self.set(Slot::Ip4Source, u32::from_be_bytes([s0, s1, s2, s3]));
        self.set(Slot::Ip4Destination, u32::from_be_bytes([d0, d1, d2, d3]));
        self.set(Slot::NextHeader, header[9]);
        self.set(Slot::L4Protocol, header[9]);
        (self.transport, self.end) = (header_size as u32, total as u32);
        let flags_and_offset = be16(header, 6);
        if flags_and_offset & 0x3fff != 0 {
            self.fragment = fragment(flags_and_offset & 0x1fff, flags_and_offset & 0x2000 != 0);
            self.identification = be16(header, 4).into();
        }
        self.read_l4(header[9], payload)
    }

    /// RFC 8200, 3 and 4. Not inlined, so that what is common to both IPs is, in each.
    #[inline(never)]
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

        let (source, destination) = (&header[8..24], &header[24..40]);
        self.ip6[0].copy_from_slice(source);
        self.ip6[1].copy_from_slice(destination);
        self.set(Slot::NextHeader, header[6]);
        let (protocol, payload) = self.skip_extensions(header[6], payload)?;
        self.end = (header.len() + len) as u32;
        self.transport = self.end - payload.len() as u32;
        if is_passed(protocol) || protocol == extension::AUTHENTICATION {
            if self.fragment == Fragment::Later {
                return Ok(());
            }
            // As in nft, its length must be there, and the rest of it need not.
            payload
                .first_chunk::<2>()
                .ok_or(Malformed::TruncatedExtension)?;
        }
        self.set(Slot::L4Protocol, protocol);
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
                self.identification =
                    u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                if self.fragment == Fragment::Later {
                    return Ok((protocol, payload));
                }
            }
        }
        Err(Malformed::TooManyExtensions)
    }

    #[inline(always)]
    fn read_l4(&mut self, protocol: u8, payload: &[u8]) -> Result<(), Malformed> {
        if self.fragment == Fragment::Later {
            return Ok(());
        }
        match protocol {
            protocol::TCP => self.read_tcp(payload),
            protocol::UDP => {
                let header: &[u8; 8] = payload.first_chunk().ok_or(Malformed::TruncatedL4)?;
                self.set_ports(be16(header, 0), be16(header, 2));
                Ok(())
            }
            protocol::ICMP | protocol::ICMPV6 => {
                // Type, code and checksum are common to all messages.
                let header: &[u8; 4] = payload.first_chunk().ok_or(Malformed::TruncatedL4)?;
                self.set(Slot::IcmpType, header[0]);
                self.set(Slot::IcmpCode, header[1]);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// RFC 9293, 3.1.
    #[inline(always)]
    fn read_tcp(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let header: &[u8; 20] = payload.first_chunk().ok_or(Malformed::TruncatedL4)?;
        let size = 4 * usize::from(header[12] >> 4);
        if size < header.len() {
            return Err(Malformed::BadL4Header);
        }
        // A first fragment may end among the options.
        if size > payload.len() && self.fragment == Fragment::Whole {
            return Err(Malformed::TruncatedL4);
        }
        self.set_ports(be16(header, 0), be16(header, 2));
        self.set(Slot::TcpFlags, header[13]);
        Ok(())
    }

    #[inline]
    fn set_ports(&mut self, source: u16, destination: u16) {
        self.set(Slot::SourcePort, source);
        self.set(Slot::DestinationPort, destination);
    }
}

/// The protocol behind the extensions of an IPv6 packet that is quoted, perhaps cut off, and its
/// bytes; none if they are not there.
pub(crate) fn quoted_transport(next_header: u8, bytes: &[u8]) -> Option<(u8, &[u8])> {
    let mut key = Key::EMPTY;
    let found = key.skip_extensions(next_header, bytes).ok()?;
    (key.fragment != Fragment::Later).then_some(found)
}

impl From<&Fields> for Key {
    /// A key as if of a frame with these fields, whether or not there can be one.
    fn from(fields: &Fields) -> Self {
        let mut key = Self::EMPTY;
        (key.destination, key.source) = (fields.destination, fields.source);
        (key.ether_type, key.fragment) = (fields.ether_type, fields.fragment);
        key.set(Slot::LinkType, fields.link_type);
        let protocol = match fields.ether_type {
            ..ETHER_TYPE_MIN => LLC,
            ether_type => ether_type,
        };
        key.set(Slot::Protocol, protocol);
        let mut set = |slot: Slot, value: Option<u16>| {
            key.narrow[slot as usize] = value.map_or(ABSENT, u32::from);
        };
        set(Slot::VlanId, fields.vlan);
        set(Slot::NextHeader, fields.next_header.map(u16::from));
        set(Slot::L4Protocol, fields.protocol.map(u16::from));
        match fields.addresses {
            Some(Addresses::V4 {
                source,
                destination,
            }) => {
                key.set(Slot::Ip4Source, source);
                key.set(Slot::Ip4Destination, destination);
            }
            Some(Addresses::V6 {
                source,
                destination,
            }) => key.ip6 = [source.octets(), destination.octets()],
            None => {}
        }
        match fields.l4 {
            Some(L4::Tcp {
                source,
                destination,
                flags,
            }) => {
                key.set_ports(source, destination);
                key.set(Slot::TcpFlags, flags);
            }
            Some(L4::Udp {
                source,
                destination,
            }) => key.set_ports(source, destination),
            Some(L4::Icmp { kind, code } | L4::Icmpv6 { kind, code }) => {
                key.set(Slot::IcmpType, kind);
                key.set(Slot::IcmpCode, code);
            }
            None => {}
        }
        key
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

#[inline]
fn fragment(offset: u16, more: bool) -> Fragment {
    match (offset, more) {
        (0, false) => Fragment::Whole,
        (0, true) => Fragment::First,
        _ => Fragment::Later,
    }
}

/// First byte of an IPv4 header of five words.
const IPV4_WITHOUT_OPTIONS: u8 = 0x45;

/// The options of an IPv4 header.
#[cold]
fn ipv4_options(bytes: &[u8]) -> Result<&[u8], Malformed> {
    let first = bytes.first().copied().unwrap_or_default();
    let size = 4 * usize::from(first & 0xf);
    if first >> 4 != 4 || size < 20 {
        return Err(Malformed::BadIpHeader);
    }
    bytes.get(20..size).ok_or(Malformed::TruncatedIp)
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
pub(crate) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
pub(crate) mod tests;
