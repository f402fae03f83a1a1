//! What the sender of a packet is told that rules reject: an error of ICMP (RFC 792; RFC 1812,
//! 4.3.2; RFC 4443, 2.4), or a reset of its connection (RFC 9293, 3.5.2), as the kernel writes them
//! (`nf_reject_ipv4.c`, `nf_reject_ipv6.c`).

use crate::key::{Addresses, Fragment, Key, Packet, protocol};
use core::net::IpAddr;

/// Bytes of Ethernet's header.
const LINK: usize = 14;
/// Bytes of the headers that are written.
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const ICMP: usize = 8;
/// Most bytes of an error of ICMP (RFC 1812, 4.3.2.3) and of ICMPv6 (RFC 4443, 2.4 c).
const ERROR4_MAX: usize = 576;
const ERROR6_MAX: usize = 1280;
/// Hops that an answer may make (RFC 1340).
const HOPS: u8 = 64;
/// IPv4: the packet may not be cut.
const DONT_FRAGMENT: u8 = 0x40;
/// IPv4: precedence of errors, and what they keep of the packet's own class (RFC 1812, 4.3.2.5).
const INTERNETWORK_CONTROL: u8 = 0xc0;
const KEPT_OF_CLASS: u8 = 0x1e;
/// `destination-unreachable` of ICMP and of ICMPv6.
const UNREACHABLE: u8 = 3;
const UNREACHABLE6: u8 = 1;
/// Messages of ICMPv6 below this one are errors (RFC 4443, 2.1).
const QUESTIONS6: u8 = 128;
/// Flags of TCP.
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Bytes of the longest answer's frame.
pub const ANSWER_MAX: usize = LINK + ERROR6_MAX;

/// What the sender of a packet is told that rules reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// That its destination is unreachable, with the code for each family.
    Unreachable {
        /// The code of ICMP.
        ip: u8,
        /// The code of ICMPv6.
        ip6: u8,
    },
    /// That its connection does not exist.
    Reset,
}

impl Rejection {
    /// Writes the frame of the answer to the packet in `frame`, without addresses of the link; its
    /// length, or none if nobody is to be told. An error comes from the router's address `own`;
    /// `partial` says that the packet's checksum is left to offload.
    pub(super) fn answer(
        self,
        key: &Key,
        frame: &[u8],
        partial: bool,
        own: IpAddr,
        place: &mut [u8; ANSWER_MAX],
    ) -> Option<usize> {
        let packet = key.packet()?;
        let payload = frame.get(packet.transport..packet.end)?;
        let is_first = key.fragment() != Fragment::Later;
        // The sum of a part alone says nothing.
        let is_summed = partial || key.fragment() != Fragment::Whole;
        if !is_first || !may_be_told(&packet) || !is_summed && !is_intact(&packet, payload) {
            return None;
        }
        match self {
            Self::Reset => reset(&packet, payload, place),
            Self::Unreachable { ip, ip6 } => match (packet.addresses, own) {
                (Addresses::V4 { source, .. }, IpAddr::V4(own)) => {
                    let quoted = frame.get(packet.network..packet.end)?;
                    let ends = [own.octets(), source.octets()];
                    unreachable4(ip, quoted, &packet, ends, place)
                }
                (Addresses::V6 { source, .. }, IpAddr::V6(own)) => {
                    let quoted = frame.get(packet.network..packet.end)?;
                    let ends = [own.octets(), source.octets()];
                    unreachable6(ip6, quoted, &packet, ends, place)
                }
                _ => None,
            },
        }
    }
}

/// Whether the sender is one station, and the packet went to one (RFC 1122, 3.2.2).
fn may_be_told(packet: &Packet) -> bool {
    match packet.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let is_nobody = source.octets()[0] == 0 || source.is_loopback();
            let is_many =
                |address: core::net::Ipv4Addr| address.is_multicast() || address.is_broadcast();
            !is_nobody && !is_many(source) && !is_many(destination)
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let is_nobody = source.is_unspecified() || source.is_loopback();
            !is_nobody && !source.is_multicast() && !destination.is_multicast()
        }
    }
}

/// Whether the checksum of a transport header is right, if it has one that is known.
fn is_intact(packet: &Packet, payload: &[u8]) -> bool {
    let covers = match packet.protocol {
        protocol::TCP | protocol::ICMPV6 => true,
        // Nobody has summed it up (RFC 768).
        protocol::UDP if payload.get(6..8) == Some(&[0, 0]) => return true,
        protocol::UDP => true,
        protocol::ICMP => false,
        _ => return true,
    };
    let pseudo = match packet.addresses {
        _ if !covers => 0,
        Addresses::V4 {
            source,
            destination,
        } => {
            let ends = [source.octets(), destination.octets()];
            pseudo(packet.protocol, payload.len(), &ends)
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let ends = [source.octets(), destination.octets()];
            pseudo(packet.protocol, payload.len(), &ends)
        }
    };
    folded(pseudo + sum(payload)) == u16::MAX
}

/// The sum of 16-bit words (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words = words
        .iter()
        .map(|word| u64::from(u16::from_be_bytes(*word)));
    let last = rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    words.sum::<u64>() + last
}

