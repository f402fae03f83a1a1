//! ICMP (RFC 792; RFC 1122, 3.2.2).

use super::header::SIZE;
use crate::icmp::{self, ERROR_HEADER, Kind, QUOTED, Refusal, Report};
use core::net::Ipv4Addr;

/// Its number as a protocol of IPv4.
pub(super) const PROTOCOL: u8 = 1;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER: u8 = 12;

const CODE_NETWORK: u8 = 0;
const CODE_HOPS: u8 = 0;
const CODE_PROTOCOL: u8 = 2;
const CODE_PORT: u8 = 3;
const CODE_TOO_BIG: u8 = 4;
const CODE_REASSEMBLY: u8 = 1;

/// Longest error that we send, IP header included (RFC 1812, 4.3.2.3).
const ERROR_MAX: usize = 576;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Somebody asks for an echo.
    Echo,
    /// An error about a packet.
    Report(Report<Ipv4Addr>),
    /// Something that is not for us: an echo that came back, a time, a redirect, which we do not
    /// follow.
    Other,
}

/// Reads a message; `None` if it is malformed.
pub(super) fn parse(message: &[u8]) -> Option<Message> {
    let header: &[u8; ERROR_HEADER] = message.first_chunk()?;
    if !icmp::is_intact(message, 0) {
        return None;
    }
    let kind = match (header[0], header[1]) {
        (ECHO, 0) => return Some(Message::Echo),
        (UNREACHABLE, CODE_PROTOCOL) => Kind::Protocol,
        (UNREACHABLE, CODE_PORT) => Kind::Port,
        // RFC 1191, 4.
        (UNREACHABLE, CODE_TOO_BIG) => Kind::TooBig {
            mtu: u16::from_be_bytes([header[6], header[7]]).into(),
        },
        (UNREACHABLE, _) => Kind::Unreachable,
        (TIME_EXCEEDED, _) => Kind::Expired,
        (PARAMETER, _) => Kind::Header,
        _ => return Some(Message::Other),
    };
    quoted(kind, &message[ERROR_HEADER..]).map(Message::Report)
}

/// Reads what an error quotes. Its header was ours, but routers have changed it on the way, so that
/// its checksum says nothing.
fn quoted(kind: Kind, packet: &[u8]) -> Option<Report<Ipv4Addr>> {
    let header: &[u8; SIZE] = packet.first_chunk()?;
    let len = 4 * usize::from(header[0] & 0xf);
    let offset = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    // A later fragment quotes no transport header.
    if header[0] >> 4 != 4 || len < SIZE || offset != 0 {
        return None;
    }
    let address =
        |at: usize| -> Option<Ipv4Addr> { Some((*header.get(at..)?.first_chunk::<4>()?).into()) };
    Some(Report {
        kind,
        source: address(12)?,
        destination: address(16)?,
        protocol: header[9],
        len: u16::from_be_bytes([header[2], header[3]]).into(),
        transport: *packet.get(len..)?.first_chunk::<QUOTED>()?,
    })
}

/// Whether a message of this type is none about another packet, and so may be answered by an error
/// (RFC 1122, 3.2.2).
pub(super) fn is_question(kind: u8) -> bool {
    matches!(kind, ECHO | ECHO_REPLY)
}

/// Bytes of an error that quotes a packet of so many bytes.
pub(super) fn error_len(quoted: usize) -> usize {
    ERROR_HEADER + quoted.min(ERROR_MAX - SIZE - ERROR_HEADER)
}

/// Writes an error of [`error_len`] bytes.
pub(super) fn write_error(place: &mut [u8], why: Refusal, quoted: &[u8]) {
    let error = match why {
        Refusal::Protocol => (UNREACHABLE, CODE_PROTOCOL, 0),
        Refusal::Port => (UNREACHABLE, CODE_PORT, 0),
        Refusal::Late => (TIME_EXCEEDED, CODE_REASSEMBLY, 0),
        Refusal::Hops => (TIME_EXCEEDED, CODE_HOPS, 0),
        Refusal::NoRoute => (UNREACHABLE, CODE_NETWORK, 0),
        // RFC 1191, 4: 16 bits.
        Refusal::TooBig { mtu } => (UNREACHABLE, CODE_TOO_BIG, mtu.min(0xffff) as u32),
    };
    let quoted = &quoted[..place.len() - ERROR_HEADER];
    icmp::write_error(place, error, quoted);
    icmp::complete(place, 0);
}

