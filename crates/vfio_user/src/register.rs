//! Whole messages that read or write one 32-bit register, and what their replies must be.

use crate::payload::{RegionAccess, region};
use crate::{HEADER_BYTES, Header, HeaderError, command, flag};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The message that reads a 32-bit register.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Read32 {
    /// With [`command::REGION_READ`].
    pub header: Header,
    /// The register.
    pub access: RegionAccess,
}

/// The message that writes a 32-bit register, and the reply to [`Read32`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, packed(4))]
pub struct Value32 {
    /// With [`command::REGION_WRITE`], or of the reply.
    pub header: Header,
    /// The register.
    pub access: RegionAccess,
    /// What it holds, or is to hold.
    pub value: u32,
}

impl Read32 {
    /// Reads the register at `offset` of `region`.
    pub const fn new(id: u16, region: u32, offset: u64) -> Self {
        Self {
            header: Header::command(id, command::REGION_READ, size_of::<RegionAccess>()),
            access: RegionAccess {
                offset,
                region,
                count: 4,
            },
        }
    }
}

impl Read32 {
    /// Reads nothing that matters, and wants no answer.
    pub const fn wake() -> Self {
        let read = Self::new(0, region::CONFIG, 0);
        Self {
            header: Header {
                flags: flag::NO_REPLY,
                ..read.header
            },
            ..read
        }
    }
}

/// What is wrong with the reply to a register's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// It has more or fewer bytes than it must.
    Size,
    /// Its header is wrong.
    Header(HeaderError),
    /// It is about other bytes than was asked for.
    Access,
    /// The device refuses, with this error number.
    Refused(u32),
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size => write!(f, "a reply of the wrong size"),
            Self::Header(error) => error.fmt(f),
            Self::Access => write!(f, "a reply about another register"),
            Self::Refused(errno) => write!(f, "it refuses (errno {errno})"),
        }
    }
}

/// How many bytes the reply to a register's message has of which these are the first; `None` while
/// that cannot be said.
///
/// # Errors
/// If the reply is none to `command`, or longer than `most`.
pub fn reply_bytes(
    command: &Header,
    reply: &[u8],
    most: usize,
) -> Result<Option<usize>, ReplyError> {
    let Ok((header, _)) = Header::read_from_prefix(reply) else {
        return Ok(None);
    };
    let refused = header.answers(command).map_err(ReplyError::Header)?;
    if let Some(errno) = refused {
        return Err(ReplyError::Refused(errno));
    }
    let payload = header.payload(most).map_err(ReplyError::Header)?;
    Ok(Some(HEADER_BYTES + payload))
}

impl Read32 {
    /// What the register holds, by this reply.
    ///
    /// # Errors
    /// If it is none to this command.
    pub fn value(&self, reply: &[u8]) -> Result<u32, ReplyError> {
        reply_bytes(&self.header, reply, size_of::<Value32>())?;
        let reply = Value32::read_from_bytes(reply).map_err(|_| ReplyError::Size)?;
        if { reply.access } != self.access {
            return Err(ReplyError::Access);
        }
        Ok(reply.value)
    }
}

impl Value32 {
    /// Whether this reply says that the register was written.
    ///
    /// # Errors
    /// If it does not.
    pub fn written(&self, reply: &[u8]) -> Result<(), ReplyError> {
        let header = self.header;
        reply_bytes(&header, reply, size_of::<Read32>())?;
        Read32::read_from_bytes(reply).map_err(|_| ReplyError::Size)?;
        Ok(())
    }

    /// Writes `value` to the register at `offset` of `region`.
    pub const fn write(id: u16, region: u32, offset: u64, value: u32) -> Self {
        Self {
            header: Header::command(id, command::REGION_WRITE, size_of::<RegionAccess>() + 4),
            access: RegionAccess {
                offset,
                region,
                count: 4,
            },
            value,
        }
    }
}
const _: () = assert!(size_of::<Read32>() == 32 && size_of::<Value32>() == 36);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_register_is_read_with_the_bytes_of_the_specification() {
        let read = Read32::new(7, 0, 0x1018);
        let expected = [
            7, 0, 9, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x18, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 4, 0, 0, 0,
        ];
        assert_eq!(read.as_bytes(), expected);
        let write = Value32::write(8, 1, 4, 0x0102_0304);
        assert_eq!(write.as_bytes()[..8], [8, 0, 10, 0, 36, 0, 0, 0]);
        assert_eq!(write.as_bytes()[24..], [1, 0, 0, 0, 4, 0, 0, 0, 4, 3, 2, 1]);
    }

    #[test]
    fn a_register_is_believed_only_if_it_was_asked_for() {
        let read = Read32::new(7, 0, 0x1018);
        let right = Value32 {
            header: read.header.reply(20),
            access: read.access,
            value: 5,
        };
        assert_eq!(read.value(right.as_bytes()), Ok(5));
        assert_eq!(read.value(&right.as_bytes()[..35]), Err(ReplyError::Size));
        assert_eq!(read.value(&[]), Err(ReplyError::Size));
        let other = Read32::new(7, 0, 0x1014);
        assert_eq!(other.value(right.as_bytes()), Err(ReplyError::Access));
        let late = Read32::new(8, 0, 0x1018).value(right.as_bytes());
        let late =
            late.map_err(|error| matches!(error, ReplyError::Header(HeaderError::Other(7, 9))));
        assert_eq!(late, Err(true));
        let refused = read.header.refusal(22);
        assert_eq!(read.value(refused.as_bytes()), Err(ReplyError::Refused(22)));
        let long = Value32 {
            header: Header {
                bytes: 37,
                ..right.header
            },
            ..right
        };
        let long = read.value(long.as_bytes());
        assert_eq!(long, Err(ReplyError::Header(HeaderError::Size(37, 36))));
        let write = Value32::write(9, 0, 4, 1);
        let done = Read32 {
            header: Header { ..write.header }.reply(16),
            access: read.access,
        };
        assert_eq!(write.written(done.as_bytes()), Ok(()));
        assert!(write.written(right.as_bytes()).is_err());
    }
}