fn folded(mut sum: u64) -> u16 {
    for _ in 0..3 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The sum of a pseudo header (RFC 9293, 3.1; RFC 8200, 8.1).
fn pseudo<const N: usize>(protocol: u8, length: usize, ends: &[[u8; N]; 2]) -> u64 {
    ends.iter().map(|end| sum(end)).sum::<u64>() + u64::from(protocol) + length as u64
}

/// Puts the checksum of all of `bytes` into its place, which is zero.
fn complete(bytes: &mut [u8], at: usize, pseudo: u64) {
    let sum = !folded(pseudo + sum(bytes));
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

/// A reset, which the other side takes for one of its connection.
fn reset(packet: &Packet, segment: &[u8], place: &mut [u8; ANSWER_MAX]) -> Option<usize> {
    let header: &[u8; TCP] = segment.first_chunk()?;
    let flags = header[13];
    if packet.protocol != protocol::TCP || flags & RST != 0 {
        return None;
    }
    let number = |at: usize| -> u32 {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let (sequence, acknowledged, flags) = match flags & ACK {
        0 => {
            let data = segment
                .len()
                .saturating_sub(usize::from(header[12] >> 4) * 4);
            let counted = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
            let behind = number(4).wrapping_add(data as u32).wrapping_add(counted);
            (0, behind, RST | ACK)
        }
        _ => (number(8), 0, RST),
    };
    let mut answer = [0; TCP];
    answer[..2].copy_from_slice(&header[2..4]);
    answer[2..4].copy_from_slice(&header[..2]);
    answer[4..8].copy_from_slice(&sequence.to_be_bytes());
    answer[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    answer[12..14].copy_from_slice(&[(TCP as u8 / 4) << 4, flags]);
    match packet.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            let ends = [destination.octets(), source.octets()];
            complete(&mut answer, 16, pseudo(protocol::TCP, TCP, &ends));
            let network = network4(place, (0, DONT_FRAGMENT, protocol::TCP), TCP, ends);
            place[network..network + TCP].copy_from_slice(&answer);
            Some(network + TCP)
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            let ends = [destination.octets(), source.octets()];
            complete(&mut answer, 16, pseudo(protocol::TCP, TCP, &ends));
            let network = network6(place, protocol::TCP, TCP, ends);
            place[network..network + TCP].copy_from_slice(&answer);
            Some(network + TCP)
        }
    }
}

/// Writes the headers in front of `length` bytes; where those begin.
fn network4(
    place: &mut [u8; ANSWER_MAX],
    (class, flags, protocol): (u8, u8, u8),
    length: usize,
    ends: [[u8; 4]; 2],
) -> usize {
    place[..12].fill(0);
    place[12..LINK].copy_from_slice(&[8, 0]);
    let header = &mut place[LINK..LINK + IPV4];
    let [high, low] = ((IPV4 + length) as u16).to_be_bytes();
    header[..10].copy_from_slice(&[0x45, class, high, low, 0, 0, flags, 0, HOPS, protocol]);
    header[10..12].fill(0);
    header[12..].copy_from_slice(ends.as_flattened());
    complete(header, 10, 0);
    LINK + IPV4
}

/// The same of IPv6.
fn network6(
    place: &mut [u8; ANSWER_MAX],
    protocol: u8,
    length: usize,
    ends: [[u8; 16]; 2],
) -> usize {
    place[..12].fill(0);
    place[12..LINK].copy_from_slice(&[0x86, 0xdd]);
    let header = &mut place[LINK..LINK + IPV6];
    let [high, low] = (length as u16).to_be_bytes();
    header[..8].copy_from_slice(&[0x60, 0, 0, 0, high, low, protocol, HOPS]);
    header[8..].copy_from_slice(ends.as_flattened());
    LINK + IPV6
}

/// An error of ICMP, which quotes as much of the packet as it may.
fn unreachable4(
    code: u8,
    quoted: &[u8],
    packet: &Packet,
    ends: [[u8; 4]; 2],
    place: &mut [u8; ANSWER_MAX],
) -> Option<usize> {
    let kind = quoted.get(packet.transport - packet.network);
    // RFC 1812, 4.3.2.7: no error about an error, or about what cannot be told from one.
    let is_error = |kind: &u8| matches!(kind, 3..=5 | 11 | 12 | 19..);
    if packet.protocol == protocol::ICMP && kind.is_none_or(is_error) {
        return None;
    }
    let quoted = quoted.get(..ERROR4_MAX - IPV4 - ICMP).unwrap_or(quoted);
    let class = quoted.get(1)? & KEPT_OF_CLASS | INTERNETWORK_CONTROL;
    let length = ICMP + quoted.len();
    let at = network4(place, (class, 0, protocol::ICMP), length, ends);
    write_error(&mut place[at..at + length], [UNREACHABLE, code], quoted, 0);
    Some(at + length)
}

/// The same of ICMPv6.
fn unreachable6(
    code: u8,
    quoted: &[u8],
    packet: &Packet,
    ends: [[u8; 16]; 2],
    place: &mut [u8; ANSWER_MAX],
) -> Option<usize> {
    let kind = quoted.get(packet.transport - packet.network);
    // RFC 4443, 2.4 e.
    if packet.protocol == protocol::ICMPV6 && kind.is_none_or(|kind| *kind < QUESTIONS6) {
        return None;
    }
    let quoted = quoted.get(..ERROR6_MAX - IPV6 - ICMP).unwrap_or(quoted);
    let length = ICMP + quoted.len();
    let at = network6(place, protocol::ICMPV6, length, ends);
    let pseudo = pseudo(protocol::ICMPV6, length, &ends);
    let place = &mut place[at..at + length];
    write_error(place, [UNREACHABLE6, code], quoted, pseudo);
    Some(at + length)
}

fn write_error(place: &mut [u8], kind: [u8; 2], quoted: &[u8], pseudo: u64) {
    let (header, body) = place.split_at_mut(ICMP);
    header.copy_from_slice(&[kind[0], kind[1], 0, 0, 0, 0, 0, 0]);
    body.copy_from_slice(quoted);
    complete(place, 2, pseudo);
}
