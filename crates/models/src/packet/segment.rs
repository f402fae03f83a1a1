//! Cutting a large packet of TCP or UDP into segments, as a NIC does (datasheet of the 82599,
//! 7.2.4; virtio 1.3, 5.1.6.2).

use super::Offload;
use super::checksum::{fold, set_word, sum, word};
use super::headers::{IPV4_CHECKSUM, Ip, TCP_CHECKSUM, Transport, UDP, UDP_CHECKSUM, UDP_HEADER};
use std::ops::Range;

const SEQUENCE: usize = 4;
const FLAGS: usize = 12;
/// Where a header of UDP has its length (RFC 768).
const UDP_LENGTH: usize = 4;

/// How the flags of TCP change from segment to segment: masks over the last 12 bits of the word at
/// byte 12 (datasheet, 8.2.3.9.3 and 8.2.3.9.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlagMasks {
    pub(crate) first: u16,
    pub(crate) middle: u16,
    pub(crate) last: u16,
}

impl FlagMasks {
    /// FIN and PSH in the last segment alone, CWR in the first alone (RFC 3168, 6.1.2).
    pub(crate) const STANDARD: Self = Self {
        first: 0xff6,
        middle: 0xf76,
        last: 0xf7f,
    };
}

/// A packet of TCP or UDP that is being cut. Lengths and checksums of its own are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) ip: Ip,
    /// Bytes in front of the payload.
    pub(crate) header: usize,
    /// Bytes of payload in each segment but the last.
    pub(crate) size: usize,
    pub(crate) masks: FlagMasks,
}

impl Plan {
    /// A plan for a frame whose IP header says how long it is.
    pub(crate) fn read(frame: &[u8], size: u16) -> Option<Self> {
        Self::read_in(frame, frame.len(), size)
    }

    /// The same for a frame of so many bytes, of which `frame` has at least the headers.
    pub(crate) fn read_in(frame: &[u8], bytes: usize, size: u16) -> Option<Self> {
        let ip = Ip::find_in(frame, bytes)?;
        let own = match ip.transport(frame)? {
            Transport::Tcp { header } => header,
            Transport::Udp => UDP_HEADER,
            Transport::Sctp => return None,
        };
        let header = ip.payload + own;
        (size > 0 && header <= frame.len() && header < bytes && ip.end == bytes).then_some(Self {
            ip,
            header,
            size: usize::from(size),
            masks: FlagMasks::STANDARD,
        })
    }

    /// Whether datagrams of UDP come of it, and not segments of TCP.
    pub(crate) fn is_udp(&self) -> bool {
        self.ip.protocol == UDP
    }

    /// Where the checksum lies in the header behind IP's.
    pub(crate) fn checksum_offset(&self) -> usize {
        match self.is_udp() {
            true => UDP_CHECKSUM,
            false => TCP_CHECKSUM,
        }
    }

    /// Number of segments of a frame of so many bytes.
    pub(crate) fn count(&self, bytes: usize) -> usize {
        bytes.saturating_sub(self.header).div_ceil(self.size)
    }

    /// Writes segment `index` of `frame` into `out`; `false` if there is none.
    pub(crate) fn write(&self, frame: &[u8], index: usize, out: &mut Vec<u8>) -> bool {
        let from = self.header + index * self.size;
        if from >= frame.len() {
            return false;
        }
        let to = frame.len().min(from + self.size);
        out.clear();
        out.extend_from_slice(&frame[..self.header]);
        out.extend_from_slice(&frame[from..to]);
        self.write_ip(out, index, to - from);
        match self.is_udp() {
            true => {
                let bytes = (UDP_HEADER + to - from) as u16;
                set_word(out, self.ip.payload + UDP_LENGTH, bytes);
            }
            false => self.write_tcp(out, &(index..index + 1), self.count(frame.len())),
        }
        self.write_checksum(out);
        true
    }

