//! What outlives the appliance: connections, and counters of rules, if its manifest names a state
//! that is called [`STATE`].

use abi::state::Mark;
use nf::conntrack;
use ports::state::Unsound;
use ports::{DeviceError, Runtime};

/// The name of the state in the manifest.
pub const STATE: &str = "connections";
/// What lies there, as states call it: it changes with what a filter keeps.
const LAYOUT: u64 = u64::from_le_bytes(*b"filter\0\x01") ^ ((conntrack::VERSION as u64) << 48);
static MARK: Mark = Mark::new(STATE, LAYOUT);
/// Counters of rules have this part of the state.
const COUNTERS_SHARE: usize = 8;

/// Memory that outlives the appliance.
pub(crate) struct Kept {
    pub counters: &'static mut [u8],
    pub connections: &'static mut [u8],
    /// Why nothing is kept of what the last instance left.
    pub refused: Option<Unsound>,
    /// Whether the last instance left something that is kept.
    pub is_left: bool,
}

/// The memory that the manifest names, if it names some.
pub(crate) fn open(runtime: &Runtime) -> Result<Option<Kept>, DeviceError> {
    let state = match runtime.state(&MARK) {
        Ok(state) => state,
        Err(DeviceError::NotInManifest(_)) => return Ok(None),
        Err(why) => return Err(why),
    };
    let line = conntrack::ALIGN * 8;
    let counters = (state.body.len() / COUNTERS_SHARE).next_multiple_of(line);
    let (counters, connections) = state.body.split_at_mut(counters.min(state.body.len()));
    Ok(Some(Kept {
        counters,
        connections,
        refused: state.refused,
        is_left: state.generation > 1 && state.refused.is_none(),
    }))
}
