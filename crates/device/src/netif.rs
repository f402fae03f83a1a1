//! A network port.

use crate::batch::Batch;
use crate::ethernet::{HEADER_SIZE, VLAN_TAG_SIZE};
use crate::frame::{Frame, Pool};
use crate::offload::Offloads;

/// What an appliance sleeps on while a port has nothing to do: the index of its device in the
/// manifest, below 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitHandle(pub u8);

/// A network port: a tap of the host, a NIC's driver, or a layer around another port.
///
/// Object-safe and batch-only: one virtual call a batch. MTU and largest frame are passed upwards,
/// never configured twice. Errors of single frames are counted by the port, not returned: a lost
/// frame is an event of the network.
pub trait Netif {
    /// Name in the manifest.
    fn name(&self) -> &str;

    /// MAC address to use when originating frames.
    fn mac(&self) -> [u8; 6];

    /// Largest payload of an Ethernet frame on the wire, in bytes.
    fn mtu(&self) -> usize;

    /// What may be left to this port: checksums, segmentation.
    fn offloads(&self) -> Offloads;

    /// Largest frame that crosses this interface, Ethernet header included, in bytes. More than
    /// the MTU allows if segmentation is left to the port.
    fn max_frame(&self) -> usize {
        if self.offloads().tso {
            crate::FRAME_BYTES_MAX
        } else {
            self.mtu() + HEADER_SIZE + VLAN_TAG_SIZE
        }
    }

    /// A frame of `len` bytes with unspecified content from this port's pool, with room for
    /// the headers that the port will put in front; `None` if the pool is empty or `len` exceeds
    /// [`Self::max_frame`].
    fn alloc(&mut self, len: usize) -> Option<Frame>;

    /// Adds received frames to `batch`, at most until it is full. Never waits. It may stop before
    /// there are no more: whoever sleeps on [`Self::wait_handle`] is then woken at once.
    fn receive(&mut self, batch: &mut Batch);

    /// Sends all frames of `batch`, in order, and leaves it empty. What cannot be sent is dropped
    /// and counted.
    ///
    /// Checksums that a frame leaves open ([`Frame::offload`]) are completed, and a large frame of
    /// TCP or UDP is cut into segments, unless whatever is behind the port does so itself.
    fn transmit(&mut self, batch: &mut Batch);

    /// Whether a full batch can be sent now. Whoever forwards frames and could leave them where
    /// they come from asks before taking them; if not, the port ends its wait once there is room. A
    /// port that never makes anybody wait says yes.
    fn has_room(&mut self) -> bool {
        true
    }

    /// The buffers from which this port sends without a copy, where whoever reads them may see what
    /// is not sent after all; `None` where nobody may, or a frame of any pool is as good.
    fn open_buffers(&self) -> Option<Pool> {
        None
    }

    /// Receives into these buffers as long as there are some, if the port can: those of the port to
    /// which most of its frames go.
    fn receive_into(&mut self, buffers: Option<Pool>) {
        let _ = buffers;
    }

    /// What to sleep on while [`Self::receive`] finds nothing.
    fn wait_handle(&self) -> WaitHandle;

    /// How often what the port is connected to has come and gone, as of the last call of
    /// [`Self::receive`] or [`Self::transmit`]: odd while it is there. A port that cannot tell
    /// says 1.
    fn link_changes(&self) -> u64 {
        1
    }
}

/// What follows from [`Netif`] for every port.
pub trait NetifExt: Netif {
    /// Sends one frame of at most `max` bytes: `fill` writes it into the port's own buffer and
    /// says how long it is. Returns `false`, without calling `fill`, if there is no buffer.
    fn send(&mut self, max: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let Some(mut frame) = self.alloc(max) else {
            return false;
        };
        let len = fill(frame.bytes_mut());
        frame.truncate(len);
        let mut batch = Batch::new();
        let queued = batch.push(frame).is_ok();
        self.transmit(&mut batch);
        queued
    }
}

impl<N: Netif + ?Sized> NetifExt for N {}
