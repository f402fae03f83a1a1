//! Receiving: filters, offloads, descriptors (datasheet, 7.1).
//!
//! What every frame passes is always inlined. A value that is passed by memory, written word by
//! word and read as a whole, waits for all stores before it, and those to the driver's memory take
//! as long as its core holds on to the cache line: that cost a third of all frames of 64 bytes.

use super::Nic;
use super::descriptor::{RxWriteBack, error, packet_type, status};
use super::filter::{self, Passed};
use super::flow_director::Target;
use super::interrupts::cause;
use super::registers::{at, bit, rx_queue_at};
use super::rss::{self, Hashed};
use super::statistics::{QueueTraffic, counters_of};
use crate::dma::Dma;
use crate::misbehaviour::{Fault, Faults};
use crate::packet::checksum::frame_check;
use crate::packet::complete;
use crate::packet::headers::{FRAME_MIN, Ip, TAG, Transport};
use crate::ring::Ring;
use crate::scatter::{Parts, Places, Source};
use crate::traffic::CHECK_BYTES;
use crate::violation::{Queue, Violation};
use crate::wire::{Incoming, Wire};

/// Longest one, with its check sequence, unless HLREG0.JUMBOEN says otherwise (8.2.3.22.13).
const FRAME_MAX: usize = 1518;

/// A receive queue.
#[derive(Debug, Default)]
pub(crate) struct RxQueue {
    pub(crate) ring: Ring,
    /// SRRCTL and RXDCTL, as bits of them are needed for every frame.
    pub(crate) buffer_bytes: usize,
    /// Bytes of a buffer that may be written: as many as the longest frame has, or all.
    pub(crate) reach: u64,
    pub(crate) drop_when_full: bool,
    pub(crate) strip_tag: bool,
    /// The buffer that was given back last: where a device that misbehaves writes.
    last_buffer: Option<u64>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in the driver's memory.
    Delivered,
    /// It was dropped, and counted.
    Dropped,
    /// There is no descriptor for it: it waits in the packet buffer.
    Waits,
}

/// Which queue a frame goes to, and why.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chosen {
    pub(super) queue: usize,
    hashed: Hashed,
    /// Whether a filter of the flow director matched; none if there are no filters.
    matched: Option<bool>,
}

/// A frame that may come in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    pub(super) queue: usize,
    tag: Option<u16>,
    /// The tag goes to the descriptor alone.
    strip: bool,
    inexact: bool,
}

impl Admitted {
    /// Bytes that are not placed.
    pub(super) fn stripped(&self) -> usize {
        if self.strip { TAG } else { 0 }
    }
}

/// Lengths of packets without their check sequences, and how many have each of them.
pub(super) type Lengths = [(usize, u64)];

fn packets(lengths: &Lengths) -> u64 {
    lengths.iter().map(|(_, times)| times).sum()
}

/// Bytes of packets, with their check sequences.
fn bytes(lengths: &Lengths) -> u64 {
    let bytes = |(len, times): &(usize, u64)| (len + CHECK_BYTES) as u64 * times;
    lengths.iter().map(bytes).sum()
}

impl Nic {
    /// Fetches descriptors of the receive queues.
    pub(crate) fn fetch_receive(&mut self, dma: &dyn Dma) {
        for number in 0..self.rx_used {
            if self.rx[number].ring.is_on() {
                self.fetch_receive_queue(number, dma);
            }
        }
    }

    fn fetch_receive_queue(&mut self, number: usize, dma: &dyn Dma) {
        let queue = Queue::Rx(number as u8);
        let RxQueue {
            ring,
            buffer_bytes,
            reach,
            ..
        } = &mut self.rx[number];
        let (violations, ownership) = (&mut self.violations, &mut self.ownership);
        // Without split headers, the card looks at no bit of the second address: not at DD either,
        // which a driver that goes by lengths leaves there (7.1.6.1).
        let fetched = ring.fetch(dma, |index, [iova, _]| {
            if let Err(fault) = dma.check(iova, *buffer_bytes) {
                violations.add(Violation::Dma { queue, fault });
            } else if !ownership.take(iova, *reach) {
                violations.add(Violation::BufferReused { queue, index, iova });
            }
        });
        if let Err(fault) = fetched {
            self.violations.add(Violation::Dma { queue, fault });
            self.interrupts.set_causes(cause::PCI);
            self.rx[number].ring.hung = true;
        }
    }

    /// Receives what the wire has, at most `frames` of it; returns how many.
    pub(super) fn receive_from(&mut self, wire: &mut impl Wire, dma: &dyn Dma, frames: u32) -> u32 {
        let mut received = 0;
        let mut places = Places::new();
        while received < frames {
            let headers = self.find_places(dma, &mut places);
            let Some(incoming) = wire.peek_split(headers, &places) else {
                break;
            };
            if incoming.placed > 0 {
                if self.receive_placed(&incoming, dma) {
                    wire.take();
                    received += 1;
                } else {
                    wire.linearize(&places);
                }
                continue;
            }
            if self.receive_linear(&incoming, dma) == Outcome::Waits {
                break;
            }
            wire.take();
            received += 1;
        }
        self.steps.receive_begun |= received > 0;
        received
    }

