//! Sending (5.1.6.2): the header goes into the headroom of the frame, so that both are one buffer.

use super::registers::TRANSMIT_QUEUE;
use crate::virtio::queue::Queue;
use crate::virtio::{self, Lie, Transport};
use alloc::boxed::Box;
use core::mem;
use device::ethernet::HEADER_SIZE;
use device::virtio::{HEADER_SIZE as VIRTIO_BYTES, emit};
use device::{Batch, Frame, NicCounts, Offloads, Sent};
use hw::{DmaArena, InFlight, Iova, OutOfDma, ToDevice};

/// Shortest frame of Ethernet, without its checksum (IEEE 802.3, 3.2.8). Nobody else pads: a device
/// hands on what it gets, and at the other end of the wire there may be a card that takes no less.
const FRAME_BYTES_MIN: usize = 60;

/// A frame that the device is to have, with the header in front of it, where it is, and its length.
type Lent = (InFlight<Frame, ToDevice>, Iova, usize);

/// The transmit queue.
pub struct Transmitter<const N: usize> {
    queue: Queue<N>,
    /// By descriptor. Never freed, so that frames are not given back while the device may read
    /// them: it would send what is another's by then.
    frames: &'static mut [Option<InFlight<Frame, ToDevice>>; N],
    /// What the device does by itself.
    offloads: Offloads,
    /// What the device was given of the batch at hand. Not a local variable: the loop over frames
    /// needs all registers of the processor, and changes this for none that it sends.
    sent: Sent,
}

impl<const N: usize> Transmitter<N> {
    pub fn new(arena: &mut DmaArena) -> Result<Self, OutOfDma> {
        Ok(Self {
            queue: Queue::new(arena)?,
            frames: Box::leak(Box::new([const { None }; N])),
            offloads: Offloads::default(),
            sent: Sent::default(),
        })
    }

    /// Forgets what a device that has been `reset` had; the frames go back to their pools.
    pub fn clear(&mut self, reset: &hw::Done) {
        for frame in self.frames.iter_mut() {
            drop(frame.take().map(|frame| frame.done(reset)));
        }
    }

    /// Gives the queue to a device that has just been reset and has accepted `features`, by which
    /// it does this by itself.
    pub fn set_up<T: Transport>(
        &mut self,
        transport: &T,
        features: u64,
        offloads: Offloads,
    ) -> Result<(), virtio::Error> {
        self.offloads = offloads;
        self.queue
            .set_up(transport, TRANSMIT_QUEUE, features, false)
    }

    /// The first frame that the device has not sent.
    pub fn pending(&self) -> Option<usize> {
        let (seen, next) = (self.queue.seen(), self.queue.next());
        (seen != next).then_some(seen)
    }

    /// Gives frames that the device is done with back to their pools.
    #[inline]
    pub fn reclaim(&mut self) -> Result<(), Lie> {
        let Some((done, used)) = self.queue.used()? else {
            return Ok(());
        };
        let (reports, frames) = (self.queue.reports(), &mut *self.frames);
        let first = self.queue.seen();
        for position in first..first + used {
            // In whatever order: what is not there, the device does not have.
            let (descriptor, _) = reports.element(position);
            let frame = frames[descriptor as usize & (N - 1)].take();
            drop(frame.ok_or(Lie)?.done(&done));
        }
        self.queue.saw(first + used);
        self.queue.silence();
        Ok(())
    }

    /// Hands all frames of `batch` to the device; which of them it was given.
    #[inline]
    pub fn transmit<T: Transport>(
        &mut self,
        transport: &T,
        batch: &mut Batch,
        counts: &mut NicCounts,
    ) -> Result<Sent, Lie> {
        self.reclaim()?;
        self.sent = Sent::all(batch);
        let next = self.put(batch, counts);
        self.queue.publish(transport, next);
        Ok(self.sent)
    }

    /// Describes all frames that there is room for; the position behind the last one.
    #[inline]
    fn put(&mut self, batch: &mut Batch, counts: &mut NicCounts) -> usize {
        // At hand for the loop: what is in memory would be loaded anew after each store.
        let (table, frames) = (self.queue.table(), &mut *self.frames);
        let mut next = self.queue.next();
        for frame in batch.drain() {
            let length = frame.len();
            // A slot's descriptor is its own. The device may have it still, when all others are
            // back: there is no room then either.
            let slot = next & (N - 1);
            if frames[slot].is_some() {
                counts.tx_no_room += 1;
                self.sent.without(length);
                continue;
            }
            let Some((frame, iova, bytes)) = prepare(frame, self.offloads) else {
                counts.tx_refused += 1;
                self.sent.without(length);
                continue;
            };
            // The header lies right before.
            let address = iova.raw() - VIRTIO_BYTES as u64;
            table.single(slot, address, VIRTIO_BYTES + bytes, false);
            // Nothing was there.
            mem::forget(frames[slot].replace(frame));
            next += 1;
        }
        next
    }
}

/// Puts the header in front of a frame and lends both; `None` if the device cannot send it.
#[inline]
fn prepare(mut frame: Frame, offloads: Offloads) -> Option<Lent> {
    let mut bytes = frame.len();
    if bytes < FRAME_BYTES_MIN {
        frame = pad(frame)?;
        bytes = frame.len();
    }
    if frame.has_offload() {
        frame = leave(frame, offloads)?;
    } else if !frame.set_before([0; VIRTIO_BYTES]) {
        return None;
    }
    let (frame, iova) = InFlight::lend(frame).ok()?;
    Some((frame, iova, bytes))
}

/// Adds zeros to a short frame, where its buffer has room for them; `None` if it is none.
#[cold]
fn pad(mut frame: Frame) -> Option<Frame> {
    if frame.len() < HEADER_SIZE {
        return None;
    }
    if let Some(zeros) = frame.push_back(FRAME_BYTES_MIN - frame.len()) {
        zeros.fill(0);
    }
    Some(frame)
}

/// Puts a header in front of a frame that leaves its work to the device. A checksum that the device
/// does not complete is completed here; `None` if the device cannot cut the frame.
#[cold]
fn leave(mut frame: Frame, offloads: Offloads) -> Option<Frame> {
    let offload = frame.offload();
    if offload.gso.is_some_and(|gso| !offloads.cuts(gso.kind)) {
        return None;
    }
    let mut header = [0; VIRTIO_BYTES];
    if offloads.checksum {
        header = emit(offload);
    } else {
        offload.complete_checksum(frame.bytes_mut());
    }
    frame.set_before(header).then_some(frame)
}
