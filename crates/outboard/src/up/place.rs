//! Where a system has its files: beside the named guests, under a name that no guest can have.
//!
//! | in `$XDG_RUNTIME_DIR/outboard/.up` | what |
//! |---|---|
//! | `lock` | locked by the supervisor as long as it lives |
//! | `keeper` | the socket of the keeper |
//! | `control` | the socket by which commands ask the supervisor |
//! | `status.json` | a [`super::status::Status`] |
//! | `NAME.cores` | core files of a component |
//! | `NAME.0` to `NAME.11` | what was said of a component's last runs, this one, and its spare |

use crate::instance;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The name of the directory: that of a guest does not begin so.
const FOLDER: &str = ".up";
/// Reports that are kept of each component.
pub const REPORTS: u64 = 10;
/// What is read of a report, in bytes.
const REPORT_BYTES_MAX: u64 = 256 << 10;
/// Files that are removed at most: far more than a system has.
const FILES_MAX: usize = 4096;

/// The directory of a system.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

impl Place {
    /// Where it is, or would be.
    ///
    /// # Errors
    /// Somebody else could have put things there.
    pub fn find() -> Result<Self, instance::Error> {
        Ok(Self(instance::base()?.join(FOLDER)))
    }

    /// One of a test's.
    #[cfg(test)]
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// The same, made.
    ///
    /// # Errors
    /// Those of [`Self::find`]; it cannot be made.
    pub fn make() -> Result<Self, instance::Error> {
        let place = Self(instance::made_base()?.join(FOLDER));
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&place.0);
        made.map_err(|error| instance::Error::Make(place.0.clone(), error))?;
        Ok(place)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket of the keeper.
    pub fn keeper(&self) -> PathBuf {
        self.0.join("keeper")
    }

    /// The socket of the supervisor.
    pub fn control(&self) -> PathBuf {
        self.0.join("control")
    }

    /// What the supervisor writes down.
    pub fn status(&self) -> PathBuf {
        self.0.join("status.json")
    }

    /// The folder for core files of a component.
    pub fn cores(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.cores"))
    }

    /// What is said of this run of a component.
    fn report(&self, name: &str, run: u64) -> PathBuf {
        self.0.join(format!("{name}.{}", run % (REPORTS + 2)))
    }

    /// The lock of the supervisor; `None` if there is one.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn lock(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.0.join("lock"), flags, Mode::RUSR | Mode::WUSR)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(None),
            locked => Ok(locked.map(|()| Some(file))?),
        }
    }

    /// A fresh file for what is said of this run of a component.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn begin_report(&self, name: &str, run: u64) -> io::Result<OwnedFd> {
        Ok(instance::fresh_file(
            &self.report(name, run),
            OFlags::APPEND,
        )?)
    }

    /// What was said of this run of a component; nothing if it cannot be read.
    pub fn read_report(&self, name: &str, run: u64) -> Vec<u8> {
        let mut said = Vec::new();
        if let Ok(file) = File::open(self.report(name, run)) {
            let _ = file.take(REPORT_BYTES_MAX).read_to_end(&mut said);
        }
        said
    }

    /// Removes all of it, and the directory of all guests if nothing else is in it. Best effort:
    /// what is left is taken over by the next one.
    pub fn remove(&self) {
        let files = std::fs::read_dir(&self.0).into_iter().flatten();
        for file in files.take(FILES_MAX).flatten() {
            let _ = match file.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => std::fs::remove_dir_all(file.path()),
                false => std::fs::remove_file(file.path()),
            };
        }
        let _ = std::fs::remove_dir(&self.0);
        if let Some(base) = self.0.parent() {
            let _ = std::fs::remove_dir(base);
        }
    }
}
