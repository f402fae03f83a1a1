//! The peer: it makes frames of a script's steps, and reads what comes back, in numbers that are
//! the same for both ends.

use crate::script::{ACK, FIN, Heard, PSH, Place, RST, Report, SYN, Sent, letters};
use crate::side::{LISTENS, PEER, TESTED, byte};
use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, EtherType, Ethernet2Header, IpNumber, Ipv4Header,
    Ipv4HeaderSlice, LaxNetSlice, LaxSlicedPacket, TcpHeader, TcpOptionElement, TransportSlice,
};
use std::fmt;

/// The peer's link address.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 99];
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes behind the IP header that an ICMP error quotes: all that many routers give.
const QUOTED: usize = 8;
/// ICMP's "destination unreachable" (RFC 792).
const UNREACHABLE: u8 = 3;
const TTL: u8 = 64;

/// A segment of the end that is tested. Its numbers begin at the initial ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Without PSH: where a sender sets it is its own affair (RFC 9293, 3.9.1.2).
    pub flags: u8,
    /// Its number.
    pub seq: i32,
    /// What it acknowledges.
    pub ack: Option<i32>,
    /// Bytes of payload.
    pub len: usize,
    /// Whether the window is closed: how large it is, is each end's own affair.
    pub closed: bool,
    /// MSS.
    pub mss: Option<u16>,
    /// Whether windows are scaled.
    pub scale: bool,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// The peer's stamp that is echoed, from the peer's first one on; 0 on the wire is `i32::MIN`.
    pub echo: Option<i32>,
    /// SACK blocks.
    pub sack: Vec<(i32, i32)>,
    /// Whether the payload is what the user has written.
    pub right: bool,
    /// Whether it begins a second connection.
    pub anew: bool,
}

/// What came from the end that is tested.
pub enum Left {
    /// A segment for this peer.
    Answer(Answer),
    /// A question, to be answered with this frame.
    Asked(Vec<u8>),
    /// Something else.
    Else,
}

/// What a peer knows.
pub struct Peer {
    port: u16,
    isn: u32,
    stamps_from: u32,
    /// Segments that were sent.
    clock: u32,
    mac: [u8; 6],
    tested_port: u16,
    tested_isn: Option<u32>,
    /// Behind all that the tested end has sent.
    next: u32,
    acked: u32,
    edge: u32,
    /// Shift of the tested end's windows.
    shift: u8,
    /// Both SYNs, the peer's first: whether they had it.
    scales: [bool; 2],
    stamps: [bool; 2],
    echo: u32,
    /// The last packet of the tested end, from its IP header on.
    last: Vec<u8>,
}

impl Peer {
    /// A peer at this port, whose numbers and stamps begin here.
    pub fn new(port: u16, isn: u32, stamps_from: u32) -> Self {
        Self {
            port,
            isn,
            stamps_from,
            clock: 0,
            mac: [0xff; 6],
            tested_port: LISTENS,
            tested_isn: None,
            next: 0,
            acked: isn,
            edge: isn,
            shift: 0,
            scales: [false; 2],
            stamps: [false; 2],
            echo: 0,
            last: Vec::new(),
        }
    }

    /// The question that comes before all else: who has the address.
    pub fn greeting(&self) -> Vec<u8> {
        self.arp(ArpOperation::REQUEST, [0; 6])
    }

    fn arp(&self, operation: ArpOperation, target: [u8; 6]) -> Vec<u8> {
        let (own, other) = (PEER.octets(), TESTED.octets());
        let packet = ArpPacket::new(
            ArpHardwareId::ETHERNET,
            EtherType::IPV4,
            operation,
            &MAC,
            &own,
            &target,
            &other,
        )
        .expect("lengths that fit");
        self.ethernet(EtherType::ARP, &packet.to_bytes())
    }

    fn ethernet(&self, ether_type: EtherType, content: &[u8]) -> Vec<u8> {
        let header = Ethernet2Header {
            source: MAC,
            destination: self.mac,
            ether_type,
        };
        [&header.to_bytes(), content].concat()
    }

    fn ipv4(&self, protocol: IpNumber, content: &[u8]) -> Vec<u8> {
        let (from, to) = (PEER.octets(), TESTED.octets());
        let len = content.len() as u16;
        let mut header = Ipv4Header::new(len, TTL, protocol, from, to).expect("a short packet");
        header.header_checksum = header.calc_header_checksum();
        self.ethernet(EtherType::IPV4, &[&header.to_bytes(), content].concat())
    }

