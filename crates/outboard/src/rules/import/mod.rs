//! `outboard rules import`: rules of a Linux machine as rules that an image takes, and what of them
//! was not taken.
//!
//! | module | what |
//! |---|---|
//! | `iptables` | from what `iptables-save` and `ip6tables-save` print to nft's language |
//! | `prune` | without what Outboard refuses, line by line |

mod iptables;
mod prune;
#[cfg(test)]
mod tests;

use super::{Ports, PortsError};
use rule_files::Source;
use std::path::PathBuf;
use std::{fmt, io};

/// `outboard rules import`.
#[derive(clap::Args)]
pub struct Arguments {
    /// What `iptables-save`, `ip6tables-save` or `nft list ruleset` has printed; - is standard
    /// input
    file: PathBuf,
    #[command(flatten)]
    ports: Ports,
}

/// Why nothing is imported.
#[derive(Debug)]
pub enum Error {
    /// No text.
    Source(rule_files::Error),
    /// No ports.
    Ports(PortsError),
    /// What is left of the text is no rules: the error as a compiler prints it.
    Refused(String),
    /// The rules cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(e) => e.fmt(f),
            Self::Ports(e) => e.fmt(f),
            Self::Refused(said) => write!(f, "nothing is imported: {said}"),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// A line of the source that has no counterpart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Left {
    /// From 1.
    line: usize,
    why: String,
}

/// A line in nft's language, and the line of the source that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    text: String,
    from: usize,
}

/// Prints the rules, and on standard error what was not taken. False if there was something.
///
/// # Errors
/// There is no text, or what is left of it is no rules.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let source = Source::read(&arguments.file).map_err(Error::Source)?;
    let ports = arguments.ports.names().map_err(Error::Ports)?;
    let (rules, left) = import(&source.text, &ports).map_err(Error::Refused)?;
    io::Write::write_all(&mut io::stdout().lock(), rules.as_bytes()).map_err(Error::Print)?;
    for Left { line, why } in &left {
        eprintln!("{}:{line}: not taken: {why}", source.name);
    }
    Ok(left.is_empty())
}

/// The rules of a text, and what was not taken, in the order of its lines.
fn import(text: &str, ports: &[&str]) -> Result<(String, Vec<Left>), String> {
    let is_saved = |line: &str| line.starts_with('*') || line.starts_with("-A ");
    let (lines, mut left) = match text.lines().any(is_saved) {
        true => iptables::translate(text),
        false => (prune::lines_of(text), Vec::new()),
    };
    let rules = prune::prune(lines, ports, &mut left)?;
    left.sort_by_key(|left| left.line);
    Ok((rules, left))
}
