//! What a port carries, which the host may change while the image runs.

use crate::share::{HostWord, SharedFile};
use core::sync::atomic::Ordering;

/// Most that any port carries, in bytes.
pub(crate) const MTU_MAX: usize = 65_535;

/// Largest payload of an Ethernet frame.
pub(crate) struct Mtu {
    start: usize,
    /// What the host says that it is by now: 0 if nothing.
    now: Option<&'static HostWord>,
}

impl Mtu {
    /// One that nobody changes, in bytes.
    pub(crate) fn fixed(mtu: usize) -> Self {
        let now = None;
        Self { start: mtu, now }
    }

    /// That of the network with this index, which is `start` in the beginning.
    pub(crate) fn of_network(start: u16, share: &SharedFile, index: u8) -> Self {
        Self {
            start: start.into(),
            now: share.mtu(index),
        }
    }

    /// What it is now, in bytes.
    #[inline]
    pub(crate) fn get(&self) -> usize {
        match self.now.map_or(0, |word| word.load(Ordering::Relaxed)) {
            said @ 1.. if said <= MTU_MAX as u64 => said as usize,
            _ => self.start,
        }
    }
}
