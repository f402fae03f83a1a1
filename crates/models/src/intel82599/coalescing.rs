//! Receive side coalescing (datasheet, 7.11): segments of a TCP connection that come one after the
//! other are placed as one large packet.
//!
//! What comes from a wire for large frames was one packet before, so it need not be made out of
//! segments: it is placed in pieces, each with headers of its own, as if its segments had come in
//! one after the other. Segments that come alone are placed alone, as a card may. A large packet
//! is closed where its first buffer ends, whatever RSCCTL.MAXDESC allows, so that no descriptor
//! points to a next one (7.11).

use super::Nic;
use super::interrupts::{VALID, interval};
use super::receive::{Admitted, Outcome};
use super::registers::{at, bit, rx_queue_at};
use crate::dma::Dma;
use crate::packet::segment::Plan;
use crate::violation::Violation;
use std::ops::Range;

/// Packets of which one descriptor can tell: RSCCNT has four bits, and says one more (7.1.6.2).
const PACKETS_MAX: usize = 14;
/// A large packet must be shorter than this, for the length in its IP header (4.6.7.2.1).
const LARGE_BYTES_MAX: u32 = 0xffff;
/// RSCCTL.MAXDESC: descriptors of one large packet (8.2.3.8.13).
const DESCRIPTORS_MAX: [u32; 4] = [1, 4, 8, 16];

const TCP_FLAGS: usize = 13;
const TCP_OPTIONS: usize = 20;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;
const CWR: u8 = 0x80;
/// The only options that a large packet may have: a timestamp, aligned (RFC 7323, appendix A).
const TIMESTAMP: [u8; 4] = [1, 1, 8, 10];
const TIMESTAMP_BYTES: usize = 12;

/// A large frame that came in, or its headers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Large<'a> {
    pub(super) plan: Plan,
    /// At least its headers.
    pub(super) frame: &'a [u8],
    /// How long it is.
    pub(super) bytes: usize,
}

/// Which segments of a large frame are placed together.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    /// Those that may be coalesced; each of the others is a packet alone.
    coalescible: Range<usize>,
    /// How many of them a packet has at most.
    most: usize,
    count: usize,
}

impl Large<'_> {
    /// 7.11: packets of TCP over IPv4 may be joined if nothing in them is of one packet's concern
    /// alone. CWR is the first segment's, and FIN the last one's.
    pub(super) fn runs(&self, buffer_bytes: usize) -> Runs {
        let Plan {
            ip, header, size, ..
        } = self.plan;
        let count = self.plan.count(self.bytes);
        let tcp = self.frame.get(ip.payload..header).unwrap_or_default();
        let flags = tcp.get(TCP_FLAGS).copied().unwrap_or(0);
        let plain = flags & !(PSH | FIN | CWR) == ACK;
        let options = tcp.get(TCP_OPTIONS..).unwrap_or_default();
        let timestamp = options.len() == TIMESTAMP_BYTES && options.starts_with(&TIMESTAMP);
        let simple = !ip.v6 && !ip.extended && !ip.fragment && (options.is_empty() || timestamp);
        let begin = usize::from(flags & CWR != 0);
        let end = count - usize::from(flags & FIN != 0);
        Runs {
            coalescible: if plain && simple { begin..end } else { 0..0 },
            most: (buffer_bytes.saturating_sub(header) / size).min(PACKETS_MAX),
            count,
        }
    }
}

impl Runs {
    /// The segments from `first` on that are one packet.
    fn next(&self, first: usize) -> Range<usize> {
        let alone = first..first + 1;
        if !self.coalescible.contains(&first) || self.most == 0 {
            return alone;
        }
        // As many to each packet, so that none is left for the last one.
        let left = self.coalescible.end - first;
        first..first + left.div_ceil(left.div_ceil(self.most))
    }

    /// How many segments a packet of the next frame should have, if each segment of this one may
    /// be joined with others: as here, or as many as there is room for.
    pub(super) fn all_coalesced(&self) -> Option<usize> {
        let is_one = self.count <= self.most;
        let segments = if is_one {
            self.most
        } else {
            self.next(0).len()
        };
        (segments > 1 && self.coalescible == (0..self.count)).then_some(segments)
    }
}

impl Nic {
    /// Whether packets of a queue are joined (7.11, 4.6.7.2).
    pub(super) fn coalesces(&self, queue: usize) -> bool {
        self.is_coalescing_queue(queue)
            && !self.file.has(at::RFCTL, bit::RFCTL_RSC_DISABLE)
            && self.file.has(at::HLREG0, bit::HLREG0_RX_CRC_STRIP)
    }

    fn is_coalescing_queue(&self, queue: usize) -> bool {
        self.file.has(rx_queue_at(queue, 0x102c), bit::RSC_ENABLE)
    }

    /// A large frame comes in: as packets that a wire could carry, some of them joined again.
    pub(super) fn receive_large(&mut self, frame: &[u8], size: u16, dma: &dyn Dma) -> Outcome {
        let Some(plan) = Plan::read(frame, size) else {
            self.statistics.length_errors += 1;
            return Outcome::Dropped;
        };
        let large = Large {
            plan,
            frame,
            bytes: frame.len(),
        };
        let mut out = std::mem::take(&mut self.segment);
        let outcome = self.receive_runs(&large, &mut out, dma);
        self.segment = out;
        self.predict(&large);
        outcome
    }

