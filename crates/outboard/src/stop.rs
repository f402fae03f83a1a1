//! `outboard stop`: asks a guest's monitor to end it, and says how it ended.

use crate::instance::{self, Ended, Instance};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// How long a guest may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// `outboard stop`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name under which the guest runs
    instance: String,
}

/// Why a guest was not ended.
#[derive(Debug)]
pub enum Error {
    /// No such instance, or none that runs.
    Instance(instance::Error),
    /// The monitor is another user's.
    Permission(String),
    /// Signals cannot be sent, or ends not be waited for.
    System(io::Error),
    /// The guest runs on; its monitor's process id.
    Stuck(String, u32),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Permission(name) => write!(
                f,
                "{name} is another user's; type: {} $(command -v outboard) stop {name}",
                instance::sudo()
            ),
            Self::System(e) => write!(f, "cannot ask for the end: {e}"),
            Self::Stuck(name, pid) => write!(
                f,
                "{name} was asked to end {} s ago and has not; type: kill -KILL {pid}",
                PATIENCE.as_secs()
            ),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Ends a guest and prints how it ended.
///
/// # Errors
/// It did not end within ten seconds, or was not there.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let instance = Instance::open(&arguments.instance).map_err(Error::Instance)?;
    let name = instance.name().to_owned();
    let gone = || Error::Instance(instance::Error::Ended(name.clone()));
    let pid = instance.description().monitor;
    let monitor = Pid::from_raw(pid.cast_signed()).ok_or_else(gone)?;
    let monitor = match pidfd_open(monitor, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Err(gone()),
        opened => opened.map_err(|errno| Error::System(errno.into()))?,
    };
    let mut ending = instance.ending().map_err(Error::Instance)?;
    // The monitor holds its guest's lock. As long as somebody does, the process that was opened
    // before is the monitor, and no later one with its number.
    if !instance.is_running().map_err(Error::Instance)? {
        return Err(gone());
    }
    match pidfd_send_signal(&monitor, Signal::TERM) {
        Err(Errno::PERM) => return Err(Error::Permission(name)),
        Err(Errno::SRCH) | Ok(()) => {}
        Err(errno) => return Err(Error::System(errno.into())),
    }
    if !wait(&monitor)? {
        return Err(Error::Stuck(name, pid));
    }
    let ended = instance::read_ending(&mut ending).unwrap_or_default();
    let text = describe(&name, ended.as_ref());
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)
}

/// Whether the process ends within [`PATIENCE`].
fn wait(process: &OwnedFd) -> Result<bool, Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut ends = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut ends, Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) if !left.is_zero() => {}
            Err(errno) => return Err(Error::System(errno.into())),
        }
    }
}

/// How a guest ended, as far as its monitor says, in lines.
pub fn describe(name: &str, ended: Option<&Ended>) -> String {
    match ended {
        None => format!(
            "{name} has ended, and its monitor left no word of how: the monitor was killed; \
             perhaps for want of memory: journalctl -k\n"
        ),
        Some(Ended { status, lines }) => {
            let lines = lines.iter().map(|line| format!("{line}\n"));
            format!(
                "{}{name} has ended with status {status}\n",
                lines.collect::<String>()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_with_the_monitors_words() {
        let ended = Ended {
            status: 143,
            lines: vec!["the guest was ended by SIGTERM".into()],
        };
        assert_eq!(
            describe("fw", Some(&ended)),
            "the guest was ended by SIGTERM\nfw has ended with status 143\n"
        );
        let says = "fw has ended, and its monitor left no word of how: the monitor was killed; \
                    perhaps for want of memory: journalctl -k\n";
        assert_eq!(describe("fw", None), says);
    }
}