    /// A frame comes in that is all in one place, with something left to do to it or not.
    #[inline(always)]
    fn receive_linear(&mut self, incoming: &Incoming<'_>, dma: &dyn Dma) -> Outcome {
        let (frame, offload) = (incoming.frame, incoming.offload);
        match (offload.segment, offload.checksum) {
            (Some(size), _) => self.receive_large(frame, size, dma),
            (None, Some((start, offset))) => {
                let mut whole = std::mem::take(&mut self.segment);
                whole.clear();
                whole.extend_from_slice(frame);
                complete(&mut whole, start, offset);
                let outcome = self.receive(&whole, true, dma);
                self.segment = whole;
                outcome
            }
            (None, None) => self.receive(frame, false, dma),
        }
    }

    /// A frame comes in from the wire. `sound` says that its checksums are known to be right.
    #[inline]
    pub(crate) fn receive(&mut self, frame: &[u8], sound: bool, dma: &dyn Dma) -> Outcome {
        if frame.len() < FRAME_MIN {
            let mut padded = [0; FRAME_MIN];
            padded[..frame.len()].copy_from_slice(frame);
            return self.receive_padded(&padded, sound, dma);
        }
        self.receive_padded(frame, sound, dma)
    }

    fn receive_padded(&mut self, frame: &[u8], sound: bool, dma: &dyn Dma) -> Outcome {
        let lengths = [(frame.len(), 1)];
        let Some(admitted) = self.admit(frame, &lengths) else {
            return Outcome::Dropped;
        };
        let queue = admitted.queue;
        let check = match self.file.has(at::HLREG0, bit::HLREG0_RX_CRC_STRIP) {
            true => [0; 0].as_slice(),
            false => &frame_check(frame),
        };
        let bytes = frame.len() + check.len() - admitted.stripped();
        let wanted = bytes.div_ceil(self.rx[queue].buffer_bytes) as u32;
        if wanted > self.rx[queue].ring.available() {
            return self.no_descriptors(&lengths, queue);
        }
        let back = self.describe(frame, sound);
        self.count_received(frame, &lengths, queue);
        self.place(&admitted, [frame, check], 0, back, dma);
        Outcome::Delivered
    }

    /// Whether packets may come in that begin like this one and have these lengths, and where
    /// they go; if not, they are counted.
    #[inline(always)]
    pub(super) fn admit(&mut self, frame: &[u8], lengths: &Lengths) -> Option<Admitted> {
        let tag = filter::tag(&self.file, frame);
        let passed = filter::pass(&self.file, frame);
        let queue = match self.spreads {
            true => self.send_to_queue(frame, lengths),
            false => 0,
        };
        let max = self.frame_bytes_max(tag.is_some());
        let fits = lengths.iter().all(|(len, _)| len + CHECK_BYTES <= max);
        if passed == Passed::No || !fits || !self.rx[queue].ring.is_on() {
            self.count_dropped(lengths, passed, fits, queue);
            return None;
        }
        Some(Admitted {
            queue,
            tag,
            strip: tag.is_some() && self.rx[queue].strip_tag,
            inexact: passed == Passed::Inexact,
        })
    }

    /// RSS or filters were changed: whether frames go to other queues than the first one (7.1.2).
    pub(crate) fn configure_spread(&mut self) {
        self.spreads = rss::is_on(&self.file) || !self.flows.is_empty();
        // Nothing is predicted while they do.
        self.prediction = None;
        self.told = 0;
    }

    /// The queue of a frame: a filter of the flow director comes before RSS (7.1.2).
    #[cold]
    pub(super) fn choose_queue(&self, frame: &[u8]) -> Chosen {
        let mut chosen = Chosen::default();
        if rss::is_on(&self.file) {
            (chosen.hashed, chosen.queue) = rss::spread(&self.file, frame);
        }
        if self.flows.is_empty() {
            return chosen;
        }
        let found = self.flows.find(&self.file, frame);
        chosen.matched = Some(found.is_some());
        if let Some(Target { queue, hash }) = found {
            chosen.queue = queue;
            if self.file.has(at::FDIRCTRL, bit::FDIRCTRL_REPORT) {
                chosen.hashed = Hashed::by_filter(hash);
            }
        }
        chosen
    }

