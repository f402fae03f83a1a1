//! What a virtio device is to the transport in front of it.

use super::queue::Virtqueue;
use super::work::Work;
use crate::device::Progress;
use crate::violation::Queue;
use std::os::fd::BorrowedFd;

/// A queue of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueKind {
    /// What it is called.
    pub name: Queue,
    /// Most descriptors of it: a power of two (2.7).
    pub size_max: u16,
}

/// A virtio device that knows no transport (chapter 5).
///
/// Features, status and queues are the affair of [`State`](super::State), which all transports
/// share.
pub trait VirtioDevice {
    /// Its device ID (chapter 5).
    fn id(&self) -> u16;

    /// Features of its own that it offers (2.2).
    fn features(&self) -> u64;

    /// Why features that the driver accepts, all of which were offered, are not enough or do not go
    /// together (2.2.2); the rule has its section.
    fn refuses(&self, _features: u64) -> Option<&'static str> {
        None
    }

    /// Its queues, by number; always the same.
    fn queues(&self) -> Vec<QueueKind>;

    /// Sets of queues that it can work with, one set being what one processor of the driver's uses.
    fn queue_sets(&self) -> u16 {
        self.queues().len() as u16
    }

    /// Reads its configuration space (2.5). Bytes behind the end are left as they are.
    fn read_config(&mut self, offset: usize, bytes: &mut [u8]);

    /// Writes its configuration space; `false` if nothing there can be written.
    fn write_config(&mut self, _offset: usize, _bytes: &[u8], _features: u64) -> bool {
        false
    }

    /// The driver is there, with these features (3.1.1, step 8).
    fn start(&mut self, features: u64);

    /// All is as it was at first (2.4).
    fn reset(&mut self);

    /// Does what there is to do, up to a bound. Queues that are not
    /// [ready](Virtqueue::is_ready) have nothing.
    fn poll(&mut self, queues: &mut [Virtqueue], work: &mut Work<'_>) -> Progress;

    /// Whether its configuration space has changed since this was asked (2.5).
    fn take_config_change(&mut self) -> bool {
        false
    }

    /// What becomes readable when something comes in that it should be polled for.
    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl VirtioDevice for Box<dyn VirtioDevice> {
    fn id(&self) -> u16 {
        (**self).id()
    }

    fn features(&self) -> u64 {
        (**self).features()
    }

    fn refuses(&self, features: u64) -> Option<&'static str> {
        (**self).refuses(features)
    }

    fn queues(&self) -> Vec<QueueKind> {
        (**self).queues()
    }

    fn queue_sets(&self) -> u16 {
        (**self).queue_sets()
    }

    fn read_config(&mut self, offset: usize, bytes: &mut [u8]) {
        (**self).read_config(offset, bytes);
    }

    fn write_config(&mut self, offset: usize, bytes: &[u8], features: u64) -> bool {
        (**self).write_config(offset, bytes, features)
    }

    fn start(&mut self, features: u64) {
        (**self).start(features);
    }

    fn reset(&mut self) {
        (**self).reset();
    }

    fn poll(&mut self, queues: &mut [Virtqueue], work: &mut Work<'_>) -> Progress {
        (**self).poll(queues, work)
    }

    fn take_config_change(&mut self) -> bool {
        (**self).take_config_change()
    }

    fn wire_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).wire_descriptor()
    }
}

/// The bytes of a structure at an offset, as many as there are.
pub(super) fn copy_config(config: &[u8], offset: usize, bytes: &mut [u8]) {
    let from = config.get(offset..).unwrap_or_default();
    let len = from.len().min(bytes.len());
    bytes[..len].copy_from_slice(&from[..len]);
}
