//! A monitor's look at the rules that a guest is to begin with: it can say more of a mistake than
//! the guest, and before anything has started.

use nf::Loaded;
use nf::nft::Limits;
use rule_files::{Failure, Gathered};
use rustix::fs::MemfdFlags;
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use tender::load;
use tender::options::Request;

/// Why a guest cannot begin with these rules.
#[derive(Debug)]
pub enum Error {
    /// No text.
    Source(rule_files::Error),
    /// The text is no rules: what [`nf`] says of it, in several lines.
    Rules(String),
    /// What it includes cannot be put together.
    Memory(io::Error),
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Source(error) => Self::Source(error),
            Failure::Include(said) => Self::Rules(said),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Rules(rendered) => write!(f, "no rules, nothing was started\n{rendered}"),
            Self::Memory(e) => write!(
                f,
                "no file in memory for the rules and what they include: {e}; is `ulimit -n` high \
                 enough?"
            ),
        }
    }
}

/// What the option of rules begins with.
const OPTION: &[u8] = b"--rules=";

/// The file of `--rules`, if there is one. Arguments that make no sense are left for the tender to
/// complain of.
fn path(arguments: &[OsString]) -> Option<(PathBuf, PathBuf)> {
    // Most guests begin without, and start-up counts.
    if !arguments.iter().any(|a| a.as_bytes().starts_with(OPTION)) {
        return None;
    }
    match tender::options::parse(arguments.iter().cloned()) {
        Ok(Request::Start(options)) => Some((options.rules?, options.image)),
        _ => None,
    }
}

/// Checks the file of `--rules`, if there is one, and what it includes. An image that is none is
/// left for the tender to complain of.
///
/// # Errors
/// The file cannot be read, or is no rules.
pub(super) fn check(arguments: &[OsString]) -> Result<(), Error> {
    let Some((path, image)) = path(arguments) else {
        return Ok(());
    };
    let Ok((_, image)) = load::open(&image) else {
        return Ok(());
    };
    let gathered = Gathered::read(&path)?;
    let ports: Vec<_> = image.networks().map(|(_, name)| name).collect();
    match Loaded::load(gathered.whole.text(), &ports, &Limits::DEFAULT) {
        Ok(_) => {
            crate::rules::warn(&gathered, &ports);
            Ok(())
        }
        Err(error) => Err(Error::Rules(gathered.whole.render(&error))),
    }
}

/// What a tender is told, which reads one file: that of the rules, or one in memory with all that
/// it includes.
pub(super) struct Told<'a> {
    pub(super) arguments: Cow<'a, [OsString]>,
    /// To be open while the tender starts.
    _file: Option<File>,
}

impl<'a> Told<'a> {
    /// # Errors
    /// The rules cannot be read, or there is no memory for them.
    pub(super) fn new(arguments: &'a [OsString]) -> Result<Self, Error> {
        let mut told = Self {
            arguments: Cow::Borrowed(arguments),
            _file: None,
        };
        let Some((path, _)) = path(arguments) else {
            return Ok(told);
        };
        let gathered = Gathered::read(&path)?;
        if !gathered.whole.is_of_several() {
            return Ok(told);
        }
        let file = in_memory(gathered.whole.text()).map_err(Error::Memory)?;
        let option = format!("--rules=/proc/self/fd/{}", file.as_raw_fd());
        for argument in told.arguments.to_mut() {
            if argument.as_bytes().starts_with(OPTION) {
                *argument = option.clone().into();
            }
        }
        told._file = Some(file);
        Ok(told)
    }
}

fn in_memory(text: &str) -> io::Result<File> {
    let file = rustix::fs::memfd_create("outboard-rules", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(text.as_bytes())?;
    Ok(file)
}
