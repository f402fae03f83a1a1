//! Fields that are made of flags: `tcp flags`, `ct state` and `ct status`.

use crate::fields::{Header, Slot, Symbols, Type};

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

/// Values of `ct state`.
const STATES: &Symbols = &[
    ("invalid", 1),
    ("established", 2),
    ("related", 4),
    ("new", 8),
    ("untracked", 64),
];

/// Bits of `ct status`. No connection here is expected, translated or dying.
const STATUSES: &Symbols = &[
    ("expected", 1),
    ("seen-reply", 2),
    ("assured", 4),
    ("confirmed", 8),
    ("snat", 16),
    ("dnat", 32),
    ("dying", 512),
];

/// A field that is made of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flagged {
    /// `tcp flags`.
    Tcp,
    /// `ct state`: one of its flags is set.
    CtState,
    /// `ct status`.
    CtStatus,
}

impl Flagged {
    /// The fields of a type, if they are made of flags.
    pub(crate) fn of(kind: Type) -> Option<Self> {
        match kind {
            Type::TcpFlags => Some(Self::Tcp),
            Type::CtState => Some(Self::CtState),
            Type::CtStatus => Some(Self::CtStatus),
            _ => None,
        }
    }

    /// How nft prints the field.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp flags",
            Self::CtState => "ct state",
            Self::CtStatus => "ct status",
        }
    }

    /// The flags by name.
    pub fn names(self) -> &'static Symbols {
        match self {
            Self::Tcp => TCP_FLAGS,
            Self::CtState => STATES,
            Self::CtStatus => STATUSES,
        }
    }

    /// What the flags are called, and which ones there are.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Tcp => "flags of TCP: fin, syn, rst, psh, ack, urg, ecn or cwr",
            Self::CtState => "states: new, established, related, invalid or untracked",
            Self::CtStatus => {
                "statuses: seen-reply, assured, confirmed, expected, snat, dnat or dying"
            }
        }
    }

    /// The largest value of the field.
    pub(crate) fn max(self) -> u16 {
        match self {
            Self::Tcp | Self::CtState => 0xff,
            Self::CtStatus => 0x3ff,
        }
    }

    pub(crate) fn slot(self) -> Slot {
        match self {
            Self::Tcp => Slot::TcpFlags,
            Self::CtState => Slot::CtState,
            Self::CtStatus => Slot::CtStatus,
        }
    }

    /// The header that the field is in.
    pub(crate) fn header(self) -> Option<Header> {
        match self {
            Self::Tcp => Some(Header::Tcp),
            Self::CtState => None,
            Self::CtStatus => Some(Header::Connection),
        }
    }
}
