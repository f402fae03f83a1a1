//! The monitor: starts a tender as its child, passes signals and exit status on, says how the
//! guest ended, and leaves nothing behind.

mod console;
mod devices;
mod mtu;
mod named;
pub(crate) mod program;
mod request;
mod rules;
pub(crate) mod signals;
mod standby;
mod watch;

pub(crate) use named::hexadecimal;
pub use request::{CHOICES, Request, help};

use crate::capture;
use crate::ending::Ending;
use crate::instance::{self, Claim, Ended};
use crate::logs;
use crate::metrics::{self, Endpoint};
use crate::pci::{self, guard::Guard};
use crate::said;
use crate::share::SharedFile;
use crate::stats;
use crate::symbols;
use console::Console;
use linux::process::{self, Child};
use linux::signal::{Held, is_ignored};
use named::Named;
use rules::Told;
use rustix::io::Errno;
use rustix::process::Signal;
use signals::FORWARDED;
use standby::Standby;
use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::rc::Rc;
use std::{fmt, io};
use tender::core_file;
use tender::options::Options;

/// What the tender is called as a process: like the program that is nothing else.
const TENDER: &CStr = c"outboard-tender";

/// The option by which a tender says what its guest has.
const ANNOUNCE: &str = "--announce";

/// What stands in front of a line of a guest's console, among those of monitor and tender.
pub const CONSOLE: &str = "console: ";
/// How many lines of a console are said when its guest has ended.
const CONSOLE_LINES: usize = 20;