    /// Chooses the queue of frames that begin like this one, and notes what their descriptors tell.
    #[cold]
    fn send_to_queue(&mut self, frame: &[u8], lengths: &Lengths) -> usize {
        let Chosen {
            queue,
            hashed,
            matched,
        } = self.choose_queue(frame);
        match matched {
            None => {}
            Some(true) => self.statistics.flow_matched += packets(lengths),
            Some(false) => self.statistics.flow_missed += packets(lengths),
        }
        self.told = match rss::is_told(&self.file) {
            true => hashed.told(),
            false => 0,
        };
        queue
    }

    fn frame_bytes_max(&self, tagged: bool) -> usize {
        let max = match self.file.has(at::HLREG0, bit::HLREG0_JUMBO) {
            true => (self.file.get(at::MAXFRS) >> 16) as usize,
            false => FRAME_MAX,
        };
        max + if tagged { TAG } else { 0 }
    }

    /// 8.2.3.8.7, SRRCTL.Drop_En: without descriptors a frame waits, or is dropped.
    pub(super) fn no_descriptors(&mut self, lengths: &Lengths, queue: usize) -> Outcome {
        if !self.rx[queue].drop_when_full {
            return Outcome::Waits;
        }
        self.count_total(lengths);
        self.counters(queue).dropped += packets(lengths);
        Outcome::Dropped
    }

    /// The counters of a queue.
    fn counters(&mut self, queue: usize) -> &mut QueueTraffic {
        let counters = counters_of(queue, self.file.get(at::RQSMR + queue / 4 * 4));
        &mut self.statistics.rx_queues[counters]
    }

    fn count_total(&mut self, lengths: &Lengths) {
        self.statistics.total_received += packets(lengths);
        self.statistics.total_received_bytes += bytes(lengths);
    }

    /// Counts packets that begin like this one.
    #[inline]
    pub(super) fn count_received(&mut self, frame: &[u8], lengths: &Lengths, queue: usize) {
        self.count_total(lengths);
        for (len, times) in lengths {
            self.statistics.received.count(frame, *len, *times);
        }
        let counters = self.counters(queue);
        counters.frames += packets(lengths);
        counters.bytes += bytes(lengths);
    }

    fn count_dropped(&mut self, lengths: &Lengths, passed: Passed, fits: bool, queue: usize) {
        self.count_total(lengths);
        if !fits {
            self.statistics.oversized += packets(lengths);
        } else if passed != Passed::No {
            self.counters(queue).dropped += packets(lengths);
        }
    }

    /// What is said of a TCP packet whose checksums are known to be right.
    pub(super) fn describe_sound(&self, ip: &Ip) -> RxWriteBack {
        let checked = if ip.v6 { 0 } else { status::IP_CHECKED };
        RxWriteBack {
            packet_type: packet_type::of(ip) | packet_type::TCP,
            status: checked | status::L4_CHECKED,
            ..RxWriteBack::default()
        }
    }

    /// The packet type and what was found of checksums (7.1).
    #[inline]
    fn describe(&mut self, frame: &[u8], sound: bool) -> RxWriteBack {
        let mut back = RxWriteBack::default();
        let Some(ip) = Ip::find(frame) else {
            return back;
        };
        back.packet_type = packet_type::of(&ip);
        if !ip.v6 {
            back.status |= status::IP_CHECKED;
            if !sound && !ip.header_is_sound(frame) {
                back.errors |= error::IP_CHECKSUM;
            }
        }
        let kind = match ip.transport(frame) {
            Some(Transport::Tcp { .. }) => packet_type::TCP,
            Some(Transport::Udp) => packet_type::UDP,
            Some(Transport::Sctp) => packet_type::SCTP,
            None => return back,
        };
        back.packet_type |= kind;
        if kind == packet_type::SCTP {
            return back;
        }
        let is_sound = if sound {
            Some(true)
        } else {
            ip.payload_is_sound(frame)
        };
        if let Some(is_sound) = is_sound {
            back.status |= status::L4_CHECKED;
            if !is_sound {
                back.errors |= error::L4_CHECKSUM;
            }
        }
        if back.errors != 0 {
            self.statistics.checksum_errors += 1;
        }
        back
    }

