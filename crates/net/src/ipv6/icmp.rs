//! ICMPv6 (RFC 4443), but for Neighbour Discovery.

use super::header::{self, SIZE};
use crate::address::pseudo_sum;
use crate::icmp::{self, ERROR_HEADER, Kind, QUOTED, Refusal, Report};
use core::net::Ipv6Addr;

/// Its number as a protocol of IPv6.
pub(super) const PROTOCOL: u8 = 58;

const UNREACHABLE: u8 = 1;
const TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER: u8 = 4;
const ECHO: u8 = 128;
const ECHO_REPLY: u8 = 129;
/// A question of Multicast Listener Discovery (RFC 3810, 5.1).
const QUERY: u8 = 130;
/// Router and neighbour solicitations and advertisements, and redirects.
const DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;

const CODE_ROUTE: u8 = 0;
const CODE_HOPS: u8 = 0;
const CODE_PORT: u8 = 4;
const CODE_REASSEMBLY: u8 = 1;
const CODE_NEXT_HEADER: u8 = 1;

/// Where the next header's number lies in the header that an error quotes.
const NEXT_HEADER: u8 = 6;

/// Longest error that we send, IP header included: what every link carries (RFC 4443, 2.4 c).
const ERROR_MAX: usize = 1280;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Somebody asks for an echo.
    Echo,
    /// An error about a packet.
    Report(Report<Ipv6Addr>),
    /// Neighbour Discovery.
    Discovery,
    /// Somebody asks who listens to groups.
    Query,
    /// Something that is not for us.
    Other,
}

/// Reads a message; `None` if it is malformed.
pub(super) fn parse(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Option<Message> {
    if !icmp::is_intact(message, pseudo(source, destination, message.len())) {
        return None;
    }
    let header: &[u8; ERROR_HEADER] = message.first_chunk()?;
    let kind = match (header[0], header[1]) {
        (ECHO, 0) => return Some(Message::Echo),
        (UNREACHABLE, CODE_PORT) => Kind::Port,
        (UNREACHABLE, _) => Kind::Unreachable,
        (TOO_BIG, _) => {
            let mtu = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            Kind::TooBig { mtu: mtu as usize }
        }
        (TIME_EXCEEDED, _) => Kind::Expired,
        (PARAMETER, CODE_NEXT_HEADER) => Kind::Protocol,
        (PARAMETER, _) => Kind::Header,
        (kind, 0) if DISCOVERY.contains(&kind) => return Some(Message::Discovery),
        (QUERY, 0) => return Some(Message::Query),
        _ => return Some(Message::Other),
    };
    quoted(kind, &message[ERROR_HEADER..]).map(Message::Report)
}

/// Reads what an error quotes, which may end anywhere.
fn quoted(kind: Kind, packet: &[u8]) -> Option<Report<Ipv6Addr>> {
    let fixed: &[u8; SIZE] = packet.first_chunk()?;
    let address =
        |at: usize| -> Option<Ipv6Addr> { Some((*fixed.get(at..)?.first_chunk::<16>()?).into()) };
    let chain = header::walk(fixed[NEXT_HEADER as usize], &packet[SIZE..]).ok()?;
    // A later fragment quotes no transport header.
    if fixed[0] >> 4 != 6 || chain.piece.is_some_and(|piece| piece.offset != 0) {
        return None;
    }
    Some(Report {
        kind,
        source: address(8)?,
        destination: address(24)?,
        protocol: chain.protocol,
        len: SIZE + usize::from(u16::from_be_bytes([fixed[4], fixed[5]])),
        transport: *packet.get(SIZE + chain.len..)?.first_chunk::<QUOTED>()?,
    })
}

fn pseudo(source: Ipv6Addr, destination: Ipv6Addr, len: usize) -> u64 {
    pseudo_sum(source.into(), destination.into(), PROTOCOL, len)
}

/// Stores the checksum of a message.
pub(super) fn complete(source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8]) {
    let pseudo = pseudo(source, destination, message.len());
    icmp::complete(message, pseudo);
}

/// Whether a message of this type is an error (RFC 4443, 2.1), or a redirect.
pub(super) fn is_error(kind: u8) -> bool {
    kind < ECHO || kind == *DISCOVERY.end()
}

/// Bytes of an error that quotes a packet of so many bytes.
pub(super) fn error_len(quoted: usize) -> usize {
    ERROR_HEADER + quoted.min(ERROR_MAX - SIZE - ERROR_HEADER)
}