/// Why a guest was not started, or lost.
#[derive(Debug)]
pub enum Error {
    /// An option that there is not.
    Options(tender::options::Error),
    /// An option of the monitor without a value, or with one that is no text.
    Value {
        /// The option.
        key: &'static str,
        /// What it takes.
        placeholder: &'static str,
    },
    /// Frames cannot be captured.
    Capture(capture::Error),
    /// `--pci-bind` without a device to bind.
    NothingToBind,
    /// Devices cannot be taken or given back.
    Pci(pci::Error),
    /// The guest cannot begin with its rules.
    Rules(rules::Error),
    /// Counters cannot be served.
    Metrics(metrics::Error),
    /// Counters cannot be read.
    Stats(stats::Error),
    /// No shared file.
    Share(Errno),
    /// Nothing by which others find the guest.
    Instance(instance::Error),
    /// The console cannot be kept.
    Console(io::Error),
    /// Signals could not be held back.
    Signals(io::Error),
    /// A guest cannot stand by.
    Standby(io::Error),
    /// There is no process for the tender.
    Start(io::Error),
    /// The tender could not be waited for.
    Wait(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { key, placeholder } => {
                write!(f, "{key} needs a value: {key}={placeholder}")
            }
            Self::Options(e) => e.fmt(f),
            Self::NothingToBind => f.write_str(
                "--pci-bind: there is nothing to bind; add --pci:NAME=ADDRESS, or leave it away",
            ),
            Self::Pci(e) => e.fmt(f),
            Self::Capture(e) => e.fmt(f),
            Self::Rules(e) => e.fmt(f),
            Self::Metrics(e) => e.fmt(f),
            Self::Stats(e) => e.fmt(f),
            Self::Share(e) => write!(f, "no file in memory: {e}; is `ulimit -n` high enough?"),
            Self::Instance(e) => e.fmt(f),
            Self::Console(e) => write!(f, "the console cannot be kept: {e}; see `ulimit -n`"),
            Self::Signals(e) => write!(f, "cannot hold signals back: {e}"),
            Self::Standby(e) => write!(f, "a guest cannot stand by: {e}; see `ulimit -n`"),
            Self::Start(e) => write!(
                f,
                "no process for the tender: {e}; is /proc mounted, and `ulimit -u` high enough?"
            ),
            Self::Wait(e) => write!(f, "cannot wait for the tender: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Runs a guest to its end, reports on stderr how it ended if that was no success, and returns the
/// exit status to pass on.
///
/// # Errors
/// The guest was not started, or the monitor lost it. The tender's own errors are not among them:
/// it prints them itself and ends with status 1.
pub fn run(request: &Request) -> Result<u8, Error> {
    check(request)?;
    run_checked(request)
}

/// What [`run`] says of a command line before it starts anything.
///
/// # Errors
/// The guest cannot begin with its rules.
pub(crate) fn check(request: &Request) -> Result<(), Error> {
    if let Some(option) = &request.misplaced {
        said::line(format_args!("outboard: {}", misplaced(option)));
    }
    rules::check(&request.arguments).map_err(Error::Rules)
}

/// What is said of an option behind the image.
fn misplaced(option: &OsStr) -> String {
    format!(
        "warning: {} is the guest's own argument here: options come before the image; with -- in \
         front of the image, this is not said",
        option.to_string_lossy().escape_debug()
    )
}

/// The rest of [`run`].
///
/// # Errors
/// Those of [`run`] but what [`check`] says.
pub(crate) fn run_checked(request: &Request) -> Result<u8, Error> {
    let signals = hold_signals(request).map_err(Error::Signals)?;
    let told = Told::new(&request.arguments).map_err(Error::Rules)?;
    let endpoint = request.metrics.clone().map(Endpoint::bind).transpose();
    let mut endpoint = endpoint.map_err(Error::Metrics)?;
    let standby = request.standby.map(Standby::new);
    let standby = standby.transpose().map_err(Error::Standby)?;
    let mut named = Named::of(request).map_err(Error::Instance)?;
    let share = &*shared(named.as_ref())?;
    let mut options = vec![share.option(), ANNOUNCE.to_owned()];
    options.extend(named.iter().flat_map(Named::options));
    options.extend(standby.as_ref().map(Standby::option));
    let captures = request.captures.prepare(&request.arguments, share);
    let mut captures = captures.map_err(Error::Capture)?;
    let mut guard = devices::guard(request)?;
    let claim = named.as_ref().map(Named::claim);
    let console = Console::new(claim, request.captures.takes_stdout());
    let console = console.map_err(Error::Console)?;
    // Forked rather than started: two programs one after the other take too long to the guest's
    // first byte. That of the tender alone has nothing that is not in this one.
    let tender = process::fork(TENDER, &signals, || {
        if let Some(endpoint) = endpoint.take() {
            endpoint.disown();
        }
        captures.take();
        guard.take();
        if console.enter().is_err() {
            return abi::exit::FAILURE;
        }
        let ours = options.iter().map(OsString::from);
        tender::main(ours.chain(told.arguments.iter().cloned()))
    });
    let tender = tender.map_err(Error::Start)?;
    if let Some(standby) = standby
        && let Some(status) = stand_by(standby, &tender, &signals, named.as_mut())?
    {
        return Ok(Ending::new(status, share.report()).exit_status());
    }
    if let Some(guard) = &guard {
        guard.watch(&tender).map_err(Error::Pci)?;
    }
    let console = console.start().map_err(Error::Console)?;
    let captures = captures.map(capture::Prepared::start).transpose();
    let captures = captures.map_err(Error::Capture)?;
    let pid = tender.id();
    // Read only now, when no guest is waiting to be started. A tender that cannot read it, or was
    // asked for help, attaches nothing and says all there is to say.
    let options = tender_options(&request.arguments);
    let name = request.name.as_deref();
    let observe = |options| observe(endpoint.as_mut(), share, name, options, pid);
    let watching = options.as_ref().map(observe).transpose()?;
    let status = tender.attend(&signals).map_err(Error::Wait)?;
    drop(watching);
    console.finish();
    let claim = named.as_ref().map(Named::claim);
    say_console(claim.filter(|_| request.keeps_console));
    if let Some(captures) = captures {
        captures.finish();
    }
    if let Some(Err(error)) = guard.map(Guard::finish) {
        said::line(format_args!("outboard: {error}"));
    }
    let ending = Ending::new(status, share.report());
    let lines = options.map(|options| clean_up(&ending, share, &options, pid));
    if let Some(claim) = claim {
        let (status, lines) = (ending.exit_status(), lines.unwrap_or_default());
        claim.conclude(&Ended { status, lines });
    }
    Ok(ending.exit_status())
}

/// The shared file of a guest.
///
/// # Errors
/// It has no name, and there is none in memory.
fn shared(named: Option<&Named>) -> Result<Rc<SharedFile>, Error> {
    match named {
        Some(named) => Ok(named.claim().share()),
        None => Ok(Rc::new(SharedFile::anonymous().map_err(Error::Share)?)),
    }
}

/// Waits until a guest that stands by shall begin, and lets others find it. Returns how its tender
/// has ended, if it did before that.
///
/// # Errors
/// Nobody is left who could want it, or its name is taken.
fn stand_by(
    standby: Standby,
    tender: &Child,
    signals: &Held,
    named: Option<&mut Named>,
) -> Result<Option<ExitStatus>, Error> {
    let ended = standby.wait(tender, signals).map_err(Error::Wait)?;
    if ended.is_none() {
        let appeared = named.map_or(Ok(()), Named::appear);
        appeared.map_err(Error::Instance)?;
        standby.begin().map_err(Error::Standby)?;
    }
    Ok(ended)
}

/// Watches the guest of the tender `pid`, and what is around it, while what this returns is there.
///
/// # Errors
/// Its counters cannot be served.
fn observe(
    endpoint: Option<&mut Endpoint>,
    share: &SharedFile,
    name: Option<&str>,
    options: &Options,
    pid: u32,
) -> Result<Option<OwnedFd>, Error> {
    if let Some(endpoint) = endpoint {
        watch::serve(endpoint, share, name, options)?;
    }
    Ok(mtu::watch(share, options, pid))
}

/// Holds back what is for the guest, before anything is made that must be removed, and before the
/// tender starts: a signal that arrives early waits here. What whoever started this program told it
/// to ignore, the guest ignores too.
fn hold_signals(request: &Request) -> io::Result<Held> {
    let forwarded = FORWARDED.into_iter().filter(|signal| !is_ignored(*signal));
    // A capture or a console that nobody reads any more must not end the monitor.
    let pipe = (!request.captures.is_empty() || request.name.is_some()).then_some(Signal::PIPE);
    Held::new(forwarded.chain(pipe))
}

/// Removes what the tender `pid` has left behind, and says how its guest ended; returns that.
fn clean_up(ending: &Ending, share: &SharedFile, options: &Options, pid: u32) -> Vec<String> {
    tender::attach::cleanup(options, pid);
    let folder = options.dump_core.as_deref();
    let core_file = folder.and_then(|folder| core_file::left(folder, pid));
    let opened = core_file.map(|core_file| {
        let (image, core_file) = (options.image.display(), core_file.display());
        format!("core file: gdb {image} {core_file}")
    });
    let mut lines = last_words(ending, share, options);
    lines.extend(opened);
    for line in &lines {
        said::line(format_args!("outboard: {line}"));
    }
    lines
}

/// Says the last lines of a console on standard error.
fn say_console(claim: Option<&Claim>) {
    let kept = claim.and_then(|claim| claim.console().ok());
    let kept = kept.unwrap_or_default();
    for line in logs::last_lines(&kept, CONSOLE_LINES).lines() {
        said::line(format_args!("{CONSOLE}{line}"));
    }
}

/// What the tender will be told; `None` if it will complain, or only answer.
fn tender_options(arguments: &[OsString]) -> Option<Options> {
    match tender::options::parse(arguments.iter().cloned()) {
        Ok(tender::options::Request::Start(options)) => Some(*options),
        _ => None,
    }
}

/// What is said of a guest that has ended: what it counted, and how it ended.
fn last_words(ending: &Ending, share: &SharedFile, options: &Options) -> Vec<String> {
    let counted = match ending.was_asked_for() {
        true => watch::last_lines(share, options),
        false => Vec::new(),
    };
    let places = ending.report().map(|report| {
        let callers = report.backtrace.addresses();
        symbols::places(&options.image, report.instruction, callers)
    });
    let ended = ending.lines(&options.image, &places.unwrap_or_default());
    counted.into_iter().chain(ended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_behind_the_image_is_told_where_it_belongs() {
        let says = "warning: --rules=a.nft is the guest's own argument here: options come before \
                    the image; with -- in front of the image, this is not said";
        assert_eq!(misplaced(OsStr::new("--rules=a.nft")), says);
    }
}
