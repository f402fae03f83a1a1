//! Generated conversations: most packets are what comes next, and some are lies.

use super::packet::{Family, Hosts, Packet, Segment, udp};
use fastrand::Rng;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Most packets of a conversation.
const PACKETS_MAX: usize = 40;

/// Most bytes that an error quotes.
const QUOTE_MAX: usize = 200;

/// A conversation between two hosts that have no other one.
pub fn conversation(rng: &mut Rng, number: u32) -> Vec<Packet> {
    let family = if rng.u8(0..3) == 0 {
        Family::V6
    } else {
        Family::V4
    };
    let hosts = Hosts { family, number };
    let mut talk = Talk {
        hosts,
        ports: [rng.u16(1024..), [80, 443, 22, 53, 7070][rng.usize(0..5)]],
        sides: [Side::new(rng), Side::new(rng)],
        packets: Vec::new(),
        id: rng.u16(..),
    };
    match rng.u8(0..10) {
        0..=5 => talk.tcp(rng),
        6..=7 => talk.datagrams(rng),
        8 => talk.questions(rng),
        _ => talk.other(rng),
    }
    talk.packets
}

/// What one side of a connection knows.
#[derive(Clone, Copy)]
struct Side {
    /// What it sends next.
    next: u32,
    /// What it has of the other side.
    acked: u32,
    window: u16,
    scale: Option<u8>,
    sack: bool,
}

impl Side {
    fn new(rng: &mut Rng) -> Self {
        Self {
            next: match rng.u8(0..4) {
                0 => rng.u32(0xffff_f000..),
                1 => rng.u32(0..4096),
                _ => rng.u32(..),
            },
            acked: 0,
            window: [0, 1, 1000, 29_200, 65_535][rng.usize(0..5)].max(rng.u16(0..3)),
            scale: rng.bool().then(|| rng.u8(0..16)),
            sack: rng.bool(),
        }
    }

    /// Options of its SYN.
    fn options(&self) -> Vec<u8> {
        let mut options = vec![2, 4, 5, 0xb4];
        if let Some(scale) = self.scale {
            options.extend([1, 3, 3, scale]);
        }
        if self.sack {
            options.extend([1, 1, 4, 2]);
        }
        options
    }
}

struct Talk {
    hosts: Hosts,
    ports: [u16; 2],
    sides: [Side; 2],
    packets: Vec<Packet>,
    id: u16,
}

impl Talk {
    fn push(&mut self, packet: Packet, what: String) {
        self.id = self.id.wrapping_add(1);
        let id = self.id;
        self.packets.push(Packet { id, what, ..packet });
    }

    /// Source and destination port of what this side sends.
    fn ports(&self, from: u8) -> [u16; 2] {
        let [client, server] = self.ports;
        if from == 0 {
            [client, server]
        } else {
            [server, client]
        }
    }

    fn segment(&self, from: u8, flags: u8) -> Segment {
        let side = self.sides[usize::from(from)];
        Segment {
            ports: self.ports(from),
            seq: side.next,
            ack: if flags & ACK != 0 { side.acked } else { 0 },
            flags,
            window: side.window,
            options: if flags & SYN != 0 {
                side.options()
            } else {
                Vec::new()
            },
            data: 0,
        }
    }

    fn send(&mut self, from: u8, segment: &Segment) {
        let what = format!("{} {segment:?}", ["A", "B"][usize::from(from)]);
        let packet = Packet::new(self.hosts, from, TCP, segment.bytes());
        self.push(packet, what);
    }

    /// Sends a segment that arrives.
    fn arrives(&mut self, from: u8, segment: &Segment) {
        self.send(from, segment);
        let counted = u32::from(segment.flags & SYN != 0) + u32::from(segment.flags & FIN != 0);
        let end = segment
            .seq
            .wrapping_add(segment.data as u32)
            .wrapping_add(counted);
        let (own, other) = (usize::from(from), usize::from(1 - from));
        self.sides[own].next = end;
        self.sides[other].acked = end;
    }

    /// TCP (RFC 9293): opened in one of several ways, and then anything.
    fn tcp(&mut self, rng: &mut Rng) {
        match rng.u8(0..10) {
            0 => {}
            1 => {
                // A simultaneous open.
                for from in [0, 1] {
                    let syn = self.segment(from, SYN);
                    self.arrives(from, &syn);
                }
                for from in [1, 0] {
                    let mut answer = self.segment(from, SYN | ACK);
                    answer.seq = answer.seq.wrapping_sub(1);
                    self.send(from, &answer);
                }
            }
            2 => {
                // It began before it was seen.
                for from in [0, 1] {
                    self.sides[from].acked = self.sides[1 - from].next;
                }
                let from = rng.u8(0..2);
                let data = self.data(rng, from);
                self.arrives(0, &data);
            }
            opened => {
                let syn = self.segment(0, SYN);
                self.arrives(0, &syn);
                if opened == 3 {
                    self.anything(rng);
                }
                let answer = self.segment(1, SYN | ACK);
                self.arrives(1, &answer);
                if opened == 4 {
                    self.anything(rng);
                }
                let ack = self.segment(0, ACK);
                self.arrives(0, &ack);
            }
        }
        for _ in 0..rng.usize(1..PACKETS_MAX) {
            self.step(rng);
        }
    }

