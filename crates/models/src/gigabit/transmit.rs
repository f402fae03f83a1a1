//! Transmitting: descriptors, offloads, frames (82574, 7.2; 82540, 3.3 and 3.4).

use super::checksum_offload::{Refused, insert_checksums};
use super::descriptor::{Context, Data, TX_DONE, TxDescriptor};
use super::{Mac, at, bit};
use crate::dma::{Dma, DmaFault};
use crate::misbehaviour::Fault;
use crate::packet::Offload;
use crate::packet::checksum::set_word;
use crate::packet::headers::{FRAME_MIN, TAG};
use crate::ring::Ring;
use crate::scatter::{Fragment, Gather};
use crate::traffic::CHECK_BYTES;
use crate::violation::{Queue, Violation};
use crate::wire::Wire;

/// Longest packet that is to be cut: PAYLEN may say more, the text does not (7.3.1).
const SEGMENTED_MAX: usize = 256 << 10;
/// Shortest packet, without a tag, before it is padded (10.2.6.1, TCTL.PSP).
const PACKET_MIN: usize = 17;

/// A transmit queue.
#[derive(Debug, Default)]
pub(crate) struct TxQueue {
    pub(crate) ring: Ring,
    /// The last context for packets that are cut, and the one for others (7.2.6).
    contexts: [Option<Context>; 2],
    /// The first descriptor of the packet that is being gathered, if it is not the only one.
    packet: Option<Data>,
    gather: Gather,
}

impl TxQueue {
    /// The queue begins anew.
    pub(crate) fn begin(&mut self) {
        self.contexts = [None; 2];
        self.packet = None;
        self.gather.reset(SEGMENTED_MAX + TAG);
    }

    /// The context of packets that are cut, or of others.
    fn context(&mut self, segment: bool) -> &mut Option<Context> {
        &mut self.contexts[usize::from(segment)]
    }
}

/// A packet as it was gathered, and what its descriptors and context ask for.
pub(super) struct Packet {
    pub(super) first: Data,
    pub(super) context: Option<Context>,
    pub(super) bytes: usize,
    pub(super) tag: Option<u16>,
}

