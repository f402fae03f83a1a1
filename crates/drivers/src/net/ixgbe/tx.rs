//! Sending: advanced data descriptors (7.2.3.2.4) in a ring (7.2.3.3).
//!
//! The device is asked for a report (RS) once in [`REPORT_EVERY`] descriptors and at the end of
//! each call, and frames are given back by the report: one look at memory that the device writes
//! for that many frames.

use super::descriptor::*;
use super::offload::{self, Work};
use super::registers::TDT;
use alloc::boxed::Box;
use core::mem;
use device::{Batch, Frame, NicCounts, Sent};
use hw::{DmaArena, DmaRing, Done, InFlight, Iova, Mmio, OutOfDma, ToDevice};

/// Descriptors from one report to the next; a power of two.
const REPORT_EVERY: usize = 32;
/// Shortest frame that the device takes, in bytes, without the checksum; it pads what is shorter
/// than Ethernet's minimum by itself.
const FRAME_BYTES_MIN: usize = 17;
/// Most bytes of a descriptor's buffer: 15.5 KiB. Larger frames are in parts of this.
const PART_BYTES_MAX: usize = 15_872;
/// What all data descriptors have in common.
const DATA: u64 = TX_DTYP_DATA | TX_DEXT | TX_IFCS;

/// The transmit queue. Indices count up for ever; ring and slots mask them.
pub struct Transmitter<const N: usize> {
    ring: DmaRing<2, N>,
    /// A frame is in the slot of its last descriptor. Never freed, so that frames are not given
    /// back while the device may read them: it would send what is another's by then.
    frames: &'static mut [Option<InFlight<Frame, ToDevice>>; N],
    /// The first descriptor whose frame has not been given back.
    clean: usize,
    /// The next free descriptor.
    tail: usize,
    /// What the device knows from the last context descriptor.
    context: Option<[u64; 2]>,
    /// What the device was given of the batch at hand. Not a local variable: the loop over frames
    /// needs all registers of the processor, and changes this for none that it sends.
    sent: Sent,
}