    /// Writes the headers into `out` of what consecutive `segments` of TCP make together:
    /// `payload` bytes behind headers that are those of the first one but for lengths and flags.
    /// TCP's checksum is left as it was. `frame` is what is being cut, or the headers of it, and
    /// `bytes` its length.
    pub(crate) fn write_headers(
        &self,
        frame: &[u8],
        bytes: usize,
        segments: &Range<usize>,
        out: &mut Vec<u8>,
    ) {
        out.clear();
        out.extend_from_slice(&frame[..self.header]);
        self.write_ip(out, segments.start, self.payload(bytes, segments).len());
        self.write_tcp(out, segments, self.count(bytes));
    }

    /// Prepares a packet of `bytes` bytes, or its headers, for a wire that takes large frames, and
    /// says what is left to do to it there.
    pub(crate) fn leave_to_wire(&self, headers: &mut [u8], bytes: usize) -> Offload {
        let Self { ip, size, .. } = *self;
        let len = bytes - ip.start;
        if ip.v6 {
            set_word(headers, ip.start + 4, (len - 40) as u16);
        } else {
            set_word(headers, ip.start + 2, len as u16);
            set_word(headers, ip.start + IPV4_CHECKSUM, 0);
            let value = !fold(sum(&headers[ip.start..ip.payload]));
            set_word(headers, ip.start + IPV4_CHECKSUM, value);
        }
        let pseudo = fold(ip.pseudo_header(headers, bytes - ip.payload));
        let offset = self.checksum_offset();
        set_word(headers, ip.payload + offset, pseudo);
        Offload {
            checksum: Some((ip.payload as u16, offset as u16)),
            segment: Some(size as u16),
        }
    }

    /// Where the payload of consecutive segments lies in a frame of so many bytes.
    pub(crate) fn payload(&self, bytes: usize, segments: &Range<usize>) -> Range<usize> {
        let place = |index: usize| bytes.min(self.header + index * self.size);
        place(segments.start)..place(segments.end)
    }

    /// Lengths, number and checksum of a packet with so much payload, of which segment `index` is
    /// the first.
    fn write_ip(&self, frame: &mut [u8], index: usize, payload: usize) {
        let start = self.ip.start;
        let len = self.header + payload - start;
        if self.ip.v6 {
            set_word(frame, start + 4, (len - 40) as u16);
            return;
        }
        let packet = &mut frame[start..];
        let number = word(packet, 4).unwrap_or(0).wrapping_add(index as u16);
        set_word(packet, 2, len as u16);
        set_word(packet, 4, number);
        set_word(packet, IPV4_CHECKSUM, 0);
        let header = &packet[..self.ip.payload - start];
        let checksum = !fold(sum(header));
        set_word(packet, IPV4_CHECKSUM, checksum);
    }

    /// Sequence number and flags of consecutive segments out of `count`.
    fn write_tcp(&self, frame: &mut [u8], segments: &Range<usize>, count: usize) {
        let tcp = &mut frame[self.ip.payload..];
        if let Some(place) = tcp[SEQUENCE..].first_chunk_mut::<4>() {
            let sequence = u32::from_be_bytes(*place);
            *place = sequence
                .wrapping_add((segments.start * self.size) as u32)
                .to_be_bytes();
        }
        let (begins, ends) = (segments.start == 0, segments.end == count);
        // What is not cut at all keeps its flags.
        let mask = match (begins, ends) {
            (true, true) => 0xfff,
            (true, false) if segments.len() == 1 => self.masks.first,
            (true, false) => self.masks.first | self.masks.middle,
            (false, true) if segments.len() == 1 => self.masks.last,
            (false, true) => self.masks.middle | self.masks.last,
            (false, false) => self.masks.middle,
        };
        let flags = word(tcp, FLAGS).unwrap_or(0) & (0xf000 | mask);
        set_word(tcp, FLAGS, flags);
    }

