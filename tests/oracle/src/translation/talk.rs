//! Conversations through a router that translates: who answers sees what arrived, and no more.

use super::{LOCAL, Seen, is_of};
use crate::conversation::{Family, Hosts, Packet, Segment, udp};
use fastrand::Rng;
use nf::router::Local;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Most bytes that an error quotes.
const QUOTE_MAX: usize = 200;
/// Ports that somebody asks at.
const ASKED: [u16; 6] = [80, 8080, 8085, 53, 2000, 7070];

/// The router's address at a port.
fn router(family: Family, port: u8) -> Vec<u8> {
    let Local { ip4, ip6 } = LOCAL[usize::from(port)];
    match family {
        Family::V4 => ip4.map(|address| address.octets().to_vec()),
        Family::V6 => ip6.map(|address| address.octets().to_vec()),
    }
    .unwrap_or_default()
}

/// What goes on between one who asks and whoever answers.
pub struct Talk {
    hosts: Hosts,
    protocol: u8,
    /// The side of the one who asks, its address, whom it asks, and both ports.
    asks: u8,
    source: Vec<u8>,
    destination: Vec<u8>,
    ports: [u16; 2],
    /// Whether packets may come in parts.
    is_cut: bool,
    /// What each side of TCP sends next.
    next: [u32; 2],
    /// What has arrived last, at the one who answers and at the one who asks.
    arrived: [Option<Seen>; 2],
    id: u16,
}

