//! Receiving: advanced descriptors with one buffer each (7.1.6), in a ring (7.1.9).

use super::config::Config;
use super::descriptor::*;
use super::init;
use super::registers::{RDT, SRRCTL_BUFFER_BYTES_MAX};
use crate::net::{Error, Lie};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use device::{BATCH_BYTES_MAX, Batch, Frame, NicCounts, Pool};
use hw::{DmaArena, DmaRing, FromDevice, InFlight, Mmio};

/// Shortest frame: an Ethernet header.
const FRAME_BYTES_MIN: usize = 14;

/// The receive queue.
///
/// Each descriptor always has a buffer. From `next` on they are the device's; the tail stays one
/// behind it, since head and tail being equal would mean that the device has none.
pub struct Receiver<const N: usize> {
    ring: DmaRing<2, N>,
    /// Never freed, so that they are not given back while the device may write them.
    buffers: &'static mut [InFlight<Frame, FromDevice>; N],
    /// Counts up for ever; the ring masks it.
    next: usize,
    pool: Pool,
    /// Bytes that the device may write into a buffer behind the shortest frame.
    payload_max: usize,
    /// Most frames of a call: what fills a batch by bytes, unless frames are coalesced.
    call_max: usize,
    /// Bytes of the largest frame that is not coalesced.
    plain_max: usize,
    /// Largest payload of a frame as it came.
    mtu: usize,
    /// Whether frames are coalesced.
    coalesces: bool,
    /// The descriptor that others had overtaken when that was last looked at.
    overtaken: Option<usize>,
    /// Frames whose checksum the device found wrong.
    pub bad_checksum: u64,
}

impl<const N: usize> Receiver<N> {
    /// A ring full of buffers of `pool`.
    pub fn new(arena: &mut DmaArena, pool: Pool, config: &Config) -> Result<Self, Error> {
        let plain_max = init::buffer_bytes(config.mtu)?;
        let buffer_bytes = match config.coalesce {
            true => SRRCTL_BUFFER_BYTES_MAX,
            false => plain_max,
        };
        if pool.frame_bytes_max() < buffer_bytes {
            return Err(Error::BufferSize {
                wanted: buffer_bytes,
                found: pool.frame_bytes_max(),
            });
        }
        // First, for what is lent does not come back.
        let ring = arena.ring()?;
        let lend = |_| {
            let frame = pool.alloc(buffer_bytes).ok_or(Error::Buffers)?;
            let lent = InFlight::lend(frame);
            lent.map_or(Err(Error::Buffers), |(buffer, _)| Ok(buffer))
        };
        let buffers = (0..N).map(lend).collect::<Result<Vec<_>, _>>()?;
        let buffers = Box::try_from(buffers).map_err(|_| Error::Buffers)?;
        let receiver = Self {
            ring,
            buffers: Box::leak(buffers),
            next: 0,
            pool,
            payload_max: buffer_bytes - FRAME_BYTES_MIN,
            call_max: BATCH_BYTES_MAX / plain_max,
            plain_max,
            mtu: config.mtu,
            coalesces: config.coalesce,
            overtaken: None,
            bad_checksum: 0,
        };
        Ok(receiver)
    }

    pub fn ring(&self) -> &DmaRing<2, N> {
        &self.ring
    }

