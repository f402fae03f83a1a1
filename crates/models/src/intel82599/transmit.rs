//! Transmitting: descriptors, offloads, frames (datasheet, 7.2).

use super::Nic;
use super::checksum_offload::{Refused, insert_checksums};
use super::descriptor::{Context, Data, TX_WRITE_BACK, TxDescriptor};
use super::interrupts::cause;
use super::registers::{at, bit};
use super::statistics::counters_of;
use crate::dma::{Dma, DmaFault};
use crate::misbehaviour::Fault;
use crate::packet::Offload;
use crate::packet::checksum::set_word;
use crate::packet::headers::{FRAME_MIN, TAG};
use crate::ring::Ring;
use crate::scatter::{Aggregate, Fragment, Gather};
use crate::traffic::CHECK_BYTES;
use crate::violation::{Queue, Violation};
use crate::wire::Wire;

/// Longest packet that is to be cut (1.3, 7.2.4).
const SEGMENTED_MAX: usize = 256 << 10;
/// Longest packet that is not: 15.5 KiB (7.2.3.2.4).
const PACKET_MAX: usize = 15_872;
/// Descriptors that one packet may take (7.2.1.1).
const DESCRIPTORS_MAX: usize = 40;
/// Contexts of a queue (7.2.2).
const CONTEXTS: usize = 2;

/// A transmit queue.
#[derive(Debug, Default)]
pub(crate) struct TxQueue {
    pub(crate) ring: Ring,
    contexts: [Option<Context>; CONTEXTS],
    /// The first descriptor of the packet that is being gathered, if it is not the only one.
    packet: Option<Data>,
    descriptors: usize,
    /// That packet.
    pub(super) gather: Gather,
    /// Packets that are to be segmented and wait for the next one.
    pub(super) aggregate: Aggregate,
}

impl TxQueue {
    /// The queue begins anew.
    pub(crate) fn begin(&mut self) {
        self.contexts = [None; CONTEXTS];
        self.packet = None;
        self.descriptors = 0;
        self.gather.reset(SEGMENTED_MAX + TAG);
        self.aggregate = Aggregate::default();
    }

    /// The context that a packet names which begins with this descriptor.
    pub(super) fn context(&self, first: Data) -> Option<Context> {
        *self.contexts.get(usize::from(first.context))?
    }
}

/// A packet as it was gathered, and what its first descriptor and context ask for.
pub(super) struct Packet {
    pub(super) first: Data,
    pub(super) context: Option<Context>,
    pub(super) bytes: usize,
}

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
        while sent < frames && wire.can_send() {
            let Some((index, words)) = self.tx[number].ring.first() else {
                break;
            };
            if self.faults.strikes(Fault::TransmitHang) {
                self.tx[number].ring.hung = true;
                break;
            }
            let early = self.faults.strikes(Fault::EarlyDone);
            let report = self.reports(words) && !self.faults.strikes(Fault::Skip);
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
                match self.tx[number].aggregate.is_empty() {
                    true => self.write_back(number, index, dma),
                    false => self.tx[number].aggregate.defer(index),
                }
            }
            done |= report;
        }
        self.flush_aggregate(number, wire, dma);
        if done {
            self.interrupts.queue_happened(&self.file, number, true);
        }
        self.write_head_back(number, dma);
        sent
    }

    /// A read that the bus refused: the queue stops (4.6.8, 7.3).
    fn fault(&mut self, number: usize, fault: DmaFault) {
        self.violations.add(Violation::Dma {
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
            self.violations.add(Violation::Dma {
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
            self.violations.add(Violation::Dma {
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
            nic.violations
                .add(Violation::Descriptor { queue, index, rule });
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
        let bytes = state.gather.complete();
        state.descriptors = 0;
        let packet = Packet {
            first,
            context,
            bytes,
        };
        if let Err(rule) = self.send(number, &packet, wire, dma) {
            self.violations
                .add(Violation::Packet { queue, bytes, rule });
        }
        self.tx[number].gather.forget();
        Ok(1)
    }

    fn set_context(&mut self, number: usize, index: u32, context: Context) {
        let queue = Queue::Tx(number as u8);
        let mut wrong = |rule| {
            self.violations
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
            self.violations
                .add(Violation::BufferReused { queue, index, iova });
        }
        let is_first = self.tx[number].packet.is_none();
        if is_first {
            let headers = self.headers_alone(number, data, wire);
            self.tx[number].gather.begin(headers);
            if !data.end_of_packet {
                self.tx[number].packet = Some(data);
            }
        }
        let state = &mut self.tx[number];
        state.descriptors += 1;
        if state.descriptors == DESCRIPTORS_MAX + 1 {
            let rule = "a packet must not have more than 40 descriptors (7.2.1.2)";
            self.violations
                .add(Violation::Descriptor { queue, index, rule });
        }
        if state.gather.bytes() + len > SEGMENTED_MAX {
            let rule = "a packet must not be longer than 256 KiB (7.2.4)";
            self.violations
                .add(Violation::Descriptor { queue, index, rule });
            return Ok(());
        }
        let fragment = Fragment {
            iova: data.address,
            bytes: len,
        };
        state.gather.add(fragment, data.may_wait(), dma)
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
        let mut buffer = std::mem::take(&mut self.tx[number].gather.buffer);
        let result = if packet.first.segment {
            self.send_segments(number, packet, &mut buffer, wire, dma)
        } else {
            self.flush_aggregate(number, wire, dma);
            self.send_whole(number, packet, &mut buffer, wire)
        };
        self.tx[number].gather.buffer = buffer;
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

    /// 7.4.5: inserts a VLAN tag whose EtherType DMATXCTL says; returns the new length.
    pub(super) fn insert_tag(&self, buffer: &mut [u8], bytes: usize, tag: u16) -> usize {
        buffer.copy_within(12..bytes, 12 + TAG);
        let kind = (self.file.get(at::DMATXCTL) >> 16) as u16;
        set_word(buffer, 12, kind);
        set_word(buffer, 14, tag);
        bytes + TAG
    }

    /// Counts frames that begin like this one and have `len` bytes.
    #[inline]
    pub(super) fn count_sent(&mut self, number: usize, frame: &[u8], len: usize, times: u64) {
        self.statistics.transmitted.count(frame, len, times);
        self.statistics.total_transmitted += times;
        let counters = counters_of(number, self.file.get(at::TQSM + number / 4 * 4));
        let counters = &mut self.statistics.tx_queues[counters];
        counters.frames += times;
        counters.bytes += times * (len + CHECK_BYTES) as u64;
    }
}
