//! The share file: how a guest ended and what it counted, kept where its death cannot reach it.
//!
//! Without a name it lives in memory alone and goes with its last user. With one it is a file that
//! others can read while the guest runs; a lock on it tells a running guest from a leftover.

use abi::share::{BYTES, Report};
use rustix::fs::{FlockOperation, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::fs::DirBuilder;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use zerocopy::{FromZeros, IntoBytes};

/// Longest name of a running guest, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// The share file in the directory of a named guest.
const FILE: &str = "share";
/// How often to start again when a guest of the same name is just cleaning up.
const ATTEMPTS_MAX: usize = 8;

/// Why there is no share file.
#[derive(Debug)]
pub enum Error {
    /// Not a name: it would be a hidden directory, or another one.
    Name(String),
    /// A guest of this name is running.
    Running(String),
    /// The directory of a named guest could not be made.
    Directory(PathBuf, std::io::Error),
    /// The file could not be made.
    File(PathBuf, Errno),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "--name={name}: a name is 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and \
                 '.', and does not begin with '.'"
            ),
            Self::Running(name) => write!(
                f,
                "--name={name}: a guest of this name is running; choose another name or end it"
            ),
            Self::Directory(path, e) => write!(
                f,
                "cannot make {}: {e}; set XDG_RUNTIME_DIR to a directory of yours",
                path.display()
            ),
            Self::File(path, e) => write!(f, "cannot make {}: {e}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

/// A share file that the tender can be given. A named one is removed when this is dropped.
#[derive(Debug)]
pub struct Share {
    file: OwnedFd,
    directory: Option<PathBuf>,
}

impl Share {
    /// A file in memory.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn anonymous() -> Result<Self, Error> {
        let refused = |e| Error::File("a file in memory".into(), e);
        let file =
            rustix::fs::memfd_create("outboard-share", MemfdFlags::CLOEXEC).map_err(refused)?;
        rustix::fs::ftruncate(&file, BYTES).map_err(refused)?;
        Ok(Self {
            file,
            directory: None,
        })
    }

    /// The file of the guest `name`, under `$XDG_RUNTIME_DIR/outboard` or `/run/outboard`.
    ///
    /// # Errors
    /// `name` is none, is taken by a running guest, or its file cannot be made.
    pub fn named(name: &str) -> Result<Self, Error> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
        let base = runtime.map_or_else(|| PathBuf::from("/run"), PathBuf::from);
        Self::named_in(&base.join("outboard"), name)
    }

    fn named_in(base: &Path, name: &str) -> Result<Self, Error> {
        if !is_name(name) {
            return Err(Error::Name(name.escape_debug().to_string()));
        }
        let directory = base.join(name);
        for _ in 0..ATTEMPTS_MAX {
            if let Some(share) = Self::claim(&directory, name)? {
                return Ok(share);
            }
        }
        Err(Error::Running(name.to_owned()))
    }

    /// Makes and locks the file in `directory`; `None` if its former owner removed it meanwhile.
    fn claim(directory: &Path, name: &str) -> Result<Option<Self>, Error> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|e| Error::Directory(directory.to_owned(), e))?;
        let path = directory.join(FILE);
        let refused = |e| Error::File(path.clone(), e);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(refused)?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Error::Running(name.to_owned())),
            other => other.map_err(refused)?,
        }
        if rustix::fs::fstat(&file).map_err(refused)?.st_nlink == 0 {
            return Ok(None);
        }
        // A leftover's report must not be taken for ours: empty it, then let it read as zeros.
        rustix::fs::ftruncate(&file, 0).map_err(refused)?;
        rustix::fs::ftruncate(&file, BYTES).map_err(refused)?;
        Ok(Some(Self {
            file,
            directory: Some(directory.to_owned()),
        }))
    }

    /// The option by which a tender that inherits the descriptor learns of it.
    pub fn option(&self) -> String {
        format!("--share=@{}", self.file.as_raw_fd())
    }

    /// What lies where a report would be; `None` if it cannot be read.
    pub fn report(&self) -> Option<Report> {
        let mut report = Report::new_zeroed();
        let read = rustix::io::pread(&self.file, report.as_mut_bytes(), 0).ok()?;
        (read == size_of::<Report>()).then_some(report)
    }
}

impl AsFd for Share {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(directory) = &self.directory {
            // What cannot be removed is a leftover that the next guest of this name takes over.
            let _ = std::fs::remove_file(directory.join(FILE));
            let _ = std::fs::remove_dir(directory);
        }
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::share::REPORT_MAGIC;

    fn base(test: &str) -> PathBuf {
        std::env::temp_dir().join(format!("outboard-share-{}-{test}", std::process::id()))
    }

    #[test]
    fn names_stay_inside_their_directory() {
        for name in ["a", "web-1", "fw_2.b"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", ".a", "a/b", "a b", "ä", &"a".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn a_fresh_share_has_its_size_and_no_report() {
        let share = Share::anonymous().unwrap();
        let size = rustix::fs::fstat(&share).unwrap().st_size;
        assert_eq!(u64::try_from(size).unwrap(), BYTES);
        assert_eq!(share.report(), Some(Report::default()));
    }

    #[test]
    fn a_name_is_taken_once_and_free_again_afterwards() {
        let base = base("taken");
        let first = Share::named_in(&base, "a").unwrap();
        assert!(matches!(
            Share::named_in(&base, "a"),
            Err(Error::Running(_))
        ));
        drop(first);
        assert!(!base.join("a").exists());
        drop(Share::named_in(&base, "a").unwrap());
        std::fs::remove_dir(&base).unwrap();
    }

    #[test]
    fn a_leftover_is_taken_over_without_its_report() {
        let base = base("leftover");
        std::fs::create_dir_all(base.join("a")).unwrap();
        let stale = Report {
            magic: REPORT_MAGIC,
            ..Report::default()
        };
        std::fs::write(base.join("a").join(FILE), stale.as_bytes()).unwrap();
        let share = Share::named_in(&base, "a").unwrap();
        assert_eq!(share.report(), Some(Report::default()));
        drop(share);
        std::fs::remove_dir(&base).unwrap();
    }
}