/// Writes an error of [`error_len`] bytes, without its checksum.
pub(super) fn write_error(place: &mut [u8], why: Refusal, quoted: &[u8]) {
    let error = match why {
        Refusal::Port => (UNREACHABLE, CODE_PORT, 0),
        Refusal::Protocol => (PARAMETER, CODE_NEXT_HEADER, NEXT_HEADER.into()),
        Refusal::Late => (TIME_EXCEEDED, CODE_REASSEMBLY, 0),
        Refusal::Hops => (TIME_EXCEEDED, CODE_HOPS, 0),
        Refusal::NoRoute => (UNREACHABLE, CODE_ROUTE, 0),
        Refusal::TooBig { mtu } => (TOO_BIG, 0, u32::try_from(mtu).unwrap_or(u32::MAX)),
    };
    let quoted = &quoted[..place.len() - ERROR_HEADER];
    icmp::write_error(place, error, quoted);
}

/// Writes the answer to a request of the same length, without its checksum.
pub(super) fn write_reply(place: &mut [u8], request: &[u8]) {
    icmp::write_reply(place, ECHO_REPLY, request);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::{Icmpv6DstUnreachable, Icmpv6Packet, Icmpv6Repr};
    use std::vec;
    use std::vec::Vec;

    const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

    fn packet(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        let len = payload.len() as u16;
        let header = header::Header {
            class: 0,
            payload: len,
            next,
            hops: 3,
            source: A,
            destination: B,
        };
        header.emit(packet.first_chunk_mut().unwrap());
        packet.extend(payload);
        packet
    }

    fn read(message: &mut [u8]) -> Option<Message> {
        complete(B, A, message);
        parse(B, A, message)
    }

    #[test]
    fn smoltcp_reads_our_errors_and_replies() {
        let quoted = packet(17, &[7; 100]);
        let mut place = vec![0; error_len(quoted.len())];
        write_error(&mut place, Refusal::Port, &quoted);
        complete(B, A, &mut place);
        let message = Icmpv6Packet::new_checked(&place[..]).unwrap();
        let caps = ChecksumCapabilities::default();
        let message = Icmpv6Repr::parse(&B, &A, &message, &caps).unwrap();
        let Icmpv6Repr::DstUnreachable { reason, header, .. } = message else {
            panic!()
        };
        assert_eq!(
            (reason, header.dst_addr),
            (Icmpv6DstUnreachable::PortUnreachable, B)
        );

        let mut reply = vec![0; 12];
        write_reply(&mut reply, &[128, 0, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8]);
        complete(B, A, &mut reply);
        let message = Icmpv6Packet::new_checked(&reply[..]).unwrap();
        let message = Icmpv6Repr::parse(&B, &A, &message, &caps).unwrap();
        let expected = Icmpv6Repr::EchoReply {
            ident: 0x102,
            seq_no: 0x304,
            data: &[5, 6, 7, 8],
        };
        assert_eq!((message, error_len(9000)), (expected, 1240));
    }

    #[test]
    fn an_error_is_read_down_to_the_transport_header() {
        let first = packet(44, &[6, 0, 0, 1, 0, 0, 0, 1, 7, 7, 7, 7, 7, 7, 7, 7]);
        for (quoted, len) in [(packet(6, &[7; 30]), 70), (first, 56)] {
            let mut message = vec![2, 0, 0, 0, 0, 0, 5, 0];
            message.extend(&quoted);
            let report = Report {
                kind: Kind::TooBig { mtu: 1280 },
                source: A,
                destination: B,
                protocol: 6,
                len,
                transport: [7; 8],
            };
            assert_eq!(read(&mut message), Some(Message::Report(report)));
        }
        let mut message = vec![1, 0, 0, 0, 0, 0, 0, 0];
        message.extend(packet(6, &[7; 8]));
        let kinds = [(1, 4), (1, 0), (3, 0), (4, 1), (4, 0)].map(|(kind, code)| {
            message[..2].copy_from_slice(&[kind, code]);
            let Some(Message::Report(report)) = read(&mut message) else {
                panic!()
            };
            report.kind
        });
        let expected = [
            Kind::Port,
            Kind::Unreachable,
            Kind::Expired,
            Kind::Protocol,
            Kind::Header,
        ];
        assert_eq!(kinds, expected);
        message.pop();
        assert_eq!(read(&mut message), None);
        let mut later = vec![1, 0, 0, 0, 0, 0, 0, 0];
        later.extend(packet(
            44,
            &[6, 0, 0, 8, 0, 0, 0, 1, 7, 7, 7, 7, 7, 7, 7, 7],
        ));
        assert_eq!(read(&mut later), None);
    }

    #[test]
    fn a_wrong_checksum_is_malformed() {
        let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read(&mut message), Some(Message::Discovery));
        message[7] ^= 1;
        assert_eq!(parse(B, A, &message), None);
        assert_eq!(read(&mut [160, 0, 0, 0, 0, 0, 0, 0]), Some(Message::Other));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
            kind in 1u8..5,
            next in 40u8..61,
        ) {
            if bytes.len() > 20 {
                bytes[..2].copy_from_slice(&[kind, 0]);
                bytes[14] = next;
            }
            let _ = read(&mut bytes);
        }
    }
}
