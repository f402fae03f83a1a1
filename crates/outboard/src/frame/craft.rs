//! From what a description says to the bytes of a frame.

use super::MacAddress;
use super::description::{Content, Description};
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, EtherType, Ethernet2Header, Icmpv4Header, Icmpv4Type,
    Icmpv6Header, Icmpv6Type, IpFragOffset, IpNumber, Ipv4Header, Ipv6FragmentHeader, Ipv6Header,
    SingleVlanHeader, TcpHeader, UdpHeader, VlanId,
};
use nf::{Addresses, Fragment, L4, ether_type};
use std::net::Ipv4Addr;

/// Shortest frame on a wire, without its check sequence (IEEE 802.3, 3.2.7).
const FRAME_BYTES_MIN: usize = 60;
const BROADCAST: MacAddress = [0xff; 6];
/// Addresses of nobody, from the space that is administered locally.
const SOURCE: MacAddress = [2, 0, 0, 0, 0, 1];
const DESTINATION: MacAddress = [2, 0, 0, 0, 0, 2];
/// Where a later fragment begins, in units of eight bytes: behind a first one of 1480.
const LATER_OFFSET: IpFragOffset = match IpFragOffset::try_new(185) {
    Ok(offset) => offset,
    Err(_) => panic!("it has 13 bits"),
};
/// Hops left. What asks for neighbours must have all (RFC 4861, 7.1.1).
const HOPS: u8 = 64;
const HOPS_OF_NEIGHBOURS: u8 = 255;
/// A TCP window that lets the other side begin.
const WINDOW: u16 = 64_000;
/// Why lengths fit their fields: the parser takes none beyond [`super::LENGTH_MAX`].
const FITS: &str = "a packet of at most 65,535 bytes";

impl Description {
    /// Bytes of all headers, and of what a message of ICMP must have behind its own.
    pub(super) fn headers_size(&self) -> usize {
        let tag = self.vlan.map_or(0, |_| SingleVlanHeader::LEN);
        let content = match &self.content {
            Content::Arp { .. } => ArpEthIpv4Packet::LEN,
            Content::Other { .. } => 0,
            Content::Ip {
                addresses,
                fragment,
                l4,
                ..
            } => {
                ip_header_size(addresses, *fragment)
                    + transport_size(l4.as_ref())
                    + body_size(l4.as_ref())
            }
        };
        Ethernet2Header::LEN + tag + content
    }

    /// The frame. What no header says is zeros.
    pub(super) fn craft(&self) -> Vec<u8> {
        let mut frame = self.link_headers();
        match &self.content {
            Content::Ip {
                addresses,
                fragment,
                protocol,
                l4,
            } => {
                let payload = vec![0; self.payload_size(*fragment, l4.as_ref())];
                let transport = transport(l4.as_ref(), addresses, &payload);
                frame.extend(ip_header(
                    addresses,
                    *fragment,
                    *protocol,
                    l4.as_ref(),
                    transport.len(),
                ));
                frame.extend(transport);
            }
            Content::Arp {
                sender,
                target,
                is_at,
            } => frame.extend(self.arp(*sender, *target, *is_at).to_bytes()),
            Content::Other { .. } => {}
        }
        let length = self.length.unwrap_or(frame.len().max(FRAME_BYTES_MIN));
        frame.resize(length, 0);
        frame
    }

    fn link_headers(&self) -> Vec<u8> {
        let ether_type = EtherType(match &self.content {
            Content::Arp { .. } => ether_type::ARP,
            Content::Ip { addresses, .. } => match addresses {
                Addresses::V4 { .. } => ether_type::IPV4,
                Addresses::V6 { .. } => ether_type::IPV6,
            },
            Content::Other { ether_type } => *ether_type,
        });
        let outermost = match self.vlan {
            Some(_) => EtherType::VLAN_TAGGED_FRAME,
            None => ether_type,
        };
        let ethernet = Ethernet2Header {
            source: self.source_mac(),
            destination: self.destination_mac(),
            ether_type: outermost,
        };
        let mut headers = ethernet.to_bytes().to_vec();
        if let Some(id) = self.vlan {
            let tag = SingleVlanHeader {
                vlan_id: VlanId::try_new(id).expect("the parser has checked it"),
                ether_type,
                ..SingleVlanHeader::default()
            };
            headers.extend(tag.to_bytes());
        }
        headers
    }

