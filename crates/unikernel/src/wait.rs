//! Sleeping until a device has something, or until a deadline.

use crate::boot::boot;
use crate::clock::Instant;
use crate::host;
use device::WaitHandle;

/// The devices that have something to receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready(u64);

impl Ready {
    /// Whether this device does.
    #[inline]
    pub fn contains(self, handle: WaitHandle) -> bool {
        self.0 & (1 << handle.0) != 0
    }

    /// Whether none does: the deadline passed, the host has changed the shared file, or a driver
    /// was told the time.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Sleeps until a network device may have something to receive, the host has changed the shared
/// file, or `deadline` has passed, if there is one. A deadline in the past makes it a look without
/// sleep.
#[inline]
pub fn wait(deadline: Option<Instant>) -> Ready {
    let boot = boot();
    boot.capture.publish();
    let host = |deadline| match &boot.rings {
        Some(rings) => rings.wait(deadline),
        None => host::wait(deadline),
    };
    Ready(match boot.nics.is_empty() {
        true => host(deadline),
        false => {
            let deadline = deadline.map(|Instant(at)| at);
            let until = |at| host(Some(Instant(at)));
            boot.nics.wait(deadline, host::monotonic, until)
        }
    })
}