    fn data(&self, rng: &mut Rng, from: u8) -> Segment {
        let data = [0, 1, 10, 500, 1400][rng.usize(0..5)];
        Segment {
            data,
            ..self.segment(from, ACK | if rng.bool() { PSH } else { 0 })
        }
    }

    /// What comes next, mostly.
    fn step(&mut self, rng: &mut Rng) {
        let from = rng.u8(0..2);
        match rng.u8(0..40) {
            0..=13 => {
                let data = self.data(rng, from);
                self.arrives(from, &data);
            }
            14..=19 => {
                let ack = self.segment(from, ACK);
                self.send(from, &ack);
            }
            20 => self.sides[usize::from(from)].window = rng.u16(0..3000),
            21..=22 => {
                let fin = self.segment(from, FIN | ACK);
                self.arrives(from, &fin);
            }
            23 => {
                let reset = self.segment(from, if rng.bool() { RST } else { RST | ACK });
                self.send(from, &reset);
            }
            24..=25 => {
                let syn = self.segment(from, if rng.bool() { SYN } else { SYN | ACK });
                self.send(from, &syn);
            }
            26 => {
                // The ports are used again.
                self.sides = [Side::new(rng), Side::new(rng)];
                let syn = self.segment(0, SYN);
                self.arrives(0, &syn);
                if rng.bool() {
                    let answer = self.segment(1, SYN | ACK);
                    self.arrives(1, &answer);
                    let ack = self.segment(0, ACK);
                    self.arrives(0, &ack);
                }
            }
            27 => self.again(rng),
            28..=29 => self.error(rng),
            30 => self.sack(rng, from),
            _ => self.anything(rng),
        }
    }

    /// A packet that was sent before.
    fn again(&mut self, rng: &mut Rng) {
        if let Some(packet) = rng.choice(&self.packets) {
            let packet = packet.clone();
            for _ in 0..rng.usize(1..5) {
                let what = format!("again: {}", packet.what);
                self.push(packet.clone(), what);
            }
        }
    }

    /// A selective acknowledgement (RFC 2018).
    fn sack(&mut self, rng: &mut Rng, from: u8) {
        let mut ack = self.segment(from, ACK);
        let left = ack.ack.wrapping_add(rng.u32(0..2000));
        let right = left.wrapping_add(rng.u32(0..2000));
        ack.options = [
            [1, 1, 5, 10].as_slice(),
            &left.to_be_bytes(),
            &right.to_be_bytes(),
        ]
        .concat();
        self.send(from, &ack);
    }

    /// A segment whose numbers or flags are near what is right, or far from it.
    fn anything(&mut self, rng: &mut Rng) {
        let from = rng.u8(0..2);
        let flags = match rng.u8(0..12) {
            0 => rng.u8(..),
            1 => FIN,
            2 => SYN | FIN,
            3 => SYN,
            4 => SYN | ACK,
            5 => RST,
            6 => RST | ACK,
            7 => FIN | ACK,
            8 => ACK | URG,
            _ => ACK,
        };
        let mut segment = self.segment(from, flags);
        let side = self.sides[usize::from(from)];
        let other = self.sides[usize::from(1 - from)];
        let window = u32::from(other.window) << other.scale.unwrap_or(0).min(14);
        let near = |rng: &mut Rng, number: u32| match rng.u8(0..10) {
            0..=2 => number,
            3 => number.wrapping_add(1),
            4 => number.wrapping_sub(1),
            5 => number.wrapping_add(rng.u32(0..3000)),
            6 => number.wrapping_sub(rng.u32(0..3000)),
            7 => number
                .wrapping_add(window)
                .wrapping_add(rng.u32(0..4))
                .wrapping_sub(2),
            8 => number
                .wrapping_sub(window)
                .wrapping_add(rng.u32(0..4))
                .wrapping_sub(2),
            _ if rng.bool() => number
                .wrapping_sub(66_000)
                .wrapping_add(rng.u32(0..6))
                .wrapping_sub(3),
            _ => [0, rng.u32(..), number.wrapping_add(70_000)][rng.usize(0..3)],
        };
        segment.seq = near(rng, segment.seq);
        segment.ack = match rng.bool() {
            true => near(rng, side.acked),
            false => near(rng, segment.ack),
        };
        segment.data = [0, 0, 1, 100, 1400][rng.usize(0..5)];
        if rng.u8(0..10) == 0 {
            segment.options = [
                vec![1, 1, 1, 1],
                vec![3, 3, 7, 0],
                vec![5, 1, 0, 0],
                vec![8, 10, 0, 0],
                vec![0, 9, 9, 9],
                vec![1, 1, 4, 2],
            ][rng.usize(0..6)]
            .clone();
        }
        if rng.u8(0..4) == 0 {
            segment.window = rng.u16(..);
        }
        match rng.bool() {
            true => self.arrives(from, &segment),
            false => self.send(from, &segment),
        }
    }

