//! The messages of ioregionfd (`Documentation/virt/kvm/api.rst` in
//! `lab/ioregionfd/0002-documentation.patch`): little endian, [`BYTES`] long both ways.

use std::fmt;

/// Bytes of a command, and of an answer.
pub const BYTES: usize = 32;
/// Bits of a command's second byte.
const SIZE_MASK: u8 = 0xf;
const ANSWER: u8 = 1 << 4;
/// Binary logarithm of the largest access.
const SIZE_LOG_MAX: u8 = 3;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The guest reads.
    Read,
    /// The guest writes.
    Write,
}

/// An access of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Which way.
    pub direction: Direction,
    /// How many bytes: 1, 2, 4 or 8.
    pub bytes: usize,
    /// Whether the guest waits for an answer.
    pub wants_answer: bool,
    /// What the region was registered with.
    pub user_data: u64,
    /// Where in the region.
    pub offset: u64,
    /// What is written.
    pub data: u64,
}

/// Why a message is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It has so many bytes.
    Length(usize),
    /// It is neither a read nor a write.
    Kind(u8),
    /// Bits of its second byte that mean nothing, or a size that there is not.
    Flags(u8),
    /// A read for whose answer nobody waits.
    Unanswered,
    /// Bytes that must be zero are not.
    Padding,
    /// A written value with more bits than the access has.
    Data(u64),
    /// A region that was not registered.
    Region(u64),
    /// An access that begins here does not lie in its region.
    Offset(u64),
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "a message of {bytes} bytes, not {BYTES}"),
            Self::Kind(kind) => write!(f, "{kind} is neither a read nor a write"),
            Self::Flags(flags) => write!(f, "flags {flags:#x} mean nothing"),
            Self::Unanswered => write!(f, "a read that wants no answer"),
            Self::Padding => write!(f, "bytes that must be zero are not"),
            Self::Data(data) => write!(f, "{data:#x} is larger than what is written"),
            Self::Region(user_data) => write!(f, "there is no region {user_data:#x}"),
            Self::Offset(offset) => write!(f, "an access at {offset:#x} leaves its region"),
        }
    }
}

/// Reads a command. Everything in it is checked but its region and place, which the
/// [device](super::place) knows.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn parse(message: &[u8]) -> Result<Command, Fault> {
    let message: &[u8; BYTES] = exact(message)?;
    let [kind, flags, padding @ ..] = word(message, 0).to_le_bytes();
    let direction = match kind {
        0 => Direction::Read,
        1 => Direction::Write,
        kind => return Err(Fault::Kind(kind)),
    };
    let size_log = flags & SIZE_MASK;
    if flags & !(SIZE_MASK | ANSWER) != 0 || size_log > SIZE_LOG_MAX {
        return Err(Fault::Flags(flags));
    }
    if padding != [0; 6] {
        return Err(Fault::Padding);
    }
    let wants_answer = flags & ANSWER != 0;
    if direction == Direction::Read && !wants_answer {
        return Err(Fault::Unanswered);
    }
    let bytes = 1 << size_log;
    let data = word(message, 24);
    if direction == Direction::Write && data & !mask(bytes) != 0 {
        return Err(Fault::Data(data));
    }
    Ok(Command {
        direction,
        bytes,
        wants_answer,
        user_data: word(message, 8),
        offset: word(message, 16),
        data,
    })
}

impl Command {
    /// The message.
    pub fn encode(&self) -> [u8; BYTES] {
        let kind = match self.direction {
            Direction::Read => 0,
            Direction::Write => 1,
        };
        let size_log = self.bytes.checked_ilog2().unwrap_or(0) as u8;
        let answer = if self.wants_answer { ANSWER } else { 0 };
        let mut message = [0; BYTES];
        message[0] = kind;
        message[1] = size_log & SIZE_MASK | answer;
        message[8..16].copy_from_slice(&self.user_data.to_le_bytes());
        message[16..24].copy_from_slice(&self.offset.to_le_bytes());
        message[24..].copy_from_slice(&self.data.to_le_bytes());
        message
    }
}

/// The message that answers a command.
pub fn answer(data: u64) -> [u8; BYTES] {
    let mut message = [0; BYTES];
    message[..8].copy_from_slice(&data.to_le_bytes());
    message
}

/// Reads the answer to a command of so many bytes.
///
/// # Errors
/// What is wrong with it.
pub fn parse_answer(message: &[u8], bytes: usize) -> Result<u64, Fault> {
    let message: &[u8; BYTES] = exact(message)?;
    if message[8..] != [0; 24] {
        return Err(Fault::Padding);
    }
    // KVM looks at no more bytes either.
    Ok(word(message, 0) & mask(bytes))
}

fn exact(message: &[u8]) -> Result<&[u8; BYTES], Fault> {
    message.try_into().map_err(|_| Fault::Length(message.len()))
}

fn word(message: &[u8; BYTES], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&message[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The bits that so many bytes have.
fn mask(bytes: usize) -> u64 {
    match bytes {
        0..8 => (1 << (8 * bytes)) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WRITE: Command = Command {
        direction: Direction::Write,
        bytes: 4,
        wants_answer: true,
        user_data: 0x1122_3344_5566_7788,
        offset: 0x70,
        data: 0x0f,
    };

    /// As in the tables of docs/ioregionfd.md.
    #[test]
    fn a_command_is_where_it_is_said_to_be() {
        let mut message = [0; BYTES];
        (message[0], message[1]) = (1, 2 | 1 << 4);
        message[8..16].copy_from_slice(&[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
        (message[16], message[24]) = (0x70, 0x0f);
        assert_eq!(parse(&message), Ok(WRITE));
        assert_eq!(WRITE.encode(), message);
        assert_eq!(parse_answer(&answer(0x0102_0304), 2), Ok(0x0304));
    }

    #[test]
    fn each_mistake_has_its_reason() {
        let read = Command {
            direction: Direction::Read,
            ..WRITE
        };
        let good = read.encode();
        assert_eq!(parse(&good[..31]), Err(Fault::Length(31)));
        assert_eq!(parse(&[0; 33]), Err(Fault::Length(33)));
        assert_eq!(parse(&[]), Err(Fault::Length(0)));
        let with = |at: usize, byte: u8| {
            let mut message = good;
            message[at] = byte;
            parse(&message)
        };
        assert_eq!(with(0, 2), Err(Fault::Kind(2)));
        assert_eq!(with(1, 0x14), Err(Fault::Flags(0x14)));
        assert_eq!(with(1, 0x32), Err(Fault::Flags(0x32)));
        assert_eq!(with(1, 0x02), Err(Fault::Unanswered));
        for at in 2..8 {
            assert_eq!(with(at, 1), Err(Fault::Padding));
        }
        let wide = Command {
            bytes: 1,
            data: 0x100,
            ..WRITE
        };
        assert_eq!(parse(&wide.encode()), Err(Fault::Data(0x100)));
        let mut bad = answer(1);
        bad[31] = 1;
        assert_eq!(parse_answer(&bad, 8), Err(Fault::Padding));
        assert_eq!(parse_answer(&bad[..8], 8), Err(Fault::Length(8)));
    }

    proptest! {
        /// Whatever is a command is that command's message.
        #[test]
        fn what_is_read_is_what_was_written(mut message in any::<[u8; BYTES]>(), plain: bool) {
            if plain {
                message[0] &= 1;
                message[1] &= 0x13;
                message[2..8].fill(0);
            }
            if let Ok(command) = parse(&message) {
                prop_assert_eq!(command.encode(), message);
            }
        }
    }
}