    fn place(&self, place: Place) -> u32 {
        match place {
            Place::Stream(at) => self.isn.wrapping_add_signed(at),
            Place::Acked(at) => self.acked.wrapping_add_signed(at),
            Place::Edge(at) => self.edge.wrapping_add_signed(at),
        }
    }

    fn heard(&self, heard: Heard) -> u32 {
        match heard {
            Heard::Stream(at) => self.tested_isn.unwrap_or(0).wrapping_add_signed(at),
            Heard::All(at) => self.next.wrapping_add_signed(at),
        }
    }

    /// The frame of a segment.
    pub fn frame(&mut self, sent: &Sent) -> Vec<u8> {
        self.clock += 1;
        let seq = self.place(sent.seq);
        let syn = sent.flags & SYN != 0;
        if syn {
            self.stamps[0] = sent.stamp.is_some();
            self.scales[0] = sent.scale.is_some();
        }
        let mut header = TcpHeader::new(self.port, self.tested_port, seq, sent.window);
        let has = |flag| sent.flags & flag != 0;
        (header.fin, header.syn, header.rst) = (has(FIN), syn, has(RST));
        (header.psh, header.ack, header.urg) = (has(PSH), has(ACK), sent.urgent != 0);
        header.acknowledgment_number = sent.ack.map_or(0, |ack| self.heard(ack));
        header.urgent_pointer = sent.urgent;
        let options = self.options(sent);
        header.set_options_raw(&options).expect("options that fit");
        let first = seq.wrapping_sub(self.isn).wrapping_sub(1) as usize;
        let payload: Vec<u8> = (first..first + usize::from(sent.len)).map(byte).collect();
        header.checksum = header
            .calc_checksum_ipv4_raw(PEER.octets(), TESTED.octets(), &payload)
            .expect("a short packet");
        self.ipv4(IpNumber::TCP, &[&header.to_bytes()[..], &payload].concat())
    }

    fn options(&self, sent: &Sent) -> Vec<u8> {
        let mut options = sent.raw.clone();
        if let Some(mss) = sent.mss {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        if let Some(shift) = sent.scale {
            options.extend([1, 3, 3, shift]);
        }
        if sent.sack_permitted {
            options.extend([1, 1, 4, 2]);
        }
        let stamps = sent.flags & SYN != 0 || self.stamps == [true; 2];
        if let Some(ahead) = sent.stamp.filter(|_| stamps) {
            let value = self.stamps_from.wrapping_add(self.clock);
            options.extend([1, 1, 8, 10]);
            options.extend(value.wrapping_add_signed(ahead).to_be_bytes());
            options.extend(self.echo.to_be_bytes());
        }
        if !sent.sack.is_empty() {
            options.extend([1, 1, 5, 2 + 8 * sent.sack.len() as u8]);
            for (start, end) in &sent.sack {
                for at in [start, end] {
                    options.extend(self.heard(Heard::Stream(*at)).to_be_bytes());
                }
            }
        }
        options
    }

    /// The frame of an ICMP error (RFC 792; RFC 1191, 4).
    pub fn report(&self, report: Report) -> Vec<u8> {
        let mut quoted = match Ipv4HeaderSlice::from_slice(&self.last) {
            Ok(header) => {
                let len = header.slice().len() + QUOTED;
                self.last.get(..len).unwrap_or_default().to_vec()
            }
            Err(_) => Vec::new(),
        };
        // TCP's number lies behind its ports.
        if let Some(place) = quoted.len().checked_sub(4)
            && let Some(number) = quoted[place..].first_chunk_mut()
        {
            let ahead = u32::from_be_bytes(*number).wrapping_add_signed(report.ahead);
            *number = ahead.to_be_bytes();
        }
        let mut packet = vec![UNREACHABLE, report.code, 0, 0, 0, 0];
        packet.extend(report.mtu.to_be_bytes());
        packet.extend(quoted);
        let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&packet);
        packet[2..4].copy_from_slice(&sum.ones_complement().to_ne_bytes());
        self.ipv4(IpNumber::ICMP, &packet)
    }

    /// Reads what has left the tested end.
    pub fn read(&mut self, frame: &[u8]) -> Left {
        let Ok(packet) = LaxSlicedPacket::from_ethernet(frame) else {
            return Left::Else;
        };
        match (&packet.net, &packet.transport) {
            (Some(LaxNetSlice::Arp(arp)), _) => {
                if let Ok(mac) = arp.sender_hw_addr().try_into() {
                    self.mac = mac;
                }
                if arp.operation() == ArpOperation::REQUEST
                    && arp.target_protocol_addr() == PEER.octets()
                {
                    return Left::Asked(self.arp(ArpOperation::REPLY, self.mac));
                }
                Left::Else
            }
            (Some(LaxNetSlice::Ipv4(_)), Some(TransportSlice::Tcp(tcp)))
                if tcp.destination_port() == self.port =>
            {
                self.last = frame[ETHERNET..].to_vec();
                Left::Answer(self.answer(&tcp.to_header(), tcp.payload()))
            }
            _ => Left::Else,
        }
    }

