//! Transmitting: descriptors, offloads, frames (datasheet, 7.2).

use super::Nic;
use super::descriptor::{Context, Data, TX_WRITE_BACK, TxDescriptor};
use super::interrupts::cause;
use super::join::{Joined, Pieces, TAKEN_AWAY};
use super::receive::FRAME_MIN;
use super::registers::{at, bit};
use super::ring::Ring;
use super::statistics::{CHECK_BYTES, counters_of};
use crate::dma::{Dma, DmaFault};
use crate::misbehaviour::Fault;
use crate::packet::Offload;
use crate::packet::checksum::{fold, set_word, sum, word};
use crate::packet::headers::{IPV4_CHECKSUM, Ip, TAG, TCP, TCP_CHECKSUM, UDP, UDP_CHECKSUM};
use crate::packet::segment::{FlagMasks, Plan};
use crate::violation::{Queue, Violation};
use crate::wire::Wire;

/// Longest packet that is to be cut (1.3, 7.2.4).
const SEGMENTED_MAX: usize = 256 << 10;
/// Longest packet that is not: 15.5 KiB (7.2.3.2.4).
const PACKET_MAX: usize = 15_872;
/// Longest IP packet, for a wire that takes large frames.
pub(super) const IP_MAX: usize = 0xffff;
/// Descriptors that one packet may take (7.2.1.1).
const DESCRIPTORS_MAX: usize = 40;
/// Kinds of L4 header (7.2.3.2.3).
const L4_UDP: u8 = 0;
const L4_TCP: u8 = 1;
/// Contexts of a queue (7.2.2).
const CONTEXTS: usize = 2;

/// A transmit queue.
#[derive(Debug, Default)]
pub(crate) struct TxQueue {
    pub(crate) ring: Ring,
    contexts: [Option<Context>; CONTEXTS],
    /// The first descriptor of the packet that is being gathered, if it is not the only one.
    packet: Option<Data>,
    gathered: usize,
    descriptors: usize,
    /// Room for the longest packet, once the queue is used.
    pub(super) buffer: Vec<u8>,
    /// Of the packet that is being gathered, only so many bytes are in the buffer; the rest is in
    /// these pieces.
    pub(super) front: Option<usize>,
    pub(super) pieces: Pieces,
    pub(super) joined: Joined,
}

impl TxQueue {
    /// The queue begins anew.
    pub(crate) fn begin(&mut self) {
        self.buffer.resize(SEGMENTED_MAX + TAG, 0);
        self.contexts = [None; CONTEXTS];
        self.packet = None;
        (self.gathered, self.descriptors) = (0, 0);
        self.front = None;
        self.pieces.clear();
        self.joined = Joined::default();
    }

    /// The context that a packet names which begins with this descriptor.
    pub(super) fn context(&self, first: Data) -> Option<Context> {
        *self.contexts.get(usize::from(first.context))?
    }
}

/// A packet as it was gathered, and what its first descriptor and context ask for.
struct Packet {
    first: Data,
    context: Option<Context>,
    bytes: usize,
}

/// Why a packet cannot be sent.
pub(super) type Refused = &'static str;

impl Nic {
    /// Sends what the driver has given, at most `frames` of it; returns how many.
    pub(crate) fn transmit(&mut self, wire: &mut impl Wire, dma: &dyn Dma, frames: u32) -> u32 {
        let mut sent = 0;
        if !self.file.has(at::DMATXCTL, bit::DMATXCTL_ENABLE) {
            return 0;
        }
        for number in 0..self.tx_used {
            if self.tx[number].ring.is_on() {
                sent += self.transmit_queue(number, wire, dma, frames);
            }
        }
        sent
    }

    fn transmit_queue(
        &mut self,
        number: usize,
        wire: &mut impl Wire,
        dma: &dyn Dma,
        frames: u32,
    ) -> u32 {
        let mut sent = 0;
        let fetched = self.tx[number].ring.fetch(dma, |_, _| {});
        if let Err(fault) = fetched {
            self.fault(number, fault);
            return 0;
        }
        let mut done = false;
        while sent < frames && wire.has_room() {
            let Some((index, words)) = self.tx[number].ring.first() else {
                break;
            };
            if self.mischief.strikes(Fault::TransmitHang) {
                self.tx[number].ring.hung = true;
                break;
            }
            let early = self.mischief.strikes(Fault::EarlyDone);
            let report = self.reports(words) && !self.mischief.strikes(Fault::Skip);
            if early {
                self.write_back(number, index, dma);
            }
            match self.descriptor(number, index, words, wire, dma) {
                Ok(packets) => sent += packets,
                Err(fault) => {
                    self.fault(number, fault);
                    break;
                }
            }
            self.tx[number].ring.advance();
            if report && !early {
                match self.tx[number].joined.is_empty() {
                    true => self.write_back(number, index, dma),
                    false => self.tx[number].joined.hold(index),
                }
            }
            done |= report;
        }
        self.send_joined(number, wire, dma);
        if done {
            self.interrupts.queue_happened(&self.file, number, true);
        }
        self.write_head_back(number, dma);
        sent
    }

