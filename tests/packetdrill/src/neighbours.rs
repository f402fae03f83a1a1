//! The peer's link address: all that is not ours is one neighbour.

use device::checksum;
use net::address::pseudo_sum;
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of an Ethernet header.
pub const ETHERNET: usize = 14;
/// The peer's link address.
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 99];
/// Where the operation stands in an ARP packet, and both addresses of each side (RFC 826).
const OPERATION: usize = ETHERNET + 6;
const SENDER: usize = ETHERNET + 8;
const TARGET: usize = ETHERNET + 18;
const ARP_LEN: usize = ETHERNET + 28;
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];
/// Bytes of an IPv6 header.
const IPV6: usize = 40;
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Neighbour advertisement with one option (RFC 4861, 4.4).
const ADVERTISEMENT_LEN: usize = 32;

/// What leaves us.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// A packet for the peer.
    Packet(Vec<u8>),
    /// A question that a neighbour answers with this frame.
    Answered(Vec<u8>),
    /// Nothing that the peer hears.
    Else,
}

/// An IP packet from the peer, as a frame for `mac`.
pub fn frame(packet: &[u8], mac: [u8; 6]) -> Vec<u8> {
    let ethertype = match packet.first().map(|first| first >> 4) {
        Some(6) => [0x86, 0xdd],
        _ => [8, 0],
    };
    [&mac[..], &PEER, &ethertype, packet].concat()
}

/// Clears PSH in a TCP segment: a sender may set it wherever it likes (RFC 9293, 3.9.1.2), and
/// Linux does so at the end of each write. The scripts that are run say nothing of it either.
fn without_push(packet: &[u8]) -> Vec<u8> {
    const PROTOCOL: u8 = 6;
    const FLAGS: usize = 13;
    const PUSH: u8 = 8;
    let mut packet = packet.to_vec();
    let header = match packet.first().map(|first| (first >> 4, first & 15)) {
        Some((4, words)) if packet.get(9) == Some(&PROTOCOL) => usize::from(words) * 4,
        Some((6, _)) if packet.get(6) == Some(&PROTOCOL) => IPV6,
        _ => return packet,
    };
    if let Some(flags) = packet.get_mut(header + FLAGS) {
        *flags &= !PUSH;
    }
    packet
}

/// Looks at a frame that has left.
pub fn left(frame: &[u8]) -> Left {
    let (Some(from), Some(ethertype)) = (frame.get(6..12), frame.get(12..ETHERNET)) else {
        return Left::Else;
    };
    let packet = &frame[ETHERNET..];
    match ethertype {
        [8, 6] => match frame.get(OPERATION..ARP_LEN) {
            // An announcement asks for itself.
            Some(arp)
                if arp[..2] == REQUEST && frame[SENDER + 6..][..4] != frame[TARGET + 6..][..4] =>
            {
                let mut reply = frame[..ARP_LEN].to_vec();
                reply[..6].copy_from_slice(from);
                reply[6..12].copy_from_slice(&PEER);
                reply[OPERATION..OPERATION + 2].copy_from_slice(&REPLY);
                reply[SENDER..SENDER + 6].copy_from_slice(&PEER);
                reply[SENDER + 6..SENDER + 10].copy_from_slice(&frame[TARGET + 6..TARGET + 10]);
                reply[TARGET..TARGET + 10].copy_from_slice(&frame[SENDER..SENDER + 10]);
                Left::Answered(reply)
            }
            _ => Left::Else,
        },
        [0x86, 0xdd] if packet.get(6) == Some(&ICMPV6) => advertised(packet, from),
        [0x86, 0xdd] | [8, 0] => Left::Packet(without_push(packet)),
        _ => Left::Else,
    }
}

/// The answer to a neighbour solicitation (RFC 4861, 7.2.4).
fn advertised(packet: &[u8], from: &[u8]) -> Left {
    let address = |at: usize| {
        let bytes = packet.get(at..at + 16)?;
        Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))
    };
    let solicits = packet.get(IPV6) == Some(&SOLICITATION);
    let (Some(asker), Some(target), true) = (address(8), address(IPV6 + 8), solicits) else {
        // Reports of errors, which the peer hears, and questions to routers, which nobody answers.
        let error = packet.get(IPV6).is_some_and(|kind| *kind < 128);
        return if error {
            Left::Packet(packet.to_vec())
        } else {
            Left::Else
        };
    };
    if asker.is_unspecified() {
        return Left::Else;
    }
    let mut message = vec![ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0];
    message.extend(target.octets());
    message.extend([2, 1]);
    message.extend(PEER);
    let sum = pseudo_sum(
        IpAddr::V6(target),
        IpAddr::V6(asker),
        ICMPV6,
        ADVERTISEMENT_LEN,
    );
    let sum = !checksum::fold(sum + checksum::sum(&message));
    message[2..4].copy_from_slice(&sum.to_ne_bytes());
    let mut answer = vec![0x60, 0, 0, 0, 0, ADVERTISEMENT_LEN as u8, ICMPV6, 255];
    answer.extend(target.octets());
    answer.extend(asker.octets());
    answer.extend(message);
    let mut mac = [0; 6];
    mac.copy_from_slice(from);
    Left::Answered(frame(&answer, mac))
}
