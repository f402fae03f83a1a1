//! What outlives a router beside its connections, in the state of the manifest that is called
//! [`LEASES`]: its notes on neighbours and on what was lent to it, and what it has lent itself.

use abi::state::Mark;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use net::dhcp::server::{self, PLACE_BYTES, Shelf};
use net::notes::{self, Notes};
use unikernel::{DeviceError, Instant};

/// The name of the state in the manifest.
pub const LEASES: &str = "leases";
/// Bytes of notes, at the beginning of the state.
const NOTES_BYTES: usize = 64 << 10;
/// What lies there, as states call it: it changes with what notes and places mean.
const LAYOUT: u64 = u64::from_le_bytes(*b"leases\0\0")
    ^ ((notes::VERSION as u64) << 56 | (server::VERSION as u64) << 48);

static MARK: Mark = Mark::new(LEASES, LAYOUT);

/// What the instance before this one has left.
#[derive(Default)]
pub struct TakenUp {
    /// Its notes, by ports.
    pub notes: Vec<Notes>,
    /// What it has lent, by ports.
    pub shelves: Vec<Shelf>,
    /// What is to be said of it.
    pub said: Option<String>,
}

/// What the instance before this one has left, if the manifest names a state for it. There are so
/// many `ports`.
///
/// # Errors
/// Why there can be nothing there.
pub fn take_up(ports: usize, now: Instant) -> Result<TakenUp, String> {
    let state = match unikernel::state(&MARK) {
        Ok(state) => state,
        Err(DeviceError::NotInManifest(_)) => return Ok(TakenUp::default()),
        Err(why) => return Err(format!("{LEASES}: {why}")),
    };
    if state.body.len() < NOTES_BYTES + ports * PLACE_BYTES {
        return Err(format!("{LEASES}: the state is too small"));
    }
    let (notes, lent) = state.body.split_at_mut(NOTES_BYTES);
    let wall = unikernel::wall().saturating_sub(now - Instant::PAST);
    let each = lent.len() / ports / PLACE_BYTES * PLACE_BYTES;
    let lent = lent.chunks_exact_mut(each).zip(0..ports as u16);
    let said = state.refused;
    Ok(TakenUp {
        notes: Notes::open(notes, ports as u16, wall),
        shelves: lent
            .map(|(memory, port)| Shelf::open(memory, port, wall))
            .collect(),
        said: said.map(|why| format!("{LEASES}: none is taken up: {why}")),
    })
}