    /// A read that the bus refused: the queue stops (4.6.8, 7.3).
    fn fault(&mut self, number: usize, fault: DmaFault) {
        self.report.add(Violation::Dma {
            queue: Queue::Tx(number as u8),
            fault,
        });
        self.interrupts.set_causes(cause::PCI);
        self.tx[number].ring.hung = true;
    }

    fn reports(&self, words: [u64; 2]) -> bool {
        matches!(TxDescriptor::read(words), TxDescriptor::Data(data) if data.report)
    }

    pub(super) fn write_back(&mut self, number: usize, index: u32, dma: &dyn Dma) {
        if let Err(fault) = self.tx[number].ring.write_back(dma, index, TX_WRITE_BACK) {
            self.report.add(Violation::Dma {
                queue: Queue::Tx(number as u8),
                fault,
            });
        }
    }

    /// 7.2.3.5.2: with TDWBAL.Head_WB_En, the head is written to memory too.
    fn write_head_back(&mut self, number: usize, dma: &dyn Dma) {
        let offset = at::TX_QUEUE + 64 * number;
        let low = self.file.get(offset + 0x38);
        if low & bit::HEAD_WRITE_BACK == 0 {
            return;
        }
        let iova = u64::from(low & !3) | u64::from(self.file.get(offset + 0x3c)) << 32;
        let head = self.tx[number].ring.head();
        if let Err(fault) = dma.write(iova, &head.to_le_bytes()) {
            self.report.add(Violation::Dma {
                queue: Queue::Tx(number as u8),
                fault,
            });
        }
    }

    /// Uses one descriptor; returns the number of packets that it completed.
    #[inline]
    fn descriptor(
        &mut self,
        number: usize,
        index: u32,
        words: [u64; 2],
        wire: &mut impl Wire,
        dma: &dyn Dma,
    ) -> Result<u32, DmaFault> {
        let queue = Queue::Tx(number as u8);
        let wrong = |nic: &mut Self, rule| {
            nic.report.add(Violation::Descriptor { queue, index, rule });
        };
        let data = match TxDescriptor::read(words) {
            TxDescriptor::Data(data) => data,
            TxDescriptor::Context(context) => {
                self.set_context(number, index, context);
                return Ok(0);
            }
            TxDescriptor::Legacy => {
                wrong(self, "DEXT must be 1: legacy descriptors are not modelled");
                return Ok(0);
            }
            TxDescriptor::Unknown => {
                wrong(self, "DTYP must be 2 or 3 (7.2.3.2)");
                return Ok(0);
            }
        };
        if data.reserved {
            wrong(self, "reserved bits must be 0 (7.2.3.2.4)");
        }
        if data.len == 0 {
            wrong(self, "DTALEN must not be 0 (7.2.3.2.4)");
        }
        self.gather(number, index, data, wire, dma)?;
        if !data.end_of_packet {
            return Ok(0);
        }
        let state = &mut self.tx[number];
        let first = match state.packet {
            Some(first) => {
                state.packet = None;
                first
            }
            None => data,
        };
        let context = state.context(first);
        let bytes = std::mem::take(&mut state.gathered);
        state.descriptors = 0;
        let packet = Packet {
            first,
            context,
            bytes,
        };
        if let Err(rule) = self.send(number, &packet, wire, dma) {
            self.report.add(Violation::Packet { queue, bytes, rule });
        }
        self.tx[number].front = None;
        self.tx[number].pieces.clear();
        Ok(1)
    }

