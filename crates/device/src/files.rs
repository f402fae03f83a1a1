//! What all file systems do: files and folders by their paths. File systems and those who serve
//! files are crates that know nothing of each other.

use crate::BlockError;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
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
    /// The path does not begin with `/`, is longer than [`PATH_MAX`], has a NUL, or leads upwards;
    /// or this file system has no such names; or a folder would go into itself.
    Path,
    /// There is something already.
    Exists,
    /// The folder has names.
    NotEmpty,
    /// It is open.
    Busy,
    /// There is no room for it, or for its name.
    NoSpace,
    /// No file of this file system can be so large.
    TooLarge,
    /// Nobody writes here.
    ReadOnly,
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
            Self::Exists => write!(f, "it is there already"),
            Self::NotEmpty => write!(f, "the folder is not empty"),
            Self::Busy => write!(f, "it is open"),
            Self::NoSpace => write!(f, "there is no room left"),
            Self::TooLarge => write!(f, "a file cannot be so large"),
            Self::ReadOnly => write!(f, "the file system is not written"),
            Self::Damaged(what) => write!(f, "the file system is damaged: {what}"),
            Self::Disk(error) => write!(f, "the disk: {error}"),
        }
    }
}

impl core::error::Error for Error {}

/// A file system, of any kind.
///
/// One that is written may keep what was changed to itself until [`sync`](Self::sync). Where the
/// power fails before that, what was not touched since the last is as it was, once a checker has
/// been there; what was touched is old, new, or gone.
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

    /// Whether it can be written.
    fn is_writable(&self) -> bool {
        false
    }

    /// Makes an empty file, and opens it for writing.
    ///
    /// # Errors
    /// There is something, its folder is not there, or it cannot be written.
    fn create(&self, _path: &[u8]) -> Result<Box<dyn File>, Error> {
        Err(Error::ReadOnly)
    }

    /// Opens a file for writing, as it is.
    ///
    /// # Errors
    /// As [`open`](Self::open), or it cannot be written.
    fn open_to_write(&self, _path: &[u8]) -> Result<Box<dyn File>, Error> {
        Err(Error::ReadOnly)
    }

    /// Makes an empty folder.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    fn make_folder(&self, _path: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    /// Removes a file that nobody has open, a symbolic link, or an empty folder.
    ///
    /// # Errors
    /// It is something else, or it cannot be written.
    fn remove(&self, _path: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    /// Gives something another path. A file replaces a file, and a folder an empty folder.
    ///
    /// # Errors
    /// There is nothing, something else is in its place, what would be replaced is open or has
    /// names, or it cannot be written.
    fn rename(&self, _from: &[u8], _to: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    /// Has all that was changed be where it outlives a power cut.
    ///
    /// # Errors
    /// The disk fails: what was changed may be lost.
    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A file that is open.
pub trait File {
    /// What was known of it when it was opened, or when this handle last wrote it.
    fn metadata(&self) -> Metadata;

    /// Reads bytes from `offset` on; how many: fewer at the end of the file alone.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize, Error>;

    /// The same, at most `most` bytes, in memory that others may hold as well: what a file system
    /// has read for several readers, it has read once, and copies for none.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn share(&mut self, offset: u64, most: usize) -> Result<Bytes, Error> {
        let mut bytes = vec![0; most];
        let count = self.read(offset, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes.into())
    }

    /// Writes all bytes from `offset` on. Those between the end of the file and `offset` become 0.
    ///
    /// # Errors
    /// It is not open for writing, or cannot be written; some bytes may have been.
    fn write(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }

    /// Cuts the file, or extends it by bytes that are 0.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn set_len(&mut self, _len: u64) -> Result<(), Error> {
        Err(Error::ReadOnly)
    }
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

/// The folder of a path that is to be changed, and the name in it.
///
/// # Errors
/// [`Error::Path`], also for the root, which has no name.
pub fn split(path: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    check(path)?;
    let end = path.iter().rposition(|byte| *byte != b'/');
    let path = &path[..=end.ok_or(Error::Path)?];
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (folder, name) = path.split_at(slash.map_or(0, |slash| slash + 1));
    match name {
        b"." => Err(Error::Path),
        name => Ok((folder, name)),
    }
}
