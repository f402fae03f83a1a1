//! What every message begins with, and how long a message may take.

use core::fmt;
use core::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the protocol. A greater minor number may only add to it.
pub const MAJOR: u16 = 0;
/// See [`MAJOR`].
pub const MINOR: u16 = 1;

/// How long a device may take for an answer, and either side for a message that it has begun.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// When a message must be complete, in however many parts it comes or goes. Times are those of a
/// clock that does not go back; whoever waits passes them in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Duration);

impl Deadline {
    /// For a message for which there is so much `patience` from `now` on.
    pub const fn new(now: Duration, patience: Duration) -> Self {
        Self(now.saturating_add(patience))
    }

    /// How long may still be waited for it; `None` if no longer.
    pub fn left(self, now: Duration) -> Option<Duration> {
        self.0.checked_sub(now).filter(|left| !left.is_zero())
    }
}

/// Commands ("Commands" in the specification).
pub mod command {
    /// [`crate::Version`] and what both sides can do, as JSON.
    pub const VERSION: u16 = 1;
    /// [`crate::DmaMap`], with the descriptor of the memory.
    pub const DMA_MAP: u16 = 2;
    /// [`crate::DmaUnmap`].
    pub const DMA_UNMAP: u16 = 3;
    /// [`crate::DeviceInfo`].
    pub const DEVICE_GET_INFO: u16 = 4;
    /// [`crate::RegionInfo`], answered with capabilities and a descriptor.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// [`crate::IrqInfo`].
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// [`crate::IrqSet`], with descriptors of events.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// [`crate::RegionAccess`], answered with the bytes behind it.
    pub const REGION_READ: u16 = 9;
    /// [`crate::RegionAccess`] and the bytes behind it.
    pub const REGION_WRITE: u16 = 10;
    /// Nothing.
    pub const DEVICE_RESET: u16 = 13;
}

/// Name of a command, for whoever reads an error.
pub const fn command_name(number: u16) -> &'static str {
    match number {
        command::VERSION => "VERSION",
        command::DMA_MAP => "DMA_MAP",
        command::DMA_UNMAP => "DMA_UNMAP",
        command::DEVICE_GET_INFO => "DEVICE_GET_INFO",
        command::DEVICE_GET_REGION_INFO => "DEVICE_GET_REGION_INFO",
        command::DEVICE_GET_IRQ_INFO => "DEVICE_GET_IRQ_INFO",
        command::DEVICE_SET_IRQS => "DEVICE_SET_IRQS",
        command::REGION_READ => "REGION_READ",
        command::REGION_WRITE => "REGION_WRITE",
        command::DEVICE_RESET => "DEVICE_RESET",
        _ => "an unknown command",
    }
}

/// What every message begins with.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Header {
    /// Chosen by whoever commands, repeated in the reply.
    pub id: u16,
    /// A number of [`command`].
    pub command: u16,
    /// Size of the message in bytes, this header included.
    pub bytes: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// In a reply with [`flag::ERROR`]: an error number of Linux, or 0.
    pub error: u32,
}

/// Bits of [`Header::flags`].
pub mod flag {
    /// Mask of the type: 0 is a command.
    pub const TYPE: u32 = 0xf;
    /// The type of a reply.
    pub const REPLY: u32 = 1;
    /// The command wants no reply.
    pub const NO_REPLY: u32 = 1 << 4;
    /// The command failed; nothing follows the header.
    pub const ERROR: u32 = 1 << 5;
}

/// Size of [`Header`].
pub const HEADER_BYTES: usize = size_of::<Header>();

