//! Why a command is refused.

use rustix::io::Errno;
use std::{fmt, io};

/// Why a command is refused; the other side is told an error number, the user all of it.
#[derive(Debug)]
pub enum Refused {
    /// It is none that is known here.
    Unknown(u32),
    /// It came before another one that must come first, or once too often: what the rule is.
    Order(&'static str),
    /// A protocol of this major version.
    Version(u16),
    /// Its payload is shorter or longer than it must be: its size in bytes.
    Size(usize),
    /// There is no such region, or kind of interrupts.
    Index(u32),
    /// A range that is no number of pages, or not inside of what it must be in.
    Range,
    /// A flag that is unknown here, or several that exclude each other.
    Flags(u32),
    /// Other descriptors than it must have came with it: so many.
    Descriptors(usize),
    /// Too many mappings, or too much memory in them.
    TooMuchMemory,
    /// Memory is there already.
    Overlap,
    /// No memory was mapped like this.
    NotMapped,
    /// The file is none that cannot shrink.
    Unsealed,
    /// The file cannot be mapped.
    Map(io::Error),
    /// A descriptor that is no event.
    NotEvent,
    /// A queue cannot be as it says: what the rule is.
    Queue(&'static str),
}

impl Refused {
    /// What the other side is told.
    pub fn errno(&self) -> u32 {
        let errno = match self {
            Self::Unknown(_) => Errno::OPNOTSUPP,
            Self::Order(_) => Errno::PERM,
            Self::Overlap => Errno::EXIST,
            Self::NotMapped => Errno::NOENT,
            Self::TooMuchMemory => Errno::NOSPC,
            Self::Unsealed => Errno::ACCESS,
            Self::Map(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
            _ => Errno::INVAL,
        };
        errno.raw_os_error().unsigned_abs()
    }
}

impl std::error::Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "command {number} is unknown"),
            Self::Order(rule) => f.write_str(rule),
            Self::Version(major) => write!(f, "version {major} of the protocol is unknown"),
            Self::Size(bytes) => write!(f, "{bytes} bytes of payload cannot be"),
            Self::Index(index) => write!(f, "there is no number {index}"),
            Self::Range => write!(f, "the range is not inside, or not of whole pages"),
            Self::Flags(flags) => write!(f, "flags {flags:#x} are unknown or contradict"),
            Self::Descriptors(count) => write!(f, "{count} descriptors cannot be"),
            Self::TooMuchMemory => write!(f, "too much memory"),
            Self::Overlap => write!(f, "memory is mapped there already"),
            Self::NotMapped => write!(f, "no memory was mapped like this"),
            Self::Unsealed => write!(f, "the file is not sealed against shrinking"),
            Self::Map(error) => write!(f, "the file cannot be mapped: {error}"),
            Self::NotEvent => write!(f, "a descriptor is no eventfd"),
            Self::Queue(rule) => f.write_str(rule),
        }
    }
}
