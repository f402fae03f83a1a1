//! Receiving: filters, offloads, descriptors (82574, 7.1; 82540, 3.2).

use super::descriptor::{RxWriteBack, error, status};
use super::filter::{self, Passed};
use super::{Mac, at, bit};
use crate::dma::Dma;
use crate::misbehaviour::{Fault, Faults};
use crate::packet::checksum::frame_check;
use crate::packet::headers::{FRAME_MIN, Ip, TAG, Transport, UDP_HEADER};
use crate::packet::segment::Plan;
use crate::packet::{Offload, complete};
use crate::registers::RegisterFile;
use crate::ring::Ring;
use crate::scatter::{Parts, Source};
use crate::traffic::CHECK_BYTES;
use crate::violation::{Queue, Violation};
use crate::wire::Wire;

/// Longest frame, with its check sequence and a tag, without RCTL.LPE and with it (10.2.5.1).
const FRAME_MAX: usize = 1522;
const LONG_FRAME_MAX: usize = 16 << 10;
/// Buffers of a descriptor that has its header split off (7.1.10).
const BUFFERS: usize = 4;

/// A receive queue.
#[derive(Debug, Default)]
pub(crate) struct RxQueue {
    pub(crate) ring: Ring,
    /// The buffer that was given back last: where a device that misbehaves writes.
    last_buffer: Option<u64>,
}

/// How received frames are laid down (10.2.5.1, 10.2.5.2, 10.2.5.16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Format {
    /// What is written back is of the extended kind.
    extended: bool,
    /// Headers are split off: descriptors have four buffers, and count as two.
    split: bool,
    /// Bytes of the buffers of a descriptor; without split headers, there is one.
    sizes: [usize; BUFFERS],
    /// Longest frame, with its check sequence and a tag.
    longest: usize,
}

impl Format {
    fn read<I>(file: &RegisterFile<I>) -> Self {
        let control = file.get(at::RCTL);
        let extended = file.has(at::RFCTL, bit::RFCTL_EXTENDED);
        let split = extended && control & bit::RCTL_SPLIT != 0;
        let sizes = match split {
            true => {
                let sizes = file.get(at::PSRCTL) as usize;
                let pages = [8, 16, 24].map(|shift| (sizes >> shift & 0x3f) << 10);
                [(sizes & 0x7f) << 7, pages[0], pages[1], pages[2]]
            }
            false => [buffer_bytes(control), 0, 0, 0],
        };
        let longest = match control & bit::RCTL_LONG {
            0 => FRAME_MAX,
            _ => LONG_FRAME_MAX,
        };
        Self {
            extended,
            split,
            sizes,
            longest,
        }
    }

    /// Descriptors of a ring that one frame takes at least.
    fn units(&self) -> u32 {
        if self.split { 2 } else { 1 }
    }

    /// The buffers that the words of a descriptor of the ring name, and which sizes they have.
    fn buffers(&self, index: u32, words: [u64; 2]) -> [(u64, usize); 2] {
        match (self.split, index % 2) {
            (false, _) => [(words[0], self.sizes[0]), (0, 0)],
            (true, 0) => [(words[0], self.sizes[0]), (words[1], self.sizes[1])],
            (true, _) => [(words[0], self.sizes[2]), (words[1], self.sizes[3])],
        }
    }

    /// How much of a buffer may be written: no frame is longer.
    fn reach(&self, bytes: usize) -> usize {
        bytes.min(self.longest)
    }
}

/// RCTL.BSIZE, BSEX and FLXBUF (10.2.5.1).
fn buffer_bytes(control: u32) -> usize {
    let kibibytes = (control >> bit::RCTL_FLEXIBLE_SHIFT & 0xf) as usize;
    let size = control >> bit::RCTL_SIZE_SHIFT & 3;
    match control & bit::RCTL_SIZE_EXTENDED {
        _ if kibibytes != 0 => kibibytes << 10,
        0 => 2048 >> size,
        // 0 is reserved; the others are 16, 8 and 4 KiB.
        _ => (32 << 10) >> size.max(1),
    }
}

/// Where a frame goes, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hashed {
    /// What was hashed; 0 for nothing.
    pub(crate) kind: u32,
    pub(crate) hash: u32,
    pub(crate) queue: usize,
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

/// A frame that may come in.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    hashed: Hashed,
    tag: Option<u16>,
    /// The tag goes to the descriptor alone.
    strip: bool,
    inexact: bool,
}

/// A frame whose descriptor was done before: where it goes, and its bytes.
pub(super) type Late = (u64, Vec<u8>);

