//! Joining consecutive TCP segments into one large frame, for a wire that takes such.

use super::Offload;
use super::checksum::{fold, set_word, sum, word};
use super::headers::{IP_BYTES_MAX, IPV4_CHECKSUM, Ip, TCP_CHECKSUM, Transport};

const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// A frame that may still grow.
#[derive(Debug)]
pub(crate) struct Coalescer {
    frame: Vec<u8>,
    /// How the frame began; `None` if none is held.
    flow: Option<Flow>,
}

/// What a segment must continue.
#[derive(Clone, Copy, Debug)]
struct Flow {
    ip: Ip,
    /// Bytes in front of the payload.
    header: usize,
    /// Payload of each segment but the last.
    size: usize,
    segments: usize,
    next_sequence: u32,
    /// Nothing has said yet that a segment was the last.
    open: bool,
}

/// A TCP segment that may be joined with others.
#[derive(Clone, Copy, Debug)]
struct Segment {
    ip: Ip,
    header: usize,
    sequence: u32,
    pushed: bool,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is part of the frame that is held.
    Held,
    /// It is not: it must follow what is held.
    Refused,
}

impl Segment {
    /// Reads a TCP segment that carries data and nothing but ACK and PSH; the frame ends with it.
    fn read(frame: &[u8]) -> Option<Self> {
        let ip = Ip::find(frame)?;
        let Transport::Tcp { header } = ip.transport(frame)? else {
            return None;
        };
        let tcp = frame.get(ip.payload..)?;
        let flags = *tcp.get(FLAGS)?;
        let header = ip.payload + header;
        let plain = flags & !PSH == ACK && ip.end == frame.len() && header < frame.len();
        plain.then_some(Self {
            ip,
            header,
            sequence: u32::from_be_bytes(*tcp.get(SEQUENCE..)?.first_chunk()?),
            pushed: flags & PSH != 0,
        })
    }

    fn is_sound(&self, frame: &[u8]) -> bool {
        self.ip.header_is_sound(frame) && self.ip.payload_is_sound(frame) == Some(true)
    }
}

impl Coalescer {
    pub(crate) fn new() -> Self {
        Self {
            frame: Vec::with_capacity(IP_BYTES_MAX + 32),
            flow: None,
        }
    }

    /// Offers a frame with complete checksums. What is held must be sent before a frame that is
    /// refused; that one may be offered again then.
    pub(crate) fn offer(&mut self, frame: &[u8]) -> Taken {
        let Some(segment) = Segment::read(frame) else {
            return Taken::Refused;
        };
        match self.flow {
            None if !segment.pushed && segment.is_sound(frame) => self.begin(frame, segment),
            Some(flow) if self.continues(flow, frame, segment) && segment.is_sound(frame) => {
                self.append(flow, frame, segment);
            }
            _ => return Taken::Refused,
        }
        Taken::Held
    }

    /// Whether a frame is held that may grow no more.
    pub(crate) fn is_full(&self) -> bool {
        self.flow.is_some_and(|flow| !flow.open)
    }

    fn begin(&mut self, frame: &[u8], segment: Segment) {
        let size = frame.len() - segment.header;
        self.frame.clear();
        self.frame.extend_from_slice(frame);
        self.flow = Some(Flow {
            ip: segment.ip,
            header: segment.header,
            size,
            segments: 1,
            next_sequence: segment.sequence.wrapping_add(size as u32),
            open: true,
        });
    }

    fn continues(&self, flow: Flow, frame: &[u8], segment: Segment) -> bool {
        let payload = frame.len() - segment.header;
        flow.open
            && segment.header == flow.header
            && segment.ip.v6 == flow.ip.v6
            && segment.ip.start == flow.ip.start
            && segment.sequence == flow.next_sequence
            && payload <= flow.size
            && self.frame.len() + payload - flow.ip.start <= IP_BYTES_MAX
            && follows(&self.frame[..flow.header], frame, &flow.ip, flow.segments)
    }

    fn append(&mut self, mut flow: Flow, frame: &[u8], segment: Segment) {
        let payload = &frame[segment.header..];
        self.frame.extend_from_slice(payload);
        flow.segments += 1;
        flow.next_sequence = flow.next_sequence.wrapping_add(payload.len() as u32);
        if segment.pushed {
            self.frame[flow.ip.payload + FLAGS] |= PSH;
        }
        flow.open = !segment.pushed && payload.len() == flow.size;
        self.flow = Some(flow);
    }

    /// Takes away what is held, with what is left to do to it.
    pub(crate) fn take(&mut self) -> Option<(&[u8], Offload)> {
        let flow = self.flow.take()?;
        if flow.segments == 1 {
            return Some((&self.frame, Offload::default()));
        }
        let frame = &mut self.frame[..];
        let (ip, tcp) = (flow.ip.start, flow.ip.payload);
        let bytes = frame.len() - ip;
        if flow.ip.v6 {
            set_word(frame, ip + 4, (bytes - 40) as u16);
        } else {
            set_word(frame, ip + 2, bytes as u16);
            set_word(frame, ip + IPV4_CHECKSUM, 0);
            let value = !fold(sum(&frame[ip..tcp]));
            set_word(frame, ip + IPV4_CHECKSUM, value);
        }
        let pseudo = flow.ip.pseudo_header(frame, frame.len() - tcp);
        set_word(frame, tcp + TCP_CHECKSUM, fold(pseudo));
        let offload = Offload {
            checksum: Some((tcp as u16, TCP_CHECKSUM as u16)),
            segment: Some(flow.size as u16),
        };
        Some((&self.frame, offload))
    }
}

