//! Three images under `outboard up`, in a network of their own.

use super::super::error::Error;
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

/// The components, in the order in which frames come to them.
pub const COMPONENTS: [&str; 3] = ["edge", "firewall", "stack"];
/// The address of the stack.
pub const STACK: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The tap that the edge is given.
pub const TAP: &str = "wan0";
/// How long components may take to be up, and what is ended to be gone.
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(1);

/// What passes the edge: everything.
const EDGE: &str = "table bridge edge {\n\tchain forward {\n\t\ttype filter hook forward priority \
                    filter; policy accept;\n\t}\n}\n";
/// What passes the firewall: connections to the service of the stack that were seen to begin.
const FIREWALL: &str = "define SERVICE = 7\n\ntable bridge filter {\n\tchain forward {\n\t\ttype \
                        filter hook forward priority filter; policy drop;\n\n\t\tether type arp \
                        accept\n\t\tct state established accept\n\t\tct state new tcp dport \
                        $SERVICE tcp flags & (fin | syn | rst | ack) == syn accept\n\t\tct \
                        state new udp dport $SERVICE accept\n\t}\n}\n";

/// Images of the components.
pub struct Images {
    pub edge: PathBuf,
    pub firewall: PathBuf,
    pub stack: PathBuf,
}

/// A system that is up; it ends with this.
pub struct System {
    folder: PathBuf,
    supervisor: Child,
}

impl System {
    /// Starts the components, with a spare each if they are to have some, in the network of this
    /// thread, which has to live as long as they do.
    ///
    /// # Errors
    /// They do not come up.
    pub fn start(images: &Images, spares: bool) -> Result<Self, Error> {
        let this =
            env::current_exe().map_err(|e| Error::Io("cannot find this program's file", e))?;
        let folder = base().join(format!("outboard-restart-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|e| Error::Io("cannot make a temporary directory", e))?;
        let said = write(&folder, images, spares).and_then(|()| File::create(folder.join("said")));
        let said = said.map_err(|e| Error::Io("cannot write a temporary file", e))?;
        let started = Command::new(&this)
            .arg("up")
            .arg(format!("--end-with-parent={}", std::process::id()))
            .arg(folder.join("system.toml"))
            .env("XDG_RUNTIME_DIR", &folder)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn();
        let supervisor = match started {
            Ok(supervisor) => supervisor,
            Err(error) => {
                let _ = fs::remove_dir_all(&folder);
                return Err(Error::Spawn(this, error));
            }
        };
        let mut system = Self { folder, supervisor };
        for name in COMPONENTS {
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
            .folder
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
        let mut command = Command::new(env::current_exe().map_err(failed)?);
        let command = command.args(["restart", name]);
        let command = command.env("XDG_RUNTIME_DIR", &self.folder);
        let restarted = command.stdout(Stdio::null()).status().map_err(failed)?;
        match restarted.success() {
            true => Ok(()),
            false => Err(Error::NotUp(name.to_owned(), "see above".to_owned())),
        }
    }

    /// Waits until this run of a component, or a later one, is up.
    ///
    /// # Errors
    /// It does not come up.
    pub fn wait_for(&mut self, name: &str, run: u64) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let status: io::Result<Status> = read(&self.folder.join("outboard/.up/status.json"));
            let all = status.map_or_else(|_| Vec::new(), |status| status.components);
            let is_up = |one: &outboard::up::status::Component| {
                one.name == name && one.state == "up" && one.run >= run
            };
            if all.iter().any(is_up) {
                return Ok(());
            }
            let ended = self.supervisor.try_wait();
            if begin.elapsed() > PATIENCE || !matches!(ended, Ok(None)) {
                let said = fs::read_to_string(self.folder.join("said")).unwrap_or_default();
                let last = said.lines().next_back().unwrap_or("nothing was said of it");
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
        let _ = fs::remove_dir_all(&self.folder);
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

/// Writes the file of the components, and their rules.
fn write(folder: &Path, images: &Images, spares: bool) -> io::Result<()> {
    let Images {
        edge,
        firewall,
        stack,
    } = images;
    let text = format!(
        "[component.stack]\nspare = {spares}\nimage = {stack:?}\nmemory = 64\narguments = \
         [\"--ipv4={STACK}/24\"]\nnet.service = \"link:inner\"\nstate.connections = \
         \"memory\"\n\n[component.firewall]\nspare = {spares}\nimage = \
         {firewall:?}\nmemory = 16\nrules = \"firewall.nft\"\nnet.private = \
         \"link:inner\"\nnet.public = \"link:outer\"\nstate.connections = \
         \"memory\"\n\n[component.edge]\nspare = {spares}\nimage = {edge:?}\nmemory = \
         16\nrules = \"edge.nft\"\nnet.private = \"link:outer\"\nnet.public = \
         \"tap:{TAP}\"\n"
    );
    fs::write(folder.join("system.toml"), text)?;
    fs::write(folder.join("edge.nft"), EDGE)?;
    fs::write(folder.join("firewall.nft"), FIREWALL)
}
