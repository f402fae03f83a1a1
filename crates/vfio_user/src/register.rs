//! Whole messages that read or write one register, and what their replies must be.

use crate::payload::{RegionAccess, region};
use crate::{HEADER_BYTES, Header, HeaderError, command, flag};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// How wide a register is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    Byte = 1,
    /// 16 bits.
    Half = 2,
    /// 32 bits.
    Word = 4,
}

impl Width {
    /// The width of so many bytes; `None` if no register has it.
    pub const fn of(bytes: usize) -> Option<Self> {
        match bytes {
            1 => Some(Self::Byte),
            2 => Some(Self::Half),
            4 => Some(Self::Word),
            _ => None,
        }
    }

    /// Bytes of it.
    pub const fn bytes(self) -> usize {
        self as usize
    }
}

/// The message that reads a register.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RegisterRead {
    /// With [`command::REGION_READ`].
    pub header: Header,
    /// The register.
    pub access: RegionAccess,
}

/// The message that writes a register, and the reply to [`RegisterRead`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, packed(4))]
pub struct RegisterValue {
    /// With [`command::REGION_WRITE`], or of the reply.
    pub header: Header,
    /// The register.
    pub access: RegionAccess,
    /// What it holds, or is to hold, of which a narrow register takes the low bytes alone: only
    /// these are in the message.
    pub value: u32,
}

impl RegisterRead {
    /// Reads the register at `offset` of `region`.
    pub const fn new(id: u16, region: u32, offset: u64, width: Width) -> Self {
        Self {
            header: Header::command(id, command::REGION_READ, size_of::<RegionAccess>()),
            access: RegionAccess {
                offset,
                region,
                count: width as u32,
            },
        }
    }

    /// Reads nothing that matters, and wants no answer.
    pub const fn wake() -> Self {
        let read = Self::new(0, region::CONFIG, 0, Width::Word);
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

impl RegisterRead {
    /// What the register holds, by this reply.
    ///
    /// # Errors
    /// If it is none to this command.
    pub fn value(&self, reply: &[u8]) -> Result<u32, ReplyError> {
        let most = size_of::<Self>() + self.access.count as usize;
        reply_bytes(&self.header, reply, most)?;
        if reply.len() != most {
            return Err(ReplyError::Size);
        }
        // What a narrow register has not is zero.
        let mut whole = RegisterValue::default();
        let filled = whole.as_mut_bytes().get_mut(..most);
        filled.ok_or(ReplyError::Size)?.copy_from_slice(reply);
        if { whole.access } != self.access {
            return Err(ReplyError::Access);
        }
        Ok(whole.value)
    }
}

impl RegisterValue {
    /// Whether this reply says that the register was written.
    ///
    /// # Errors
    /// If it does not.
    pub fn written(&self, reply: &[u8]) -> Result<(), ReplyError> {
        let header = self.header;
        reply_bytes(&header, reply, size_of::<RegisterRead>())?;
        RegisterRead::read_from_bytes(reply).map_err(|_| ReplyError::Size)?;
        Ok(())
    }

    /// Writes `value` to the register at `offset` of `region`.
    pub const fn write(id: u16, region: u32, offset: u64, width: Width, value: u32) -> Self {
        let payload = size_of::<RegionAccess>() + width.bytes();
        Self {
            header: Header::command(id, command::REGION_WRITE, payload),
            access: RegionAccess {
                offset,
                region,
                count: width as u32,
            },
            value,
        }
    }

    /// The bytes of the message: those of the value that the register has not are left out.
    pub fn message(&self) -> &[u8] {
        let bytes = self.as_bytes();
        let whole = size_of::<RegisterRead>() + { self.access }.count as usize;
        bytes.get(..whole).unwrap_or(bytes)
    }
}
const _: () = assert!(size_of::<RegisterRead>() == 32 && size_of::<RegisterValue>() == 36);

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_register_is_read_with_the_bytes_of_the_specification() {
        let read = RegisterRead::new(7, 0, 0x1018, Width::Word);
        let expected = [
            7, 0, 9, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x18, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            0, 4, 0, 0, 0,
        ];
        assert_eq!(read.as_bytes(), expected);
        let write = RegisterValue::write(8, 1, 4, Width::Word, 0x0102_0304);
        assert_eq!(write.as_bytes()[..8], [8, 0, 10, 0, 36, 0, 0, 0]);
        assert_eq!(write.as_bytes()[24..], [1, 0, 0, 0, 4, 0, 0, 0, 4, 3, 2, 1]);
    }

    #[test]
    fn a_register_is_believed_only_if_it_was_asked_for() {
        let read = RegisterRead::new(7, 0, 0x1018, Width::Word);
        let right = RegisterValue {
            header: read.header.reply(20),
            access: read.access,
            value: 5,
        };
        assert_eq!(read.value(right.as_bytes()), Ok(5));
        assert_eq!(read.value(&right.as_bytes()[..35]), Err(ReplyError::Size));
        assert_eq!(read.value(&[]), Err(ReplyError::Size));
        let other = RegisterRead::new(7, 0, 0x1014, Width::Word);
        assert_eq!(other.value(right.as_bytes()), Err(ReplyError::Access));
        let late = RegisterRead::new(8, 0, 0x1018, Width::Word).value(right.as_bytes());
        let late =
            late.map_err(|error| matches!(error, ReplyError::Header(HeaderError::Other(7, 9))));
        assert_eq!(late, Err(true));
        let refused = read.header.refusal(22);
        assert_eq!(read.value(refused.as_bytes()), Err(ReplyError::Refused(22)));
        let long = RegisterValue {
            header: Header {
                bytes: 37,
                ..right.header
            },
            ..right
        };
        let long = read.value(long.as_bytes());
        assert_eq!(long, Err(ReplyError::Header(HeaderError::Size(37, 36))));
        let write = RegisterValue::write(9, 0, 4, Width::Word, 1);
        let done = RegisterRead {
            header: Header { ..write.header }.reply(16),
            access: read.access,
        };
        assert_eq!(write.written(done.as_bytes()), Ok(()));
        assert!(write.written(right.as_bytes()).is_err());
    }

    #[test]
    fn a_narrow_register_is_read_and_written_alone() {
        let write = RegisterValue::write(8, 1, 6, Width::Half, 0x0102_0304);
        assert_eq!(write.message().len(), 34);
        assert_eq!(write.message()[..8], [8, 0, 10, 0, 34, 0, 0, 0]);
        assert_eq!(write.message()[24..], [1, 0, 0, 0, 2, 0, 0, 0, 4, 3]);
        let read = RegisterRead::new(7, 0, 0x15, Width::Byte);
        let reply = RegisterValue {
            header: read.header.reply(17),
            access: read.access,
            value: 0xff05,
        };
        assert_eq!(reply.message().len(), 33);
        assert_eq!(read.value(reply.message()), Ok(5));
        let long = [reply.message(), &[0]].concat();
        assert_eq!(read.value(&long), Err(ReplyError::Size));
        assert_eq!([0, 3, 8].map(Width::of), [None; 3]);
        assert!(
            [1, 2, 4]
                .map(Width::of)
                .into_iter()
                .flatten()
                .map(Width::bytes)
                .eq([1, 2, 4])
        );
    }
}
