//! What tracking reads of a packet, besides what is in its key.

use super::tcp::{Segment, flag};
use super::tuple::{Address, Tuple, Zone};
use crate::key::{self, Fragment, Key, be16, protocol};

/// A packet of a flow that is not fragmented, or the first part of one that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    /// Bytes of the IP packet.
    pub(super) length: u32,
    /// Where it is if it goes the way of the first packet of its connection, and if it answers.
    pub(super) places: [u16; 2],
    /// What makes that a zone.
    pub(super) zone: Zone,
    pub(super) protocol: u8,
    /// From the transport header on.
    pub(super) payload: &'a [u8],
    /// Whether parts of the payload come later.
    pub(super) cut: bool,
}

/// What a packet is to a tracker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content<'a> {
    Tcp(Segment<'a>),
    Udp,
    /// A question or an answer, and any other message that is no error.
    Icmp,
    /// An error: what it quotes begins here.
    Error(&'a [u8]),
    /// A message that is about the link alone: nobody tracks it.
    Untracked,
    Other,
}

/// What names the packet, and what it is; none if its transport header contradicts itself.
pub(super) fn read<'a>(packet: &Packet<'a>, icmp: u8) -> Option<([u16; 2], Content<'a>)> {
    match packet.protocol {
        protocol::TCP => read_tcp(packet),
        protocol::UDP => read_udp(packet),
        protocol if protocol == icmp => read_icmp(packet),
        // ICMP over IPv6, and the other way round.
        protocol::ICMP | protocol::ICMPV6 => None,
        _ => Some(([0; 2], Content::Other)),
    }
}

fn read_tcp<'a>(packet: &Packet<'a>) -> Option<([u16; 2], Content<'a>)> {
    let (ports, segment) = segment(packet.payload, packet.cut, |flags| flags)?;
    let valid = segment.has_valid_flags();
    valid.then_some((ports, Content::Tcp(segment)))
}

/// Flags that matter in a segment of an open connection.
const LOOKED_AT: u8 = flag::ACK | flag::FIN | flag::SYN | flag::RST | flag::URG;

/// A segment of TCP that has an ACK and no other flag that matters, and is all there.
pub(super) struct Plain<'a> {
    /// Bytes of the IP packet.
    pub(super) length: u32,
    pub(super) vlan: u16,
    pub(super) ports: [u16; 2],
    pub(super) segment: Segment<'a>,
}

/// What a frame is if it is such a segment.
#[inline(always)]
pub(super) fn plain<'a>(key: &Key, frame: &'a [u8]) -> Option<Plain<'a>> {
    if key.tcp_flags() & LOOKED_AT != flag::ACK || key.fragment() != Fragment::Whole {
        return None;
    }
    // Nothing else is to be asked of its flags.
    let (ports, segment) = segment(frame.get(key.payload())?, false, |_| flag::ACK)?;
    Some(Plain {
        length: key.packet_length(),
        vlan: key.vlan(),
        ports,
        segment,
    })
}

/// Headers of Ethernet, IPv4 and TCP, each without tags and options.
pub(super) const PLAIN_SIZE: usize = 14 + 20 + 20;
/// Where that of TCP begins.
pub(super) const TCP_AT: usize = 14 + 20;

/// The same of a frame of IPv4 that nobody has read yet, with source and destination: one without
/// tags and options of IPv4. All that [`Key::read`] asks of it holds.
#[inline(always)]
pub(super) fn plain4(frame: &[u8]) -> Option<(Plain<'_>, [[u8; 4]; 2])> {
    let headers: &[u8; PLAIN_SIZE] = frame.first_chunk()?;
    let word = |at: usize| {
        u32::from_le_bytes([
            headers[at],
            headers[at + 1],
            headers[at + 2],
            headers[at + 3],
        ])
    };
    // EtherType, version and size; then what says that it is a fragment, and the protocol.
    if word(12) & 0xff_ffff != 0x45_0008 || word(20) & 0xff00_ff3f != 0x0600_0000 {
        return None;
    }
    if headers[TCP_AT + 13] & LOOKED_AT != flag::ACK {
        return None;
    }
    let length = be16(headers, 16);
    let size = usize::from(headers[TCP_AT + 12] >> 4) * 4;
    let end = 14 + usize::from(length);
    if size < 20 || TCP_AT + size > end || end > frame.len() {
        return None;
    }
    // As in the key: a sum of ones in one's complement.
    let wide = |at: usize| u64::from(word(at));
    let sum = wide(14) + wide(18) + wide(22) + wide(26) + wide(30);
    if !sum.is_multiple_of(0xffff) {
        return None;
    }
    let seq = be32(headers, TCP_AT + 4);
    let segment = Segment {
        seq,
        ack: be32(headers, TCP_AT + 8),
        window: be16(headers, TCP_AT + 14),
        flags: flag::ACK,
        end: seq.wrapping_add((end - TCP_AT - size) as u32),
        options: frame.get(PLAIN_SIZE..TCP_AT + size)?,
    };
    let ports = word(TCP_AT).swap_bytes();
    let plain = Plain {
        length: length.into(),
        vlan: 0,
        ports: [(ports >> 16) as u16, ports as u16],
        segment,
    };
    let [a, b, c, d, e, f, g, h] = *headers[26..].first_chunk()?;
    Some((plain, [[a, b, c, d], [e, f, g, h]]))
}

