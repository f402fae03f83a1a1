//! The monitor's side of a named guest: its directory, made, held and removed.

use super::place::{base, made_base};
use super::{DESCRIPTION, Description, ENDING, EVENT, Ended, Error, Instance, Log};
use super::{SHARE, check_name, log};
use crate::share::SharedFile;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

/// How often to start again when a guest of the same name is just cleaning up, or somebody looks
/// whether one runs.
const ATTEMPTS_MAX: usize = 8;
/// How often a spare starts again, where the one before may have been told to end and not have done
/// so: two seconds, on a machine that is busy with something else.
const ASIDE_ATTEMPTS_MAX: usize = 1000;
/// How long to wait in between.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(2);

/// How much of a command line is shown, in bytes.
const COMMAND_BYTES_MAX: u64 = 160;

/// The directory of a named guest. It is removed when this is dropped.
#[derive(Debug)]
pub struct Claim {
    directory: PathBuf,
    event: OwnedFd,
    ending: OwnedFd,
    share: Rc<SharedFile>,
}

impl Claim {
    /// Makes the directory of the guest `name`, with its shared file, which is locked as long as it
    /// is open. What a dead guest of this name has left behind is taken over.
    ///
    /// # Errors
    /// `name` is none, is taken by a running guest, or something cannot be made.
    pub fn new(name: &str) -> Result<Self, Error> {
        Self::new_in(&made_base()?, name)
    }

    /// The same for a spare of the guest `name`, which may run meanwhile: aside, where nobody finds
    /// it until it [appears](Self::appear).
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn aside(name: &str) -> Result<Self, Error> {
        Self::aside_in(&made_base()?, name)
    }

    pub(super) fn new_in(base: &Path, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        Self::hold(base, name, base.join(name), ATTEMPTS_MAX)
    }

    pub(super) fn aside_in(base: &Path, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        Self::hold(base, name, aside(base, name), ASIDE_ATTEMPTS_MAX)
    }

    /// Takes this directory for the guest `name`, with so many attempts.
    fn hold(base: &Path, name: &str, directory: PathBuf, attempts: usize) -> Result<Self, Error> {
        for attempt in 0..attempts {
            if attempt > 0 {
                thread::sleep(ATTEMPT_PAUSE);
            }
            if let Some(file) = lock(&directory)? {
                return Self::furnish(directory, file);
            }
        }
        Err(taken(base, name))
    }

    /// A spare becomes the guest `name`: from now on others find it, as `description` says it. What
    /// a dead guest of this name has left behind is removed.
    ///
    /// # Errors
    /// A guest of this name runs, or something cannot be written.
    pub fn appear(&mut self, name: &str, description: &Description) -> Result<(), Error> {
        self.describe(description)?;
        let base = self.directory.parent().unwrap_or(Path::new("/"));
        let place = base.join(name);
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                thread::sleep(ATTEMPT_PAUSE);
            }
            match rustix::fs::rename(&self.directory, &place) {
                Ok(()) => {
                    self.directory = place;
                    return Ok(());
                }
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    // Locked until it is gone, so that nobody else takes it over meanwhile.
                    if let Some(_file) = lock(&place)? {
                        remove(&place);
                    }
                }
                Err(errno) => return Err(Error::Make(place, errno.into())),
            }
        }
        Err(taken(base, name))
    }

    /// Whatever is in the directory is ours: the locked `file` says so.
    fn furnish(directory: PathBuf, file: OwnedFd) -> Result<Self, Error> {
        let make = |name, errno: Errno| Error::Make(directory.join(name), errno.into());
        // The description of a dead guest goes first, for readers would take it for ours.
        let event = unlink(&directory.join(DESCRIPTION))
            .and_then(|()| make_event(&directory.join(EVENT)))
            .map_err(|errno| make(EVENT, errno))?;
        let ending = fresh_file(&directory.join(ENDING), OFlags::empty());
        let ending = ending.map_err(|errno| make(ENDING, errno))?;
        let share = SharedFile::fresh(file).map_err(|errno| make(SHARE, errno))?;
        Ok(Self {
            directory,
            event,
            ending,
            share: Rc::new(share),
        })
    }

    /// The shared file.
    pub fn share(&self) -> Rc<SharedFile> {
        Rc::clone(&self.share)
    }

    /// Says what runs here; from now on others find the instance.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn describe(&self, description: &Description) -> Result<(), Error> {
        let path = self.directory.join(DESCRIPTION);
        let draft = self.directory.join(DRAFT);
        let failed = |error| Error::Make(path.clone(), error);
        let json = serde_json::to_vec_pretty(description).map_err(|e| failed(e.into()))?;
        // Whoever reads it finds all of it.
        std::fs::write(&draft, json).map_err(failed)?;
        std::fs::rename(&draft, &path).map_err(failed)
    }

    /// The last lines of the guest's console, none so far.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn log(&self) -> std::io::Result<Log> {
        Log::create(&self.directory)
    }

    /// What was kept of it. A guest wrote it: hostile.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn console(&self) -> std::io::Result<Vec<u8>> {
        log::read(&self.directory)
    }

    /// Leaves word of how the guest ended, for who has opened the file before. Best effort: the
    /// guest has ended in any case.
    pub fn conclude(&self, ended: &Ended) {
        if let Ok(json) = serde_json::to_vec(ended) {
            let _ = rustix::io::write(&self.ending, &json);
        }
    }

    /// The option by which a tender that inherits the descriptor learns of the event.
    pub fn option(&self) -> String {
        format!("--event=@{}", self.event.as_raw_fd())
    }
}