    fn set_context(&mut self, number: usize, index: u32, context: Context) {
        let queue = Queue::Tx(number as u8);
        let mut wrong = |rule| {
            self.report
                .add(Violation::Descriptor { queue, index, rule })
        };
        if context.reserved {
            wrong("reserved bits must be 0 (7.2.3.2.3)");
        }
        if self.tx[number].packet.is_some() {
            wrong("a context must not lie within a packet (7.2.2)");
        }
        match self.tx[number].contexts.get_mut(usize::from(context.index)) {
            Some(place) => *place = Some(context),
            None => wrong("IDX must be 0 or 1 (7.2.3.2.3)"),
        }
    }

    /// Copies the bytes of a descriptor behind those of the ones before, or notes where they are.
    fn gather(
        &mut self,
        number: usize,
        index: u32,
        data: Data,
        wire: &impl Wire,
        dma: &dyn Dma,
    ) -> Result<(), DmaFault> {
        let queue = Queue::Tx(number as u8);
        let len = usize::from(data.len);
        if self.ownership.has(data.address, len as u64) {
            let iova = data.address;
            self.report
                .add(Violation::BufferReused { queue, index, iova });
        }
        let is_first = self.tx[number].packet.is_none();
        if is_first {
            self.tx[number].front = self.front(number, data, wire);
            if !data.end_of_packet {
                self.tx[number].packet = Some(data);
            }
        }
        let state = &mut self.tx[number];
        state.descriptors += 1;
        if state.descriptors == DESCRIPTORS_MAX + 1 {
            let rule = "a packet must not have more than 40 descriptors (7.2.1.2)";
            self.report
                .add(Violation::Descriptor { queue, index, rule });
        }
        let (start, end) = (state.gathered, state.gathered + len);
        if end > SEGMENTED_MAX {
            let rule = "a packet must not be longer than 256 KiB (7.2.4)";
            self.report
                .add(Violation::Descriptor { queue, index, rule });
            return Ok(());
        }
        if let Some(front) = state.front {
            let headers = if is_first { front } else { 0 };
            if self.gather_apart(number, data, headers, dma)? {
                self.tx[number].gathered = end;
                return Ok(());
            }
            let mut buffer = std::mem::take(&mut self.tx[number].buffer);
            let rest = self.gather_rest(number, &mut buffer[front..], dma);
            self.tx[number].buffer = buffer;
            rest?;
        }
        let state = &mut self.tx[number];
        dma.read(data.address, &mut state.buffer[start..end])?;
        state.gathered = end;
        Ok(())
    }

    /// Does what the first descriptor asks for, and sends the packet.
    #[inline]
    fn send(
        &mut self,
        number: usize,
        packet: &Packet,
        wire: &mut impl Wire,
        dma: &dyn Dma,
    ) -> Result<(), Refused> {
        if !packet.first.insert_check || !self.file.has(at::HLREG0, bit::HLREG0_TX_CRC) {
            return Err(
                "IFCS and HLREG0.TXCRCEN must be 1, or it has no check sequence (7.2.3.2.4)",
            );
        }
        let mut buffer = std::mem::take(&mut self.tx[number].buffer);
        let result = if packet.first.segment {
            self.send_segments(number, packet, &mut buffer, wire, dma)
        } else {
            self.send_joined(number, wire, dma);
            self.send_whole(number, packet, &mut buffer, wire)
        };
        self.tx[number].buffer = buffer;
        result
    }

    #[inline]
    fn send_whole(
        &mut self,
        number: usize,
        packet: &Packet,
        buffer: &mut [u8],
        wire: &mut impl Wire,
    ) -> Result<(), Refused> {
        let Packet {
            first,
            context,
            mut bytes,
        } = *packet;
        if bytes > PACKET_MAX {
            return Err("it must not be longer than 15.5 KiB unless it is cut (7.2.3.2.4)");
        }
        if first.payload_len as usize != bytes {
            return Err("PAYLEN must be its length (7.2.3.2.4)");
        }
        if first.ip_checksum || first.l4_checksum {
            let context = context.ok_or("IXSM and TXSM take a context (7.2.5)")?;
            insert_checksums(&mut buffer[..bytes], first, context)?;
        }
        if first.tag {
            let context = context.ok_or("VLE takes a context (7.2.3.2.4)")?;
            bytes = self.insert_tag(buffer, bytes, context.tag);
        }
        if bytes < FRAME_MIN {
            if !self.file.has(at::HLREG0, bit::HLREG0_TX_PAD) {
                return Err("it must have 60 bytes unless HLREG0.TXPADEN is 1 (8.2.3.22.8)");
            }
            buffer[bytes..FRAME_MIN].fill(0);
            bytes = FRAME_MIN;
        }
        let frame = &buffer[..bytes];
        self.count_sent(number, frame, bytes, 1);
        wire.send(frame, Offload::default());
        Ok(())
    }