/// Such a segment of IPv4 without options, or with a timestamp alone: what finds its flow. Its
/// numbers are read once that is found.
pub(super) struct Straight<'a> {
    /// Source and destination, and both ports, as a direction of a flow has them in memory.
    pub(super) addresses: u64,
    pub(super) ports: u32,
    headers: &'a [u8; PLAIN_SIZE],
    /// Bytes of the IP packet, and those of TCP's data.
    length: u16,
    data: u16,
}

/// Its numbers.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    /// Bytes of the IP packet, and those of TCP's data.
    pub(super) length: u16,
    pub(super) data: u16,
}

impl Numbers {
    /// Sequence number behind it.
    #[inline(always)]
    pub(super) fn end(&self) -> u32 {
        self.seq.wrapping_add(self.data.into())
    }
}

impl Straight<'_> {
    #[inline(always)]
    pub(super) fn numbers(&self) -> Numbers {
        Numbers {
            seq: be32(self.headers, TCP_AT + 4),
            ack: be32(self.headers, TCP_AT + 8),
            window: be16(self.headers, TCP_AT + 14),
            length: self.length,
            data: self.data,
        }
    }
}

/// Headers with those options.
const TIMESTAMP_SIZE: usize = PLAIN_SIZE + 12;
/// How those begin (RFC 7323, appendix A).
const TIMESTAMP: u32 = u32::from_le_bytes([1, 1, 8, 10]);

/// Whether [`plain4`] may say anything of a frame, by the flags that it has if it is a segment.
#[inline(always)]
pub(super) fn may_be_plain4(frame: &[u8]) -> bool {
    let headers = frame.first_chunk::<PLAIN_SIZE>();
    headers.is_some_and(|headers| headers[TCP_AT + 13] & LOOKED_AT == flag::ACK)
}

/// What [`plain4`] says of a frame whose flags are those of such a segment, if it is one.
#[inline(always)]
pub(super) fn straight4(frame: &[u8]) -> Option<Straight<'_>> {
    let headers: &[u8; PLAIN_SIZE] = frame.first_chunk()?;
    let word = |at: usize| {
        u32::from_le_bytes([
            headers[at],
            headers[at + 1],
            headers[at + 2],
            headers[at + 3],
        ])
    };
    let size = match headers[TCP_AT + 12] >> 4 {
        5 => PLAIN_SIZE,
        8 => {
            let options = frame.get(PLAIN_SIZE..PLAIN_SIZE + 4)?.first_chunk()?;
            if u32::from_le_bytes(*options) != TIMESTAMP {
                return None;
            }
            TIMESTAMP_SIZE
        }
        _ => return None,
    };
    if word(12) & 0xff_ffff != 0x45_0008 || word(20) & 0xff00_ff3f != 0x0600_0000 {
        return None;
    }
    let length = be16(headers, 16);
    let end = 14 + usize::from(length);
    if size > end || end > frame.len() {
        return None;
    }
    let wide = |at: usize| u64::from(word(at));
    let (source, destination) = (wide(26), wide(30));
    let sum = wide(14) + wide(18) + wide(22) + source + destination;
    if !sum.is_multiple_of(0xffff) {
        return None;
    }
    Some(Straight {
        addresses: source | destination << 32,
        ports: word(TCP_AT).swap_bytes().rotate_left(16),
        headers,
        length,
        // Less than the packet has.
        data: (end - size) as u16,
    })
}

/// What probably names the flow of such a frame, of which nothing else is read.
#[inline]
pub(super) fn name4(frame: &[u8]) -> Option<Tuple<[u8; 4]>> {
    let headers: &[u8; PLAIN_SIZE] = frame.first_chunk()?;
    let [a, b, c, d, e, f, g, h] = *headers[26..].first_chunk()?;
    (headers[12..15] == [8, 0, 0x45]).then_some(Tuple {
        source: [a, b, c, d],
        destination: [e, f, g, h],
        ports: [be16(headers, TCP_AT), be16(headers, TCP_AT + 2)],
        place: 0,
        protocol: headers[23],
    })
}

