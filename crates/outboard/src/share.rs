//! The shared file of a guest that this process starts: what the guest is told and what it leaves
//! behind ([`abi::share`]), kept where its death cannot reach it.
//!
//! Without a name it lives in memory alone and goes with its last user; that of a named guest lies
//! in the directory of its [`crate::instance`].

use abi::share::{BYTES, BYTES_MIN, Report};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use zerocopy::{FromZeros, IntoBytes};

/// A shared file that a tender can be given.
#[derive(Debug)]
pub struct SharedFile(OwnedFd);

impl SharedFile {
    /// A file in memory.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn anonymous() -> Result<Self, Errno> {
        Self::fresh(rustix::fs::memfd_create(
            "outboard-share",
            MemfdFlags::CLOEXEC,
        )?)
    }

    /// This file, open for reading and writing, emptied: what a guest before has left in it must
    /// not be taken for another's. It has the size of all regions, and takes room for report and
    /// counters; for the rest, only what is written does.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn fresh(file: OwnedFd) -> Result<Self, Errno> {
        rustix::fs::ftruncate(&file, 0)?;
        rustix::fs::ftruncate(&file, BYTES)?;
        // What every guest writes has its room now: it would be ended where there is none later.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES_MIN) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Self(file)),
            Err(errno) => Err(errno),
        }
    }

    /// The option by which a tender that inherits the descriptor learns of it.
    pub fn option(&self) -> String {
        format!("--share=@{}", self.0.as_raw_fd())
    }

    /// What lies where a report would be; `None` if it cannot be read.
    pub fn report(&self) -> Option<Report> {
        let mut report = Report::new_zeroed();
        let read = rustix::io::pread(&self.0, report.as_mut_bytes(), 0).ok()?;
        (read == size_of::<Report>()).then_some(report)
    }
}

impl AsFd for SharedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::share::REPORT_MAGIC;

    #[test]
    fn a_fresh_share_has_its_size_and_no_report() {
        let share = SharedFile::anonymous().unwrap();
        let stale = Report {
            magic: REPORT_MAGIC,
            ..Report::default()
        };
        rustix::io::pwrite(&share, stale.as_bytes(), 0).unwrap();
        assert_eq!(share.report(), Some(stale));
        let share = SharedFile::fresh(share.0).unwrap();
        let size = rustix::fs::fstat(&share).unwrap().st_size;
        assert_eq!(u64::try_from(size).unwrap(), BYTES);
        assert_eq!(share.report(), Some(Report::default()));
    }
}