    fn source_mac(&self) -> MacAddress {
        let usual = match &self.content {
            Content::Arp { is_at, .. } => is_at.unwrap_or(SOURCE),
            Content::Ip { .. } | Content::Other { .. } => SOURCE,
        };
        self.source.unwrap_or(usual)
    }

    fn destination_mac(&self) -> MacAddress {
        let usual = match &self.content {
            Content::Arp { is_at: None, .. } => BROADCAST,
            Content::Ip { addresses, .. } => mac_of(addresses),
            Content::Arp { .. } | Content::Other { .. } => DESTINATION,
        };
        self.destination.unwrap_or(usual)
    }

    /// Bytes behind the transport header.
    fn payload_size(&self, fragment: Fragment, l4: Option<&L4>) -> usize {
        let body = body_size(l4);
        match self.length {
            Some(length) => length - self.headers_size() + body,
            // All fragments but the last are whole units of eight bytes (RFC 791, 3.2).
            None if fragment == Fragment::First => {
                let transport = transport_size(l4);
                (transport + body).max(1).next_multiple_of(8) - transport
            }
            None => body,
        }
    }

    /// RFC 826.
    fn arp(
        &self,
        sender: Ipv4Addr,
        target: Ipv4Addr,
        is_at: Option<MacAddress>,
    ) -> ArpEthIpv4Packet {
        let (operation, sender_mac, target_mac) = match is_at {
            None => (ArpOperation::REQUEST, self.source_mac(), [0; 6]),
            Some(mac) => (ArpOperation::REPLY, mac, self.destination_mac()),
        };
        ArpEthIpv4Packet {
            operation,
            sender_mac,
            sender_ipv4: sender.octets(),
            target_mac,
            target_ipv4: target.octets(),
        }
    }
}

/// The MAC address to which a packet goes (RFC 1112, 6.4; RFC 2464, 7).
fn mac_of(addresses: &Addresses) -> MacAddress {
    match addresses {
        Addresses::V4 { destination, .. } if destination.is_broadcast() => BROADCAST,
        Addresses::V4 { destination, .. } if destination.is_multicast() => {
            let [_, b, c, d] = destination.octets();
            [0x01, 0x00, 0x5e, b & 0x7f, c, d]
        }
        Addresses::V6 { destination, .. } if destination.is_multicast() => {
            let [.., a, b, c, d] = destination.octets();
            [0x33, 0x33, a, b, c, d]
        }
        _ => DESTINATION,
    }
}

fn ip_header_size(addresses: &Addresses, fragment: Fragment) -> usize {
    match addresses {
        Addresses::V4 { .. } => Ipv4Header::MIN_LEN,
        Addresses::V6 { .. } if fragment == Fragment::Whole => Ipv6Header::LEN,
        Addresses::V6 { .. } => Ipv6Header::LEN + Ipv6FragmentHeader::LEN,
    }
}

fn transport_size(l4: Option<&L4>) -> usize {
    match l4 {
        Some(L4::Tcp { .. }) => TcpHeader::MIN_LEN,
        Some(L4::Udp { .. }) => UdpHeader::LEN,
        Some(L4::Icmp { .. }) => Icmpv4Header::MIN_LEN,
        Some(L4::Icmpv6 { .. }) => Icmpv6Header::MIN_LEN,
        None => 0,
    }
}

/// Bytes that a message of ICMP has behind its first eight, where its type says how many: the
/// times (RFC 792), group (RFC 2710, 3), timers or targets (RFC 4861, 4).
fn body_size(l4: Option<&L4>) -> usize {
    match l4 {
        Some(L4::Icmp { kind: 13 | 14, .. }) => 12,
        Some(L4::Icmpv6 { kind: 134, .. }) => 8,
        Some(L4::Icmpv6 {
            kind: 130..=132 | 135 | 136,
            ..
        }) => 16,
        Some(L4::Icmpv6 { kind: 137, .. }) => 32,
        _ => 0,
    }
}

