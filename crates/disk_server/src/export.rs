//! What is served, and what can be done with it.

use crate::wire::{PAYLOAD_MAX, Request, command, command_flag, error, flag};
use alloc::string::String;
use device::BlockError;
use device::block::{Durability, Limits};

/// A disk under its name.
#[derive(Clone, Debug)]
pub struct Export {
    /// What clients may call it; they may also give no name.
    pub name: String,
    /// Its size in bytes.
    pub capacity: u64,
    /// What it is like.
    pub limits: Limits,
}

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bytes are wanted.
    Read,
    /// Bytes follow.
    Write,
    /// No more requests.
    Disconnect,
    /// What was written is to be durable.
    Flush,
    /// Nobody needs it.
    Trim,
    /// Zeroes are wanted there, as holes if may be.
    Zeroes {
        /// They may be holes.
        holes: bool,
    },
}

impl Export {
    /// Whether a client that asks for this name means it: it is the only one, and so the default.
    pub fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    /// Bits of [`flag`].
    pub fn flags(&self) -> u16 {
        let Limits {
            read_only,
            durability,
            discard,
            ..
        } = self.limits;
        let mut flags = flag::HAS_FLAGS | flag::CAN_MULTI_CONN;
        if durability != Durability::Unknown {
            flags |= flag::SEND_FLUSH | flag::SEND_FUA;
        }
        match read_only {
            true => flags |= flag::READ_ONLY,
            false => flags |= flag::SEND_WRITE_ZEROES,
        }
        if discard && !read_only {
            flags |= flag::SEND_TRIM;
        }
        flags
    }

    /// Least, best and most bytes of a request.
    pub fn block_sizes(&self) -> [u32; 3] {
        let block = self.limits.block_size as u32;
        [block, block.max(4096), PAYLOAD_MAX]
    }

    /// What `request` wants.
    ///
    /// # Errors
    /// A number of [`error`], for the reply.
    pub fn command(&self, request: &Request) -> Result<Command, u32> {
        use command_flag::{FUA, NO_HOLE};
        let (command, allowed) = match request.command {
            command::READ => (Command::Read, FUA),
            command::WRITE => (Command::Write, FUA),
            command::DISCONNECT => return Ok(Command::Disconnect),
            command::FLUSH => (Command::Flush, FUA),
            command::TRIM => (Command::Trim, FUA),
            command::WRITE_ZEROES => {
                let holes = request.flags & NO_HOLE == 0;
                (Command::Zeroes { holes }, FUA | NO_HOLE)
            }
            _ => return Err(error::INVALID),
        };
        if request.flags & !allowed != 0 {
            return Err(error::INVALID);
        }
        let durability = self.limits.durability;
        if durability == Durability::Unknown
            && (command == Command::Flush || request.flags & FUA != 0)
        {
            return Err(error::NOT_SUPPORTED);
        }
        match command {
            Command::Flush if request.offset != 0 || request.length != 0 => {
                return Err(error::INVALID);
            }
            Command::Flush => return Ok(command),
            Command::Trim if !self.limits.discard => return Err(error::NOT_SUPPORTED),
            Command::Read if request.length > PAYLOAD_MAX => return Err(error::OVERFLOW),
            _ => {}
        }
        let (limits, length) = (&self.limits, request.length.into());
        let checked = match command {
            Command::Read => limits.check(self.capacity, request.offset, length),
            _ => limits.check_change(self.capacity, request.offset, length),
        };
        match checked {
            Ok(()) => Ok(command),
            Err(BlockError::ReadOnly) => Err(error::PERMISSION),
            // Where it is a matter of the end ("Error values").
            Err(_) if command != Command::Read && self.leaves(request) => Err(error::NO_SPACE),
            Err(_) => Err(error::INVALID),
        }
    }

    /// Whether a request leaves the disk.
    fn leaves(&self, request: &Request) -> bool {
        let end = request.offset.checked_add(request.length.into());
        end.is_none_or(|end| end > self.capacity)
    }
}

/// What a client is told of an error of the disk.
pub fn error_of(failed: BlockError) -> u32 {
    /// No room: of the file system, of the file, of who owns it (errno(3)).
    const EFBIG: i32 = 27;
    const ENOSPC: i32 = 28;
    const EDQUOT: i32 = 122;
    match failed {
        BlockError::ReadOnly => error::PERMISSION,
        BlockError::OutOfRange => error::INVALID,
        BlockError::Unsupported => error::NOT_SUPPORTED,
        BlockError::Host(ENOSPC | EFBIG | EDQUOT) => error::NO_SPACE,
        BlockError::Host(_)
        | BlockError::Device(_)
        | BlockError::Reset
        | BlockError::Gone
        | BlockError::Damaged => error::IO,
    }
}
