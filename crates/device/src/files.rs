//! What all file systems do: files and folders by their paths. File systems and those who serve
//! files are crates that know nothing of each other.

use crate::BlockError;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Longest path, as Linux has it (limits.h, `PATH_MAX`).
pub const PATH_MAX: usize = 4096;

/// Most names of a folder. One that has more is believed to have no end: what a damaged disk says
/// may lead back to where it began.
pub const NAMES_MAX: usize = 1 << 20;

/// What lies under a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file.
    pub len: u64,
    /// When it was changed, in seconds since 1970-01-01 00:00 UTC; 0 if nobody knows, or before.
    pub modified: u64,
}

/// What a path leads to, or a name is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    File,
    /// Names.
    Folder,
    /// Another path, of a name in a folder: who opens a path follows them.
    Link,
    /// A device, a pipe or a socket: nobody opens them.
    Other,
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Any bytes but NUL and `/`.
    pub name: Vec<u8>,
    /// Of what.
    pub kind: Kind,
}

/// Why a file system does not do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no such path.
    NotFound,
    /// It is no file.
    NoFile,
    /// It is no folder.
    NoFolder,
    /// The path does not begin with `/`, is longer than [`PATH_MAX`], has a NUL, or leads upwards.
    Path,
    /// What the disk holds contradicts itself, or is of a kind that nobody here reads.
    Damaged(&'static str),
    /// The disk fails.
    Disk(BlockError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => write!(f, "there is no such file"),
            Self::NoFile => write!(f, "it is no file"),
            Self::NoFolder => write!(f, "it is no folder"),
            Self::Path => write!(f, "it is no path from the root"),
            Self::Damaged(what) => write!(f, "the file system is damaged: {what}"),
            Self::Disk(error) => write!(f, "the disk: {error}"),
        }
    }
}

impl core::error::Error for Error {}

/// A file system, of any kind.
pub trait FileSystem {
    /// What it is called, as in `ext4`.
    fn name(&self) -> &'static str;

    /// What lies under a path from the root. Symbolic links are followed within the file system.
    ///
    /// # Errors
    /// There is nothing, or it cannot be read.
    fn metadata(&self, path: &[u8]) -> Result<Metadata, Error>;

    /// Opens a file.
    ///
    /// # Errors
    /// As above, or it is no file.
    fn open(&self, path: &[u8]) -> Result<Box<dyn File>, Error>;

    /// Has `each` see the names of a folder, without `.` and `..`, in no order, as long as it says
    /// that it wants more.
    ///
    /// # Errors
    /// As above, it is no folder, or it has more than [`NAMES_MAX`].
    fn list(&self, path: &[u8], each: &mut dyn FnMut(Entry) -> bool) -> Result<(), Error>;
}

/// A file that is open.
pub trait File {
    /// What was known of it when it was opened.
    fn metadata(&self) -> Metadata;

    /// Reads bytes from `offset` on; how many: fewer at the end of the file alone.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Error>;
}

/// Checks a path before a file system looks for it.
///
/// # Errors
/// [`Error::Path`].
pub fn check(path: &[u8]) -> Result<(), Error> {
    let is_plain = path.starts_with(b"/")
        && path.len() <= PATH_MAX
        && !path.contains(&0)
        && path.split(|byte| *byte == b'/').all(|name| name != b"..");
    is_plain.then_some(()).ok_or(Error::Path)
}
