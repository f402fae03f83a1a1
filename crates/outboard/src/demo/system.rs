//! Components under `outboard up`, in the network of whoever shows them.

use super::error::Error;
use outboard::instance::Description;
use outboard::up::status::Status;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use std::fs::{self, DirBuilder, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, io};
use testbed::meter::only_child;
use testbed::segment::{Address, Segment};

/// The file of components.
pub const FILE: &str = "system.toml";
/// How long components may take to be up, and what is ended to be gone.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(1);

/// A network of its own, in which this host is `address`, with a tap for a component that goes on
/// while nobody has it.
///
/// # Errors
/// It cannot be made.
pub fn wired(tap: &str, address: Ipv4Addr) -> Result<Segment, Error> {
    let network = |error: testbed::segment::Error| Error::Contender(error.into());
    let segment = Segment::new().map_err(network)?;
    let address = Address {
        ip: address,
        prefix: 24,
        mtu: 1500,
    };
    let made = segment.tap(tap, true, address).map_err(network)?;
    let kept = linux::interface::persist(&made);
    kept.map_err(|e| Error::Io("cannot keep a tap", e))?;
    Ok(segment)
}

/// A folder for a system, in memory, that nobody else can read; it goes with this.
pub struct Folder(PathBuf);

impl Folder {
    /// With these files. The system is `called` so in the folder's name.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(called: &str, files: &[(&str, &str)]) -> Result<Self, Error> {
        let path = base().join(format!("outboard-{called}-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|e| Error::Io("cannot make a temporary directory", e))?;
        let folder = Self(path);
        let mut files = files.iter();
        let written = files.try_for_each(|(name, text)| fs::write(folder.0.join(name), text));
        written.map_err(|e| Error::Io("cannot write a temporary file", e))?;
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A system that is up; it ends with this, and then its folder goes.
pub struct System {
    supervisor: Child,
    folder: Folder,
}

impl System {
    /// Starts the `components` of the folder's [`FILE`], in the network of this thread, which has
    /// to live as long as they do.
    ///
    /// # Errors
    /// They do not come up.
    pub fn start(folder: Folder, components: &[&str]) -> Result<Self, Error> {
        let this =
            env::current_exe().map_err(|e| Error::Io("cannot find this program's file", e))?;
        let said = File::create(folder.path().join("said"));
        let said = said.map_err(|e| Error::Io("cannot write a temporary file", e))?;
        let started = Command::new(&this)
            .arg("up")
            .arg(format!("--end-with-parent={}", std::process::id()))
            .arg(folder.path().join(FILE))
            .env("XDG_RUNTIME_DIR", folder.path())
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn();
        let supervisor = started.map_err(|error| Error::Spawn(this, error))?;
        let mut system = Self { supervisor, folder };
        for name in components {
            system.wait_for(name, 1)?;
        }
        Ok(system)
    }

    /// Kills a component's guest.
    ///
    /// # Errors
    /// There is none.
    pub fn kill(&self, name: &str) -> Result<(), Error> {
        let failed = |error: io::Error| Error::Io("cannot kill a component", error);
        let path = self
            .folder()
            .join("outboard")
            .join(name)
            .join("instance.json");
        let description: Description = read(&path).map_err(failed)?;
        let guest = only_child(description.monitor).map_err(failed)?;
        let guest = Pid::from_raw(guest.cast_signed());
        let guest = guest.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        kill_process(guest, Signal::KILL).map_err(|errno| failed(errno.into()))
    }

    /// Has a component's guest leave, and its next instance begin.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn restart(&self, name: &str) -> Result<(), Error> {
        let failed = |error: io::Error| Error::Io("cannot restart a component", error);
        let mut command = self.outboard(&["restart", name])?;
        let restarted = command.stdout(Stdio::null()).status().map_err(failed)?;
        match restarted.success() {
            true => Ok(()),
            false => Err(Error::NotUp(name.to_owned(), "see above".to_owned())),
        }
    }

    /// A command of this program about these components.
    ///
    /// # Errors
    /// This program's file cannot be found.
    pub fn outboard(&self, words: &[&str]) -> Result<Command, Error> {
        let this =
            env::current_exe().map_err(|e| Error::Io("cannot find this program's file", e))?;
        let mut command = Command::new(this);
        command.args(words).env("XDG_RUNTIME_DIR", self.folder());
        Ok(command)
    }

    /// Where the files are, and others may be put.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until this run of a component, or a later one, is up.
    ///
    /// # Errors
    /// It does not come up.
    pub fn wait_for(&mut self, name: &str, run: u64) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let status: io::Result<Status> = read(&self.folder().join("outboard/.up/status.json"));
            let all = status.map_or_else(|_| Vec::new(), |status| status.components);
            let is_up = |one: &outboard::up::status::Component| {
                one.name == name && one.state == "up" && one.run >= run
            };
            if all.iter().any(is_up) {
                return Ok(());
            }
            let ended = self.supervisor.try_wait();
            if begin.elapsed() > PATIENCE || !matches!(ended, Ok(None)) {
                let said = fs::read_to_string(self.folder().join("said")).unwrap_or_default();
                let of_it = format!("outboard: {name}: ");
                let mut lines = said.lines().rev();
                let last = lines.find(|line| line.starts_with(&of_it));
                let last = last.unwrap_or("nothing was said of it");
                return Err(Error::NotUp(name.to_owned(), last.to_owned()));
            }
            sleep(POLL);
        }
    }
}

impl Drop for System {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.supervisor.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.supervisor.wait();
        let _ = fs::remove_dir_all(self.folder());
    }
}

/// Where named guests would be: in memory. What a guest shares with its host lies in a file, and
/// one on a disk takes milliseconds to begin and to end.
fn base() -> PathBuf {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let memory = runtime.into_iter().chain([PathBuf::from("/dev/shm")]);
    let found = memory.into_iter().find(|folder| folder.is_dir());
    found.unwrap_or_else(env::temp_dir)
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
