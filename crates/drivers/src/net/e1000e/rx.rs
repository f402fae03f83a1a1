//! Receiving: a ring of empty buffers that come back full (7.1.8).
//!
//! Positions count descriptors since the start and are masked where they index. The device has
//! those from `next` up to `end`; one descriptor stays free, for a full ring would look empty.

use super::descriptor::{RX_BUFFER_BYTES, RX_DD, Received, STATUS_WORD, WORDS, received};
use crate::net::Lie;
use alloc::boxed::Box;
use device::{Batch, Frame, NicCounts, Pool};
use hw::{DmaArena, DmaRing, Done, FromDevice, InFlight, OutOfDma};

/// Buffers that are given to the device at once, so that not each frame costs a doorbell.
const REFILL: usize = 32;

pub struct Receiver<const N: usize> {
    ring: DmaRing<WORDS, N>,
    /// Buffers that the device has, by descriptor. Never freed, so
    /// that they are not given back while it may use them.
    buffers: &'static mut [Option<InFlight<Frame, FromDevice>>; N],
    pool: Pool,
    next: usize,
    end: usize,
}

impl<const N: usize> Receiver<N> {
    pub fn new(arena: &mut DmaArena, pool: Pool) -> Result<Self, OutOfDma> {
        const { assert!(N > REFILL) };
        Ok(Self {
            ring: arena.ring()?,
            buffers: Box::leak(Box::new([const { None }; N])),
            pool,
            next: 0,
            end: 0,
        })
    }

    pub fn ring(&self) -> &DmaRing<WORDS, N> {
        &self.ring
    }

    /// Value for the tail register.
    #[inline]
    pub fn tail(&self) -> u32 {
        (self.end & (N - 1)) as u32
    }

    /// Takes all buffers back from a device that has been `reset`, and begins anew.
    pub fn clear(&mut self, reset: &Done) {
        for buffer in self.buffers.iter_mut() {
            drop(buffer.take().map(|buffer| buffer.done(reset)));
        }
        (self.next, self.end) = (0, 0);
    }

    /// Whether there is something to receive.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.next != self.end
            && received(self.ring.load(self.next, STATUS_WORD)) != Received::Pending
    }

    /// Whether the device has no buffer at all.
    pub fn is_starved(&self) -> bool {
        self.next == self.end
    }

    /// Whether the device has left out a descriptor, which is a lie: it fills them in order
    /// (7.1.8).
    pub fn is_stuck(&self) -> bool {
        let done = |ahead| {
            let position = self.next.wrapping_add(ahead);
            received(self.ring.load(position, STATUS_WORD)) != Received::Pending
        };
        // The order matters: the next one is looked at after the others.
        (1..self.end.wrapping_sub(self.next)).any(done) && !self.is_ready()
    }

    /// Moves frames that came into `batch`, and stops at the first lie.
    #[inline]
    pub fn receive(&mut self, batch: &mut Batch, counts: &mut NicCounts) -> Result<(), Lie> {
        let first = self.next;
        let result = self.take(batch, counts);
        if self.next == first {
            counts.polls_idle += 1;
        } else {
            counts.polls_busy += 1;
        }
        result
    }

    #[inline]
    fn take(&mut self, batch: &mut Batch, counts: &mut NicCounts) -> Result<(), Lie> {
        while self.next != self.end && !batch.is_full() {
            let report = self.ring.report(self.next, STATUS_WORD);
            let Some(done) = report.shows(RX_DD, RX_DD) else {
                break;
            };
            let what = received(report.word());
            match what {
                Received::Pending => break,
                // It keeps the buffer until it is reset: it may still write there.
                Received::Lie => {
                    counts.rx_lie += 1;
                    return Err(Lie);
                }
                _ => {}
            }
            let index = self.next & (N - 1);
            self.next = self.next.wrapping_add(1);
            let Some(mut frame) = self.buffers[index].take().map(|buffer| buffer.done(&done))
            else {
                break;
            };
            if let Received::Frame(length) = what {
                frame.truncate(length);
                let _ = batch.push(frame);
            } else {
                counts.rx_error += 1;
            }
        }
        Ok(())
    }

    /// Gives the device buffers for those that came back, if it is worth it. Returns whether the
    /// tail moved.
    #[inline]
    pub fn refill(&mut self, counts: &mut NicCounts) -> bool {
        N - 1 - self.end.wrapping_sub(self.next) >= REFILL && self.fill(counts)
    }

    /// Gives the device as many buffers as it can have. Returns whether the tail moved.
    pub fn fill(&mut self, counts: &mut NicCounts) -> bool {
        let before = self.end;
        while self.end.wrapping_sub(self.next) < N - 1 {
            let Some(frame) = self.pool.alloc(RX_BUFFER_BYTES) else {
                counts.no_buffer += 1;
                break;
            };
            // The pool lies in DMA memory: the driver looked when it started.
            let Ok((buffer, iova)) = InFlight::lend(frame) else {
                break;
            };
            self.ring.store(self.end, 0, iova.raw());
            self.ring.publish(self.end, STATUS_WORD, 0);
            self.buffers[self.end & (N - 1)] = Some(buffer);
            self.end = self.end.wrapping_add(1);
        }
        self.end != before
    }
}
