//! The virtio entropy device (5.4): a source of random bytes.
//!
//! Keep the specification open: [`virtio`] says which, and what the drivers of all virtio devices
//! share. It has no features and no configuration of its own, and one queue.
//!
//! What it gives, nobody can check: whoever makes secrets of it mixes it with what else there is.
//! That it fills the buffer at all, the driver sees to.
//!
//! A device that writes what cannot be, or does not answer, is reset, and the driver fails; when it
//! is given up, see [`recovery`](crate::net::recovery).

#[cfg(test)]
mod tests;

use crate::net::recovery::{Recovery, Remedy};
use crate::virtio::queue::Buffer;
use crate::virtio::request::Requests;
use crate::virtio::{self, Error, Transport};
use alloc::boxed::Box;
use core::fmt;
use hw::{DmaArena, DmaBuf, Done, FromDevice, InFlight};

/// The kind of device (5.4.1).
pub const KIND: u16 = 4;

/// The only queue (5.4.2).
const REQUEST_QUEUE: u16 = 0;
/// Bytes of a request; more are several.
const REQUEST_BYTES: usize = 64;
/// DMA memory that the driver takes: a buffer and rings, each at pages.
pub const DMA_BYTES: usize = 4 * 4096;

/// The device gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoEntropy;

impl fmt::Display for NoEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the entropy device gives no random bytes; give it a source that does")
    }
}

impl core::error::Error for NoEntropy {}

/// The driver.
pub struct Driver<T: Transport> {
    transport: T,
    requests: Requests,
    /// None once a device that was given up has it for ever.
    buffer: Option<DmaBuf>,
    clock: Box<dyn Fn() -> u64>,
    recovery: Recovery,
}

impl<T: Transport> Driver<T> {
    /// Brings the device up. It takes [`DMA_BYTES`] from `arena`; `clock` tells the monotonic time
    /// in nanoseconds.
    ///
    /// # Errors
    /// [`Error`], within some seconds.
    pub fn new(
        transport: T,
        arena: &mut DmaArena,
        clock: impl Fn() -> u64 + 'static,
    ) -> Result<Self, Error> {
        let mut driver = Self {
            requests: Requests::new(arena)?,
            transport,
            buffer: Some(arena.buf(REQUEST_BYTES, REQUEST_BYTES)?),
            clock: Box::new(clock),
            recovery: Recovery::default(),
        };
        virtio::reset(&driver.transport, &*driver.clock)?;
        driver.bring_up()?;
        Ok(driver)
    }

    /// From a reset that has ended to a device that runs (3.1.1).
    fn bring_up(&mut self) -> Result<(), Error> {
        let features = virtio::negotiate(&self.transport, 0, |_| 0)?;
        self.requests
            .set_up(&self.transport, REQUEST_QUEUE, features)?;
        virtio::run(&self.transport);
        Ok(())
    }

    /// Fills `bytes` with what the device gives.
    ///
    /// # Errors
    /// [`NoEntropy`], and `bytes` may be filled in part.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoEntropy> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // At least one byte each time (5.4.6.2).
            let count = self.request(rest)?;
            rest = &mut rest[count..];
        }
        Ok(())
    }

    /// Asks once; how many bytes it gave.
    fn request(&mut self, bytes: &mut [u8]) -> Result<usize, NoEntropy> {
        let mut buffer = self.buffer.take().ok_or(NoEntropy)?;
        // Whatever the device does not write is not what it gave before.
        buffer.bytes_mut().fill(0);
        let wanted = bytes.len().min(REQUEST_BYTES);
        // It comes out of DMA memory.
        let lent = InFlight::<_, FromDevice>::lend(buffer);
        let (buffer, address) = lent.map_err(|_| NoEntropy)?;
        let part = Buffer {
            address: address.raw(),
            bytes: wanted as u32,
            write: true,
        };
        let answer = self.requests.run(&self.transport, &[part], &*self.clock);
        let (done, written) = match answer {
            Ok((done, written)) => (Some(done), written),
            Err(_) => (self.reset(), 0),
        };
        // Without its word it may still write there: leaked.
        let buffer = buffer.done(&done.ok_or(NoEntropy)?);
        let count = Some(written).filter(|count| (1..=wanted).contains(count));
        if let Some(count) = count {
            bytes[..count].copy_from_slice(&buffer.bytes()[..count]);
        }
        self.buffer = Some(buffer);
        count.ok_or(NoEntropy)
    }

    /// Resets the device, and brings it up again if that can be: its word that it has no buffer any
    /// more, if it gives that.
    #[cold]
    fn reset(&mut self) -> Option<Done> {
        let now = (self.clock)();
        if self.recovery.failed(now) == Remedy::GiveUp {
            return None;
        }
        let done = virtio::reset(&self.transport, &*self.clock).ok()?;
        self.recovery.comes_up((self.clock)());
        // Where this fails, the next request does.
        let _ = self.bring_up();
        Some(done)
    }
}

impl<T: Transport> Drop for Driver<T> {
    /// The device is reset, and has nothing: requests are waited for.
    fn drop(&mut self) {
        virtio::begin(&self.transport);
    }
}
