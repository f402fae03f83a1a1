//! What is wrong with the descriptors of an end of a link.

use std::{fmt, io};

/// Why there is no end of a link.
#[derive(Debug)]
pub enum Reason {
    /// A descriptor for memory is none of memory whose size is sealed.
    Memory,
    /// Memory has so many bytes, which no end of a link has.
    Bytes(u64),
    /// Both ends are the same memory.
    Same,
    /// A descriptor for an event is none.
    Event,
    /// What the kernel says, and of what.
    System(&'static str, io::Error),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str(
                "a descriptor of the link is no memory of fixed size; pass an open memfd with the \
                 seals F_SEAL_SHRINK and F_SEAL_GROW",
            ),
            Self::Bytes(found) => write!(
                f,
                "memory of the link has {found} bytes, which no end of a link has; make it anew"
            ),
            Self::Same => {
                f.write_str("both ends of the link are the same memory; pass those of two")
            }
            Self::Event => {
                f.write_str("a descriptor of the link is no event; pass an open eventfd")
            }
            Self::System(step, error) => write!(f, "{step}: {error}; see `ulimit -n`"),
        }
    }
}

impl std::error::Error for Reason {}
