//! What the other end of a link has done that it may not.

use super::{ENTRIES, SLOT_BYTES};
use crate::ring::Jump;
use core::fmt;

/// Something in the other end's file that no end writes which keeps the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has sent more than there are entries, or takes a frame back.
    Sent(Jump),
    /// It has taken what was never sent, or gives a frame back.
    Taken(Jump),
    /// It names this slot, and has fewer.
    Slot(u32),
    /// A frame does not lie in its slot.
    Range {
        /// Where it begins, in bytes.
        offset: u32,
        /// How long it is, in bytes.
        length: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent(Jump { from, to }) => write!(
                f,
                "it has sent {to} frames, and {from} to {} were possible",
                from.wrapping_add(ENTRIES)
            ),
            Self::Taken(Jump { from, to }) => {
                write!(f, "it has taken {to} frames, and had taken {from} before")
            }
            Self::Slot(slot) => write!(f, "it sends slot {slot}, which it does not have"),
            Self::Range { offset, length } => write!(
                f,
                "it sends {length} bytes from {offset} on, in a slot of {SLOT_BYTES}"
            ),
        }
    }
}

impl core::error::Error for Fault {}
