//! The shared file: what the guest leaves behind (see [`abi::share`]).

use crate::options;
use crate::sys::descriptor;
use crate::sys::fault::Shared;
use abi::PAGE_SIZE;
use abi::share::{BASE, BYTES as BYTES_MAX, COUNTERS_OFFSET};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::{fmt, io};

/// Why a file cannot be the shared one.
#[derive(Debug)]
pub enum Error {
    /// It cannot be opened, or is not open.
    Open(String, io::Error),
    /// Its size in bytes is no multiple of the page size from two pages to [`BYTES_MAX`].
    Size(u64),
    /// It cannot be mapped.
    Map(io::Error),
    /// The handlers cannot be installed.
    Handlers(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--share: ")?;
        match self {
            Self::Open(file, error) => {
                write!(f, "{file}: {error}; make one with: truncate -s 64K FILE")
            }
            Self::Size(size) => write!(
                f,
                "the file has {size} bytes, not a multiple of {PAGE_SIZE} up to {BYTES_MAX}; type: \
                 truncate -s 64K FILE"
            ),
            Self::Map(error) => write!(f, "cannot be mapped: {error}; open it to read and write"),
            Self::Handlers(error) => write!(f, "no fault handlers: {error}; leave --share away"),
        }
    }
}

/// Address and number of the counters in a file of `size` bytes.
///
/// # Errors
/// If this is no size of a shared file.
fn counters(size: u64) -> Result<(u64, u64), Error> {
    let offset = COUNTERS_OFFSET as u64;
    if size <= offset || size > BYTES_MAX || !size.is_multiple_of(PAGE_SIZE) {
        return Err(Error::Size(size));
    }
    Ok((BASE + offset, (size - offset) / size_of::<u64>() as u64))
}

/// Maps the shared file and has faults reported into it. Returns address and number of the
/// counters in it.
///
/// # Errors
/// If it is not a file of a size that can be shared.
pub fn open(share: &options::Share) -> Result<(u64, u64), Error> {
    let not_open = |error| Error::Open(name(share), error);
    let fd = descriptor(share).map_err(not_open)?;
    let stat = rustix::fs::fstat(&fd).map_err(|error| not_open(error.into()))?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let counters = counters(size)?;
    let shared = Shared::map(fd.as_fd(), size).map_err(Error::Map)?;
    shared.report_faults().map_err(Error::Handlers)?;
    Ok(counters)
}

fn name(share: &options::Share) -> String {
    match share {
        options::Share::Descriptor(number) => format!("@{number}"),
        options::Share::Path(path) => path.display().to_string(),
    }
}

fn descriptor(share: &options::Share) -> io::Result<OwnedFd> {
    match share {
        options::Share::Descriptor(number) => descriptor::adopt(*number),
        options::Share::Path(path) => {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
            Ok(rustix::fs::open(path, flags, Mode::empty())?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_the_report_is_counters() {
        assert_eq!(counters(8192).unwrap(), (BASE + 4096, 512));
        assert_eq!(counters(BYTES_MAX).unwrap().1, (BYTES_MAX - 4096) / 8);
    }

    #[test]
    fn other_sizes_are_refused() {
        for size in [0, 1, 4096, 8191, 8193, BYTES_MAX + PAGE_SIZE, u64::MAX] {
            assert!(
                matches!(counters(size), Err(Error::Size(s)) if s == size),
                "{size}"
            );
        }
    }

    #[test]
    fn a_directory_is_no_shared_file() {
        let error = open(&options::Share::Path("/".into())).unwrap_err();
        assert!(matches!(error, Error::Open(..)), "{error}");
    }
}