    fn answer(&mut self, header: &TcpHeader, payload: &[u8]) -> Answer {
        let seq = header.sequence_number;
        let anew = header.syn && self.tested_isn.is_some_and(|isn| isn != seq);
        if header.syn {
            self.tested_port = header.source_port;
            self.tested_isn = Some(seq);
        }
        let mut answer = Answer {
            flags: 0,
            seq: 0,
            ack: None,
            len: payload.len(),
            closed: header.window_size == 0,
            mss: None,
            scale: false,
            sack_permitted: false,
            echo: None,
            sack: Vec::new(),
            right: true,
            anew,
        };
        let bits = [
            (header.fin, FIN),
            (header.syn, SYN),
            (header.rst, RST),
            (header.ack, ACK),
            (header.urg, crate::script::URG),
        ];
        answer.flags = bits.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
        let relative = |number: u32, to: u32| number.wrapping_sub(to) as i32;
        // The RST of a segment without ACK has the number 0 itself (RFC 9293, 3.10.7.1).
        let from = self.tested_isn.filter(|_| !(header.rst && seq == 0));
        answer.seq = relative(seq, from.unwrap_or(0));
        answer.ack = (header.ack).then(|| relative(header.acknowledgment_number, self.isn));
        let mut shift = None;
        for option in header.options_iterator().flatten() {
            match option {
                TcpOptionElement::MaximumSegmentSize(mss) => answer.mss = Some(mss),
                TcpOptionElement::WindowScale(by) => shift = Some(by),
                TcpOptionElement::SelectiveAcknowledgementPermitted => {
                    answer.sack_permitted = true;
                }
                TcpOptionElement::SelectiveAcknowledgement(first, others) => {
                    let blocks = [Some(first)].into_iter().chain(others).flatten();
                    let own = |number| relative(number, self.isn);
                    answer.sack = blocks.map(|(start, end)| (own(start), own(end))).collect();
                }
                TcpOptionElement::Timestamp(value, echo) => {
                    self.echo = value;
                    answer.echo = Some(match echo {
                        0 => i32::MIN,
                        echo => relative(echo, self.stamps_from),
                    });
                }
                TcpOptionElement::Noop => {}
            }
        }
        answer.scale = shift.is_some();
        if header.syn {
            self.stamps[1] = answer.echo.is_some();
            self.scales[1] = answer.scale;
            self.shift = shift.unwrap_or(0);
        }
        self.keep(header, payload.len());
        let first = answer.seq.wrapping_sub(1) as u32 as usize;
        let right = (first..).map(byte).zip(payload);
        answer.right = right.into_iter().all(|(right, found)| right == *found);
        answer
    }

    /// Remembers how far the tested end has got.
    fn keep(&mut self, header: &TcpHeader, len: usize) {
        if header.rst {
            return;
        }
        let taken = len as u32 + u32::from(header.syn) + u32::from(header.fin);
        let end = header.sequence_number.wrapping_add(taken);
        if header.syn || (end.wrapping_sub(self.next) as i32) > 0 {
            self.next = end;
        }
        if header.ack {
            let scaled = !header.syn && self.scales == [true; 2];
            let shift = if scaled { self.shift } else { 0 };
            let window = u32::from(header.window_size) << shift;
            self.acked = header.acknowledgment_number;
            let edge = self.acked.wrapping_add(window);
            if (edge.wrapping_sub(self.edge) as i32) > 0 {
                self.edge = edge;
            }
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "> {} {}({})", letters(self.flags), self.seq, self.len)?;
        if let Some(ack) = self.ack {
            write!(f, " ack {ack}")?;
        }
        if self.closed {
            write!(f, " win 0")?;
        }
        if let Some(mss) = self.mss {
            write!(f, " mss {mss}")?;
        }
        if self.scale {
            write!(f, " wscale")?;
        }
        if self.sack_permitted {
            write!(f, " sackOK")?;
        }
        match self.echo {
            Some(i32::MIN) => write!(f, " echo none")?,
            Some(echo) => write!(f, " echo {echo}")?,
            None => {}
        }
        for (start, end) in &self.sack {
            write!(f, " sack {start}:{end}")?;
        }
        if self.anew {
            write!(f, " anew")?;
        }
        if !self.right {
            write!(f, " of other bytes")?;
        }
        Ok(())
    }
}