    /// 7.2.4: TCP segmentation.
    fn send_segments(
        &mut self,
        number: usize,
        packet: &Packet,
        buffer: &mut [u8],
        wire: &mut impl Wire,
        dma: &dyn Dma,
    ) -> Result<(), Refused> {
        let Packet {
            first,
            context,
            mut bytes,
        } = *packet;
        let context = context.ok_or("TSE takes a context (7.2.4)")?;
        let front = self.tx[number].front;
        let mut here = front.unwrap_or(bytes);
        let mut plan = self.plan(&buffer[..here], bytes, first, context)?;
        if first.tag {
            here = self.insert_tag(buffer, here, context.tag);
            bytes += TAG;
            plan.ip.start += TAG;
            plan.ip.payload += TAG;
            plan.ip.end += TAG;
            plan.header += TAG;
        }
        let count = plan.count(bytes);
        let large = count > 1 && wire.takes_large_frames() && bytes - plan.ip.start <= IP_MAX;
        if large {
            let frame = &mut buffer[..here];
            let full = plan.header + plan.size;
            self.count_sent(number, frame, full, count as u64 - 1);
            self.count_sent(number, frame, bytes - (count - 1) * plan.size, 1);
            if front.is_some() {
                self.join(number, frame, &plan, bytes, wire, dma);
                return Ok(());
            }
            self.send_joined(number, wire, dma);
            let offload = prepare_large(frame, bytes, &plan);
            wire.send(frame, offload);
            return Ok(());
        }
        self.send_joined(number, wire, dma);
        if front.is_some() {
            let rest = self.gather_rest(number, &mut buffer[here..bytes], dma);
            rest.map_err(|_| TAKEN_AWAY)?;
        }
        let mut segment = std::mem::take(&mut self.segment);
        for index in 0..count {
            plan.write(&buffer[..bytes], index, &mut segment);
            if segment.len() < FRAME_MIN {
                segment.resize(FRAME_MIN, 0);
            }
            self.count_sent(number, &segment, segment.len(), 1);
            wire.send(&segment, Offload::default());
        }
        self.segment = segment;
        Ok(())
    }

    /// What a packet of so many bytes is cut into, if all is as 7.2.4 asks for. `frame` has at
    /// least its headers.
    fn plan(
        &self,
        frame: &[u8],
        bytes: usize,
        first: Data,
        context: Context,
    ) -> Result<Plan, Refused> {
        let ip = locate(frame, bytes, context)?;
        if context.l4_type != L4_TCP || !first.l4_checksum || first.ip_checksum == ip.v6 {
            return Err("TSE takes L4T = TCP, TXSM, and for IPv4 IXSM (7.2.4)");
        }
        let tcp = frame
            .get(ip.payload..)
            .and_then(|tcp| tcp.first_chunk::<20>());
        let tcp = tcp.ok_or("the TCP header must lie in the packet")?;
        let header = ip.payload + usize::from(context.l4_len);
        if usize::from(tcp[12] >> 4) * 4 != usize::from(context.l4_len) || header >= bytes {
            return Err("L4LEN must be the length of the TCP header (7.2.3.2.3)");
        }
        if first.payload_len as usize != bytes - header {
            return Err("PAYLEN must be the length without headers (7.2.3.2.4)");
        }
        if context.mss == 0 {
            return Err("MSS must not be 0 (7.2.3.2.3)");
        }
        if word(frame, ip.payload + TCP_CHECKSUM) != Some(fold(ip.pseudo_header(frame, 0))) {
            return Err("TCP's checksum must hold the pseudo header's without length (7.2.4)");
        }
        if !ip.v6 && word(frame, ip.start + IPV4_CHECKSUM) != Some(0) {
            return Err("the IPv4 checksum must hold 0 (7.2.4)");
        }
        let low = self.file.get(at::DTXTCPFLGL);
        let masks = FlagMasks {
            first: low as u16 & 0xfff,
            middle: (low >> 16) as u16 & 0xfff,
            last: self.file.get(at::DTXTCPFLGH) as u16 & 0xfff,
        };
        let size = usize::from(context.mss);
        Ok(Plan {
            ip,
            header,
            size,
            masks,
        })
    }