/// Whether `theirs` begins like a packet that continues one with the headers `ours`, cut into so
/// many segments. Headers may differ in length, checksums, sequence number and flags; the number of
/// an IPv4 packet must be the one that cutting would give it.
pub(crate) fn follows(ours: &[u8], theirs: &[u8], at: &Ip, segments: usize) -> bool {
    let (ip, tcp) = (at.start, at.payload);
    let Some(theirs) = theirs.get(..ours.len()) else {
        return false;
    };
    let ip_same = if at.v6 {
        ours[ip..ip + 4] == theirs[ip..ip + 4] && ours[ip + 6..tcp] == theirs[ip + 6..tcp]
    } else {
        let number = word(ours, ip + 4).map(|first| first.wrapping_add(segments as u16));
        ours[ip..ip + 2] == theirs[ip..ip + 2]
            && word(theirs, ip + 4) == number
            && ours[ip + 6..ip + IPV4_CHECKSUM] == theirs[ip + 6..ip + IPV4_CHECKSUM]
            && ours[ip + 12..tcp] == theirs[ip + 12..tcp]
    };
    ip_same
        && ours[..ip] == theirs[..ip]
        && ours[tcp..tcp + SEQUENCE] == theirs[tcp..tcp + SEQUENCE]
        && ours[tcp + 8..tcp + FLAGS] == theirs[tcp + 8..tcp + FLAGS]
        && ours[tcp + 14..tcp + TCP_CHECKSUM] == theirs[tcp + 14..tcp + TCP_CHECKSUM]
        && ours[tcp + 18..] == theirs[tcp + 18..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples;
    use crate::packet::segment::Plan;
    use proptest::prelude::*;

    /// What a wire gets when these frames are offered one after the other.
    fn coalesced(frames: &[Vec<u8>]) -> Vec<(Vec<u8>, Offload)> {
        let mut coalescer = Coalescer::new();
        let mut sent = Vec::new();
        let mut send = |(frame, offload): (&[u8], Offload)| sent.push((frame.to_vec(), offload));
        for frame in frames {
            if coalescer.offer(frame) == Taken::Refused {
                coalescer.take().map(&mut send);
                if coalescer.offer(frame) == Taken::Refused {
                    send((frame, Offload::default()));
                }
            }
        }
        coalescer.take().map(&mut send);
        sent
    }

    proptest! {
        /// Cut, joined, cut again: the same segments.
        #[test]
        fn what_is_joined_can_be_cut_again(v6: bool, len in 1usize..40_000, size in 100u16..1460) {
            let frame = samples::tcp(v6, None, u32::MAX - 500, &samples::bytes(len));
            let cut = |frame: &[u8], size| {
                let plan = Plan::read(frame, size).unwrap();
                (0..plan.count(frame.len()))
                    .map(|index| {
                        let mut out = Vec::new();
                        plan.write(frame, index, &mut out);
                        out
                    })
                    .collect::<Vec<_>>()
            };
            let segments = cut(&frame, size);
            let sent = coalesced(&segments);
            prop_assert_eq!(sent.len(), 1);
            let (whole, offload) = &sent[0];
            let again = match offload.segment {
                Some(size) => cut(whole, size),
                None => vec![whole.clone()],
            };
            prop_assert_eq!(again, segments);
        }
    }

    #[test]
    fn only_consecutive_sound_segments_of_one_flow_are_joined() {
        let numbered = |number: u8, sequence, len: usize| {
            let mut frame = samples::tcp(false, None, sequence, &samples::bytes(len));
            frame[19] = number;
            let value = word(&frame, 24).map(|sum| sum - u16::from(number - 9));
            set_word(&mut frame, 24, value.unwrap());
            frame
        };
        let lens = |frames: &[Vec<u8>]| -> Vec<(usize, Option<u16>)> {
            let sent = coalesced(frames);
            sent.iter()
                .map(|(frame, offload)| (frame.len() - 54, offload.segment))
                .collect()
        };
        let (a, b, c) = (
            numbered(9, 0, 100),
            numbered(10, 100, 100),
            numbered(11, 200, 50),
        );
        assert_eq!(lens(&[a.clone(), b.clone(), c.clone()]), [(250, Some(100))]);
        // A short one ends it, a gap does, and so does a wrong checksum.
        let d = numbered(12, 250, 50);
        assert_eq!(
            lens(&[a.clone(), b.clone(), c.clone(), d]),
            [(250, Some(100)), (50, None)]
        );
        assert_eq!(lens(&[a.clone(), c.clone()]), [(100, None), (50, None)]);
        let mut bad = b.clone();
        bad[80] ^= 1;
        assert_eq!(
            lens(&[a.clone(), bad, c]),
            [(100, None), (100, None), (50, None)]
        );
        // Another number in the IP header, another port.
        assert_eq!(
            lens(&[a.clone(), numbered(9, 100, 100)]),
            [(100, None), (100, None)]
        );
        let other = samples::udp(false, None, &samples::bytes(112));
        assert_eq!(
            lens(&[a, other, b]),
            [(100, None), (100, None), (100, None)]
        );
    }
}
