//! What outlives a router beside its connections: its notes on neighbours and on what was lent to
//! it, in the state of the manifest that is called [`LEASES`].

use abi::state::Mark;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use net::notes::{self, Notes};
use unikernel::{DeviceError, Instant};

/// The name of the state in the manifest.
pub const LEASES: &str = "leases";
/// What lies there, as states call it: it changes with what notes mean.
const LAYOUT: u64 = u64::from_le_bytes(*b"notes\0\0\0") ^ (notes::VERSION as u64) << 48;

static MARK: Mark = Mark::new(LEASES, LAYOUT);

/// The notes of the instance before this one, by ports, of which there are so many; none if the
/// manifest names no state for them. And what is to be said of it.
///
/// # Errors
/// Why there can be none there.
pub fn take_up(ports: usize, now: Instant) -> Result<(Vec<Notes>, Option<String>), String> {
    let state = match unikernel::state(&MARK) {
        Ok(state) => state,
        Err(DeviceError::NotInManifest(_)) => return Ok((Vec::new(), None)),
        Err(why) => return Err(format!("{LEASES}: {why}")),
    };
    let wall = unikernel::wall().saturating_sub(now - Instant::PAST);
    let said = state.refused;
    let said = said.map(|why| format!("{LEASES}: none is taken up: {why}"));
    Ok((Notes::open(state.body, ports as u16, wall), said))
}