    /// Completes the checksum of a segment.
    pub(crate) fn write_checksum(&self, segment: &mut [u8]) {
        let pseudo = self
            .ip
            .pseudo_header(segment, segment.len() - self.ip.payload);
        let (packet, offset) = (&mut segment[self.ip.payload..], self.checksum_offset());
        set_word(packet, offset, 0);
        let checksum = match !fold(pseudo + sum(packet)) {
            // This would say that there is none (RFC 768).
            0 if self.is_udp() => 0xffff,
            checksum => checksum,
        };
        set_word(packet, offset, checksum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples;
    use proptest::prelude::*;

    proptest! {
        /// The payloads are the payload, in order, and each segment is a sound packet.
        #[test]
        fn segments_are_sound_and_whole(
            v6: bool,
            tag in proptest::option::of(any::<u16>()),
            len in 1usize..9000,
            size in 1u16..1500,
        ) {
            let frame = samples::tcp(v6, tag, 7, &samples::bytes(len));
            let plan = Plan::read(&frame, size).unwrap();
            let (mut out, mut payload) = (Vec::new(), Vec::new());
            let mut index = 0;
            while plan.write(&frame, index, &mut out) {
                let ip = Ip::find(&out).unwrap();
                prop_assert!(ip.header_is_sound(&out));
                prop_assert_eq!(ip.payload_is_sound(&out), Some(true));
                prop_assert_eq!(ip.end, out.len());
                prop_assert!(out.len() - plan.header <= usize::from(size));
                let sequence: [u8; 4] = out[ip.payload + 4..ip.payload + 8].try_into().unwrap();
                prop_assert_eq!(u32::from_be_bytes(sequence), 7 + payload.len() as u32);
                payload.extend_from_slice(&out[plan.header..]);
                index += 1;
            }
            prop_assert_eq!(index, plan.count(frame.len()));
            prop_assert_eq!(payload, samples::bytes(len));
        }

        /// The same of datagrams, each of which has a length of its own.
        #[test]
        fn datagrams_are_sound_and_whole(
            v6: bool,
            tag in proptest::option::of(any::<u16>()),
            len in 1usize..9000,
            size in 1u16..1500,
        ) {
            let frame = samples::udp(v6, tag, &samples::bytes(len));
            let plan = Plan::read(&frame, size).unwrap();
            let (mut out, mut payload) = (Vec::new(), Vec::new());
            let mut index = 0;
            while plan.write(&frame, index, &mut out) {
                let ip = Ip::find(&out).unwrap();
                prop_assert!(ip.header_is_sound(&out));
                prop_assert_eq!(ip.payload_is_sound(&out), Some(true));
                prop_assert_eq!(ip.end, out.len());
                let udp = &out[ip.payload..];
                prop_assert_eq!(word(udp, UDP_LENGTH), Some(udp.len() as u16));
                prop_assert_eq!(&udp[..4], &frame[ip.payload..][..4]);
                payload.extend_from_slice(&udp[UDP_HEADER..]);
                index += 1;
                let whole = usize::from(size) * index == payload.len();
                prop_assert!(whole || payload.len() == len);
            }
            prop_assert_eq!(index, len.div_ceil(size.into()));
            prop_assert_eq!(payload, samples::bytes(len));
        }

        #[test]
        fn no_frame_makes_a_plan_panic(
            frame in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0usize..3,
            size: u16,
        ) {
            let mut frame = frame;
            let kinds = [[0x08, 0x00, 0x45], [0x86, 0xdd, 0x60], [0x81, 0x00, 0x00]];
            if frame.len() > 15 {
                frame[12..15].copy_from_slice(&kinds[kind]);
            }
            if let Some(plan) = Plan::read(&frame, size) {
                let mut out = Vec::new();
                for index in 0..plan.count(frame.len()) {
                    prop_assert!(plan.write(&frame, index, &mut out));
                }
            }
        }
    }

    #[test]
    fn flags_of_the_end_are_in_the_last_segment_alone() {
        let mut frame = samples::tcp(false, None, 1, &samples::bytes(30));
        frame[ETHERNET_AND_IP + 13] = 0x80 | 0x10 | 0x08 | 0x01;
        let plan = Plan::read(&frame, 10).unwrap();
        let mut out = Vec::new();
        let flags: Vec<u8> = (0..3)
            .map(|index| {
                plan.write(&frame, index, &mut out);
                out[ETHERNET_AND_IP + 13]
            })
            .collect();
        assert_eq!(flags, [0x90, 0x10, 0x19]);
    }

    const ETHERNET_AND_IP: usize = 34;
}
