//! Named guests: where `outboard run --name=NAME` keeps what others need to know of one, and how
//! they find it.
//!
//! | in `$XDG_RUNTIME_DIR/outboard/NAME`, or see the module `place` | what |
//! |---|---|
//! | `share` | the shared file ([`abi::share`]), locked by the monitor while the guest runs |
//! | `event` | a FIFO: who has changed the share writes a byte to it, and the guest wakes up |
//! | `instance.json` | a [`Description`] |
//! | `console`, `console.old` | the last lines of the guest's console |
//! | `ending.json` | empty until the monitor writes how the guest [`Ended`] |
//!
//! A spare, which is loaded and waits, has the same in `.spare-NAME`, which becomes `NAME`.
//!
//! The monitor holds a [`Claim`] to the directory and removes it; all other commands open an
//! [`Instance`], and need no live monitor for that.

mod claim;
mod description;
mod ending;
mod error;
pub mod event;
mod log;
mod place;

pub use claim::Claim;
pub use description::{Description, Device, Kind};
pub use ending::{Ended, read as read_ending};
pub use error::Error;
pub use log::Log;
pub use place::sudo;

pub(crate) use claim::{fresh_file, remove_left, unlink};
pub(crate) use place::{base, made_base};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Longest name of a guest, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Most bytes of an `instance.json`: a manifest has 63 devices.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;
const SHARE: &str = "share";
const EVENT: &str = "event";
const DESCRIPTION: &str = "instance.json";
const ENDING: &str = "ending.json";

/// A named guest that runs, or has left its directory behind.
#[derive(Debug)]
pub struct Instance {
    name: String,
    directory: PathBuf,
    description: Description,
    share: OwnedFd,
}

impl Instance {
    /// The instance of this name, for reading.
    ///
    /// # Errors
    /// There is none; the error names those that run.
    pub fn open(name: &str) -> Result<Self, Error> {
        Self::open_in(&base()?, name)
    }

    fn open_in(base: &Path, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        match Self::read(base, name)? {
            Some(instance) => Ok(instance),
            None => Err(Error::Unknown {
                name: name.to_owned(),
                base: base.to_owned(),
                running: running(base),
            }),
        }
    }

    /// All instances in the order of their names, without those that cannot be read.
    ///
    /// # Errors
    /// The directory of all of them cannot be read; that there is none is no error.
    pub fn all() -> Result<Vec<Self>, Error> {
        Self::all_in(&base()?)
    }

    /// The same, and why the others cannot be read.
    ///
    /// # Errors
    /// Those of [`Self::all`].
    pub fn survey() -> Result<(Vec<Self>, Vec<Error>), Error> {
        Self::survey_in(&base()?)
    }

    fn all_in(base: &Path) -> Result<Vec<Self>, Error> {
        Ok(Self::survey_in(base)?.0)
    }

    fn survey_in(base: &Path) -> Result<(Vec<Self>, Vec<Error>), Error> {
        let entries = match std::fs::read_dir(base) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((Vec::new(), Vec::new()));
            }
            entries => entries.map_err(|error| Error::Read(base.to_owned(), error))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.filter(|name| check_name(name).is_ok()).collect();
        names.sort_unstable();
        let (mut instances, mut failures) = (Vec::new(), Vec::new());
        for name in names {
            match Self::read(base, &name) {
                Ok(instance) => instances.extend(instance),
                Err(error) => failures.push(error),
            }
        }
        Ok((instances, failures))
    }

    /// `None` if there is no such instance, or not yet, or no longer.
    fn read(base: &Path, name: &str) -> Result<Option<Self>, Error> {
        let directory = base.join(name);
        let path = directory.join(SHARE);
        let Some(share) = open_file(&path, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let status = rustix::fs::fstat(&share).map_err(|e| Error::Read(path.clone(), e.into()))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(Error::NoFile(path));
        }
        let path = directory.join(DESCRIPTION);
        let Some(file) = open_file(&path, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let description = std::io::Read::take(File::from(file), DESCRIPTION_BYTES_MAX);
        let description = serde_json::from_reader(description)
            .map_err(|error| Error::Description(path, error))?;
        Ok(Some(Self {
            name: name.to_owned(),
            directory,
            description,
            share,
        }))
    }

    /// The name under which it was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its monitor wrote down when it started it.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The shared file, open for reading. A guest has written there: hostile until checked.
    pub fn share(&self) -> BorrowedFd<'_> {
        self.share.as_fd()
    }

    /// The shared file, open for reading and writing: for the host's part of it.
    ///
    /// # Errors
    /// It is gone, or another user's.
    pub fn writable_share(&self) -> Result<OwnedFd, Error> {
        self.open_again(SHARE)
    }

    /// The FIFO by which the guest is woken up, open for reading and writing: without waiting, and
    /// for whoever wants it to be locked among those who change the share.
    ///
    /// # Errors
    /// It is gone, or another user's.
    pub fn event(&self) -> Result<OwnedFd, Error> {
        self.open_again(EVENT)
    }

    /// The file into which the monitor writes how the guest ended, before it removes it: what was
    /// opened before can be read behind that. See [`read_ending`].
    ///
    /// # Errors
    /// It is gone, or another user's.
    pub fn ending(&self) -> Result<File, Error> {
        let file = open_file(&self.directory.join(ENDING), OFlags::RDONLY)?;
        let file = file.ok_or_else(|| Error::Ended(self.name.clone()))?;
        Ok(File::from(file))
    }

    /// The last lines of its console. A guest wrote them: hostile.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn console(&self) -> std::io::Result<Vec<u8>> {
        log::read(&self.directory)
    }

    fn open_again(&self, file: &str) -> Result<OwnedFd, Error> {
        let file = open_file(&self.directory.join(file), OFlags::RDWR)?;
        file.ok_or_else(|| Error::Ended(self.name.clone()))
    }

    /// Whether its monitor still holds the shared file locked.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn is_running(&self) -> Result<bool, Error> {
        let failed = |errno: Errno| Error::Read(self.directory.join(SHARE), errno.into());
        match rustix::fs::flock(&self.share, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(errno) => Err(failed(errno)),
            Ok(()) => {
                rustix::fs::flock(&self.share, FlockOperation::Unlock).map_err(failed)?;
                Ok(false)
            }
        }
    }
}

/// Names of the instances that run.
fn running(base: &Path) -> Vec<String> {
    let all = Instance::all_in(base).unwrap_or_default();
    let running = all.into_iter().filter(|i| i.is_running().unwrap_or(false));
    running.map(|instance| instance.name).collect()
}

/// Opens a file of an instance without waiting; `None` if it is not there.
fn open_file(path: &Path, access: OFlags) -> Result<Option<OwnedFd>, Error> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(Error::Read(path.to_owned(), errno.into())),
    }
}

/// Whether a guest can be called so.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(allowed)
}

fn check_name(name: &str) -> Result<(), Error> {
    is_name(name)
        .then_some(())
        .ok_or_else(|| Error::Name(name.escape_debug().to_string()))
}

#[cfg(test)]
mod tests;
