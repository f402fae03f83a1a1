//! Connections that outlive the appliance: those of a stack with a vault, in the state of the
//! manifest that is called [`VAULT`].

use alloc::format;
use alloc::string::String;
use net::tcp::host::Tcp;
use net::tcp::{saved, vault};
use unikernel::{DeviceError, Instant};

/// The name of the state in the manifest.
pub const VAULT: &str = "connections";
/// Bytes of a buffer: a segment of an Ethernet's, with the headroom of frames.
const BUFFER: u32 = 2048;
/// Bytes of the state for each connection that there may be.
const BYTES_PER_CONNECTION: usize = 16 << 10;
/// What lies there, as states call it: it changes with what the stack keeps.
const LAYOUT: u64 =
    u64::from_le_bytes(*b"TCPvault") ^ ((vault::VERSION as u64) << 32 | saved::VERSION as u64);

/// The connections of the instance before this one, if the manifest names a state for them, and
/// what is to be said of it.
///
/// # Errors
/// Why there can be no connections there.
pub fn take_up(tcp: Tcp, now: Instant) -> Result<(Tcp, Option<String>), String> {
    let state = match unikernel::state(VAULT, LAYOUT) {
        Ok(state) => state,
        Err(DeviceError::NotInManifest(_)) => return Ok((tcp, None)),
        Err(why) => return Err(format!("{VAULT}: {why}")),
    };
    let most = state.body.len() / BYTES_PER_CONNECTION;
    let shape = vault::Shape {
        // A state has at most 256 MiB.
        connections: most as u32,
        buffer_size: BUFFER,
    };
    let opened = vault::Vault::open(state.body, shape).map_err(|why| format!("{VAULT}: {why}"))?;
    let (damaged, fresh) = (opened.refused, opened.fresh);
    let tcp = tcp.with_vault(opened, now);
    let said = match (state.refused, fresh) {
        (Some(why), _) => format!("{VAULT}: none is taken up: {why}"),
        (None, Some(vault::Unfit::Empty)) => return Ok((tcp, None)),
        (None, Some(why)) => format!("{VAULT}: none is taken up: {why}"),
        (None, None) => {
            let count = tcp.sockets().count();
            format!("{VAULT}: {count} go on, {damaged} are damaged")
        }
    };
    Ok((tcp, Some(said)))
}
