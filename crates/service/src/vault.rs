//! What outlives the appliance: connections of a stack with a vault, and its notes on neighbours
//! and leases, in the state of the manifest that is called [`VAULT`].

use abi::state::Mark;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use net::notes::{self, NOTE_BYTES, Notes};
use net::tcp::host::Tcp;
use net::tcp::{saved, vault};
use unikernel::{DeviceError, Instant};

/// The name of the state in the manifest.
pub const VAULT: &str = "connections";
/// Bytes of a buffer: a segment of an Ethernet's, with the headroom of frames.
const BUFFER: u32 = 2048;
/// Bytes of the state for each connection that there may be.
const BYTES_PER_CONNECTION: usize = 16 << 10;
/// Bytes of notes, at the end of the state.
const NOTES_BYTES: usize = 512 * NOTE_BYTES;
/// What lies there, as states call it: it changes with what the stack keeps.
const LAYOUT: u64 = u64::from_le_bytes(*b"TCPvault")
    ^ ((notes::VERSION as u64) << 48 | (vault::VERSION as u64) << 32 | saved::VERSION as u64);

static MARK: Mark = Mark::new(VAULT, LAYOUT);

/// What the instance before this one has left.
pub struct TakenUp {
    /// TCP with its connections.
    pub tcp: Tcp,
    /// Its notes, by ports.
    pub notes: Vec<Notes>,
    /// What is to be said of it.
    pub said: Option<String>,
}

/// What the instance before this one has left, if the manifest names a state for it. There are so
/// many `ports`.
///
/// # Errors
/// Why there can be no connections there.
pub fn take_up(tcp: Tcp, ports: usize, now: Instant) -> Result<TakenUp, String> {
    let nothing = |tcp| TakenUp {
        tcp,
        notes: Vec::new(),
        said: None,
    };
    let state = match unikernel::state(&MARK) {
        Ok(state) => state,
        Err(DeviceError::NotInManifest(_)) => return Ok(nothing(tcp)),
        Err(why) => return Err(format!("{VAULT}: {why}")),
    };
    let Some(vault_bytes) = state.body.len().checked_sub(NOTES_BYTES) else {
        return Err(format!("{VAULT}: {}", vault::Unfit::Size));
    };
    let (memory, notes) = state.body.split_at_mut(vault_bytes);
    let wall = unikernel::wall().saturating_sub(now - Instant::PAST);
    let notes = Notes::open(notes, ports as u16, wall);
    let most = memory.len() / BYTES_PER_CONNECTION;
    let shape = vault::Shape {
        // A state has at most 256 MiB.
        connections: most as u32,
        buffer_size: BUFFER,
    };
    let opened = vault::Vault::open(memory, shape).map_err(|why| format!("{VAULT}: {why}"))?;
    let (damaged, fresh) = (opened.refused, opened.fresh);
    let tcp = tcp.with_vault(opened, now);
    let said = match (state.refused, fresh) {
        (Some(why), _) => Some(format!("{VAULT}: none is taken up: {why}")),
        (None, Some(vault::Unfit::Empty)) => None,
        (None, Some(why)) => Some(format!("{VAULT}: none is taken up: {why}")),
        (None, None) => {
            let count = tcp.sockets().count();
            Some(format!("{VAULT}: {count} go on, {damaged} are damaged"))
        }
    };
    Ok(TakenUp { tcp, notes, said })
}
