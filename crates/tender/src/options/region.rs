//! `--link:NAME=...` and `--state:NAME=...`: memory to attach.

use super::{Error, Typed, number};

const LINK: &str = "the numbers of four open descriptors: this end's memory, the other end's, and \
                    the events that wake them up, as in --link:lan=5,6,7,8; and \
                    open behind them, if the other end may see what is not for it";
/// What stands behind the descriptors of a link whose other end may see everything.
const OPEN: &str = ",open";
const STATE: &str = "@ and the open descriptor of its memory, as in --state:vault=@5";

/// An end of a link to attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name in the manifest.
    pub name: String,
    /// This end's memory, the other end's, the event that wakes this end up, and the one that
    /// wakes the other end up.
    pub descriptors: [i32; 4],
    /// MAC address that the guest should use; the one that the memory has if `None`.
    pub mac: Option<[u8; 6]>,
    /// Largest payload of an Ethernet frame, in bytes; what the image takes if `None`.
    pub mtu: Option<u16>,
    /// Whether the other end may see what comes in here and is not for it.
    pub open: bool,
}

/// Memory to attach that outlives the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Name in the manifest.
    pub name: String,
    /// Where it is open.
    pub descriptor: i32,
}

impl Link {
    /// As it was typed.
    pub fn option(&self) -> String {
        let [own, peer, bell, peer_bell] = self.descriptors;
        let name = &self.name;
        let open = if self.open { OPEN } else { "" };
        format!("--link:{name}={own},{peer},{bell},{peer_bell}{open}")
    }
}

impl State {
    /// As it was typed.
    pub fn option(&self) -> String {
        format!("--state:{}=@{}", self.name, self.descriptor)
    }
}

pub(super) fn link(name: &str, typed: &Typed<'_>) -> Result<Link, Error> {
    let closed = typed.value.strip_suffix(OPEN.as_bytes());
    let value = closed.unwrap_or(typed.value);
    let parts = value.split(|byte| *byte == b',').map(number);
    let numbers: Option<Vec<i32>> = parts.collect();
    let descriptors = numbers.and_then(|numbers| numbers.try_into().ok());
    Ok(Link {
        name: name.to_owned(),
        descriptors: descriptors.ok_or_else(|| typed.wrong(LINK))?,
        mac: None,
        mtu: None,
        open: closed.is_some(),
    })
}

pub(super) fn state(name: &str, typed: &Typed<'_>) -> Result<State, Error> {
    let descriptor = super::descriptor(typed.value);
    Ok(State {
        name: name.to_owned(),
        descriptor: descriptor.ok_or_else(|| typed.wrong(STATE))?,
    })
}