/// What stands in front of a guest's name in that of its spare's directory. No guest's name begins
/// so.
const ASIDE: &str = ".spare-";

fn aside(base: &Path, name: &str) -> PathBuf {
    base.join(format!("{ASIDE}{name}"))
}

/// How often, and how long apart, it is looked whether a guest has ended whose monitor was killed:
/// the kernel ends it a moment later.
const LOOKS_MAX: usize = 100;
const LOOK: Duration = Duration::from_millis(10);

/// Removes what the guest `name`, whose monitor was killed, and its spare have left behind, if they
/// end soon.
pub fn remove_left(name: &str) {
    let Ok(base) = base() else { return };
    for directory in [base.join(name), aside(&base, name)] {
        for _ in 0..LOOKS_MAX {
            if !directory.is_dir() {
                break;
            }
            if let Ok(Some(_file)) = lock(&directory) {
                remove(&directory);
                break;
            }
            thread::sleep(LOOK);
        }
    }
}

/// A guest of this name runs.
fn taken(base: &Path, name: &str) -> Error {
    let running = Instance::read(base, name).ok().flatten();
    let monitor = running.map(|instance| instance.description.monitor);
    let monitor = monitor.map(|pid| (pid, command_of(pid)));
    Error::Running(name.to_owned(), monitor)
}

/// [`DESCRIPTION`] before it has been written to its end.
const DRAFT: &str = ".instance.json";

impl Drop for Claim {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

/// The command line of a process, as far as it fits into a message.
fn command_of(pid: u32) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) {
        // Best effort: the process may just have ended.
        let _ = file.take(COMMAND_BYTES_MAX).read_to_end(&mut bytes);
    }
    let words = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let words: Vec<_> = words.collect();
    words.join(" ").trim_end().escape_debug().to_string()
}

/// Makes and locks the shared file in `directory`; `None` if somebody else has it at the moment.
fn lock(directory: &Path) -> Result<Option<OwnedFd>, Error> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    match made {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        made => made.map_err(|error| Error::Make(directory.to_owned(), error))?,
    }
    let path = directory.join(SHARE);
    let failed = |errno: Errno| Error::Make(path.clone(), errno.into());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(failed)?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        other => other.map_err(failed)?,
    }
    // Its former owner may have removed it before it was locked.
    let links = rustix::fs::fstat(&file).map_err(failed)?.st_nlink;
    Ok((links > 0).then_some(file))
}

/// A fresh FIFO: who still has that of a dead guest open shall not wake this one up.
fn make_event(path: &Path) -> Result<OwnedFd, Errno> {
    unlink(path)?;
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0)?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// A fresh file to be written, also with `more`: who still has the one open that was there reads
/// nothing of this one.
pub(crate) fn fresh_file(path: &Path, more: OFlags) -> Result<OwnedFd, Errno> {
    unlink(path)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path, flags | more, Mode::RUSR | Mode::WUSR)
}

/// Removes what is at `path`, if anything is.
pub(crate) fn unlink(path: &Path) -> Result<(), Errno> {
    match rustix::fs::unlink(path) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Removes a guest's directory, and the one of all guests if this was the last. What cannot be
/// removed is a leftover that the next guest of this name takes over.
fn remove(directory: &Path) {
    // The shared file goes last: as long as it is there and locked, all of this is ours.
    log::remove(directory);
    for file in [DRAFT, DESCRIPTION, ENDING, EVENT, SHARE] {
        let _ = std::fs::remove_file(directory.join(file));
    }
    let _ = std::fs::remove_dir(directory);
    if let Some(base) = directory.parent() {
        let _ = std::fs::remove_dir(base);
    }
}
