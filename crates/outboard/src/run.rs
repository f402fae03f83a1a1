//! The monitor: starts a tender as its child, passes signals and exit status on, says how the
//! guest ended, and leaves nothing behind.

use crate::ending::Ending;
use crate::share::{self, Share};
use rustix::process::Signal;
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::{fmt, io};
use tender::sys::process;
use tender::sys::signal::{Held, is_ignored};

/// What the tender is called as a process: like the program that is nothing else.
const TENDER: &CStr = c"outboard-tender";
/// Signals that are meant for the guest and passed on to the tender.
const FORWARDED: [Signal; 6] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
];

/// Why a guest was not started, or lost.
#[derive(Debug)]
pub enum Error {
    /// `--name` without a value, or with one that is no text.
    Name,
    /// No share file.
    Share(share::Error),
    /// Signals could not be held back.
    Signals(io::Error),
    /// There is no process for the tender.
    Start(io::Error),
    /// The tender could not be waited for.
    Wait(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(f, "--name needs a value: --name=NAME"),
            Self::Share(e) => e.fmt(f),
            Self::Signals(e) => write!(f, "cannot hold signals back: {e}"),
            Self::Start(e) => write!(
                f,
                "no process for the tender: {e}; is /proc mounted, and `ulimit -u` high enough?"
            ),
            Self::Wait(e) => write!(f, "cannot wait for the tender: {e}"),
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
    // What whoever started this program told it to ignore, the guest ignores too.
    let forwarded = FORWARDED.into_iter().filter(|signal| !is_ignored(*signal));
    let signals = Held::new(forwarded).map_err(Error::Signals)?;
    // Forked rather than started: two programs one after the other take too long to the guest's
    // first byte. That of the tender alone has nothing that is not in this one.
    let tender = process::fork(TENDER, &signals, || {
        let share = OsString::from(share.option());
        tender::main([share].into_iter().chain(request.arguments.iter().cloned()))
    });
    let tender = tender.map_err(Error::Start)?;
    let pid = tender.id();
    let status = tender.attend(&signals).map_err(Error::Wait)?;
    let ending = Ending::new(status, share.report());
    // Read only now, when no guest is waiting to be started. A tender that could not read it, or
    // was asked for help, has attached nothing and said all there is to say.
    let arguments = request.arguments.iter().cloned();
    if let Ok(tender::options::Request::Start(options)) = tender::options::parse(arguments) {
        tender::attach::cleanup(&options, pid);
        for line in ending.lines(&options.image) {
            eprintln!("outboard: {line}");
        }
    }
    Ok(ending.exit_status())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
