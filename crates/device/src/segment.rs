//! Segmentation of TCP and UDP in software, for a port that cannot leave it to its host or NIC.

use crate::checksum;
use crate::offload::{Gso, GsoKind};
use crate::transport::{TCP, Transport, UDP};

/// Most header bytes that segments repeat: Ethernet with two VLAN tags, IP and TCP with all their
/// options take 142; the rest is for IPv6 extension headers.
pub const SEGMENT_HEADER_MAX: usize = 256;

/// Offset of TCP's checksum in its header (RFC 9293, 3.1).
pub(crate) const TCP_CHECKSUM: usize = 16;
/// Offset of UDP's checksum in its header (RFC 768).
pub(crate) const UDP_CHECKSUM: usize = 6;
const UDP_LENGTH: usize = 4;
const UDP_HEADER: usize = 8;
const TCP_SEQUENCE: usize = 4;
pub(crate) const TCP_FLAGS: usize = 13;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
pub(crate) const CWR: u8 = 0x80;

/// Where headers and payload of a TCP or UDP packet that is to be cut lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub transport: Transport,
    /// Bytes in front of the payload.
    pub header: usize,
}

impl Layout {
    /// Reads the headers of `frame`; `None` unless it is one whole packet of the protocol and IP
    /// version that `kind` says, with a payload and nothing behind it.
    pub(crate) fn read(frame: &[u8], kind: GsoKind) -> Option<Self> {
        let transport = Transport::find(frame).filter(|found| kind.fits(found))?;
        let own = match transport.protocol {
            UDP => UDP_HEADER,
            _ => {
                let tcp: &[u8; 20] = frame.get(transport.start..)?.first_chunk()?;
                let header = 4 * usize::from(tcp[12] >> 4);
                (header >= tcp.len()).then_some(header)?
            }
        };
        let header = transport.start + own;
        let whole = transport.ip + transport.ip_bytes(frame)? == frame.len();
        (whole && header <= SEGMENT_HEADER_MAX && header < frame.len())
            .then_some(Self { transport, header })
    }
}

/// Cuts `frame`, whose checksum is still to be completed, into TCP segments or UDP datagrams;
/// `None` if it is not what `gso` says.
pub fn segments(frame: &[u8], gso: Gso) -> Option<Segmenter<'_>> {
    let layout = Layout::read(frame, gso.kind)?;
    if gso.size == 0 {
        return None;
    }
    Some(Segmenter {
        frame,
        layout,
        size: usize::from(gso.size),
        payload: layout.header,
        number: 0,
    })
}

/// Writes the segments of a frame, one by one, with complete checksums.
#[derive(Clone, Debug)]
pub struct Segmenter<'a> {
    frame: &'a [u8],
    layout: Layout,
    size: usize,
    /// Where the payload of the next segment begins.
    payload: usize,
    /// Segments written.
    number: u16,
}

impl Segmenter<'_> {
    /// Writes the next segment to the start of `out` and returns its length in bytes, at most
    /// [`Gso::segment_bytes`]; `None` once all are written, or if `out` is too short for it.
    pub fn next(&mut self, out: &mut [u8]) -> Option<usize> {
        let rest = &self.frame[self.payload..];
        if rest.is_empty() {
            return None;
        }
        let payload = &rest[..rest.len().min(self.size)];
        let len = self.layout.header + payload.len();
        let segment = out.get_mut(..len)?;
        segment[..self.layout.header].copy_from_slice(&self.frame[..self.layout.header]);
        segment[self.layout.header..].copy_from_slice(payload);
        self.write_ip(segment);
        match self.layout.transport.protocol {
            TCP => self.write_tcp(segment, payload.len() == rest.len()),
            _ => self.write_udp(segment),
        }
        self.payload += payload.len();
        self.number += 1;
        Some(len)
    }

    /// Length, and for IPv4 a number and header checksum of its own.
    fn write_ip(&self, segment: &mut [u8]) {
        let Transport {
            ip, start, ipv6, ..
        } = self.layout.transport;
        let packet = &mut segment[ip..];
        if ipv6 {
            let payload = (packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&payload.to_be_bytes());
            return;
        }
        let total = packet.len() as u16;
        let identification = u16::from_be_bytes([packet[4], packet[5]]).wrapping_add(self.number);
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[4..6].copy_from_slice(&identification.to_be_bytes());
        packet[10..12].fill(0);
        checksum::complete(&mut packet[..start - ip], 0, 10);
    }

    /// Sequence number, flags and checksum.
    fn write_tcp(&self, segment: &mut [u8], last: bool) {
        let Layout { transport, header } = self.layout;
        let tcp = &mut segment[transport.start..];

        let offset = (self.payload - header) as u32;
        let place = &mut tcp[TCP_SEQUENCE..TCP_SEQUENCE + 4];
        let sequence = u32::from_be_bytes([place[0], place[1], place[2], place[3]]);
        place.copy_from_slice(&sequence.wrapping_add(offset).to_be_bytes());

        if !last {
            tcp[TCP_FLAGS] &= !(FIN | PSH);
        }
        if self.number > 0 {
            tcp[TCP_FLAGS] &= !CWR;
        }

        self.complete(tcp, TCP_CHECKSUM);
    }

    /// Length and checksum.
    fn write_udp(&self, segment: &mut [u8]) {
        let udp = &mut segment[self.layout.transport.start..];
        let own = udp.len() as u16;
        udp[UDP_LENGTH..UDP_LENGTH + 2].copy_from_slice(&own.to_be_bytes());
        self.complete(udp, UDP_CHECKSUM);
    }

    /// Completes the checksum of `packet`, from its transport header on, which lies at `field`.
    fn complete(&self, packet: &mut [u8], field: usize) {
        // It holds the pseudo header's sum with the length of the whole; only that differs.
        let whole = (self.frame.len() - self.layout.transport.start) as u16;
        let own = packet.len() as u16;
        let place = &mut packet[field..field + 2];
        let pseudo = u64::from(u16::from_ne_bytes([place[0], place[1]]));
        let pseudo = checksum::fold(pseudo + checksum::word(!whole) + checksum::word(own));
        place.copy_from_slice(&pseudo.to_ne_bytes());
        checksum::complete(packet, 0, field);
    }
}