impl<I: Copy + PartialEq> Mac<I> {
    /// Registers that say how frames are laid down were written. What was fetched was read in
    /// another way.
    pub(crate) fn configure_receive(&mut self) {
        let format = Format::read(&self.file);
        if format != self.format {
            self.format = format;
            self.ownership.clear();
            self.rx.iter_mut().for_each(|queue| queue.ring.begin());
        }
    }

    /// Fetches descriptors of the receive queues.
    pub(super) fn fetch_receive(&mut self, dma: &dyn Dma) {
        for number in 0..self.rx.len() {
            if self.rx[number].ring.is_on() {
                self.fetch_receive_queue(number, dma);
            }
        }
    }

    fn fetch_receive_queue(&mut self, number: usize, dma: &dyn Dma) {
        let queue = Queue::Rx(number as u8);
        let format = self.format;
        let (violations, ownership) = (&mut self.violations, &mut self.ownership);
        let fetched = self.rx[number].ring.fetch(dma, |index, words| {
            for (iova, bytes) in format.buffers(index, words) {
                if bytes == 0 {
                    continue;
                }
                // Linux gives buffers of 1.5 KiB as such of 2 KiB, at the end of memory, too.
                let reach = format.reach(bytes);
                if let Err(fault) = dma.check(iova, reach) {
                    violations.add(Violation::Dma { queue, fault });
                } else if !ownership.take(iova, reach as u64) {
                    violations.add(Violation::BufferReused { queue, index, iova });
                }
            }
        });
        if let Err(fault) = fetched {
            self.violations.add(Violation::Dma { queue, fault });
            self.rx[number].ring.hung = true;
        }
    }

    /// Receives what the wire has, at most `frames` of it; returns how many.
    pub(super) fn receive_from(&mut self, wire: &mut impl Wire, dma: &dyn Dma, frames: u32) -> u32 {
        let mut received = 0;
        while received < frames {
            let Some((frame, offload)) = wire.peek() else {
                break;
            };
            if self.receive_next(frame, offload, dma) == Outcome::Waits {
                break;
            }
            wire.take();
            received += 1;
        }
        received
    }

    /// A frame comes in, with something left to do to it or not.
    fn receive_next(&mut self, frame: &[u8], offload: Offload, dma: &dyn Dma) -> Outcome {
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

    /// A frame comes in that a wire has cut: so it came, segment by segment.
    fn receive_large(&mut self, frame: &[u8], size: u16, dma: &dyn Dma) -> Outcome {
        let Some(plan) = Plan::read(frame, size) else {
            return self.receive(frame, false, dma);
        };
        let mut segment = std::mem::take(&mut self.segment);
        let mut outcome = Outcome::Delivered;
        while plan.write(frame, self.segments_received, &mut segment) {
            outcome = self.receive(&segment, true, dma);
            if outcome == Outcome::Waits {
                break;
            }
            self.segments_received += 1;
        }
        self.segment = segment;
        if outcome != Outcome::Waits {
            self.segments_received = 0;
        }
        outcome
    }

    /// A frame comes in from the wire. `sound` says that its checksums are known to be right.
    #[inline]
    fn receive(&mut self, frame: &[u8], sound: bool, dma: &dyn Dma) -> Outcome {
        if frame.len() < FRAME_MIN {
            let mut padded = [0; FRAME_MIN];
            padded[..frame.len()].copy_from_slice(frame);
            return self.receive_padded(&padded, sound, dma);
        }
        self.receive_padded(frame, sound, dma)
    }

    fn receive_padded(&mut self, frame: &[u8], sound: bool, dma: &dyn Dma) -> Outcome {
        let Some(admitted) = self.admit(frame) else {
            return Outcome::Dropped;
        };
        let check = match self.file.has(at::RCTL, bit::RCTL_STRIP_CHECK) {
            true => [0; 0].as_slice(),
            false => &frame_check(frame),
        };
        let parts: Parts<'_> = match admitted.strip {
            true => [&frame[..12], &frame[12 + TAG..], check],
            false => [frame, check, &[]],
        };
        let mut back = self.describe(frame, sound, &admitted);
        if !self.format.split {
            back.header = None;
        }
        let bytes = parts.iter().map(|part| part.len()).sum();
        let ring = &self.rx[admitted.hashed.queue].ring;
        if !ring.is_on() || self.units(bytes, &back) > ring.available() {
            return Outcome::Waits;
        }
        self.statistics.total_received += 1;
        self.statistics.total_received_bytes += (frame.len() + CHECK_BYTES) as u64;
        self.statistics.received.count(frame, frame.len(), 1);
        self.place(admitted.hashed.queue, parts, bytes, back, dma);
        self.happened.received |= 1 << admitted.hashed.queue;
        Outcome::Delivered
    }