    /// UDP, also in parts.
    fn datagrams(&mut self, rng: &mut Rng) {
        for _ in 0..rng.usize(1..PACKETS_MAX / 2) {
            let from = rng.u8(0..2);
            let ports = self.ports(from);
            match rng.u8(0..10) {
                0 => self.error(rng),
                1..=2 => {
                    let mut packet =
                        Packet::new(self.hosts, from, UDP, udp(ports[0], ports[1], 2000, 0));
                    packet.parts = rng.usize(2..4);
                    self.push(packet, format!("UDP {ports:?} in parts"));
                }
                3 => {
                    let lie = [-9, -1, 1, 100][rng.usize(0..4)];
                    let payload = udp(ports[0], ports[1], 4, lie);
                    let packet = Packet::new(self.hosts, from, UDP, payload);
                    self.push(packet, format!("UDP {ports:?}, its length wrong by {lie}"));
                }
                _ => {
                    let payload = udp(ports[0], ports[1], rng.usize(0..40), 0);
                    let packet = Packet::new(self.hosts, from, UDP, payload);
                    self.push(packet, format!("UDP {ports:?}"));
                }
            }
        }
    }

    fn icmp(&self) -> u8 {
        match self.hosts.family {
            Family::V4 => ICMP,
            Family::V6 => ICMPV6,
        }
    }

    /// Questions, and answers to them or to nothing.
    fn questions(&mut self, rng: &mut Rng) {
        for _ in 0..rng.usize(1..PACKETS_MAX / 2) {
            let from = rng.u8(0..2);
            // Errors have a way of their own, and what is about a link is not sent on.
            let kind = match (self.hosts.family, rng.u8(0..4)) {
                (Family::V4, 0..=1) => [8, 0][rng.usize(0..2)],
                (Family::V4, _) => [8, 0, 13, 14, 15, 16, 17, 18, 9, 10, 42, 255][rng.usize(0..12)],
                (Family::V6, 0..=1) => [128, 129][rng.usize(0..2)],
                (Family::V6, _) => [128, 129, 139, 140, 200, 255, 144][rng.usize(0..7)],
            };
            let (code, id) = (rng.u8(0..16) / 14, rng.u8(0..3));
            let payload = vec![kind, code, 0, 0, 0, id, 0, 1, 1, 2, 3, 4];
            let packet = Packet::new(self.hosts, from, self.icmp(), payload);
            self.push(packet, format!("ICMP {kind} code {code} id {id}"));
            if rng.u8(0..8) == 0 {
                self.error(rng);
            }
        }
    }

    /// An error that quotes a packet of this conversation, truly or not.
    fn error(&mut self, rng: &mut Rng) {
        let Some(quoted) = rng.choice(&self.packets).cloned() else {
            return;
        };
        let mut quote = quoted.quoted();
        quote.truncate(QUOTE_MAX);
        let lie = rng.u8(0..8);
        match lie {
            0 => quote.truncate(rng.usize(0..=quote.len())),
            1 => {
                let header = quote.len().min(if self.hosts.family == Family::V4 {
                    20
                } else {
                    40
                });
                let end = (header + 4).min(quote.len());
                quote[header..end]
                    .iter_mut()
                    .for_each(|byte| *byte ^= rng.u8(0..2));
            }
            2 => {
                let at = rng.usize(if self.hosts.family == Family::V4 {
                    12..20
                } else {
                    8..40
                });
                quote[at] ^= 1;
            }
            _ => {}
        }
        let (from, destination) = match rng.u8(0..6) {
            0 => (quoted.from, quoted.destination.clone()),
            _ => (1 - quoted.from, quoted.source.clone()),
        };
        // Who was asked says so, or somebody on the way.
        let stranger = Hosts {
            number: self.hosts.number ^ 0x20_0000,
            ..self.hosts
        };
        let source = match rng.bool() {
            true => self.hosts.address(from),
            false => stranger.address(from),
        };
        let kind = match self.hosts.family {
            Family::V4 => [3, 3, 11, 4, 5, 12][rng.usize(0..6)],
            Family::V6 => [1, 2, 3, 4, 100][rng.usize(0..5)],
        };
        let payload = [&[kind, rng.u8(0..2), 0, 0, 0, 0, 0, 0], quote.as_slice()].concat();
        let packet = Packet::between(from, source, destination, self.icmp(), payload);
        let what = format!("error {kind} with lie {lie} about: {}", quoted.what);
        self.push(packet, what);
    }

    /// Protocols without ports.
    fn other(&mut self, rng: &mut Rng) {
        for _ in 0..rng.usize(1..10) {
            let from = rng.u8(0..2);
            let protocol = [50, 51, 4, 89, 99][rng.usize(0..5)];
            if rng.u8(0..6) == 0 {
                self.error(rng);
                continue;
            }
            if protocol == 51 && self.hosts.family == Family::V6 {
                continue;
            }
            let packet = Packet::new(self.hosts, from, protocol, vec![0; 16]);
            self.push(packet, format!("protocol {protocol}"));
        }
    }
}