    /// Writes a packet to as many buffers as it takes, each followed by its descriptor. Its parts
    /// are the frame and what follows that, the first part long enough for a tag; `placed`
    /// bytes more lie in the buffer already.
    #[inline(always)]
    pub(super) fn place(
        &mut self,
        admitted: &Admitted,
        [frame, rest]: [&[u8]; 2],
        placed: usize,
        mut back: RxWriteBack,
        dma: &dyn Dma,
    ) {
        let number = admitted.queue;
        if admitted.inexact {
            back.status |= status::INEXACT;
        }
        if let Some(tag) = admitted.tag {
            back.status |= status::VLAN;
            back.tag = if admitted.strip { tag } else { 0 };
        }
        let parts: Parts<'_> = match admitted.strip {
            true => [&frame[..12], &frame[12 + TAG..], rest],
            false => [frame, rest, &[]],
        };
        self.place_parts(number, parts, placed, back, dma);
        self.interrupts.queue_happened(&self.file, number, false);
    }

    #[inline(always)]
    fn place_parts(
        &mut self,
        number: usize,
        parts: Parts<'_>,
        placed: usize,
        back: RxWriteBack,
        dma: &dyn Dma,
    ) {
        let mut left = placed + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut source = Source::new(parts);
        while left > 0 {
            if self.faults.strikes(Fault::Skip) && self.rx[number].ring.available() > 1 {
                self.rx[number].ring.advance();
            }
            let RxQueue {
                ring,
                buffer_bytes,
                reach,
                ..
            } = &mut self.rx[number];
            let Some((index, [iova, _])) = ring.first() else {
                return;
            };
            ring.advance();
            let len = left.min(*buffer_bytes);
            left -= len;
            self.ownership.give_back(iova, *reach);
            let mut back = RxWriteBack {
                len: len as u16,
                ..back
            };
            back.status |= status::DONE;
            if left == 0 {
                back.status |= status::END_OF_PACKET;
            } else {
                // Only the last descriptor says what the frame is (7.1.6.2).
                back.errors = 0;
            }
            self.place_buffer(number, (index, iova), &mut source, back, dma);
        }
    }

    #[inline(always)]
    fn place_buffer(
        &mut self,
        number: usize,
        (index, iova): (u32, u64),
        source: &mut Source<'_>,
        back: RxWriteBack,
        dma: &dyn Dma,
    ) {
        let early = self.faults.strikes(Fault::EarlyDone);
        if !early {
            source.write(usize::from(back.len), iova, dma);
        }
        let [first, second] = back.words();
        let words = misreport(&mut self.faults, [first | self.told, second]);
        if let Err(fault) = self.rx[number].ring.write_back(dma, index, words) {
            self.violations.add(Violation::Dma {
                queue: Queue::Rx(number as u8),
                fault,
            });
        }
        if early {
            let mut bytes = vec![0; usize::from(back.len)];
            source.copy(&mut bytes);
            self.late.push((iova, bytes));
        }
        if let Some(last) = self.rx[number].last_buffer.replace(iova)
            && self.faults.strikes(Fault::WildWrite)
        {
            let _lost = dma.write(last, &self.faults.number().to_le_bytes());
        }
    }

    /// Writes frames whose descriptors were done too early.
    pub(crate) fn write_late(&mut self, dma: &dyn Dma) {
        for (iova, bytes) in self.late.drain(..) {
            let _lost = dma.write(iova, &bytes);
        }
    }

    /// How much of its buffers a queue that is switched on may write. A driver may give it buffers
    /// that overlap behind that: no frame gets there (8.2.3.8.7, 8.2.3.22.13).
    pub(crate) fn limit_reach(&mut self, number: usize) {
        let longest = match self.coalesces(number) {
            true => usize::MAX,
            false => self.frame_bytes_max(true),
        };
        let queue = &mut self.rx[number];
        queue.reach = queue.buffer_bytes.min(longest) as u64;
    }

    /// SRRCTL and RXDCTL say how frames are placed.
    pub(crate) fn configure_receive(&mut self, number: usize) {
        let split = self.file.get(rx_queue_at(number, 0x1014));
        let control = self.file.get(rx_queue_at(number, 0x1028));
        // Buffers of another size would be too short for what was predicted.
        self.prediction = None;
        let queue = &mut self.rx[number];
        // None at all would be a mistake, and is told as one when the queue is switched on.
        queue.buffer_bytes = (split as usize & 0x1f).max(1) << 10;
        queue.drop_when_full = split & bit::SRRCTL_DROP != 0;
        queue.strip_tag = control & bit::RX_VLAN_STRIP != 0;
    }
}

/// What is written back for a received frame, if the device misbehaves. It is always done: else it
/// would be no news.
#[inline]
fn misreport(faults: &mut Faults, [mut first, mut second]: [u64; 2]) -> [u64; 2] {
    // The fields of 7.1.6.2, but for DD.
    const STATUS: u64 = 0xffff_fffe;
    const LENGTH: u64 = 0xffff << 32;
    const RSC_COUNT: u64 = 0xf << 17;
    if faults.strikes(Fault::Garbage) {
        first = faults.number();
    }
    if faults.strikes(Fault::Coalesced) {
        first = first & !RSC_COUNT | faults.number() & RSC_COUNT;
    }
    if faults.strikes(Fault::Length) {
        second = second & !LENGTH | faults.number() & LENGTH;
    }
    if faults.strikes(Fault::Status) {
        second = second & !STATUS | faults.number() & STATUS;
    }
    [first, second]
}

/// A frame whose descriptor was done before: where it goes, and its bytes.
pub(super) type Late = (u64, Vec<u8>);