impl Talk {
    /// One that nobody else can be part of: `number` is another one each time.
    pub fn new(rng: &mut Rng, number: u32) -> Self {
        let family = match rng.u8(0..4) {
            0 => Family::V6,
            _ => Family::V4,
        };
        let hosts = Hosts { family, number };
        let asks = u8::from(rng.u8(0..3) == 0);
        // Addresses behind which there may be somebody else.
        let outside = rng.u8(0..4);
        let nobody = match family {
            Family::V4 => vec![10, 3, 0, outside],
            Family::V6 => {
                let head = [0xfd, 0x0c, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                [&head[..], &[outside]].concat()
            }
        };
        let icmp = if family == Family::V4 { ICMP } else { ICMPV6 };
        let mut talk = Self {
            hosts,
            protocol: [TCP, TCP, TCP, UDP, UDP, icmp][rng.usize(0..6)],
            asks,
            source: hosts.address(asks),
            destination: match rng.u8(0..6) {
                0..=2 => hosts.address(1 - asks),
                3..=4 => nobody,
                _ => router(family, rng.u8(0..2)),
            },
            is_cut: true,
            // Else two who ask would share a port behind the router, and one would get another.
            ports: [
                (1100 + number % 60_000) as u16,
                ASKED[rng.usize(0..ASKED.len())],
            ],
            next: [rng.u32(..), rng.u32(..)],
            arrived: [None, None],
            id: number as u16,
        };
        talk.is_cut = !LOCAL.iter().any(|local| is_of(local, &talk.destination));
        talk
    }

    /// What comes next, in order: a handshake first, and then anything.
    pub fn next(&mut self, rng: &mut Rng, step: usize) -> Option<Packet> {
        self.id = self.id.wrapping_add(1);
        let id = self.id;
        let packet = match (self.protocol, step, rng.u8(0..12)) {
            (TCP, 0, 0..=10) => Some(self.segment(0, SYN, 0)),
            (TCP, 1, 0..=10) => self.answer(SYN | ACK, 0),
            (_, 1.., 0..=1) => self.error(rng, 0),
            (_, 1.., 2) => self.error(rng, 1),
            (TCP, _, 3) => {
                let flags = [RST, RST | ACK, SYN, FIN | ACK][rng.usize(0..4)];
                match rng.bool() {
                    true => self.answer(flags, 0),
                    false => Some(self.segment(0, flags, 0)),
                }
            }
            (TCP, _, 4..=7) => self.answer(ACK, [0, 10, 1400][rng.usize(0..3)]),
            (TCP, ..) => Some(self.segment(0, ACK, [0, 10, 1400][rng.usize(0..3)])),
            (UDP, 1.., 4..=7) => self.datagram(rng, 1),
            (UDP, ..) => self.datagram(rng, 0),
            (_, 1.., 4..=7) => self.echo(1),
            _ => self.echo(0),
        };
        packet.map(|packet| Packet { id, ..packet })
    }

    /// Something arrived at this side. Nobody answers what is no part of the conversation.
    pub fn arrives(&mut self, seen: &Seen) {
        let to_asker = seen.to == self.asks && seen.destination == self.source;
        self.arrived[usize::from(to_asker)] = Some(seen.clone());
    }

    fn is_error(seen: &Seen) -> bool {
        match seen.protocol {
            ICMP => matches!(seen.payload.first(), Some(3..=5 | 11 | 12)),
            ICMPV6 => seen.payload.first().is_none_or(|kind| *kind < 128),
            _ => false,
        }
    }

    /// A packet of the one who asks.
    fn asked(&self, payload: Vec<u8>, what: String) -> Packet {
        let packet = Packet::between(
            self.asks,
            self.source.clone(),
            self.destination.clone(),
            self.protocol,
            payload,
        );
        Packet { what, ..packet }
    }

    /// A packet to whom a packet came from that arrived where one answers.
    fn answered(&self, seen: &Seen, payload: Vec<u8>, what: String) -> Packet {
        let packet = Packet::between(
            seen.to,
            seen.destination.clone(),
            seen.source.clone(),
            self.protocol,
            payload,
        );
        Packet { what, ..packet }
    }

    /// What arrived last where one answers, if it is of this conversation.
    fn question(&self) -> Option<Seen> {
        self.arrived[0]
            .clone()
            .filter(|seen| seen.protocol == self.protocol && !Self::is_error(seen))
    }

    fn bytes(&mut self, side: usize, ports: [u16; 2], flags: u8, data: usize) -> Segment {
        let segment = Segment {
            ports,
            seq: self.next[side],
            ack: if flags & ACK != 0 {
                self.next[1 - side]
            } else {
                0
            },
            flags,
            window: 20_000,
            options: Vec::new(),
            data,
        };
        let counted = u32::from(flags & (SYN | FIN) != 0);
        self.next[side] = self.next[side].wrapping_add(data as u32 + counted);
        segment
    }

    fn segment(&mut self, side: usize, flags: u8, data: usize) -> Packet {
        let segment = self.bytes(side, self.ports, flags, data);
        self.asked(segment.bytes(), format!("asks {segment:?}"))
    }

    fn answer(&mut self, flags: u8, data: usize) -> Option<Packet> {
        let seen = self.question()?;
        let [from, to] = seen.ports()?;
        let segment = self.bytes(1, [to, from], flags, data);
        Some(self.answered(&seen, segment.bytes(), format!("answers {segment:?}")))
    }

    fn datagram(&mut self, rng: &mut Rng, side: usize) -> Option<Packet> {
        // What is for the router itself comes whole, as does what rules redirect to it.
        let is_cut = self.is_cut && self.ports[1] != 2000 && rng.u8(0..5) == 0;
        let parts = if is_cut { 3 } else { 1 };
        let data = if parts > 1 { 2000 } else { rng.usize(0..40) };
        let packet = match side {
            0 => {
                let [from, to] = self.ports;
                self.asked(
                    udp(from, to, data, 0),
                    format!("asks by UDP, {parts} parts"),
                )
            }
            _ => {
                let seen = self.question()?;
                let [from, to] = seen.ports()?;
                let what = format!("answers by UDP, {parts} parts");
                self.answered(&seen, udp(to, from, data, 0), what)
            }
        };
        let mut packet = packet;
        // Nobody sums it up.
        if self.hosts.family == Family::V4 && parts == 1 && rng.u8(0..6) == 0 {
            packet.payload[6..8].fill(0);
        }
        Some(Packet { parts, ..packet })
    }

    fn echo(&mut self, side: usize) -> Option<Packet> {
        let question = if self.protocol == ICMP { 8 } else { 128 };
        let message = |kind: u8, id: [u8; 2]| vec![kind, 0, 0, 0, id[0], id[1], 0, 1, 1, 2, 3];
        if side == 0 {
            let id = self.ports[0].to_be_bytes();
            return Some(self.asked(message(question, id), "asks by ICMP".to_owned()));
        }
        let seen = self.question()?;
        let id = [*seen.payload.get(4)?, *seen.payload.get(5)?];
        let kind = if question == 8 { 0 } else { 129 };
        Some(self.answered(&seen, message(kind, id), "answers by ICMP".to_owned()))
    }

    /// An error about what arrived last at one of the two; from there, or from somebody on the way.
    fn error(&self, rng: &mut Rng, at: usize) -> Option<Packet> {
        let seen = self.arrived[at]
            .clone()
            .filter(|seen| !Self::is_error(seen))?;
        let mut quote = seen.packet.clone();
        quote.truncate(QUOTE_MAX);
        let header = if self.hosts.family == Family::V4 {
            20
        } else {
            40
        };
        match rng.u8(0..8) {
            0 => quote.truncate(header + 16 + rng.usize(0..12)),
            // Ports that nobody has.
            1 => quote[header..header + 4].copy_from_slice(&[0xff; 4]),
            _ => {}
        }
        let stranger = Hosts {
            number: self.hosts.number ^ 0x20_0000,
            ..self.hosts
        };
        let source = match rng.bool() {
            true => seen.destination.clone(),
            false => stranger.address(seen.to),
        };
        let (protocol, kind) = match self.hosts.family {
            Family::V4 => (ICMP, [3, 3, 11, 12][rng.usize(0..4)]),
            Family::V6 => (ICMPV6, [1, 3, 4][rng.usize(0..3)]),
        };
        let payload = [&[kind, rng.u8(0..2), 0, 0, 0, 0, 0, 0], quote.as_slice()].concat();
        let packet = Packet::between(seen.to, source, seen.source.clone(), protocol, payload);
        let what = format!("error {kind} about what arrived at {at}");
        Some(Packet { what, ..packet })
    }
}
