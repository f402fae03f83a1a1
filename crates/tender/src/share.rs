//! The shared file: what the guest is told, and what it leaves behind (see [`abi::share`]).

use crate::options::Location;
use crate::sys::fault::Shared;
use abi::PAGE_SIZE;
use abi::share::{BYTES, BYTES_MIN, COUNTERS_OFFSET};
use linux::descriptor;
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::{fmt, io};

/// Why a file cannot be the shared one.
#[derive(Debug)]
pub enum Error {
    /// It cannot be opened, or is not open.
    Open(String, io::Error),
    /// Its size in bytes is no multiple of the page size from two pages to [`BYTES`].
    Size(u64),
    /// It cannot be mapped.
    Map(io::Error),
    /// The handlers cannot be installed.
    Handlers(io::Error),
    /// The event cannot be opened, or cannot be waited for.
    Event(String, io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = matches!(self, Self::Event(..));
        write!(f, "{}: ", if event { "--event" } else { "--share" })?;
        match self {
            Self::Open(file, error) => {
                write!(
                    f,
                    "{file}: {error}; make one with: truncate -s {BYTES} FILE"
                )
            }
            Self::Size(size) => write!(
                f,
                "the file has {size} bytes, not a multiple of {PAGE_SIZE} up to {BYTES}; type: \
                 truncate -s {BYTES} FILE"
            ),
            Self::Map(error) => write!(f, "cannot be mapped: {error}; open it to read and write"),
            Self::Event(file, error) => {
                write!(f, "{file}: {error}; make one with: mkfifo FILE")
            }
            Self::Handlers(error) => write!(f, "no fault handlers: {error}; leave --share away"),
        }
    }
}

/// Whether a file of `size` bytes can be the shared one.
///
/// # Errors
/// If it cannot.
fn check(size: u64) -> Result<(), Error> {
    let fits = (COUNTERS_OFFSET as u64 + PAGE_SIZE..=BYTES).contains(&size);
    (fits && size.is_multiple_of(PAGE_SIZE))
        .then_some(())
        .ok_or(Error::Size(size))
}

/// The shared file, open.
#[derive(Debug)]
pub struct SharedFile {
    /// The file.
    pub file: OwnedFd,
    /// Its size in bytes.
    pub size: u64,
}

/// Maps the shared file at [`abi::share::BASE`] and has faults reported into it.
///
/// # Errors
/// If it is not a file of a size that can be shared.
pub fn open(share: &Location) -> Result<(SharedFile, Shared), Error> {
    let not_open = |error| Error::Open(name(share), error);
    let file = descriptor(share).map_err(not_open)?;
    let stat = rustix::fs::fstat(&file).map_err(|error| not_open(error.into()))?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    check(size)?;
    let mapped = Shared::map(file.as_fd(), size).map_err(Error::Map)?;
    mapped.report_faults().map_err(Error::Handlers)?;
    Ok((SharedFile { file, size }, mapped))
}

/// Maps a file that nobody else has, and has faults reported into it: who writes a core file then
/// needs no other handler.
///
/// # Errors
/// The kernel has no memory for it.
pub fn anonymous() -> Result<Shared, Error> {
    let made = || -> io::Result<Shared> {
        let file = rustix::fs::memfd_create("outboard-report", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, BYTES_MIN)?;
        Shared::map(file.as_fd(), BYTES_MIN)
    };
    let mapped = made().map_err(Error::Map)?;
    mapped.report_faults().map_err(Error::Handlers)?;
    Ok(mapped)
}

/// Opens what becomes readable when the host has changed the shared file.
///
/// # Errors
/// If it cannot be opened.
pub fn open_event(event: &Location) -> Result<OwnedFd, Error> {
    descriptor(event).map_err(|error| Error::Event(name(event), error))
}

/// As the user wrote it.
pub fn name(location: &Location) -> String {
    match location {
        Location::Descriptor(number) => format!("@{number}"),
        Location::Path(path) => path.display().to_string(),
    }
}

/// What a location is, open for reading and writing, without waiting.
///
/// # Errors
/// It is not there, or not open.
pub fn descriptor(location: &Location) -> io::Result<OwnedFd> {
    match location {
        Location::Descriptor(number) => descriptor::adopt(*number),
        Location::Path(path) => {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
            Ok(rustix::fs::open(path, flags, Mode::empty())?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_counters_at_least_and_all_regions_at_most() {
        for size in [8192, abi::share::BYTES_MIN, BYTES - PAGE_SIZE, BYTES] {
            check(size).unwrap();
        }
    }

    #[test]
    fn other_sizes_are_refused() {
        for size in [0, 1, 4096, 8191, 8193, BYTES + PAGE_SIZE, u64::MAX] {
            assert!(
                matches!(check(size), Err(Error::Size(s)) if s == size),
                "{size}"
            );
        }
    }

    #[test]
    fn a_directory_is_no_shared_file() {
        let error = open(&Location::Path("/".into())).unwrap_err();
        assert!(matches!(error, Error::Open(..)), "{error}");
    }
}