/// Writes the answer to a request of the same length.
pub(super) fn write_reply(place: &mut [u8], request: &[u8]) {
    icmp::write_reply(place, ECHO_REPLY, request);
    icmp::complete(place, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::{Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr};
    use std::vec;
    use std::vec::Vec;

    fn packet() -> Vec<u8> {
        let mut packet = vec![7; 100];
        super::super::header::Header {
            class: 0,
            total: 100,
            id: 1,
            dont_fragment: true,
            more: false,
            offset: 0,
            hops: 3,
            protocol: 6,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
        }
        .emit(packet.first_chunk_mut().unwrap());
        packet
    }

    #[test]
    fn smoltcp_reads_our_errors_and_replies() {
        let mut place = vec![0; error_len(100)];
        write_error(&mut place, Refusal::Port, &packet());
        let read = Icmpv4Packet::new_checked(&place[..]).unwrap();
        let read = Icmpv4Repr::parse(&read, &ChecksumCapabilities::default()).unwrap();
        let Icmpv4Repr::DstUnreachable { reason, header, .. } = read else {
            panic!("{read:?}")
        };
        assert_eq!(reason, Icmpv4DstUnreachable::PortUnreachable);
        assert_eq!(header.dst_addr.octets(), [10, 0, 0, 2]);

        let mut reply = vec![0; 12];
        write_reply(&mut reply, &[8, 0, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8]);
        let read = Icmpv4Packet::new_checked(&reply[..]).unwrap();
        let read = Icmpv4Repr::parse(&read, &ChecksumCapabilities::default()).unwrap();
        let expected = Icmpv4Repr::EchoReply {
            ident: 0x102,
            seq_no: 0x304,
            data: &[5, 6, 7, 8],
        };
        assert_eq!(read, expected);
        assert_eq!(error_len(9000), 556);
    }

    #[test]
    fn an_error_is_read_down_to_the_transport_header() {
        let mut message = vec![3, 4, 0, 0, 0, 0, 5, 0x78];
        message.extend(&packet()[..28]);
        icmp::complete(&mut message, 0);
        let report = Report {
            kind: Kind::TooBig { mtu: 1400 },
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol: 6,
            len: 100,
            transport: [7; 8],
        };
        assert_eq!(parse(&message), Some(Message::Report(report)));
        let kinds = [(3, 2), (3, 3), (3, 1), (11, 0), (12, 0)].map(|(kind, code)| {
            message[..4].copy_from_slice(&[kind, code, 0, 0]);
            icmp::complete(&mut message, 0);
            let Some(Message::Report(report)) = parse(&message) else {
                panic!()
            };
            report.kind
        });
        let expected = [
            Kind::Protocol,
            Kind::Port,
            Kind::Unreachable,
            Kind::Expired,
            Kind::Header,
        ];
        assert_eq!(kinds, expected);
        // A later fragment, and a quote that is too short.
        message[8 + 7] = 1;
        icmp::complete(&mut message, 0);
        assert_eq!(parse(&message), None);
        message[8 + 7] = 0;
        message.pop();
        icmp::complete(&mut message, 0);
        assert_eq!(parse(&message), None);
    }

    #[test]
    fn a_wrong_checksum_is_malformed_and_the_rest_is_passed_over() {
        let mut message = vec![5, 1, 0, 0, 10, 0, 0, 9];
        icmp::complete(&mut message, 0);
        assert_eq!(parse(&message), Some(Message::Other));
        message[7] ^= 1;
        assert_eq!(parse(&message), None);
        assert_eq!(parse(&message[..7]), None);
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 8..80),
            kind in prop::sample::select(vec![3u8, 8, 11, 12]),
        ) {
            bytes[0] = kind;
            icmp::complete(&mut bytes, 0);
            let _ = parse(&bytes);
        }
    }
}
