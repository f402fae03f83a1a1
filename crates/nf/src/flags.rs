//! Names of flags: the values of `tcp flags`, `ct state` and `ct status`.

use crate::conntrack::State;
use crate::fields::Symbols;

/// Flags of TCP, those of [`crate::L4::Tcp`], from the lowest bit on, as nft names them.
pub const TCP_FLAGS: &Symbols = &[
    ("fin", 1),
    ("syn", 2),
    ("rst", 4),
    ("psh", 8),
    ("ack", 16),
    ("urg", 32),
    ("ecn", 64),
    ("cwr", 128),
];

/// Values of `ct state`: a frame has one of them.
pub(crate) const STATES: &Symbols = &[
    state(State::Invalid),
    state(State::Established),
    state(State::Related),
    state(State::New),
    state(State::Untracked),
];

const fn state(state: State) -> (&'static str, u16) {
    (state.name(), state as u16)
}

/// Bits of `ct status`. No connection here is expected, translated or dying.
pub(crate) const STATUSES: &Symbols = &[
    ("expected", 1),
    ("seen-reply", 2),
    ("assured", 4),
    ("confirmed", 8),
    ("snat", 16),
    ("dnat", 32),
    ("dying", 512),
];