    /// Whether a frame may come in, and where it goes; if not, it is counted.
    fn admit(&mut self, frame: &[u8]) -> Option<Admitted> {
        let tag = filter::tag(&self.file, frame);
        let passed = filter::pass(&self.file, frame);
        let bytes = frame.len() + CHECK_BYTES;
        let untagged = bytes - if tag.is_some() { TAG } else { 0 };
        let fits = untagged + TAG <= self.format.longest;
        if passed == Passed::No || !fits {
            self.statistics.total_received += 1;
            self.statistics.total_received_bytes += bytes as u64;
            self.statistics.oversized += u64::from(!fits);
            return None;
        }
        Some(Admitted {
            hashed: (self.kind.spread)(&self.file, frame),
            tag,
            strip: tag.is_some() && self.file.has(at::CTRL, bit::CTRL_VLAN),
            inexact: passed == Passed::Inexact,
        })
    }

    /// What descriptors say of a frame (7.1.6).
    fn describe(&self, frame: &[u8], sound: bool, admitted: &Admitted) -> RxWriteBack {
        let mut back = RxWriteBack::default();
        if self.file.has(at::RXCSUM, bit::RXCSUM_HASH) {
            back.hash = admitted.hashed.hash;
            back.hashed = admitted.hashed.kind | (admitted.hashed.queue as u32) << 8;
        }
        if admitted.inexact {
            back.status |= status::INEXACT;
        }
        if let Some(tag) = admitted.tag.filter(|_| admitted.strip) {
            back.status |= status::VLAN;
            back.tag = tag;
        }
        if let Some(ip) = Ip::find(frame) {
            self.describe_packet(frame, sound, &ip, &mut back);
        }
        if admitted.strip {
            back.header = back.header.map(|bytes| bytes - TAG as u16);
        }
        back
    }

    /// What was found of checksums (7.1.12), and where the payload begins (7.1.10).
    fn describe_packet(&self, frame: &[u8], sound: bool, ip: &Ip, back: &mut RxWriteBack) {
        if !ip.v6 && self.file.has(at::RXCSUM, bit::RXCSUM_IP) {
            back.status |= status::IP_CHECKED;
            if !sound && !ip.header_is_sound(frame) {
                back.errors |= error::IP_CHECKSUM;
            }
        }
        let (header, checked) = match ip.transport(frame) {
            Some(Transport::Tcp { header }) => (header, status::TCP_CHECKED),
            Some(Transport::Udp) if self.kind.tells_udp => {
                (UDP_HEADER, status::TCP_CHECKED | status::UDP_CHECKED)
            }
            Some(Transport::Udp) => (UDP_HEADER, status::TCP_CHECKED),
            _ => return,
        };
        back.header = Some((ip.payload + header) as u16);
        if !self.file.has(at::RXCSUM, bit::RXCSUM_L4) {
            return;
        }
        let is_sound = match sound {
            true => Some(true),
            false => ip.payload_is_sound(frame),
        };
        if let Some(is_sound) = is_sound {
            back.status |= checked;
            if !is_sound {
                back.errors |= error::L4_CHECKSUM;
            }
        }
    }

    /// How many bytes go to each buffer of a descriptor, of those that are left of a frame. Headers
    /// are split off if they are known and fit (7.1.10).
    fn divide(&self, left: usize, header: Option<u16>) -> [u16; BUFFERS] {
        let mut left = left;
        let mut lens = [0; BUFFERS];
        for (number, (len, size)) in lens.iter_mut().zip(self.format.sizes).enumerate() {
            let most = match header {
                Some(header) if number == 0 => size.min(usize::from(header)),
                _ => size,
            };
            let bytes = left.min(most);
            // No buffer has more than 63 KiB, and no frame.
            *len = bytes as u16;
            left -= bytes;
        }
        lens
    }

    /// Descriptors of the ring that so many bytes take.
    fn units(&self, bytes: usize, back: &RxWriteBack) -> u32 {
        let (mut left, mut units) = (bytes, 0);
        let mut header = self.split_header(back);
        while left > 0 {
            let lens = self.divide(left, header.take());
            let taken: usize = lens.iter().map(|len| usize::from(*len)).sum();
            units += self.format.units();
            if taken == 0 {
                // Buffers of no size at all: there are never enough.
                return u32::MAX;
            }
            left -= taken;
        }
        units
    }

    /// Bytes of the header that is split off; none if it does not fit into its buffer.
    fn split_header(&self, back: &RxWriteBack) -> Option<u16> {
        back.header
            .filter(|bytes| usize::from(*bytes) <= self.format.sizes[0])
    }

