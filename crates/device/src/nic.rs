//! What the driver of a NIC is to the port that wraps it.

use crate::batch::Batch;
use crate::offload::Offloads;

/// A NIC's driver.
///
/// It moves frames between a batch and its descriptor rings, and nothing else: MTU, counters,
/// captures and segmentation in software are the port's. It never waits, and each call is bounded
/// by the ring's size. A device that misbehaves is reset, and given up after some attempts; what
/// happened is in [`Self::counts`].
pub trait Nic {
    /// The MAC address that the device bears.
    fn mac(&self) -> [u8; 6];

    /// Largest payload of an Ethernet frame that it is set up for, in bytes.
    fn mtu(&self) -> usize;

    /// What it does by itself.
    fn offloads(&self) -> Offloads;

    /// Speed of the link in Mb/s, 0 if the device does not say, as of the last [`Self::tend`];
    /// `None` while it is down.
    fn link(&self) -> Option<u32>;

    /// Adds received frames to `batch`, at most until it is full, and gives the device new buffers
    /// for them.
    fn receive(&mut self, batch: &mut Batch);

    /// Hands all frames of `batch` to the device, in order, and leaves it empty. Returns what the
    /// device was really given: a frame that it cannot send, or has no room for, is dropped and
    /// counted, and those behind it are sent all the same. Frames that the device is done with go
    /// back to their pools.
    fn transmit(&mut self, batch: &mut Batch) -> Sent;

    /// Lets the device interrupt when the next frame comes, which takes the right away again, and
    /// looks once more: `true` if there is something to receive already, so that nobody must sleep.
    fn arm(&mut self) -> bool;

    /// What time brings: state of the link, statistics, a device that hangs. To be called every
    /// [`TEND_NANOSECONDS`] or so, with the monotonic clock.
    fn tend(&mut self, now: u64);

    /// Whether [`Self::tend`] must be called in time even though no frame comes or goes: frames are
    /// with the device to be sent, the link is down, or the device is being reset.
    fn needs_tend(&self) -> bool {
        true
    }

    /// What it has counted since the start.
    fn counts(&self) -> &NicCounts;
}

/// How often [`Nic::tend`] is called, in nanoseconds.
pub const TEND_NANOSECONDS: u64 = 100_000_000;

/// What a driver handed to its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames.
    pub frames: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl Sent {
    /// All frames of `batch`; [`Self::without`] takes those away that the device was not given.
    #[inline]
    pub fn all(batch: &Batch) -> Self {
        Self {
            frames: batch.len() as u64,
            bytes: batch.bytes() as u64,
        }
    }

    /// The device was not given one of the frames, of `bytes`.
    #[inline]
    pub fn without(&mut self, bytes: usize) {
        self.frames -= 1;
        self.bytes -= bytes as u64;
    }
}

/// What a driver counts; numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicCounts {
    /// Received frames that the device found bad: checksum of the frame, length, symbols.
    pub rx_error: u64,
    /// Write-backs of the device that cannot be true: a length over the buffer's, an index that
    /// was not its turn.
    pub rx_lie: u64,
    /// Frames that the device had no descriptor for, as it says.
    pub rx_missed: u64,
    /// Times that no buffer was left to give to the device.
    pub no_buffer: u64,
    /// Frames not sent: the ring was full.
    pub tx_no_room: u64,
    /// Frames not sent: the link was down, or the device given up.
    pub tx_link_down: u64,
    /// Frames not sent: not in memory that the device can reach, or too many parts.
    pub tx_refused: u64,
    /// Calls of [`Nic::receive`] that found something.
    pub polls_busy: u64,
    /// Calls of [`Nic::receive`] that found nothing.
    pub polls_idle: u64,
    /// Times that the device was reset because it hung or lied.
    pub resets: u64,
    /// Whether it was given up: it does nothing any more.
    pub given_up: bool,
}

impl NicCounts {
    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            rx_error: self.rx_error.wrapping_sub(before.rx_error),
            rx_lie: self.rx_lie.wrapping_sub(before.rx_lie),
            rx_missed: self.rx_missed.wrapping_sub(before.rx_missed),
            no_buffer: self.no_buffer.wrapping_sub(before.no_buffer),
            tx_no_room: self.tx_no_room.wrapping_sub(before.tx_no_room),
            tx_link_down: self.tx_link_down.wrapping_sub(before.tx_link_down),
            tx_refused: self.tx_refused.wrapping_sub(before.tx_refused),
            polls_busy: self.polls_busy.wrapping_sub(before.polls_busy),
            polls_idle: self.polls_idle.wrapping_sub(before.polls_idle),
            resets: self.resets.wrapping_sub(before.resets),
            given_up: self.given_up && !before.given_up,
        }
    }
}