impl<const N: usize> Transmitter<N> {
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        const { assert!(N >= 2 * REPORT_EVERY) };
        Ok(Self {
            ring: arena.ring()?,
            frames: Box::leak(Box::new([const { None }; N])),
            clean: 0,
            tail: 0,
            context: None,
            sent: Sent::default(),
        })
    }

    pub fn ring(&self) -> &DmaRing<2, N> {
        &self.ring
    }

    /// Forgets what a device that has been `reset` had; the frames go back to their pools.
    pub fn clear(&mut self, reset: &Done) {
        for frame in self.frames.iter_mut() {
            drop(frame.take().map(|frame| frame.done(reset)));
        }
        for index in 0..N {
            self.ring.store(index, TX_COMMAND, 0);
        }
        (self.clean, self.tail, self.context) = (0, 0, None);
    }

    /// The first descriptor that the device has not reported as done.
    pub fn pending(&self) -> Option<usize> {
        (self.clean != self.tail).then_some(self.clean)
    }

    /// Frames that the device has.
    #[cfg(test)]
    pub fn sending(&self) -> usize {
        self.frames.iter().flatten().count()
    }

    /// Descriptors that are free. One stays so: head and tail being equal means that all are.
    #[inline]
    fn free_descriptors(&self) -> usize {
        N - 1 - (self.tail - self.clean)
    }

    /// Hands all frames of `batch` to the device; which of them it was given.
    #[inline]
    pub fn transmit(&mut self, bar: &Mmio, batch: &mut Batch, counts: &mut NicCounts) -> Sent {
        self.reclaim();
        if self.free_descriptors() < batch.len() {
            self.reclaim_rest();
        }
        self.sent = Sent::all(batch);
        let last = self.put(batch, counts);
        if last != 0 {
            // Read once: the store might change it, as far as the compiler knows.
            let tail = self.tail;
            self.ring.store(tail - 1, TX_COMMAND, last | TX_RS);
            bar.doorbell(TDT, (tail & (N - 1)) as u32);
        }
        self.sent
    }

    /// Writes descriptors for all frames there is room for; what the last of them says, or zero.
    #[inline]
    fn put(&mut self, batch: &mut Batch, counts: &mut NicCounts) -> u64 {
        // At hand for the loop: what is in memory would be loaded anew after each store.
        let ring = self.ring;
        let mut full = self.clean + N - 1;
        let mut last = 0;
        for frame in batch.drain() {
            let length = frame.len();
            let plain = length.wrapping_sub(FRAME_BYTES_MIN) <= PART_BYTES_MAX - FRAME_BYTES_MIN;
            if !plain || frame.has_offload() {
                last = self.put_work(frame, counts).unwrap_or(last);
                // It may have given frames back that the device reported meanwhile.
                full = self.clean + N - 1;
                continue;
            }
            let tail = self.tail;
            if tail == full {
                counts.tx_no_room += 1;
                self.sent.without(length);
                continue;
            }
            let Ok((frame, iova)) = InFlight::lend(frame) else {
                counts.tx_refused += 1;
                self.sent.without(length);
                continue;
            };
            let length = length as u64;
            let block_ends = (tail + 1).is_multiple_of(REPORT_EVERY);
            let report = if block_ends { TX_RS } else { 0 };
            last = DATA | TX_EOP | report | length | length << TX_PAYLEN_SHIFT;
            ring.store(tail, TX_ADDRESS, iova.raw());
            ring.store(tail, TX_COMMAND, last);
            // Nothing was there: the slot is free.
            mem::forget(self.frames[tail & (N - 1)].replace(frame));
            self.tail = tail + 1;
        }
        last
    }

    /// Gives frames back whose report is there, as many as are reported at once.
    #[inline]
    fn reclaim(&mut self) {
        while self.tail - self.clean >= REPORT_EVERY {
            // The frame that has the last descriptor of the block asked for a report.
            let mut report = self.clean | (REPORT_EVERY - 1);
            while report < self.tail && self.frames[report & (N - 1)].is_none() {
                report += 1;
            }
            if report >= self.tail {
                break;
            }
            let Some(done) = self.reported(report) else {
                break;
            };
            self.give_back(report + 1, &done);
        }
    }

    /// Gives all frames back if the last report is there: where few frames are sent, no block ends.
    pub fn reclaim_rest(&mut self) {
        self.reclaim();
        if self.clean == self.tail {
            return;
        }
        if let Some(done) = self.reported(self.tail - 1) {
            self.give_back(self.tail, &done);
        }
    }

    #[inline]
    fn reported(&self, index: usize) -> Option<Done> {
        self.ring.report(index, TX_COMMAND).shows(TX_DD, TX_DD)
    }

    #[inline]
    fn give_back(&mut self, end: usize, done: &Done) {
        let frames = &mut *self.frames;
        for index in self.clean..end {
            if let Some(frame) = frames[index & (N - 1)].take() {
                drop(frame.done(done));
            }
        }
        self.clean = end;
    }

    /// A frame with work for the device, or one that cannot be sent; what its last descriptor says.
    fn put_work(&mut self, mut frame: Frame, counts: &mut NicCounts) -> Option<u64> {
        let length = frame.len();
        let sound = length >= FRAME_BYTES_MIN;
        let work = offload::prepare(&mut frame).filter(|work| {
            let fits = length <= PART_BYTES_MAX || work.segments;
            sound && fits
        });
        let Some(work) = work else {
            counts.tx_refused += 1;
            self.sent.without(length);
            return None;
        };
        let context = usize::from(self.wants(&work).is_some());
        let wanted = context + length.div_ceil(PART_BYTES_MAX);
        if self.free_descriptors() < wanted {
            self.reclaim_rest();
        }
        if self.free_descriptors() < wanted {
            counts.tx_no_room += 1;
            self.sent.without(length);
            return None;
        }
        // Lent last: what is lent comes back by the device's word alone.
        let Ok((frame, iova)) = InFlight::lend(frame) else {
            counts.tx_refused += 1;
            self.sent.without(length);
            return None;
        };
        let first = self.tail;
        self.put_context(&work);
        let last = self.put_parts(&work, iova, length, first);
        self.frames[(self.tail - 1) & (N - 1)] = Some(frame);
        Some(last)
    }

    /// The context that a frame needs, unless the device knows it already.
    fn wants(&self, work: &Work) -> Option<[u64; 2]> {
        work.context.filter(|_| work.context != self.context)
    }

    /// 7.2.3.2.3: what the device needs to know. Of its two contexts, the first is used.
    fn put_context(&mut self, work: &Work) {
        let Some(context) = self.wants(work) else {
            return;
        };
        self.ring.store(self.tail, 0, context[0]);
        self.ring.store(self.tail, TX_COMMAND, context[1]);
        self.tail += 1;
        self.context = Some(context);
    }

    /// 7.2.3.2.4: the frame, in as many parts as its length needs; its first descriptor, perhaps a
    /// context, is `first`. Returns what the last one says.
    fn put_parts(&mut self, work: &Work, iova: Iova, length: usize, first: usize) -> u64 {
        let mut offset = 0;
        loop {
            let part = (length - offset).min(PART_BYTES_MAX);
            let is_last = offset + part == length;
            let end = if is_last {
                TX_EOP | report(first, self.tail + 1)
            } else {
                0
            };
            let address = iova.raw() + offset as u64;
            let command = DATA | end | work.command | part as u64;
            self.ring.store(self.tail, TX_ADDRESS, address);
            self.ring.store(self.tail, TX_COMMAND, command);
            self.tail += 1;
            offset += part;
            if is_last {
                return command;
            }
        }
    }
}

/// Whether a frame that has the descriptors from `first` to before `end` is to be reported: if one
/// of them is the last of a block.
#[inline]
fn report(first: usize, end: usize) -> u64 {
    if first / REPORT_EVERY == end / REPORT_EVERY {
        0
    } else {
        TX_RS
    }
}
