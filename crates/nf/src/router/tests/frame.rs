//! Frames of packets, with every checksum, and a full computation of them to compare with.

use crate::key::protocol;
use std::net::IpAddr;
use std::vec::Vec;

/// The Internet checksum (RFC 1071) of these bytes.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let mut sum = 0u64;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Where a transport header has its checksum, and whether that covers addresses.
fn place(number: u8) -> Option<(usize, bool)> {
    match number {
        protocol::TCP => Some((16, true)),
        protocol::UDP => Some((6, true)),
        protocol::ICMP => Some((2, false)),
        protocol::ICMPV6 => Some((2, true)),
        _ => None,
    }
}

fn pseudo(source: &[u8], destination: &[u8], number: u8, length: usize) -> Vec<u8> {
    let length = (length as u32).to_be_bytes();
    [source, destination, &length, &[0, 0, 0, number]].concat()
}

/// Fills in the checksum of a transport header.
pub fn summed(source: IpAddr, destination: IpAddr, number: u8, mut payload: Vec<u8>) -> Vec<u8> {
    let Some((at, covers)) = place(number) else {
        return payload;
    };
    payload[at..at + 2].fill(0);
    let pseudo = match covers {
        true => pseudo(&octets(source), &octets(destination), number, payload.len()),
        false => Vec::new(),
    };
    let mut sum = checksum(&[&pseudo, &payload]);
    if number == protocol::UDP && sum == [0; 2] {
        sum = [0xff; 2];
    }
    payload[at..at + 2].copy_from_slice(&sum);
    payload
}

/// A packet, from its IP header on.
pub fn packet(source: IpAddr, destination: IpAddr, number: u8, payload: Vec<u8>) -> Vec<u8> {
    let payload = summed(source, destination, number, payload);
    part(source, destination, number, 0, &payload)
}

/// A part of a packet of IPv4 with this offset and flags, or a packet of IPv6.
pub fn part(
    source: IpAddr,
    destination: IpAddr,
    number: u8,
    offset: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = match source {
        IpAddr::V4(_) => {
            let length = (20 + payload.len() as u16).to_be_bytes();
            let [high, low] = offset.to_be_bytes();
            let mut header = std::vec![
                0x45, 0, length[0], length[1], 0, 7, high, low, 64, number, 0, 0
            ];
            header.extend(octets(source));
            header.extend(octets(destination));
            let sum = checksum(&[&header]);
            header[10..12].copy_from_slice(&sum);
            header
        }
        IpAddr::V6(_) => {
            let length = (payload.len() as u16).to_be_bytes();
            let mut header = std::vec![0x60, 0, 0, 0, length[0], length[1], number, 64];
            header.extend(octets(source));
            header.extend(octets(destination));
            header
        }
    };
    bytes.extend(payload);
    bytes
}

/// The frame of a packet.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    let kind = match packet[0] >> 4 {
        4 => [8, 0],
        _ => [0x86, 0xdd],
    };
    let header = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
    [&header, &kind[..], packet].concat()
}

/// UDP of these ports.
pub fn udp(ports: [u16; 2], data: &[u8]) -> Vec<u8> {
    let length = 8 + data.len() as u16;
    let header = [ports[0], ports[1], length, 0].map(u16::to_be_bytes);
    [&header.concat(), data].concat()
}

/// A segment of these ports.
pub fn tcp(ports: [u16; 2], seq: u32, ack: u32, flags: u8) -> Vec<u8> {
    let mut bytes = ports.map(u16::to_be_bytes).concat();
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}

/// A message of ICMP or ICMPv6.
pub fn icmp(kind: u8, code: u8, rest: [u8; 4], data: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0], &rest[..], data].concat()
}

/// Whether every checksum of a frame is what a full computation gives; of a quoted packet, that of
/// the IP header.
pub fn is_right(frame: &[u8]) -> bool {
    let packet = &frame[14..];
    let (size, number, ends) = match packet[0] >> 4 {
        4 => (20, packet[9], 12..20),
        _ => (40, packet[6], 8..40),
    };
    let payload = &packet[size..];
    let header = packet[0] >> 4 == 6 || checksum(&[&packet[..20]]) == [0; 2];
    let middle = ends.start + ends.len() / 2;
    let (source, destination) = (&packet[ends.start..middle], &packet[middle..ends.end]);
    let transport = match place(number) {
        Some((6, _)) if payload[6..8] == [0; 2] => true,
        Some((_, true)) => {
            let pseudo = pseudo(source, destination, number, payload.len());
            checksum(&[&pseudo, payload]) == [0; 2]
        }
        Some((_, false)) => checksum(&[payload]) == [0; 2],
        None => true,
    };
    let quotes = number == protocol::ICMP && matches!(payload[0], 3..=5 | 11 | 12);
    let quoted = !quotes || payload.len() < 28 || checksum(&[&payload[8..28]]) == [0; 2];
    header && transport && quoted
}
