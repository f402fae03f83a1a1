//! What the other end of a link may not do.

use core::fmt;

/// Something that no end sends which keeps the rules. Its session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A frame that is none of this protocol's, or of another version.
    Frame,
    /// A message that is cut off, or longer than its kind.
    Length,
    /// A kind of message that there is not, or that the other end sends.
    Kind,
    /// A field has a value that there is not.
    Value,
    /// The number of a socket that is not open, is open already, or is none.
    Socket(u32),
    /// A socket that cannot do this, or has done it already.
    State(u32),
    /// More than there was room for.
    Overrun(u32),
    /// Room for more than there can be.
    Credit(u32),
    /// It leaves so much unread that no more can be kept for it.
    Deaf,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame => f.write_str("a frame of another protocol or version"),
            Self::Length => f.write_str("a message of another length than its kind has"),
            Self::Kind => f.write_str("a kind of message that it may not send"),
            Self::Value => f.write_str("a field with a value that there is not"),
            Self::Socket(number) => write!(f, "socket {number} is not there, or there already"),
            Self::State(number) => write!(f, "socket {number} cannot do this, or not again"),
            Self::Overrun(number) => write!(f, "socket {number} gets more than it has room for"),
            Self::Credit(number) => write!(f, "socket {number} is given room beyond its window"),
            Self::Deaf => f.write_str("it does not take what is sent to it"),
        }
    }
}

impl core::error::Error for Fault {}
