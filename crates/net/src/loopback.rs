//! What a stack sends to itself: to its own addresses, 127.0.0.0/8 and ::1. No frame leaves.

use crate::layer::{Filled, Unsent};
use crate::version::{Packet, Received};
use alloc::collections::VecDeque;
use device::Frame;

/// Packets that may wait to be taken in: each holds a buffer of the port's, which keeps the others
/// for the network.
pub const PACKETS_MAX: usize = 16;

/// Packets of a stack to itself.
#[derive(Debug, Default)]
pub(crate) struct Loopback {
    waiting: VecDeque<Received>,
}

impl Loopback {
    /// How many packets wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The next packet.
    pub fn next(&mut self) -> Option<Received> {
        self.waiting.pop_front()
    }

    /// Has a packet written into a buffer that `alloc` gives. Its checksum stays open: it does not
    /// leave the image's memory.
    ///
    /// # Errors
    /// [`Unsent::NoBuffer`], also if too many wait.
    pub fn write(
        &mut self,
        packet: Packet,
        alloc: impl FnOnce() -> Option<Frame>,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<(), Unsent> {
        if self.waiting.len() >= PACKETS_MAX {
            return Err(Unsent::NoBuffer);
        }
        let mut frame = alloc().ok_or(Unsent::NoBuffer)?;
        let filled = fill(frame.bytes_mut());
        frame.truncate(filled.len);
        frame.set_offload(filled.offload);
        self.waiting.push_back(Received {
            source: packet.source,
            destination: packet.destination,
            unicast: true,
            protocol: packet.protocol,
            class: packet.class,
            header: 0,
            frame,
        });
        Ok(())
    }
}
