//! Sending: a ring of frames that the device reads and then reports as done (7.2.4).
//!
//! Positions count descriptors since the start and are masked where they index. The device has
//! those from `clean` up to `next`. It reports the last frame of each batch alone, which is enough:
//! it goes through them in order.

use super::descriptor::{STATUS_WORD, TX_DD, TX_RS, WORDS, data};
use super::offload::Context;
use alloc::boxed::Box;
use device::{Batch, Frame, NicCounts, Sent};
use hw::{DmaArena, DmaRing, Done, InFlight, OutOfDma, ToDevice};

/// Descriptors that a frame takes at most: a context, and the data on either side of the end of a
/// page.
const PER_FRAME: usize = 3;
/// Shortest frame that the device takes, in bytes without the checksum; it pads what is shorter
/// than Ethernet's minimum by itself (TCTL.PSP).
const FRAME_BYTES_MIN: usize = 17;
/// No descriptor crosses the end of a page. The device could; but QEMU's drops a frame whose pages
/// lie apart behind the IOMMU.
const PAGE: u64 = 4096;

pub struct Transmitter<const N: usize> {
    ring: DmaRing<WORDS, N>,
    /// Frames that the device has, by descriptor. Never freed, so
    /// that they are not given back while it may use them.
    frames: &'static mut [Option<InFlight<Frame, ToDevice>>; N],
    /// Positions that the device reports, a ring of its own.
    reports: Box<[usize; N]>,
    report_first: usize,
    report_end: usize,
    clean: usize,
    next: usize,
    /// What the device knows of checksums.
    context: Option<Context>,
    /// Longest frame in bytes.
    frame_max: usize,
}

impl<const N: usize> Transmitter<N> {
    pub fn new(arena: &mut DmaArena, frame_max: usize) -> Result<Self, OutOfDma> {
        const { assert!(N > PER_FRAME) };
        Ok(Self {
            ring: arena.ring()?,
            frames: Box::leak(Box::new([const { None }; N])),
            reports: Box::new([0; N]),
            report_first: 0,
            report_end: 0,
            clean: 0,
            next: 0,
            context: None,
            frame_max,
        })
    }

    pub fn ring(&self) -> &DmaRing<WORDS, N> {
        &self.ring
    }

    /// Value for the tail register.
    #[inline]
    pub fn tail(&self) -> u32 {
        (self.next & (N - 1)) as u32
    }

    /// Takes all frames back from a device that has been `reset`, and begins anew.
    pub fn clear(&mut self, reset: &Done) {
        for frame in self.frames.iter_mut() {
            drop(frame.take().map(|frame| frame.done(reset)));
        }
        (self.report_first, self.report_end) = (0, 0);
        (self.clean, self.next) = (0, 0);
        self.context = None;
    }

    /// The first descriptor that the device has not reported as done.
    pub fn pending(&self) -> Option<usize> {
        (self.clean != self.next).then_some(self.clean)
    }

    /// Gives frames that the device is done with back to their pools.
    #[inline]
    pub fn reclaim(&mut self) {
        while self.report_first != self.report_end {
            let report = self.reports[self.report_first & (N - 1)];
            let Some(done) = self.ring.report(report, STATUS_WORD).shows(TX_DD, TX_DD) else {
                break;
            };
            self.report_first = self.report_first.wrapping_add(1);
            // The report lies in front of `next`, not before `clean`: both are ours alone.
            while self.clean != report.wrapping_add(1) {
                let sent = self.frames[self.clean & (N - 1)].take();
                drop(sent.map(|frame| frame.done(&done)));
                self.clean = self.clean.wrapping_add(1);
            }
        }
    }

    /// Puts all frames into the ring that have room there, and returns which of them. The tail has
    /// moved if there is any.
    #[inline]
    pub fn transmit(&mut self, batch: &mut Batch, counts: &mut NicCounts) -> Sent {
        let mut sent = Sent::all(batch);
        let mut last = 0;
        for frame in batch.drain() {
            let length = frame.len();
            if self.next.wrapping_sub(self.clean) + PER_FRAME > N - 1 {
                counts.tx_no_room += 1;
                sent.without(length);
            } else if let Some(word) = self.put_frame(frame) {
                last = word;
            } else {
                counts.tx_refused += 1;
                sent.without(length);
            }
        }
        if sent.frames == 0 {
            return sent;
        }
        // The device does not see it before the tail moves.
        let report = self.next.wrapping_sub(1);
        self.ring.publish(report, STATUS_WORD, last | TX_RS);
        self.reports[self.report_end & (N - 1)] = report;
        self.report_end = self.report_end.wrapping_add(1);
        sent
    }

    /// Puts one frame into the ring, for which there is room, and returns its second word; `None`
    /// if the device cannot send it.
    #[inline]
    fn put_frame(&mut self, mut frame: Frame) -> Option<u64> {
        let length = frame.len();
        let offload = frame.offload();
        let fits = (FRAME_BYTES_MIN..=self.frame_max).contains(&length);
        if !fits || offload.gso.is_some() {
            return None;
        }
        let context = offload.checksum.and_then(Context::new);
        if context.is_none() {
            offload.complete_checksum(frame.bytes_mut());
        }
        let (frame, iova) = InFlight::lend(frame).ok()?;
        if context.is_some() && context != self.context {
            self.put_context(context);
        }
        let (address, mut start) = (iova.raw(), 0);
        let in_page = (PAGE - address % PAGE) as usize;
        if in_page < length {
            let word = data(in_page, false, context.is_some());
            self.put_words([address, word]);
            start = in_page;
        }
        let word = data(length - start, true, context.is_some());
        self.frames[self.next & (N - 1)] = Some(frame);
        self.put_words([address + start as u64, word]);
        Some(word)
    }

    fn put_context(&mut self, context: Option<Context>) {
        self.context = context;
        self.put_words(context.map_or([0; WORDS], Context::words));
    }

    #[inline]
    fn put_words(&mut self, [first, second]: [u64; WORDS]) {
        self.ring.store(self.next, 0, first);
        self.ring.publish(self.next, STATUS_WORD, second);
        self.next = self.next.wrapping_add(1);
    }
}