/// The IP header, and IPv6's fragment header, in front of `size` bytes.
fn ip_header(
    addresses: &Addresses,
    fragment: Fragment,
    protocol: u8,
    l4: Option<&L4>,
    size: usize,
) -> Vec<u8> {
    let (offset, more) = match fragment {
        Fragment::Whole => (IpFragOffset::ZERO, false),
        Fragment::First => (IpFragOffset::ZERO, true),
        Fragment::Later => (LATER_OFFSET, false),
    };
    let size = u16::try_from(size).expect(FITS);
    match addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let mut header = Ipv4Header {
                total_len: Ipv4Header::MIN_LEN_U16 + size,
                dont_fragment: fragment == Fragment::Whole,
                more_fragments: more,
                fragment_offset: offset,
                time_to_live: HOPS,
                protocol: IpNumber(protocol),
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv4Header::default()
            };
            header.header_checksum = header.calc_header_checksum();
            header.to_bytes().to_vec()
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let extension = (fragment != Fragment::Whole)
                .then(|| Ipv6FragmentHeader::new(IpNumber(protocol), offset, more, 0).to_bytes());
            let next_header = match extension {
                Some(_) => IpNumber::IPV6_FRAGMENTATION_HEADER,
                None => IpNumber(protocol),
            };
            let header = Ipv6Header {
                payload_length: size + extension.map_or(0, |bytes| bytes.len() as u16),
                next_header,
                hop_limit: hops(l4),
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            };
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend(extension.iter().flatten());
            bytes
        }
    }
}

fn hops(l4: Option<&L4>) -> u8 {
    match l4 {
        Some(L4::Icmpv6 {
            kind: 133..=137, ..
        }) => HOPS_OF_NEIGHBOURS,
        _ => HOPS,
    }
}

/// The transport header with its checksum, and `payload` behind it.
fn transport(l4: Option<&L4>, addresses: &Addresses, payload: &[u8]) -> Vec<u8> {
    let mut bytes = match l4 {
        None => Vec::new(),
        Some(L4::Tcp {
            source,
            destination,
            flags,
        }) => tcp(*source, *destination, *flags, addresses, payload),
        Some(L4::Udp {
            source,
            destination,
        }) => udp(*source, *destination, addresses, payload),
        Some(L4::Icmp { kind, code }) => {
            let message = Icmpv4Type::Unknown {
                type_u8: *kind,
                code_u8: *code,
                bytes5to8: [0; 4],
            };
            Icmpv4Header::with_checksum(message, payload)
                .to_bytes()
                .to_vec()
        }
        Some(L4::Icmpv6 { kind, code }) => icmpv6(*kind, *code, addresses, payload),
    };
    bytes.extend_from_slice(payload);
    bytes
}

fn tcp(source: u16, destination: u16, flags: u8, addresses: &Addresses, payload: &[u8]) -> Vec<u8> {
    let [fin, syn, rst, psh, ack, urg, ece, cwr] = std::array::from_fn(|bit| flags >> bit & 1 == 1);
    let mut header = TcpHeader {
        fin,
        syn,
        rst,
        psh,
        ack,
        urg,
        ece,
        cwr,
        ..TcpHeader::new(source, destination, 0, WINDOW)
    };
    let checksum = match addresses {
        Addresses::V4 {
            source,
            destination,
        } => header.calc_checksum_ipv4_raw(source.octets(), destination.octets(), payload),
        Addresses::V6 {
            source,
            destination,
        } => header.calc_checksum_ipv6_raw(source.octets(), destination.octets(), payload),
    };
    header.checksum = checksum.expect(FITS);
    header.to_bytes().to_vec()
}

fn udp(source: u16, destination: u16, addresses: &Addresses, payload: &[u8]) -> Vec<u8> {
    let mut header = UdpHeader {
        source_port: source,
        destination_port: destination,
        length: u16::try_from(UdpHeader::LEN + payload.len()).expect(FITS),
        checksum: 0,
    };
    let checksum = match addresses {
        Addresses::V4 {
            source,
            destination,
        } => header.calc_checksum_ipv4_raw(source.octets(), destination.octets(), payload),
        Addresses::V6 {
            source,
            destination,
        } => header.calc_checksum_ipv6_raw(source.octets(), destination.octets(), payload),
    };
    header.checksum = checksum.expect(FITS);
    header.to_bytes().to_vec()
}

fn icmpv6(kind: u8, code: u8, addresses: &Addresses, payload: &[u8]) -> Vec<u8> {
    let Addresses::V6 {
        source,
        destination,
    } = addresses
    else {
        unreachable!("the parser has checked it");
    };
    let message = Icmpv6Type::Unknown {
        type_u8: kind,
        code_u8: code,
        bytes5to8: [0; 4],
    };
    let header =
        Icmpv6Header::with_checksum(message, source.octets(), destination.octets(), payload);
    header.expect(FITS).to_bytes().to_vec()
}
