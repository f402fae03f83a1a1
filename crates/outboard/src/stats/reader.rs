//! Takes snapshots of one instance.

use super::Error;
use super::raw::Raw;
use super::snapshot::{Names, Snapshot};
use crate::instance::{Description, Instance};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Takes snapshots of one instance.
#[derive(Debug)]
pub struct Reader {
    share: OwnedFd,
    description: Description,
}

impl Reader {
    /// Of the instance with this shared file and this description.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn new(share: BorrowedFd<'_>, description: Description) -> Result<Self, Error> {
        let share = share.try_clone_to_owned().map_err(Error::Read)?;
        Ok(Self { share, description })
    }

    /// Of a named instance.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn of(instance: &Instance) -> Result<Self, Error> {
        Self::new(instance.share(), instance.description().clone())
    }

    /// The instance as it was started.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// What it has counted so far.
    ///
    /// # Errors
    /// The shared file cannot be read.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let raw = Raw::read(self.share.as_fd())?;
        Ok(Snapshot::new(&raw, &self.description, &Names::BuiltIn))
    }
}
