//! What all kinds of ports share: address, MTU, counters, captures, segmentation in software.

use crate::ledger::{Ledger, Outcome};
use crate::mtu::Mtu;
use abi::share::PortCounter;
use device::ethernet::{HEADER_SIZE, link_header_size};
use device::{Batch, Frame, Gso, Offloads, Pool, WaitHandle, virtio};

/// A port, whatever moves its frames.
pub(crate) struct Port {
    pub(crate) ledger: Ledger,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: Mtu,
    /// What may be left to whoever takes the frames.
    pub(crate) offloads: Offloads,
    /// What frames are received into and made from.
    pub(crate) pool: Pool,
}

/// A frame that was received, or why it is dropped.
pub(crate) enum Received {
    Frame(Frame),
    Drop(PortCounter, Frame),
}

impl Received {
    /// What `frame`, no longer than any may be, and the virtio-net header that came with it are.
    #[inline]
    pub(crate) fn of(mut frame: Frame, header: &[u8; virtio::HEADER_SIZE]) -> Self {
        if frame.len() < HEADER_SIZE {
            return Self::Drop(PortCounter::RxRunt, frame);
        }
        match virtio::parse(header, frame.bytes()) {
            Ok(offload) => {
                frame.set_offload(offload);
                Self::Frame(frame)
            }
            Err(_) => Self::Drop(PortCounter::RxBadHeader, frame),
        }
    }
}

impl Port {
    pub(crate) fn wait_handle(&self) -> WaitHandle {
        WaitHandle(self.ledger.index)
    }

    /// A frame for whoever sends, if it is not longer than `max`.
    pub(crate) fn alloc(&self, len: usize, max: usize) -> Option<Frame> {
        (len <= max).then(|| self.pool.alloc(len)).flatten()
    }

    /// Adds to the batch what `next` finds, at most so many frames; whether it found that many, or
    /// the batch is full, and not that there are no more.
    #[inline]
    pub(crate) fn receive(
        &self,
        batch: &mut Batch,
        most: usize,
        mut next: impl FnMut() -> Option<Received>,
    ) -> bool {
        let (mut frames, mut bytes, mut more) = (0, 0, true);
        let captured = self
            .ledger
            .runtime
            .capture
            .wants_received(self.ledger.index);
        // A dropped frame counts too, so that garbage cannot hold the loop.
        for _ in 0..most {
            if batch.is_full() {
                break;
            }
            match next() {
                None => {
                    more = false;
                    break;
                }
                Some(Received::Drop(reason, frame)) => {
                    self.ledger.count(reason, 1);
                    if captured {
                        self.capture_received(&frame, Some(reason));
                    }
                }
                Some(Received::Frame(frame)) => {
                    if captured {
                        self.capture_received(&frame, None);
                    }
                    frames += 1;
                    bytes += frame.len() as u64;
                    let _ = batch.push(frame);
                }
            }
        }
        self.ledger.received(frames, bytes);
        more
    }

    /// Hands all frames of the batch to `put`, each as it must be on the wire, and counts what was
    /// not sent.
    #[inline]
    pub(crate) fn transmit(
        &self,
        batch: &mut Batch,
        put: &mut impl FnMut(Frame) -> Outcome,
    ) -> Outcome {
        let captured = self.wants_capture();
        let mut sum = Outcome::default();
        for frame in batch.drain() {
            sum.add(match captured {
                true => self.send_captured(frame, put),
                false => self.send(frame, put),
            });
        }
        sum
    }

    /// Whether the host wants to see this port's frames.
    #[inline]
    pub(crate) fn wants_capture(&self) -> bool {
        self.ledger.runtime.capture.wants(self.ledger.index)
    }

    /// Sends one frame, whatever it takes.
    #[inline]
    fn send(&self, frame: Frame, put: &mut impl FnMut(Frame) -> Outcome) -> Outcome {
        let limit = self.mtu.get() + link_header_size(frame.bytes());
        let wire_length = match frame.offload().gso {
            None => frame.len(),
            Some(gso) => gso.segment_bytes().min(frame.len()),
        };
        if wire_length > limit {
            return self.ledger.lost(PortCounter::TxTooBig);
        }
        match frame.offload().gso {
            Some(gso) if !self.offloads.cuts(gso.kind) => self.send_segments(&frame, gso, put),
            _ => put(frame),
        }
    }

    /// Cuts a frame into segments, which leave with complete checksums.
    #[cold]
    fn send_segments(
        &self,
        frame: &Frame,
        gso: Gso,
        put: &mut impl FnMut(Frame) -> Outcome,
    ) -> Outcome {
        self.ledger.count(PortCounter::TxSegmented, 1);
        let mut sum = Outcome::default();
        let Some(mut segments) = device::segments(frame.bytes(), gso) else {
            return self.ledger.lost(PortCounter::TxRefused);
        };
        loop {
            let Some(mut segment) = self.pool.alloc(gso.segment_bytes()) else {
                sum.add(self.ledger.lost(PortCounter::NoBuffer));
                break;
            };
            let Some(length) = segments.next(segment.bytes_mut()) else {
                break;
            };
            segment.truncate(length);
            sum.add(put(segment));
        }
        sum
    }

    /// Captures a received frame, with the reason if it was dropped here.
    #[cold]
    pub(crate) fn capture_received(&self, frame: &Frame, reason: Option<PortCounter>) {
        let capture = &self.ledger.runtime.capture;
        let position = capture.received(self.ledger.index, frame.bytes());
        self.captured(position, reason);
    }

    /// Captures a frame as it is handed over, sends it, and captures what became of it. Where that
    /// is known only later (rings, and a NIC whose ring is full), it counts as sent.
    #[cold]
    fn send_captured(&self, frame: Frame, put: &mut impl FnMut(Frame) -> Outcome) -> Outcome {
        let capture = &self.ledger.runtime.capture;
        let position = capture.transmitted(self.ledger.index, frame.bytes());
        let outcome = self.send(frame, put);
        self.captured(position, outcome.lost);
        outcome
    }

    /// Amends the record at this position, if the ring of captures had room for one.
    fn captured(&self, position: Option<u64>, reason: Option<PortCounter>) {
        match (position, reason) {
            (None, _) => self.ledger.count(PortCounter::CaptureLost, 1),
            (Some(position), Some(reason)) => {
                let capture = &self.ledger.runtime.capture;
                capture.amend(position, reason.into());
            }
            (Some(_), None) => {}
        }
    }
}
