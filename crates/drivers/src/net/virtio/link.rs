//! The link (5.1.4).

use super::registers::*;
use crate::virtio::Transport;

/// What a device says that does not know its speed.
const UNKNOWN: u32 = u32::MAX;

/// Speed of the link in Mb/s, 0 if the device does not say; `None` while it is down.
pub fn speed<T: Transport>(transport: &T, features: u64) -> Option<u32> {
    let says_status = features & HAS_STATUS != 0;
    if says_status && transport.config(STATUS) & STATUS_LINK_UP == 0 {
        return None;
    }
    if features & SPEED_DUPLEX == 0 {
        return Some(0);
    }
    match transport.config(SPEED) {
        UNKNOWN => Some(0),
        speed => Some(speed),
    }
}
