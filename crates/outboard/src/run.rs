//! The monitor: starts a tender as its child, passes signals and exit status on, says how the
//! guest ended, and leaves nothing behind.

use crate::ending::Ending;
use crate::share::{self, Share};
use rustix::process::{Pid, Signal};
use signal_hook::consts::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::{fmt, io};

/// The tender's executable.
const TENDER: &str = "outboard-tender";
/// Signals that are meant for the guest and passed on to the tender.
const FORWARDED: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

/// Why a guest was not started, or lost.
#[derive(Debug)]
pub enum Error {
    /// `--name` without a value, or with one that is no text.
    Name,
    /// No share file.
    Share(share::Error),
    /// Neither beside this program nor in PATH.
    NoTender,
    /// The tender was found and could not be started.
    Spawn(PathBuf, io::Error),
    /// The signal handlers could not be set up.
    Signals(io::Error),
    /// The tender could not be waited for.
    Wait(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(f, "--name needs a value: --name=NAME"),
            Self::Share(e) => e.fmt(f),
            Self::NoTender => write!(
                f,
                "{TENDER} is neither beside this program nor in PATH; in Outboard's repository: \
                 cargo install --path crates/outboard"
            ),
            Self::Spawn(path, e) => write!(f, "cannot start {}: {e}", path.display()),
            Self::Signals(e) => write!(f, "cannot handle signals: {e}"),
            Self::Wait(e) => write!(f, "cannot wait for {TENDER}: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// What to run: the command line behind `outboard run`.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The name under which others find the guest's share file.
    name: Option<String>,
    /// All else, for the tender.
    arguments: Vec<OsString>,
}

impl Request {
    /// Takes `--name` out of the options in front of the image and leaves all else untouched: what
    /// the options mean is the tender's to say, and what stands behind the image the guest's.
    ///
    /// # Errors
    /// `--name` has no value, or one that is no text.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let mut name = None;
        let mut options = Vec::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--name" {
                name = Some(text(arguments.next())?);
            } else if let Some(value) = argument.as_bytes().strip_prefix(b"--name=") {
                name = Some(text(Some(OsStr::from_bytes(value).to_owned()))?);
            } else {
                let last = argument == "--" || !argument.as_bytes().starts_with(b"-");
                options.push(argument);
                if last {
                    break;
                }
            }
        }
        options.extend(arguments);
        Ok(Self {
            name,
            arguments: options,
        })
    }
}

fn text(value: Option<OsString>) -> Result<String, Error> {
    value
        .ok_or(Error::Name)?
        .into_string()
        .map_err(|_| Error::Name)
}

/// Runs a guest to its end, reports on stderr how it ended if that was no success, and returns the
/// exit status to pass on.
///
/// # Errors
/// The guest was not started, or the monitor lost it. The tender's own errors are not among them:
/// it prints them itself and ends with status 1.
pub fn run(request: &Request) -> Result<u8, Error> {
    let share = match &request.name {
        Some(name) => Share::named(name),
        None => Share::anonymous(),
    };
    let share = share.map_err(Error::Share)?;
    // Before the tender starts, so that no signal falls between: one that arrives early waits here.
    let signals = Signals::new(handled()).map_err(Error::Signals)?;
    let tender = spawn(request, &share)?;
    let pid = tender.id();
    let status = attend(tender, signals)?;
    let ending = Ending::new(status, share.report());
    // Read only now, when no guest is waiting to be started. A tender that could not read it, or was
    // asked for help, has attached nothing and said all there is to say.
    let arguments = request.arguments.iter().cloned();
    if let Ok(tender::options::Request::Start(options)) = tender::options::parse(arguments) {
        tender::attach::cleanup(&options, pid);
        for line in ending.lines(&options.image) {
            eprintln!("outboard: {line}");
        }
    }
    Ok(ending.exit_status())
}