    /// Bytes that the device may write into a buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.payload_max + FRAME_BYTES_MIN
    }

    /// Gives all buffers to a device that has just been reset.
    pub fn offer_all(&mut self) {
        (self.next, self.overtaken) = (0, None);
        for (index, buffer) in self.buffers.iter().enumerate() {
            offer(self.ring, index, buffer);
        }
    }

    /// Whether the next descriptor is done.
    pub fn is_ready(&self) -> bool {
        self.ring.load(self.next, RX_STATUS) & RX_DD != 0
    }

    /// Whether the device will not come back to a descriptor that it has left out, which is a lie.
    /// It fills them in order; but it keeps that of a coalesced frame for longer, though not from
    /// one look to the next (7.11).
    pub fn is_stuck(&mut self) -> bool {
        let overtaken = self.is_out_of_turn().then_some(self.next);
        let before = mem::replace(&mut self.overtaken, overtaken);
        overtaken.is_some() && (!self.coalesces || overtaken == before)
    }

    /// Whether a descriptor is done before its turn.
    fn is_out_of_turn(&self) -> bool {
        let mut ahead = 1..N - 1;
        let done = |n| self.ring.load(self.next + n, RX_STATUS) & RX_DD != 0;
        // The order matters: the next one is looked at after the others.
        ahead.any(done) && !self.is_ready()
    }

    /// Moves frames to `batch` until it is full or there are no more.
    #[inline]
    pub fn receive(
        &mut self,
        bar: &Mmio,
        batch: &mut Batch,
        counts: &mut NicCounts,
    ) -> Result<(), Lie> {
        let first = self.next;
        let result = match self.coalesces {
            true => self.take::<true>(batch, counts),
            false => self.take::<false>(batch, counts),
        };
        if self.next == first {
            counts.polls_idle += 1;
        } else {
            counts.polls_busy += 1;
            bar.doorbell(RDT, (self.next.wrapping_sub(1) & (N - 1)) as u32);
        }
        result
    }

    /// One for devices that coalesce and one for the others, which pay nothing for it.
    #[inline]
    fn take<const COALESCES: bool>(
        &mut self,
        batch: &mut Batch,
        counts: &mut NicCounts,
    ) -> Result<(), Lie> {
        // At hand for the loop: what is in memory would be loaded anew after each store.
        let (ring, buffers, pool) = (self.ring, &mut *self.buffers, self.pool);
        let (payload_max, plain_max) = (self.payload_max, self.plain_max);
        let end = self.next + batch.room().min(self.call_max);
        while self.next != end {
            let next = self.next;
            // Read once: the device may change it at any time.
            let report = ring.report(next, RX_STATUS);
            let status = report.word();
            let packets = if COALESCES {
                packets(ring.load(next, RX_PACKET))
            } else {
                0
            };
            let good = report.shows(RX_DD | RX_EOP | RX_RXE | RX_L4E | RX_IPE, RX_DD | RX_EOP);
            let done = if let Some(done) = good {
                done
            } else {
                let Some(done) = report.shows(RX_DD, RX_DD) else {
                    break;
                };
                match examine(status, packets) {
                    Examined::BadChecksum => self.bad_checksum += 1,
                    Examined::Bad => {
                        counts.rx_error += 1;
                        offer(ring, next, &buffers[next & (N - 1)]);
                        self.next += 1;
                        continue;
                    }
                    Examined::Lie => return Err(Lie),
                }
                done
            };
            let length = usize::from((status >> RX_LENGTH_SHIFT) as u16);
            let too_long = COALESCES && packets < 2 && length > plain_max;
            if too_long || length.wrapping_sub(FRAME_BYTES_MIN) > payload_max {
                return Err(Lie);
            }
            let Some(Ok((fresh, iova))) = pool.alloc_max().map(InFlight::lend) else {
                counts.no_buffer += 1;
                break;
            };
            let place = &mut buffers[next & (N - 1)];
            let mut frame = mem::replace(place, fresh).done(&done);
            ring.store(next, RX_ADDRESS, iova.raw());
            ring.publish(next, RX_STATUS, 0);
            self.next = next + 1;
            frame.truncate(length);
            if COALESCES && packets > 1 {
                let Some(offload) = device::coalesced(frame.bytes_mut(), packets, self.mtu) else {
                    counts.rx_error += 1;
                    continue;
                };
                frame.set_offload(offload);
            }
            // There is room: that was counted before.
            let _ = batch.push(frame);
            if COALESCES && batch.is_full() {
                break;
            }
        }
        Ok(())
    }
}

/// Offers a buffer (again): 7.1.6.1.
fn offer<const N: usize>(ring: DmaRing<2, N>, index: usize, buffer: &InFlight<Frame, FromDevice>) {
    // Only what devices can reach was ever lent.
    if let Some(iova) = buffer.iova() {
        ring.store(index, RX_ADDRESS, iova.raw());
        ring.publish(index, RX_STATUS, 0);
    }
}