impl<I: Copy + PartialEq> Mac<I> {
    /// Sends what the driver has given, at most `frames` of it; returns how many.
    pub(super) fn transmit(&mut self, wire: &mut impl Wire, dma: &dyn Dma, frames: u32) -> u32 {
        let mut sent = 0;
        for number in 0..self.tx.len() {
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
        if let Err(fault) = self.tx[number].ring.fetch(dma, |_, _| {}) {
            self.fault(number, fault);
            return 0;
        }
        let (mut done, mut used) = (false, false);
        while sent < frames && wire.can_send() {
            let Some((index, words)) = self.tx[number].ring.first() else {
                break;
            };
            if self.faults.strikes(Fault::TransmitHang) {
                self.tx[number].ring.hung = true;
                break;
            }
            let early = self.faults.strikes(Fault::EarlyDone);
            let report = reports(words) && !self.faults.strikes(Fault::Skip);
            if early {
                self.write_back(number, index, words, dma);
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
                self.write_back(number, index, words, dma);
            }
            used = true;
            done |= report;
        }
        if done || used {
            let is_empty = self.tx[number].ring.available() == 0;
            self.happened.transmitted |= u8::from(done) << number;
            self.happened.empty |= u8::from(is_empty) << number;
        }
        sent
    }

    /// A read that the bus refused: the queue stops.
    fn fault(&mut self, number: usize, fault: DmaFault) {
        let queue = Queue::Tx(number as u8);
        self.violations.add(Violation::Dma { queue, fault });
        self.tx[number].ring.hung = true;
    }

    /// 7.2.4.5: what software wrote stays, and DD is set.
    fn write_back(&mut self, number: usize, index: u32, [first, second]: [u64; 2], dma: &dyn Dma) {
        let words = [first, second | TX_DONE];
        if let Err(fault) = self.tx[number].ring.write_back(dma, index, words) {
            let queue = Queue::Tx(number as u8);
            self.violations.add(Violation::Dma { queue, fault });
        }
    }

    /// Uses one descriptor; returns the number of packets that it completed.
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
            let violation = Violation::Descriptor { queue, index, rule };
            nic.violations.add(violation);
        };
        let data = match TxDescriptor::read(words) {
            TxDescriptor::Data(data) => data,
            TxDescriptor::Context(context) => {
                if self.tx[number].packet.is_some() {
                    wrong(
                        self,
                        "a context must not lie within a packet (7.2.6 / 3.3.6)",
                    );
                }
                *self.tx[number].context(context.segment) = Some(context);
                return Ok(0);
            }
            TxDescriptor::Unknown => {
                wrong(self, "DTYP must be 0 or 1 (7.2.6, 7.2.7 / 3.3.6, 3.3.7)");
                return Ok(0);
            }
        };
        self.gather(number, index, data, dma)?;
        if !data.end_of_packet {
            return Ok(0);
        }
        let state = &mut self.tx[number];
        let first = state.packet.take().unwrap_or(data);
        let bytes = state.gather.complete();
        let packet = Packet {
            context: *state.context(first.segment),
            first,
            bytes,
            // Of the last descriptor, and with CTRL.VME alone (7.2.4.3, 7.2.7.4).
            tag: (data.tag && self.file.has(at::CTRL, bit::CTRL_VLAN)).then_some(data.vlan),
        };
        let sent = match data.insert_check {
            true => self.send(number, &packet, wire),
            false => Err("IFCS must be 1, or it has no check sequence (7.2.4.3 / 3.3.3)"),
        };
        if let Err(rule) = sent {
            let violation = Violation::Packet { queue, bytes, rule };
            self.violations.add(violation);
        }
        self.tx[number].gather.forget();
        Ok(1)
    }

    /// Copies the bytes of a descriptor behind those of the ones before.
    fn gather(
        &mut self,
        number: usize,
        index: u32,
        data: Data,
        dma: &dyn Dma,
    ) -> Result<(), DmaFault> {
        let queue = Queue::Tx(number as u8);
        let len = data.len as usize;
        if self.ownership.has(data.address, len as u64) {
            let iova = data.address;
            let violation = Violation::BufferReused { queue, index, iova };
            self.violations.add(violation);
        }
        let state = &mut self.tx[number];
        match state.packet {
            None => {
                state.gather.begin(None);
                state.packet = (!data.end_of_packet).then_some(data);
            }
            Some(first) if first.legacy != data.legacy => {
                let rule = "all descriptors of a packet must be of one kind (7.2.7 / 3.3.7)";
                let violation = Violation::Descriptor { queue, index, rule };
                self.violations.add(violation);
            }
            Some(_) => {}
        }
        if state.gather.bytes() + len > SEGMENTED_MAX {
            let rule = "a packet must not be longer than 256 KiB (7.3.1 / 3.5)";
            let violation = Violation::Descriptor { queue, index, rule };
            self.violations.add(violation);
            return Ok(());
        }
        let fragment = Fragment {
            iova: data.address,
            bytes: len,
        };
        state.gather.add(fragment, false, dma)
    }

    /// Does what the first descriptor asks for, and sends the packet.
    fn send(
        &mut self,
        number: usize,
        packet: &Packet,
        wire: &mut impl Wire,
    ) -> Result<(), Refused> {
        let mut buffer = std::mem::take(&mut self.tx[number].gather.buffer);
        let result = match packet.first.segment {
            true => self.send_segments(packet, &mut buffer, wire),
            false => self.send_whole(packet, &mut buffer, wire),
        };
        self.tx[number].gather.buffer = buffer;
        result
    }

    fn send_whole(
        &mut self,
        packet: &Packet,
        buffer: &mut [u8],
        wire: &mut impl Wire,
    ) -> Result<(), Refused> {
        let mut bytes = packet.bytes;
        // PBA.TXA, in KiB: it must be there as a whole (10.2.2.17).
        if bytes > (self.file.get(at::PBA) >> 16) as usize * 1024 {
            return Err("it must fit into the packet buffer unless it is cut (10.2.2.17 / 13.4)");
        }
        if bytes < PACKET_MIN {
            return Err("it must have 17 bytes (10.2.6.1 / 13.4.33)");
        }
        insert_checksums(&mut buffer[..bytes], packet.first, packet.context)?;
        bytes = self.insert_tag(buffer, bytes, packet.tag);
        if bytes < FRAME_MIN {
            if !self.file.has(at::TCTL, bit::TCTL_PAD) {
                return Err("it must have 60 bytes unless TCTL.PSP is 1 (10.2.6.1 / 13.4.33)");
            }
            buffer[bytes..FRAME_MIN].fill(0);
            bytes = FRAME_MIN;
        }
        let frame = &buffer[..bytes];
        self.count_sent(frame, bytes, 1);
        wire.send(frame, Offload::default());
        Ok(())
    }

    /// 7.5.2: inserts a VLAN tag, if there is to be one, whose EtherType VET says; returns the new
    /// length.
    pub(super) fn insert_tag(&self, buffer: &mut [u8], bytes: usize, tag: Option<u16>) -> usize {
        let Some(tag) = tag else {
            return bytes;
        };
        buffer.copy_within(12..bytes, 12 + TAG);
        set_word(buffer, 12, self.file.get(at::VET) as u16);
        set_word(buffer, 14, tag);
        bytes + TAG
    }

    /// Counts frames that begin like this one and have `len` bytes.
    #[inline]
    pub(super) fn count_sent(&mut self, frame: &[u8], len: usize, times: u64) {
        self.statistics.transmitted.count(frame, len, times);
        self.statistics.total_transmitted += times;
        self.statistics.total_transmitted_bytes += times * (len + CHECK_BYTES) as u64;
    }
}

/// Whether a descriptor is to be written back.
fn reports(words: [u64; 2]) -> bool {
    match TxDescriptor::read(words) {
        TxDescriptor::Data(data) => data.report,
        TxDescriptor::Context(context) => context.report,
        TxDescriptor::Unknown => false,
    }
}
