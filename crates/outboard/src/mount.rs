//! `outboard mount`: the file system of a disk, for the programs of this machine.

use ::mount::disk::HostDisk;
use ::mount::mount;
use abi::exit;
use fs::disk::{BUDGET, Disk};
use linux::namespace;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::flag;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::{error, fmt, io};

const EXAMPLES: &str = "\
For root, or with fusermount3, until somebody types umount or Ctrl-C:
  outboard mount disk.img folder
For anybody, in namespaces of its own, for as long as a program runs:
  outboard mount disk.img folder -- sh -c 'ls -l folder'";

/// Mount the file system of a disk by the code that images have: ext2 and FAT to read and write,
/// ext3, ext4 and ISO 9660 to read
///
/// It is the disk's own, or that of its first partition with one. Nobody else writes the disk
/// meanwhile. With a program, it lasts as long as that, and only that program sees it, if an
/// ordinary user types it; the exit status is the program's.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// A file or a block device
    image: PathBuf,
    /// An empty folder
    folder: PathBuf,
    /// Only read it
    #[arg(long)]
    read_only: bool,
    /// A program to run with it, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Why it is not mounted.
#[derive(Debug)]
pub enum Error {
    /// The disk cannot be had.
    Disk(PathBuf, io::Error),
    /// There are no namespaces for an ordinary user.
    Namespace(Box<dyn error::Error>),
    /// It has no file system, or the kernel does not mount it.
    Mount(PathBuf, io::Error),
    /// The program cannot be started.
    Start(OsString, io::Error),
    /// What was written last may not be there.
    Write(io::Error),
    /// Signals cannot be caught.
    System(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(path, error) if error.kind() == io::ErrorKind::WouldBlock => write!(
                f,
                "{}: another program has this disk; end that one, or add --read-only to both",
                path.display()
            ),
            Self::Disk(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Namespace(error) => write!(
                f,
                "{error}; run it as root, or install fusermount3 and leave the program out"
            ),
            Self::Mount(folder, error) if error.raw_os_error() == denied() => write!(
                f,
                "{}: {error}; run it as root, install fusermount3 (sudo apt-get install fuse3), or \
                 add a program: -- sh",
                folder.display()
            ),
            Self::Mount(folder, error) => write!(f, "{}: {error}", folder.display()),
            Self::Start(program, error) => write!(f, "{}: {error}", program.display()),
            Self::Write(error) => write!(f, "what was written last may be lost: {error}"),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl error::Error for Error {}

fn denied() -> Option<i32> {
    Some(Errno::PERM.raw_os_error())
}

/// Serves the file system until it is over; the exit status.
///
/// # Errors
/// It cannot be mounted, or what was written be lost.
pub fn run(arguments: &Arguments) -> Result<i32, Error> {
    // Before there is a second thread: a user's namespace is for processes that have one.
    if !arguments.command.is_empty() && !rustix::process::geteuid().is_root() {
        namespace::enter_user().map_err(|error| Error::Namespace(error.into()))?;
        linux::mounts::unshare_mounts().map_err(|error| Error::Namespace(error.into()))?;
    }
    let disk = match arguments.read_only {
        true => HostDisk::open_to_read(&arguments.image),
        false => HostDisk::open(&arguments.image),
    };
    let failed = |error| Error::Disk(arguments.image.clone(), error);
    let disk = Disk::new(Box::new(disk.map_err(failed)?), BUDGET);
    let disk = disk.map_err(|error| failed(io::Error::other(error)))?;
    let source = arguments.image.display().to_string();
    let mounted = mount(&disk, !arguments.read_only, &arguments.folder, &source)
        .map_err(|error| Error::Mount(arguments.folder.clone(), error))?;
    let came = Signals::new().map_err(Error::System)?;
    let Some((program, rest)) = arguments.command.split_first() else {
        let access = if mounted.is_writable { "" } else { ", to read" };
        println!("{}: {}{access}", arguments.folder.display(), mounted.name);
        let served = mounted.serve(|| came.take().next().is_some());
        return served.map(|()| exit::SUCCESS).map_err(Error::Write);
    };
    let (program, waiter) = started(Command::new(program).args(rest))
        .map_err(|error| Error::Start(program.clone(), error))?;
    let served = mounted.serve(|| {
        // What a terminal sends, it sends to the program as well.
        for signal in came.take().filter(|signal| *signal != Signal::INT) {
            // One that has just ended no longer minds.
            let _ = pidfd_send_signal(&program, signal);
        }
        waiter.is_finished()
    });
    let status = waiter
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("gone")));
    let status = status.map_err(Error::System)?;
    served.map_err(Error::Write)?;
    Ok(as_shells_say(status))
}

/// A program that runs, and a thread that waits for it: who serves it does not.
fn started(command: &mut Command) -> io::Result<(OwnedFd, JoinHandle<io::Result<ExitStatus>>)> {
    let mut child = command.spawn()?;
    let program = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    Ok((program, thread::spawn(move || child.wait())))
}

/// Signals that end this program, or the one that it has started.
struct Signals([(Signal, Arc<AtomicBool>); 3]);

impl Signals {
    fn new() -> io::Result<Self> {
        let signals = [Signal::INT, Signal::TERM, Signal::HUP];
        let signals = signals.map(|signal| (signal, Arc::default()));
        for (signal, came) in &signals {
            flag::register(signal.as_raw(), Arc::clone(came))?;
        }
        Ok(Self(signals))
    }

    /// Those that have come since this was asked last.
    fn take(&self) -> impl Iterator<Item = Signal> {
        let came = self
            .0
            .iter()
            .filter(|(_, came)| came.swap(false, Ordering::Relaxed));
        came.map(|(signal, _)| *signal)
    }
}

fn as_shells_say(status: ExitStatus) -> i32 {
    let signal = status.signal().map(|signal| exit::SIGNAL_BASE + signal);
    status.code().or(signal).unwrap_or(exit::FAILURE)
}
