//! Packets of conversations, with all checksums right: the kernel looks at them.

use crate::frame::checksum;
use std::net::{Ipv4Addr, Ipv6Addr};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// IPv6's extension header of fragments (RFC 8200, 4.5).
const FRAGMENT: u8 = 44;

/// Which IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Two hosts: one on side A, and one on side B. Everybody else has other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// Their family.
    pub family: Family,
    /// A number that no other two hosts have.
    pub number: u32,
}

impl Hosts {
    /// The address of the one on this side.
    pub fn address(self, side: u8) -> Vec<u8> {
        match self.family {
            Family::V4 => {
                let network = 0x0a80_0000 | u32::from(side) << 22;
                Ipv4Addr::from_bits(network | self.number & 0x3f_ffff)
                    .octets()
                    .to_vec()
            }
            Family::V6 => {
                let network = (0xfd0a + u128::from(side)) << 112;
                Ipv6Addr::from_bits(network | u128::from(self.number))
                    .octets()
                    .to_vec()
            }
        }
    }
}

/// An IP packet.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The side that it comes from, as the number of its port.
    pub from: u8,
    /// Source address.
    pub source: Vec<u8>,
    /// Destination address.
    pub destination: Vec<u8>,
    /// What follows the IP header.
    pub protocol: u8,
    /// From the transport header on.
    pub payload: Vec<u8>,
    /// Identification, for the parts.
    pub id: u16,
    /// In how many parts it comes.
    pub parts: usize,
    /// What it is, in words.
    pub what: String,
}

impl Packet {
    /// One between two hosts.
    pub fn new(hosts: Hosts, from: u8, protocol: u8, payload: Vec<u8>) -> Self {
        Self::between(
            from,
            hosts.address(from),
            hosts.address(1 - from),
            protocol,
            payload,
        )
    }

    /// One between any addresses; its checksum is made right.
    pub fn between(
        from: u8,
        source: Vec<u8>,
        destination: Vec<u8>,
        protocol: u8,
        mut payload: Vec<u8>,
    ) -> Self {
        let place = match protocol {
            TCP => Some(16),
            UDP => Some(6),
            ICMP | ICMPV6 => Some(2),
            _ => None,
        };
        if let Some(at) = place.filter(|at| at + 2 <= payload.len()) {
            payload[at..at + 2].fill(0);
            let mut covered = Vec::new();
            if protocol != ICMP {
                covered.extend([source.as_slice(), &destination].concat());
                covered.extend((payload.len() as u32).to_be_bytes());
                covered.extend([0, 0, 0, protocol]);
            }
            covered.extend(&payload);
            let sum = match checksum(&covered) {
                0 if protocol == UDP => 0xffff,
                sum => sum,
            };
            payload[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        Self {
            from,
            source,
            destination,
            protocol,
            payload,
            id: 1,
            parts: 1,
            what: String::new(),
        }
    }

    /// One that passes where there are no rules.
    pub fn first(family: Family) -> Self {
        let hosts = Hosts { family, number: 1 };
        Self::new(hosts, 0, UDP, udp(9, 9, 8, 0))
    }

    fn family(&self) -> Family {
        match self.source.len() {
            4 => Family::V4,
            _ => Family::V6,
        }
    }

    /// The packet as an error may quote it: from its IP header on.
    pub fn quoted(&self) -> Vec<u8> {
        self.ip(&self.payload, None)
    }

    /// The packet, or a part of it: at this offset in bytes, and whether more come.
    fn ip(&self, payload: &[u8], part: Option<(usize, bool)>) -> Vec<u8> {
        match self.family() {
            Family::V4 => {
                let field = part.map_or(0x4000, |(offset, more)| {
                    (offset / 8) as u16 | if more { 0x2000 } else { 0 }
                });
                let mut header = vec![0x45, 0];
                header.extend((20 + payload.len() as u16).to_be_bytes());
                header.extend(self.id.to_be_bytes());
                header.extend(field.to_be_bytes());
                header.extend([64, self.protocol, 0, 0]);
                header.extend([self.source.as_slice(), &self.destination].concat());
                let sum = checksum(&header).to_be_bytes();
                header[10..12].copy_from_slice(&sum);
                [header.as_slice(), payload].concat()
            }
            Family::V6 => {
                let mut content = Vec::new();
                if let Some((offset, more)) = part {
                    content.extend([self.protocol, 0]);
                    content.extend((offset as u16 | u16::from(more)).to_be_bytes());
                    content.extend(u32::from(self.id).to_be_bytes());
                }
                content.extend(payload);
                let next = if part.is_some() {
                    FRAGMENT
                } else {
                    self.protocol
                };
                let mut header = vec![0x60, 0, 0, 0];
                header.extend((content.len() as u16).to_be_bytes());
                header.extend([next, 64]);
                header.extend([self.source.as_slice(), &self.destination].concat());
                [header, content].concat()
            }
        }
    }

    /// The frames that it comes in, in order.
    pub fn frames(&self, to: [u8; 6], from: [u8; 6]) -> Vec<Vec<u8>> {
        let ether_type: u16 = match self.family() {
            Family::V4 => 0x0800,
            Family::V6 => 0x86dd,
        };
        let frame = |packet: Vec<u8>| [&to[..], &from, &ether_type.to_be_bytes(), &packet].concat();
        if self.parts < 2 {
            return vec![frame(self.ip(&self.payload, None))];
        }
        let size = (self.payload.len() / self.parts).next_multiple_of(8).max(8);
        let chunks: Vec<_> = self.payload.chunks(size).collect();
        let parts = chunks.iter().enumerate().map(|(number, chunk)| {
            frame(self.ip(chunk, Some((number * size, number + 1 < chunks.len()))))
        });
        parts.collect()
    }

    /// The traffic class of a frame, six bits, if it is this packet or its first part.
    pub fn class_of(&self, frame: &[u8]) -> Option<u8> {
        let packet = frame.get(14..)?;
        let (class, addresses) = match self.family() {
            Family::V4 => (packet.get(1)? >> 2, packet.get(12..20)?),
            Family::V6 => {
                let [high, low] = *packet.first_chunk::<2>()?;
                ((high & 0xf) << 2 | low >> 6, packet.get(8..40)?)
            }
        };
        let ours = [self.source.as_slice(), &self.destination].concat();
        (addresses == ours).then_some(class)
    }
}

/// A datagram with so many bytes of data, and a length that is wrong by `lie`.
pub fn udp(source: u16, destination: u16, data: usize, lie: i32) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    bytes.extend(((8 + data) as i32 + lie).to_be_bytes()[2..].iter());
    bytes.extend([0, 0]);
    bytes.resize(8 + data, b'x');
    bytes
}

/// A segment.
#[derive(Clone, Debug)]
pub struct Segment {
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement.
    pub ack: u32,
    /// FIN, SYN, RST, PSH, ACK, URG, ECE, CWR, from the lowest bit.
    pub flags: u8,
    /// Window.
    pub window: u16,
    /// Options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// Bytes of data.
    pub data: usize,
}

impl Segment {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.ports.map(u16::to_be_bytes).concat();
        bytes.extend(self.seq.to_be_bytes());
        bytes.extend(self.ack.to_be_bytes());
        bytes.push((((20 + self.options.len()) / 4) << 4) as u8);
        bytes.push(self.flags);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0, 0, 0]);
        bytes.extend(&self.options);
        bytes.resize(bytes.len() + self.data, b'x');
        bytes
    }
}
