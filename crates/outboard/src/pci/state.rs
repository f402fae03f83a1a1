//! What is remembered of a device while VFIO has it: one small file each, gone when it is back.
//!
//! `/run` is empty after a restart of the machine, and so are the drivers' places.

use super::Address;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;
use std::{fmt, io};

/// Devices are the machine's, so this does not depend on the user. Not in `/run/outboard`, where
/// each folder is a guest's.
const FOLDER: &str = "/run/outboard-pci";
/// Most bytes of a file: three names.
const FILE_BYTES_MAX: u64 = 4096;
/// Whoever changes devices holds this file locked.
const LOCK: &str = "lock";
/// How often the lock is tried for.
const LOCK_ATTEMPTS_MAX: u32 = 100;
/// How long to wait in between.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// What the guard of a run is called as a process; [`Former::guard`] is its process id.
pub const GUARD: &str = "outboard-guard";

/// What a device was before VFIO got it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// Who drove it.
    pub driver: Option<String>,
    /// The one driver that might.
    pub driver_override: Option<String>,
    /// The interfaces that it was behind.
    pub interfaces: Vec<String>,
    /// The guard that gives it back after one run of a guest, by its process id; `None` if it was
    /// taken until `unbind`.
    pub guard: Option<i32>,
}

/// The folder with the files.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

/// Why it cannot be used.
#[derive(Debug)]
pub enum Error {
    /// A file or the folder cannot be made, read or removed.
    File(PathBuf, io::Error),
    /// A file is not what this version writes.
    Malformed(PathBuf, serde_json::Error),
    /// Somebody else changes devices all the time.
    Locked,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::PermissionDenied => "only root can; type the command with sudo",
                    _ => "is /run writable?",
                };
                write!(f, "{}: {error}; {remedy}", path.display())
            }
            Self::Malformed(path, error) => {
                let path = path.display();
                write!(f, "{path}: {error}; type: sudo rm {path}")
            }
            Self::Locked => write!(
                f,
                "another command has been binding or unbinding for {} s; type: sudo fuser -v \
                 {FOLDER}/{LOCK}",
                (LOCK_PAUSE * LOCK_ATTEMPTS_MAX).as_secs()
            ),
        }
    }
}

/// The right to change devices, until it is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held until dropped")] OwnedFd);

impl Store {
    /// That of this machine.
    pub fn host() -> Self {
        Self(FOLDER.into())
    }

    /// One elsewhere.
    #[cfg(test)]
    pub fn at(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Waits until nobody else changes devices; makes the folder.
    ///
    /// # Errors
    /// It cannot be made, or the lock stays taken.
    pub fn lock(&self) -> Result<Lock, Error> {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.0);
        made.map_err(|error| Error::File(self.0.clone(), error))?;
        let path = self.0.join(LOCK);
        let failed = |errno: Errno| Error::File(path.clone(), errno.into());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        for _ in 0..LOCK_ATTEMPTS_MAX {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => sleep(LOCK_PAUSE),
                other => return other.map(|()| Lock(file)).map_err(failed),
            }
        }
        Err(Error::Locked)
    }

    /// What is remembered of a device.
    ///
    /// # Errors
    /// There is a file that cannot be read.
    pub fn read(&self, address: Address) -> Result<Option<Former>, Error> {
        let path = self.path(address);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| Error::File(path.clone(), error))?,
        };
        let former = serde_json::from_reader(io::Read::take(file, FILE_BYTES_MAX));
        former
            .map(Some)
            .map_err(|error| Error::Malformed(path, error))
    }

    /// Remembers a device.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, address: Address, former: &Former) -> Result<(), Error> {
        let path = self.path(address);
        let draft = self.0.join(format!(".{address}"));
        let failed = |error| Error::File(path.clone(), error);
        let json = serde_json::to_vec(former).map_err(|error| failed(error.into()))?;
        // Whoever reads it finds all of it.
        fs::write(&draft, json).map_err(failed)?;
        fs::rename(&draft, &path).map_err(failed)
    }

    /// Forgets a device.
    ///
    /// # Errors
    /// The file is there and cannot be removed.
    pub fn forget(&self, address: Address) -> Result<(), Error> {
        let path = self.path(address);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::File(path, error)),
            _ => Ok(()),
        }
    }

    /// The device that was behind this interface when VFIO got it.
    pub fn find(&self, interface: &str) -> Option<Address> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut addresses = entries.filter_map(|entry| file_address(&entry.path()));
        addresses.find(|address| {
            let former = self.read(*address).ok().flatten();
            former.is_some_and(|former| former.interfaces.iter().any(|name| name == interface))
        })
    }

    fn path(&self, address: Address) -> PathBuf {
        self.0.join(format!("{address}.json"))
    }
}

fn file_address(path: &Path) -> Option<Address> {
    path.file_name()?
        .to_str()?
        .strip_suffix(".json")?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(test: &str) -> Self {
            let name = format!("outboard-pci-{}-{test}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn former() -> Former {
        Former {
            driver: Some("e1000e".into()),
            driver_override: None,
            interfaces: vec!["eth1".into()],
            guard: Some(4711),
        }
    }

    #[test]
    fn what_is_remembered_is_found_by_address_and_interface() {
        let folder = Folder::new("remembered");
        let store = Store::at(folder.0.clone());
        let address = "0000:01:00.0".parse().unwrap();
        assert_eq!(store.read(address).unwrap(), None);
        assert_eq!(store.find("eth1"), None);
        let lock = store.lock().unwrap();
        store.write(address, &former()).unwrap();
        drop(lock);
        assert_eq!(store.read(address).unwrap(), Some(former()));
        assert_eq!(store.find("eth1"), Some(address));
        assert_eq!(store.find("eth2"), None);
        store.forget(address).unwrap();
        store.forget(address).unwrap();
        assert_eq!(store.read(address).unwrap(), None);
    }

    #[test]
    fn a_spoilt_file_is_named_with_what_removes_it() {
        let folder = Folder::new("spoilt");
        let store = Store::at(folder.0.clone());
        let address: Address = "0000:01:00.0".parse().unwrap();
        store.lock().unwrap();
        for text in ["", "{", "[]", "{\"driver\":7}"] {
            fs::write(store.path(address), text).unwrap();
            let error = store.read(address).unwrap_err().to_string();
            assert!(
                error.contains("type: sudo rm ") && error.contains("01:00.0.json"),
                "{error}"
            );
            assert_eq!(store.find("eth1"), None);
        }
    }
}
