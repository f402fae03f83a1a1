//! Translation of a frame in place: addresses, ports or identifiers, and every checksum over them,
//! by what has changed (RFC 1624, eqn. 3).
//!
//! Where a checksum is left to offload, its field has the sum of the pseudo header, and the rest is
//! added later: then addresses change the sum, and ports do not.

use super::packet;
use crate::key::{self, Addresses, protocol};

/// Which end of a packet is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manip {
    Source,
    Destination,
}

impl Manip {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// What an end of a packet is called from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<const SIZE: usize> {
    /// Four bytes of IPv4, or sixteen of IPv6.
    pub(super) address: [u8; SIZE],
    /// Its port, or the identifier of a question of ICMP; none of other protocols, and none in a
    /// later fragment.
    pub(super) port: Option<u16>,
}

/// What has changed, as a sum of words in one's complement. Words may be taken in the machine's own
/// byte order, and two at a time (RFC 1071, 2).
#[derive(Clone, Copy, Default)]
struct Change(u64);

impl Change {
    #[inline(always)]
    fn add<const SIZE: usize>(&mut self, old: &[u8; SIZE], new: &[u8; SIZE]) {
        let ((old, last), (new, new_last)) = (old.as_chunks::<4>(), new.as_chunks::<4>());
        for (old, new) in old.iter().zip(new) {
            let (old, new) = (u32::from_ne_bytes(*old), u32::from_ne_bytes(*new));
            self.0 += u64::from(!old) + u64::from(new);
        }
        if let (Some(old), Some(new)) = (last.first_chunk(), new_last.first_chunk()) {
            let (old, new) = (u16::from_ne_bytes(*old), u16::from_ne_bytes(*new));
            self.0 += u64::from(!old) + u64::from(new);
        }
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// The sum with `start`, in 16 bits.
    #[inline(always)]
    fn folded(self, start: u16) -> u16 {
        let sum = self.0 + u64::from(start);
        let sum = (sum & 0xffff_ffff) + (sum >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    /// What a checksum is behind the change.
    #[inline(always)]
    fn checksum(self, old: [u8; 2]) -> [u8; 2] {
        (!self.folded(!u16::from_ne_bytes(old))).to_ne_bytes()
    }

    /// What a sum is behind the change, which is no checksum yet.
    fn sum(self, old: [u8; 2]) -> [u8; 2] {
        self.folded(u16::from_ne_bytes(old)).to_ne_bytes()
    }
}

/// Puts bytes into a packet, and takes down what changed; nothing if the packet ends before.
#[inline(always)]
fn put<const SIZE: usize>(bytes: &mut [u8], at: usize, new: [u8; SIZE], change: &mut Change) {
    let old = bytes
        .get_mut(at..)
        .and_then(<[u8]>::first_chunk_mut::<SIZE>);
    if let Some(old) = old {
        change.add(old, &new);
        *old = new;
    }
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<[u8; 2]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The IP packet at hand: where its headers are.
#[derive(Clone, Copy)]
struct Place {
    network: usize,
    transport: usize,
    protocol: u8,
    is_ip6: bool,
}

impl Place {
    fn address(self, manip: Manip) -> usize {
        self.network
            + match (self.is_ip6, manip) {
                (false, Manip::Source) => 12,
                (false, Manip::Destination) => 16,
                (true, Manip::Source) => 8,
                (true, Manip::Destination) => 24,
            }
    }

    /// Where the port or identifier is.
    fn port(self, manip: Manip) -> Option<usize> {
        match (self.protocol, manip) {
            (protocol::TCP | protocol::UDP, Manip::Source) => Some(self.transport),
            (protocol::TCP | protocol::UDP, Manip::Destination) => Some(self.transport + 2),
            (protocol::ICMP | protocol::ICMPV6, _) => Some(self.transport + 4),
            _ => None,
        }
    }

    /// Where the checksum of the transport header is, and whether it covers addresses.
    fn checksum(self) -> Option<(usize, bool)> {
        let (at, covers) = match self.protocol {
            protocol::TCP => (16, true),
            protocol::UDP | UDP_LITE | DCCP => (6, true),
            protocol::ICMP => (2, false),
            protocol::ICMPV6 => (2, true),
            _ => return None,
        };
        Some((self.transport + at, covers))
    }

    /// Translates the address and IPv4's checksum; what changed in the pseudo header.
    #[inline(always)]
    fn put_address<const SIZE: usize>(
        self,
        bytes: &mut [u8],
        manip: Manip,
        address: [u8; SIZE],
    ) -> Change {
        let mut change = Change::default();
        put(bytes, self.address(manip), address, &mut change);
        let at = self.network + 10;
        if let (false, Some(old)) = (self.is_ip6, word(bytes, at)) {
            put(bytes, at, change.checksum(old), &mut Change::default());
        }
        change
    }
}

/// UDP-Lite (RFC 3828) and DCCP (RFC 4340): their checksums cover addresses.
const UDP_LITE: u8 = 136;
const DCCP: u8 = 33;

/// Where the IP packet begins in a frame without a tag.
const NETWORK: usize = 14;
/// Size of a header of TCP without options.
const TCP_SIZE: usize = 20;

/// Translates one end of a packet. `later` is one that has no transport header; `partial` one whose
/// checksum is left to offload.
#[inline(always)]
pub(super) fn translate<const SIZE: usize>(
    frame: &mut [u8],
    packet: &key::Packet,
    manip: Manip,
    end: End<SIZE>,
    partial: bool,
) {
    let place = place_of(packet);
    let pseudo = place.put_address(frame, manip, end.address);
    let Some(port) = end.port else {
        return put_checksum(frame, place, pseudo, Change::default(), partial);
    };
    let mut rest = Change::default();
    if let Some(at) = place.port(manip) {
        put(frame, at, port.to_be_bytes(), &mut rest);
    }
    put_checksum(frame, place, pseudo, rest, partial);
}

/// Sum in one's complement, which is 0 only if both are.
#[inline(always)]
fn add(first: u16, second: u16) -> u16 {
    let (sum, carry) = first.overflowing_add(second);
    sum + u16::from(carry)
}

/// Translates one end of a segment of TCP over IPv4 whose frame has no tag and no options of IPv4:
/// what [`translate`] does, in fewer steps. Nothing, if the frame is too short for one.
#[inline(always)]
pub(super) fn translate_plain(
    frame: &mut [u8],
    manip: Manip,
    address: [u8; 4],
    port: u16,
    partial: bool,
) {
    let Some(headers) = frame.first_chunk_mut::<{ packet::PLAIN_SIZE }>() else {
        return;
    };
    let (at, port_at) = match manip {
        Manip::Source => (NETWORK + 12, packet::TCP_AT),
        Manip::Destination => (NETWORK + 16, packet::TCP_AT + 2),
    };
    let short = |headers: &[u8], at: usize| u16::from_ne_bytes([headers[at], headers[at + 1]]);
    let old = [
        headers[at],
        headers[at + 1],
        headers[at + 2],
        headers[at + 3],
    ];
    let (sum, carry) = (!u32::from_ne_bytes(old)).overflowing_add(u32::from_ne_bytes(address));
    let sum = sum + u32::from(carry);
    let pseudo = add(sum as u16, (sum >> 16) as u16);
    let port = port.to_be();
    let changed = add(pseudo, add(!short(headers, port_at), port));
    let (ip, tcp) = (NETWORK + 10, packet::TCP_AT + 16);
    let ip_sum = !add(!short(headers, ip), pseudo);
    let tcp_sum = match partial {
        true => add(short(headers, tcp), pseudo),
        false => !add(!short(headers, tcp), changed),
    };
    headers[at..at + 4].copy_from_slice(&address);
    headers[port_at..port_at + 2].copy_from_slice(&port.to_ne_bytes());
    headers[ip..ip + 2].copy_from_slice(&ip_sum.to_ne_bytes());
    headers[tcp..tcp + 2].copy_from_slice(&tcp_sum.to_ne_bytes());
}

/// Translates one address of a part of a packet that has no transport header. `network` is where
/// the IP header begins.
pub(crate) fn translate_later<const SIZE: usize>(
    frame: &mut [u8],
    network: usize,
    manip: Manip,
    address: [u8; SIZE],
) {
    let place = Place {
        network,
        transport: frame.len(),
        protocol: 0,
        is_ip6: SIZE == 16,
    };
    place.put_address(frame, manip, address);
}

/// Translates an error: the address of one end of the packet that carries it, and the other end of
/// the packet that it quotes, which went the other way.
pub(super) fn translate_error<const SIZE: usize>(
    frame: &mut [u8],
    packet: &key::Packet,
    manip: Manip,
    end: End<SIZE>,
    partial: bool,
) {
    let place = place_of(packet);
    let pseudo = place.put_address(frame, manip, end.address);
    let mut quoted = Change::default();
    let quote = frame.get_mut(..packet.end).unwrap_or_default();
    let quote = quote.get_mut(place.transport + 8..).unwrap_or_default();
    translate_quote(quote, place.is_ip6, manip.other(), end, &mut quoted);
    put_checksum(frame, place, pseudo, quoted, partial);
}

#[inline(always)]
fn place_of(packet: &key::Packet) -> Place {
    Place {
        network: packet.network,
        transport: packet.transport,
        protocol: packet.protocol,
        is_ip6: matches!(packet.addresses, Addresses::V6 { .. }),
    }
}

/// Brings the checksum of the transport header up to date with what changed before it and in it.
#[inline(always)]
fn put_checksum(frame: &mut [u8], place: Place, pseudo: Change, rest: Change, partial: bool) {
    let Some((at, covers)) = place.checksum() else {
        return;
    };
    let Some(old) = word(frame, at) else {
        return;
    };
    let before = if covers { pseudo } else { Change::default() };
    let is_udp = place.protocol == protocol::UDP;
    let new = match partial {
        true => before.sum(old),
        // Nobody has summed it up (RFC 768).
        false if is_udp && old == [0; 2] => old,
        false => match before.and(rest).checksum(old) {
            [0, 0] if is_udp => [0xff; 2],
            new => new,
        },
    };
    put(frame, at, new, &mut Change::default());
}

/// Translates one end of a quoted packet, whatever of it is quoted, and takes down what changed.
fn translate_quote<const SIZE: usize>(
    quote: &mut [u8],
    is_ip6: bool,
    manip: Manip,
    end: End<SIZE>,
    change: &mut Change,
) {
    let Some((transport, protocol)) = packet::quoted_place(quote, is_ip6) else {
        return;
    };
    let place = Place {
        network: 0,
        transport,
        protocol,
        is_ip6,
    };
    let mut pseudo = Change::default();
    put(quote, place.address(manip), end.address, &mut pseudo);
    *change = change.and(pseudo);
    if let (false, Some(old)) = (is_ip6, word(quote, 10)) {
        put(quote, 10, pseudo.checksum(old), change);
    }
    let mut rest = Change::default();
    if let (Some(at), Some(port)) = (place.port(manip), end.port) {
        put(quote, at, port.to_be_bytes(), &mut rest);
    }
    *change = change.and(rest);
    let Some((at, covers)) = place.checksum() else {
        return;
    };
    // Of TCP, often less than the header is quoted; then the kernel leaves its checksum.
    if protocol == protocol::TCP && quote.len() < transport + TCP_SIZE {
        return;
    }
    let is_summed = |old: &[u8; 2]| protocol != protocol::UDP || *old != [0; 2];
    let Some(old) = word(quote, at).filter(is_summed) else {
        return;
    };
    let before = if covers { pseudo } else { Change::default() };
    let new = match before.and(rest).checksum(old) {
        [0, 0] if protocol == protocol::UDP => [0xff; 2],
        new => new,
    };
    put(quote, at, new, change);
}
