//! Asks a guest to end between two turns, and to leave its links as they are to its next instance.

use crate::instance::{Error, Instance, event};
use abi::extension::feature;
use abi::share::LEAVE_OFFSET;
use std::io;

/// Asks the guest of this name; whether its image knows what that means, and was told.
pub(super) fn ask(name: &str) -> bool {
    let asked = Instance::open(name).map_err(io::Error::other);
    asked.and_then(|instance| tell(&instance)).unwrap_or(false)
}

fn tell(instance: &Instance) -> io::Result<bool> {
    if instance.description().features & feature::LEAVE == 0 {
        return Ok(false);
    }
    let other = |error: Error| io::Error::other(error);
    let share = instance.writable_share().map_err(other)?;
    rustix::io::pwrite(&share, &1_u64.to_ne_bytes(), LEAVE_OFFSET as u64)?;
    event::wake(instance.event().map_err(other)?)?;
    Ok(true)
}
