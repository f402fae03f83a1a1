//! Bytes of the protocol. All numbers are big-endian ("Protocol phases").

/// What a server begins with: "NBDMAGIC".
pub const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// What is in front of each option: "IHAVEOPT".
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// What is in front of each answer to one.
pub const ANSWER_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// What is in front of each request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// What is in front of a simple reply.
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
/// What is in front of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Most bytes of data that a request may have, whatever it says of itself ("Block size
/// constraints"): more ends the connection.
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// Most bytes of an option: a name of 4096 bytes, and what is around it ("Values").
pub const OPTION_BYTES_MAX: u32 = 8 << 10;
/// Most bytes of the name of an export.
pub const NAME_MAX: usize = 4096;

/// Flags of the handshake, of either side.
pub mod handshake {
    /// The server knows how to negotiate, and so does the client.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// 124 zeroes are left out behind the answer to [`super::option::EXPORT_NAME`].
    pub const NO_ZEROES: u16 = 2;
}

/// Options ("Option types").
pub mod option {
    /// The disk of this name, and no more options.
    pub const EXPORT_NAME: u32 = 1;
    /// Nothing at all.
    pub const ABORT: u32 = 2;
    /// Which disks there are.
    pub const LIST: u32 = 3;
    /// What the disk of this name is like.
    pub const INFO: u32 = 6;
    /// The same, and no more options.
    pub const GO: u32 = 7;
    /// Replies are to be structured.
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// Answers to options ("Option reply types").
pub mod answer {
    /// Done.
    pub const ACK: u32 = 1;
    /// A disk.
    pub const SERVER: u32 = 2;
    /// Something about a disk.
    pub const INFO: u32 = 3;
    /// No such option.
    pub const UNSUPPORTED: u32 = 0x8000_0001;
    /// It does not make sense.
    pub const INVALID: u32 = 0x8000_0003;
    /// No such disk.
    pub const UNKNOWN: u32 = 0x8000_0006;
    /// It is too long.
    pub const TOO_BIG: u32 = 0x8000_0009;
}

/// What is told about a disk ("Option reply types", `NBD_REP_INFO`).
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Least, best and most bytes of a request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// What a disk can do ("Transmission flags").
pub mod flag {
    /// There are flags.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// It is not to be written.
    pub const READ_ONLY: u16 = 1 << 1;
    /// It can be flushed.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Single requests can be.
    pub const SEND_FUA: u16 = 1 << 3;
    /// It can be trimmed.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Zeroes can be written without sending them.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// A flush is one for all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Commands ("Request types").
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the data follows.
    pub const WRITE: u16 = 1;
    /// No more requests; there is no reply.
    pub const DISCONNECT: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Nobody needs these bytes.
    pub const TRIM: u16 = 4;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
}

/// Flags of commands ("Command flags").
pub mod command_flag {
    /// What is written is durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// No holes are made.
    pub const NO_HOLE: u16 = 1 << 1;
}

/// Errors of replies ("Error values").
pub mod error {
    /// It is not to be written.
    pub const PERMISSION: u32 = 1;
    /// The disk fails.
    pub const IO: u32 = 5;
    /// The request does not make sense.
    pub const INVALID: u32 = 22;
    /// It would be written past its end, or has no room.
    pub const NO_SPACE: u32 = 28;
    /// It is too long.
    pub const OVERFLOW: u32 = 75;
    /// The disk cannot do this.
    pub const NOT_SUPPORTED: u32 = 95;
}

/// Chunks of structured replies ("Structured reply types").
pub mod chunk {
    /// The last one of a reply (a flag).
    pub const DONE: u16 = 1;
    /// Nothing.
    pub const NONE: u16 = 0;
    /// Data, behind its offset.
    pub const OFFSET_DATA: u16 = 1;
    /// An error.
    pub const ERROR: u16 = 0x8001;
}

/// Bytes of a request without its data.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of an option without its data.
pub const OPTION_BYTES: usize = 16;

/// A request, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// A number of [`command`].
    pub command: u16,
    /// The client's own, for the reply.
    pub cookie: u64,
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

impl Request {
    /// The request in these bytes; `None` if they are none.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut bytes = &bytes[..];
        let magic = u32::from_be_bytes(take(&mut bytes)?);
        let request = Self {
            flags: u16::from_be_bytes(take(&mut bytes)?),
            command: u16::from_be_bytes(take(&mut bytes)?),
            cookie: u64::from_be_bytes(take(&mut bytes)?),
            offset: u64::from_be_bytes(take(&mut bytes)?),
            length: u32::from_be_bytes(take(&mut bytes)?),
        };
        (magic == REQUEST_MAGIC).then_some(request)
    }

    /// Bytes of data that follow it.
    pub fn payload(&self) -> u32 {
        match self.command {
            command::WRITE => self.length,
            _ => 0,
        }
    }
}

/// An option and the length of its data, unchecked; `None` if the bytes are none.
pub fn option_header(bytes: &[u8; OPTION_BYTES]) -> Option<(u32, u32)> {
    let mut bytes = &bytes[..];
    let magic = u64::from_be_bytes(take(&mut bytes)?);
    let option = u32::from_be_bytes(take(&mut bytes)?);
    let length = u32::from_be_bytes(take(&mut bytes)?);
    (magic == OPTION_MAGIC).then_some((option, length))
}

/// The name in the data of [`option::INFO`] and [`option::GO`]; `None` if they contradict
/// themselves. What the client would like to know is not asked for: it is told all there is.
pub fn name_of(data: &[u8]) -> Option<&[u8]> {
    let mut rest = data;
    let length = u32::from_be_bytes(take(&mut rest)?) as usize;
    let name = rest.get(..length)?;
    let mut rest = &rest[length..];
    let count = u16::from_be_bytes(take(&mut rest)?);
    (rest.len() == 2 * usize::from(count) && length <= NAME_MAX).then_some(name)
}

/// The next bytes of `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}