    fn receive_runs(&mut self, large: &Large<'_>, out: &mut Vec<u8>, dma: &dyn Dma) -> Outcome {
        let queue = match self.spreads {
            true => self.choose_queue(large.frame).queue,
            false => 0,
        };
        let runs = match self.coalesces(queue) {
            true => large.runs(self.rx[queue].buffer_bytes),
            false => large.runs(0),
        };
        let mut outcome = Outcome::Dropped;
        while self.segments_received < runs.count {
            let run = runs.next(self.segments_received);
            outcome = if run.len() > 1 {
                let payload = &large.frame[large.plan.payload(large.bytes, &run)];
                large
                    .plan
                    .write_headers(large.frame, large.bytes, &run, out);
                self.receive_coalesced(large, &run, (out, payload, 0), dma)
            } else {
                large.plan.write(large.frame, run.start, out);
                self.receive(out, true, dma)
            };
            if outcome == Outcome::Waits {
                return outcome;
            }
            self.segments_received = run.end;
        }
        self.segments_received = 0;
        outcome
    }

    /// Several segments come in, and are placed as one packet: headers, payload, and how many bytes
    /// of that are in their place already.
    pub(super) fn receive_coalesced(
        &mut self,
        large: &Large<'_>,
        run: &Range<usize>,
        (headers, payload, placed): (&[u8], &[u8], usize),
        dma: &dyn Dma,
    ) -> Outcome {
        let Plan {
            header, size, ip, ..
        } = large.plan;
        let before = run.len() - 1;
        // As they came: all are full but perhaps the last one.
        let lengths = [
            (header + size, before as u64),
            (header + payload.len() + placed - before * size, 1),
        ];
        let Some(admitted) = self.admit(headers, &lengths) else {
            return Outcome::Dropped;
        };
        let Admitted { queue, .. } = admitted;
        if self.rx[queue].ring.available() == 0 {
            return self.no_descriptors(&lengths, queue);
        }
        let mut back = self.describe_sound(&ip);
        back.coalesced = run.len() as u8 + 1;
        self.count_received(headers, &lengths, queue);
        self.place(&admitted, [headers, payload], placed, back, dma);
        Outcome::Delivered
    }

    /// 4.6.7.2.2: what must be set up before a queue that joins packets is switched on.
    pub(super) fn check_coalescing_queue(&mut self, queue: usize) {
        if !self.is_coalescing_queue(queue) {
            return;
        }
        let split = self.file.get(rx_queue_at(queue, 0x1014));
        let control = self.file.get(rx_queue_at(queue, 0x102c));
        let descriptors = DESCRIPTORS_MAX[(control >> 2 & 3) as usize];
        // Pools and not queues have a register of types each; without pools it is the first one.
        let types = self.file.get(at::PSRTYPE);
        let rules = [
            (
                split & bit::SRRCTL_HEADER_SIZE != 0,
                "with RSCCTL.RSCEN, SRRCTL.BSIZEHEADER must not be 0 (4.6.7.2.2)",
            ),
            (
                types & bit::PSRTYPE_TCP != 0,
                "with RSCCTL.RSCEN, PSRTYPE bit 4 (TCP) must be set (4.6.7.2.2)",
            ),
            (
                descriptors * ((split & 0x1f) << 10) < LARGE_BYTES_MAX,
                "RSCCTL.MAXDESC times SRRCTL.BSIZEPACKET must be less than 64 KiB (4.6.7.2.2)",
            ),
        ];
        self.check_rules("RXDCTL", &rules);
    }

    /// 4.6.7.2.1: what must hold for all queues when frames are let in.
    pub(super) fn check_coalescing_start(&mut self) {
        if !(0..self.rx.len()).any(|queue| self.is_coalescing_queue(queue)) {
            return;
        }
        let strips = self.file.has(at::HLREG0, bit::HLREG0_RX_CRC_STRIP);
        let enabled = !self.file.has(at::RFCTL, bit::RFCTL_RSC_DISABLE);
        let rules = [
            (
                strips,
                "with RSCCTL.RSCEN, HLREG0.RXCRCSTRP must be 1 (4.6.7.2.1)",
            ),
            (
                enabled,
                "with RSCCTL.RSCEN, RFCTL.RSC_DIS must be 0 (4.6.7.2.1)",
            ),
        ];
        self.check_rules("RXCTRL", &rules);
    }

    /// 4.6.7.2.2: a large packet is closed at the latest when the queue's vector is raised, so the
    /// queue must have one that is moderated.
    pub(super) fn check_coalescing_vectors(&mut self) {
        for queue in 0..self.rx.len() {
            if !self.rx[queue].ring.is_on() || !self.is_coalescing_queue(queue) {
                continue;
            }
            let entry = self.file.get(at::IVAR + queue / 2 * 4) >> (16 * (queue & 1));
            let vector = (entry & 0x3f) as usize;
            let rules = [
                (
                    entry & VALID != 0,
                    "with RSCCTL.RSCEN, the queue's entry of IVAR must be valid (4.6.7.2.2)",
                ),
                (
                    interval(&self.file, vector) != 0,
                    "with RSCCTL.RSCEN, its vector's EITR.INTERVAL must not be 0 (4.6.7.2.2)",
                ),
            ];
            self.check_rules("RDT", &rules);
        }
    }

    /// Reports the rules that do not hold.
    pub(super) fn check_rules(&mut self, register: &'static str, rules: &[(bool, &'static str)]) {
        for (_, rule) in rules.iter().filter(|(holds, _)| !holds) {
            self.violations.add(Violation::Order { register, rule });
        }
    }
}