    /// 7.4.5: inserts a VLAN tag whose EtherType DMATXCTL says; returns the new length.
    fn insert_tag(&self, buffer: &mut [u8], bytes: usize, tag: u16) -> usize {
        buffer.copy_within(12..bytes, 12 + TAG);
        let kind = (self.file.get(at::DMATXCTL) >> 16) as u16;
        set_word(buffer, 12, kind);
        set_word(buffer, 14, tag);
        bytes + TAG
    }

    /// Counts frames that begin like this one and have `len` bytes.
    #[inline]
    fn count_sent(&mut self, number: usize, frame: &[u8], len: usize, times: u64) {
        self.statistics.transmitted.count(frame, len, times);
        self.statistics.total_transmitted += times;
        let counters = counters_of(number, self.file.get(at::TQSM + number / 4 * 4));
        let counters = &mut self.statistics.tx_queues[counters];
        counters.frames += times;
        counters.bytes += times * (len + CHECK_BYTES) as u64;
    }
}

/// Where the headers lie, as a context says and the packet agrees.
fn locate(frame: &[u8], bytes: usize, context: Context) -> Result<Ip, Refused> {
    let start = usize::from(context.mac_len);
    let payload = start + usize::from(context.ip_len);
    if !(14..=127).contains(&start) || payload >= frame.len() {
        return Err("MACLEN and IPLEN must lie in the packet (7.2.3.2.3)");
    }
    let kind = if context.ipv4 { 0x0800 } else { 0x86dd };
    if word(frame, start - 2) != Some(kind) {
        return Err("MACLEN and IPV4 must be those of the packet (7.2.3.2.3)");
    }
    let header = &frame[start..payload];
    let protocol = match context.l4_type {
        L4_UDP => UDP,
        L4_TCP => TCP,
        _ => return Err("L4T must be UDP or TCP: SCTP is not modelled"),
    };
    let as_it_says = if context.ipv4 {
        header.len() >= 20
            && usize::from(header[0] & 15) * 4 == header.len()
            && header[9] == protocol
    } else {
        header.len() > 40 || header.len() == 40 && header[6] == protocol
    };
    if !as_it_says {
        return Err("IPLEN and L4T must be those of the packet (7.2.3.2.3)");
    }
    Ok(Ip {
        start,
        payload,
        end: bytes,
        v6: !context.ipv4,
        extended: false,
        fragment: false,
        protocol,
    })
}

/// 7.2.5: checksums of a packet that is not cut.
fn insert_checksums(frame: &mut [u8], first: Data, context: Context) -> Result<(), Refused> {
    let ip = locate(frame, frame.len(), context)?;
    if first.ip_checksum {
        if ip.v6 {
            return Err("IXSM is for IPv4 (7.2.5.1)");
        }
        if word(frame, ip.start + IPV4_CHECKSUM) != Some(0) {
            return Err("the IPv4 checksum must hold 0 (7.2.5.1)");
        }
        let value = !fold(sum(&frame[ip.start..ip.payload]));
        set_word(frame, ip.start + IPV4_CHECKSUM, value);
    }
    if !first.l4_checksum {
        return Ok(());
    }
    let field = ip.payload
        + if ip.protocol == TCP {
            TCP_CHECKSUM
        } else {
            UDP_CHECKSUM
        };
    let len = if ip.v6 {
        word(frame, ip.start + 4).map(|len| usize::from(len) + 40)
    } else {
        word(frame, ip.start + 2).map(usize::from)
    };
    let len = len
        .and_then(|len| len.checked_sub(ip.payload - ip.start))
        .unwrap_or(0);
    if word(frame, field) != Some(fold(ip.pseudo_header(frame, len))) {
        return Err("the L4 checksum must hold the pseudo header's (7.2.5.2)");
    }
    let value = match !fold(sum(&frame[ip.payload..])) {
        0 if ip.protocol == UDP => 0xffff,
        value => value,
    };
    set_word(frame, field, value);
    Ok(())
}

/// Gives a packet of so many bytes that is to be cut the headers that a wire for large frames
/// expects.
pub(super) fn prepare_large(headers: &mut [u8], bytes: usize, plan: &Plan) -> Offload {
    let Plan { ip, size, .. } = *plan;
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
    set_word(headers, ip.payload + TCP_CHECKSUM, pseudo);
    Offload {
        checksum: Some((ip.payload as u16, TCP_CHECKSUM as u16)),
        segment: Some(size as u16),
    }
}