/// Starts the tender that was installed with this program, else the first one in PATH.
fn spawn(request: &Request, share: &Share) -> Result<Child, Error> {
    let beside = std::env::current_exe()
        .ok()
        .map(|path| path.with_file_name(TENDER));
    for path in beside.into_iter().chain([PathBuf::from(TENDER)]) {
        let started = Command::new(&path)
            .arg(share.option())
            .arg(format!("--die-with-parent={}", std::process::id()))
            .args(&request.arguments)
            .spawn();
        match started {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(|e| Error::Spawn(path, e)),
        }
    }
    Err(Error::NoTender)
}

/// Passes signals on to the tender until it has ended.
fn attend(mut tender: Child, mut signals: Signals) -> Result<ExitStatus, Error> {
    let pid = Pid::from_child(&tender);
    loop {
        for signal in signals.wait() {
            if signal == SIGCHLD {
                if let Some(status) = tender.try_wait().map_err(Error::Wait)? {
                    return Ok(status);
                }
            } else if let Some(signal) = Signal::from_named_raw(signal) {
                // The pid is the tender's until it is waited for, so this reaches no one else; a
                // tender that has just ended no longer minds.
                let _ = rustix::process::kill_process(pid, signal);
            }
        }
    }
}

/// The signals to handle: a child's end, and those of [`FORWARDED`] that whoever started this
/// program did not tell it to ignore (as `nohup` and the shell's `&` do).
fn handled() -> impl Iterator<Item = i32> {
    // One read: the file is made anew for each, and SigIgn stands in the first 2 KiB.
    let mut status = [0; 4096];
    let read = File::open("/proc/self/status").and_then(|mut file| file.read(&mut status));
    let ignored = ignored(&status[..read.unwrap_or(0)]);
    let forwarded = FORWARDED
        .into_iter()
        .filter(move |signal| ignored & bit(*signal) == 0);
    forwarded.chain([SIGCHLD])
}

/// The set of ignored signals in `/proc/PID/status`, bit 0 for signal 1 (proc_pid_status(5)).
fn ignored(status: &[u8]) -> u64 {
    let status = String::from_utf8_lossy(status);
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn parsed(words: &str) -> (Option<String>, String) {
        let request = Request::parse(words.split_whitespace().map(OsString::from)).unwrap();
        let arguments: Vec<_> = request
            .arguments
            .iter()
            .map(|a| a.to_str().unwrap())
            .collect();
        (request.name, arguments.join(" "))
    }

    #[test]
    fn arguments_reach_the_tender_untouched() {
        for words in [
            "--mem=16 --net:a=tap0 fw.spt --mem=3 -- x --name=y",
            "--host=process -- --name=odd.spt x",
            "--mem=16 --",
            "",
        ] {
            assert_eq!(parsed(words), (None, words.into()));
        }
    }

    #[test]
    fn the_name_is_the_monitors_own() {
        let expected = (Some("n".into()), "--mem=16 fw.spt --name a".into());
        assert_eq!(parsed("--name=n --mem=16 fw.spt --name a"), expected);
        assert_eq!(parsed("--mem=16 --name n fw.spt --name a"), expected);
    }

    #[test]
    fn a_name_has_a_value() {
        assert!(matches!(
            Request::parse(["--name".into()]),
            Err(Error::Name)
        ));
    }

    #[test]
    fn ignored_signals_are_found() {
        let status = b"Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), bit(SIGHUP) | bit(13));
        assert_eq!(ignored(b"SigIgn:\tnonsense"), 0);
        assert_eq!(ignored(b""), 0);
    }

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn an_end_is_seen_with_its_status() {
        let signals = Signals::new([SIGCHLD]).unwrap();
        assert_eq!(attend(shell("exit 7"), signals).unwrap().code(), Some(7));
    }

    #[test]
    fn a_signal_that_came_before_the_tender_is_passed_on() {
        let signals = Signals::new([SIGCHLD, SIGUSR1]).unwrap();
        rustix::process::kill_process(rustix::process::getpid(), Signal::USR1).unwrap();
        let status = attend(shell("exec cat /dev/zero >/dev/null"), signals).unwrap();
        assert_eq!(status.signal(), Some(SIGUSR1));
    }
}