/// What is wrong with the header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// The size is less than the header's, or more than the receiver takes: size and most.
    Size(u32, usize),
    /// There is no room for so many bytes behind the header: bytes, and room.
    Room(u32, usize),
    /// It is a reply where a command is due, or the other way round.
    Type(u32),
    /// The reply belongs to another command: its id and command.
    Other(u16, u16),
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(bytes, most) => {
                write!(
                    f,
                    "a message of {bytes} bytes, not {HEADER_BYTES} to {most}"
                )
            }
            Self::Room(bytes, room) => {
                write!(
                    f,
                    "a message with {bytes} bytes, where at most {room} can be"
                )
            }
            Self::Type(flags) => write!(f, "a message of the wrong type, flags {flags:#x}"),
            Self::Other(id, command) => {
                let name = command_name(*command);
                write!(
                    f,
                    "a reply to something else, {name} (command {command}, id {id})"
                )
            }
        }
    }
}

impl core::error::Error for HeaderError {}

impl Header {
    /// That of a command with `payload` bytes behind the header.
    pub const fn command(id: u16, command: u16, payload: usize) -> Self {
        Self {
            id,
            command,
            bytes: (HEADER_BYTES + payload) as u32,
            flags: 0,
            error: 0,
        }
    }

    /// That of the reply to this command, with `payload` bytes behind the header.
    pub const fn reply(&self, payload: usize) -> Self {
        Self {
            bytes: (HEADER_BYTES + payload) as u32,
            flags: flag::REPLY,
            error: 0,
            ..*self
        }
    }

    /// That of the reply that the command failed.
    pub const fn refusal(&self, errno: u32) -> Self {
        Self {
            bytes: HEADER_BYTES as u32,
            flags: flag::REPLY | flag::ERROR,
            error: errno,
            ..*self
        }
    }

    /// Bytes behind the header, if the message has at most `most` in all.
    ///
    /// # Errors
    /// If the size is none.
    pub fn payload(&self, most: usize) -> Result<usize, HeaderError> {
        let bytes = self.bytes as usize;
        if !(HEADER_BYTES..=most).contains(&bytes) {
            return Err(HeaderError::Size(self.bytes, most));
        }
        Ok(bytes - HEADER_BYTES)
    }

    /// Whether this is the reply to `command`: `Ok(Some)` is the error number of one that failed.
    ///
    /// # Errors
    /// If it is something else.
    pub fn answers(&self, command: &Self) -> Result<Option<u32>, HeaderError> {
        if self.flags & flag::TYPE != flag::REPLY {
            return Err(HeaderError::Type(self.flags));
        }
        if (self.id, self.command) != (command.id, command.command) {
            return Err(HeaderError::Other(self.id, self.command));
        }
        Ok((self.flags & flag::ERROR != 0).then_some(self.error))
    }
}

const _: () = assert!(size_of::<Header>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_one_for_all_parts() {
        let second = Duration::from_secs(1);
        let deadline = Deadline::new(5 * second, PATIENCE);
        assert_eq!(deadline.left(5 * second), Some(PATIENCE));
        assert_eq!(deadline.left(6 * second), Some(PATIENCE - second));
        for late in [5 * second + PATIENCE, 8 * second, Duration::MAX] {
            assert_eq!(deadline.left(late), None);
        }
        let never = Deadline::new(Duration::MAX, PATIENCE);
        assert_eq!(never.left(Duration::ZERO), Some(Duration::MAX));
    }

    #[test]
    fn a_reply_is_told_from_everything_else() {
        let command = Header::command(3, command::DEVICE_RESET, 0);
        assert_eq!(command.reply(0).answers(&command), Ok(None));
        assert_eq!(command.refusal(22).answers(&command), Ok(Some(22)));
        assert_eq!(command.answers(&command), Err(HeaderError::Type(0)));
        let other = Header::command(4, command::DEVICE_RESET, 0).reply(0);
        let wrong = other.answers(&command).unwrap_err();
        assert_eq!(wrong, HeaderError::Other(4, command::DEVICE_RESET));
    }

    #[test]
    fn sizes_have_both_bounds() {
        let sized = |bytes| {
            Header {
                bytes,
                ..Header::default()
            }
            .payload(64)
        };
        assert_eq!((sized(16), sized(64)), (Ok(0), Ok(48)));
        for bytes in [0, 15, 65, u32::MAX] {
            assert_eq!(sized(bytes), Err(HeaderError::Size(bytes, 64)));
        }
    }
}