#[inline(always)]
fn segment(
    payload: &[u8],
    cut: bool,
    flags: impl FnOnce(u8) -> u8,
) -> Option<([u16; 2], Segment<'_>)> {
    let header: &[u8; 20] = payload.first_chunk()?;
    let size = 4 * usize::from(header[12] >> 4);
    let options = match cut {
        true => &payload[20..size.clamp(20, payload.len())],
        false => payload.get(20..size)?,
    };
    let flags = flags(header[13]);
    let seq = be32(header, 4);
    let data = payload.len().saturating_sub(size) as u32;
    let counted = u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
    let segment = Segment {
        seq,
        ack: be32(header, 8),
        window: be16(header, 14),
        flags,
        end: seq.wrapping_add(data).wrapping_add(counted),
        options,
    };
    Some(([be16(header, 0), be16(header, 2)], segment))
}

fn read_udp<'a>(packet: &Packet<'a>) -> Option<([u16; 2], Content<'a>)> {
    let header: &[u8; 8] = packet.payload.first_chunk()?;
    let length = usize::from(be16(header, 4));
    if length < header.len() || length > packet.payload.len() && !packet.cut {
        return None;
    }
    Some(([be16(header, 0), be16(header, 2)], Content::Udp))
}

/// RFC 792; RFC 4443.
fn read_icmp<'a>(packet: &Packet<'a>) -> Option<([u16; 2], Content<'a>)> {
    let (header, rest) = packet.payload.split_first_chunk::<8>()?;
    let ports = [be16(header, 4), be16(header, 0)];
    let content = match (packet.protocol, header[0]) {
        (protocol::ICMP, 3..=5 | 11 | 12) | (protocol::ICMPV6, ..128) => Content::Error(rest),
        // Listeners (RFC 2710; RFC 3810) and neighbours (RFC 4861).
        (protocol::ICMPV6, 130..=136 | 143) => Content::Untracked,
        _ => Content::Icmp,
    };
    Some((ports, content))
}

/// Where the transport header of a quoted packet begins, and its protocol.
pub(super) fn quoted_place(bytes: &[u8], is_ip6: bool) -> Option<(usize, u8)> {
    if is_ip6 {
        let (header, rest) = bytes.split_first_chunk::<40>()?;
        let (protocol, payload) = key::quoted_transport(header[6], rest)?;
        return Some((bytes.len() - payload.len(), protocol));
    }
    let header: &[u8; 20] = bytes.first_chunk()?;
    let size = 4 * usize::from(header[0] & 0xf);
    let offset = be16(header, 6) & 0x1fff;
    (size >= header.len() && offset == 0).then_some((size, header[9]))
}

/// The direction of the packet that an error quotes, of IPv4.
pub(super) fn quoted4(bytes: &[u8], place: u16) -> Option<Tuple<[u8; 4]>> {
    let (transport, protocol) = quoted_place(bytes, false)?;
    let header: &[u8; 20] = bytes.first_chunk()?;
    let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *header;
    let addresses = ([s0, s1, s2, s3], [d0, d1, d2, d3]);
    quoted(addresses, protocol, bytes.get(transport..)?, place)
}

/// The same of IPv6.
pub(super) fn quoted6(bytes: &[u8], place: u16) -> Option<Tuple<[u8; 16]>> {
    let (transport, protocol) = quoted_place(bytes, true)?;
    let header: &[u8; 40] = bytes.first_chunk()?;
    let mut addresses = ([0; 16], [0; 16]);
    addresses.0.copy_from_slice(&header[8..24]);
    addresses.1.copy_from_slice(&header[24..40]);
    quoted(addresses, protocol, bytes.get(transport..)?, place)
}

fn quoted<A: Address>(
    (source, destination): (A, A),
    protocol: u8,
    payload: &[u8],
    place: u16,
) -> Option<Tuple<A>> {
    let ports = match protocol {
        protocol::TCP | protocol::UDP => {
            let header: &[u8; 4] = payload.first_chunk()?;
            [be16(header, 0), be16(header, 2)]
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let header: &[u8; 8] = payload.first_chunk()?;
            [be16(header, 4), be16(header, 0)]
        }
        _ => [0; 2],
    };
    Some(Tuple {
        source,
        destination,
        ports,
        place,
        protocol,
    })
}

#[inline]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