    /// Writes a packet to as many buffers as it takes, each followed by its descriptor.
    fn place(
        &mut self,
        number: usize,
        parts: Parts<'_>,
        bytes: usize,
        mut back: RxWriteBack,
        dma: &dyn Dma,
    ) {
        back.header = self.split_header(&back);
        let mut header = back.header;
        let mut left = bytes;
        let mut source = Source::new(parts);
        let units = self.format.units();
        while left > 0 {
            let ring = &mut self.rx[number].ring;
            if self.faults.strikes(Fault::Skip) && ring.available() > units {
                (0..units).for_each(|_| ring.advance());
            }
            let lens = self.divide(left, header.take());
            left -= lens.iter().map(|len| usize::from(*len)).sum::<usize>();
            let mut back = back;
            back.status |= status::DONE;
            if left == 0 {
                back.status |= status::END_OF_PACKET;
            } else {
                // Only the last descriptor says what the frame is (7.1.6).
                back.errors = 0;
            }
            if !self.place_descriptor(number, lens, &mut source, back, dma) {
                return;
            }
        }
    }

    /// Uses one descriptor; `false` if there is none.
    fn place_descriptor(
        &mut self,
        number: usize,
        lens: [u16; BUFFERS],
        source: &mut Source<'_>,
        back: RxWriteBack,
        dma: &dyn Dma,
    ) -> bool {
        let early = self.faults.strikes(Fault::EarlyDone);
        let mut at = [0; 2];
        let mut first = [0; 2];
        for unit in 0..self.format.units() as usize {
            let Some((index, words)) = self.rx[number].ring.first() else {
                return false;
            };
            self.rx[number].ring.advance();
            (at[unit], first) = (index, if unit == 0 { words } else { first });
            let buffers = self.format.buffers(index, words);
            for ((iova, bytes), len) in buffers.into_iter().zip(&lens[2 * unit..]) {
                let reach = self.format.reach(bytes) as u64;
                self.ownership.give_back(iova, reach);
                self.fill(number, iova, usize::from(*len), source, early, dma);
            }
        }
        let mut words = match (self.format.split, self.format.extended) {
            (true, _) => back.split(lens),
            (false, true) => {
                let [first, second] = back.extended(lens[0]);
                [first, second, 0, 0]
            }
            (false, false) => [first[0], back.legacy(lens[0]), 0, 0],
        };
        misreport(&mut self.faults, &mut words, self.format.extended);
        let [first, second, third, fourth] = words;
        let ring = &self.rx[number].ring;
        // The word with DD comes last.
        let rest = match self.format.split {
            true => ring.write_back(dma, at[1], [third, fourth]),
            false => Ok(()),
        };
        if let Err(fault) = rest.and_then(|()| ring.write_back(dma, at[0], [first, second])) {
            let queue = Queue::Rx(number as u8);
            self.violations.add(Violation::Dma { queue, fault });
        }
        true
    }

    /// Writes the next bytes of a frame to a buffer, or notes that they come late.
    fn fill(
        &mut self,
        number: usize,
        iova: u64,
        len: usize,
        source: &mut Source<'_>,
        early: bool,
        dma: &dyn Dma,
    ) {
        if len == 0 {
            return;
        }
        if early {
            let mut bytes = vec![0; len];
            source.copy(&mut bytes);
            self.late.push((iova, bytes));
        } else {
            source.write(len, iova, dma);
        }
        if let Some(last) = self.rx[number].last_buffer.replace(iova)
            && self.faults.strikes(Fault::WildWrite)
        {
            let _lost = dma.write(last, &self.faults.number().to_le_bytes());
        }
    }

    /// Writes frames whose descriptors were done too early.
    pub(super) fn write_late(&mut self, dma: &dyn Dma) {
        for (iova, bytes) in self.late.drain(..) {
            let _lost = dma.write(iova, &bytes);
        }
    }
}

/// What is written back for a received frame, if the device misbehaves. It is always done: else it
/// would be no news.
#[inline]
fn misreport(faults: &mut Faults, words: &mut [u64; 4], extended: bool) {
    // The fields of 7.1.6 and 7.1.4, but for DD.
    let (status, length) = match extended {
        true => (0xffff_fffe, 0xffff << 32),
        false => (0xfffe << 32, 0xffff),
    };
    if faults.strikes(Fault::Garbage) {
        words[0] = faults.number();
    }
    if faults.strikes(Fault::Length) {
        words[1] = words[1] & !length | faults.number() & length;
    }
    if faults.strikes(Fault::Status) {
        words[1] = words[1] & !status | faults.number() & status;
    }
}
