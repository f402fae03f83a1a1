//! A monitor's look at the rules that a guest is to begin with: it can say more of a mistake than
//! the guest, and before anything has started.

use crate::rules::source::{self, Source};

use nf::Loaded;
use nf::nft::Limits;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use tender::load;
use tender::options::Request;

/// Why a guest cannot begin with these rules.
#[derive(Debug)]
pub enum Error {
    /// No text.
    Source(source::Error),
    /// The text is no rules: what [`nf`] says of it, in several lines.
    Rules(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Rules(rendered) => write!(f, "no rules, nothing was started\n{rendered}"),
        }
    }
}

/// Checks the file of `--rules`, if there is one. Arguments that make no sense, and an image that
/// is none, are left for the tender to complain of.
///
/// # Errors
/// The file cannot be read, or is no rules.
pub(super) fn check(arguments: &[OsString]) -> Result<(), Error> {
    // Most guests begin without, and start-up counts.
    if !arguments
        .iter()
        .any(|a| a.as_bytes().starts_with(b"--rules="))
    {
        return Ok(());
    }
    let Ok(Request::Start(options)) = tender::options::parse(arguments.iter().cloned()) else {
        return Ok(());
    };
    let Some(path) = options.rules else {
        return Ok(());
    };
    let Ok((_, image)) = load::open(&options.image) else {
        return Ok(());
    };
    let source = Source::read(&path).map_err(Error::Source)?;
    let ports: Vec<_> = image.networks().map(|(_, name)| name).collect();
    match Loaded::load(&source.text, &ports, &Limits::DEFAULT) {
        Ok(_) => {
            crate::rules::warn(&source.into(), &ports);
            Ok(())
        }
        Err(error) => Err(Error::Rules(
            error.render(&source.name, &source.text).to_string(),
        )),
    }
}
