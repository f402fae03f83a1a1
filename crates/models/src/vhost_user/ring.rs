//! A queue as the front end sets it up, message by message.

use super::message::RingAddress;
use std::os::fd::OwnedFd;

/// What a front end has said of a queue.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) size: u16,
    /// The next chain of the driver's when it starts, or started again.
    pub(super) base: u16,
    pub(super) address: Option<RingAddress>,
    /// By what the driver notifies the device; without, it is looked for.
    pub(super) kick: Option<OwnedFd>,
    /// By what the device interrupts the driver; without, it does not.
    pub(super) call: Option<OwnedFd>,
    /// By what the device says that the queue is broken.
    pub(super) error: Option<OwnedFd>,
    /// Whether the front end has said that the driver notifies, or that it is looked for.
    pub(super) kicked: bool,
    /// Whether it wants the queue to be used.
    pub(super) enabled: bool,
    /// Whether the device uses it.
    pub(super) runs: bool,
}
