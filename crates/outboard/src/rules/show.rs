//! `outboard rules show`: the rules that a guest has in force, with what they have counted, or the
//! file that they were read from.

use crate::instance::{self, Instance};
use crate::stats::reader::Reader;
use crate::stats::{self, table};
use abi::extension::feature;
use std::io::IsTerminal;
use std::{fmt, io};

/// `outboard rules show`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name under which the guest runs
    instance: String,
    /// Print JSON: the object `rules` of `outboard stats --json`
    #[arg(long)]
    json: bool,
    /// Print the file in force instead, with its sets, definitions and comments: what `outboard
    /// rules load` was given, or what the image comes with
    #[arg(long, conflicts_with = "json")]
    source: bool,
}

/// Why there is nothing to show.
#[derive(Debug)]
pub enum Error {
    /// No such instance.
    Instance(instance::Error),
    /// The counters cannot be read.
    Stats(stats::Error),
    /// The guest's image takes no rules.
    NotTaken(String),
    /// The guest has no rules in force yet.
    NotYet(String),
    /// The file in force is not known, and why.
    NoSource(String, &'static str),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Stats(e) => e.fmt(f),
            Self::NotTaken(name) => write!(
                f,
                "{name} takes no rules; what it counts shows: outboard stats {name}"
            ),
            Self::NotYet(name) => write!(
                f,
                "{name} has no rules in force yet: it was started a moment ago; try again"
            ),
            Self::NoSource(name, why) => write!(
                f,
                "{name}: the text of its rules is not known: {why}; give it a file: outboard rules \
                 load {name} FILE"
            ),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Prints the rules that a guest has in force.
///
/// # Errors
/// There is no such guest, it takes no rules, or the file of its rules is not known.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let instance = Instance::open(&arguments.instance).map_err(Error::Instance)?;
    let name = || instance.name().to_owned();
    if instance.description().features & feature::RULES == 0 {
        return Err(Error::NotTaken(name()));
    }
    let mut reader = Reader::of(&instance).map_err(Error::Stats)?;
    let rules = reader.snapshot().map_err(Error::Stats)?.rules;
    let rules = rules.ok_or_else(|| Error::NotYet(name()))?;
    let text = if arguments.source {
        let text = reader.text().map_err(Error::Stats)?;
        let text = text.map_err(|why| Error::NoSource(name(), why))?;
        fit(text, io::stdout().is_terminal())
    } else if arguments.json {
        serde_json::to_string_pretty(&rules).map_err(|e| Error::Print(e.into()))? + "\n"
    } else {
        let file = format!("the file itself: outboard rules show {} --source\n", name());
        table::rules(&rules, None) + &file
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)
}

/// A file as it is, but for what a terminal would obey.
fn fit(text: String, for_terminal: bool) -> String {
    if !for_terminal {
        return text;
    }
    let is_blank = |c| matches!(c, '\n' | '\t');
    let pieces = text.split_inclusive(is_blank).map(|piece| {
        let word = piece.trim_end_matches(is_blank);
        table::printable(word) + &piece[word.len()..]
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_printed_as_it_is_and_obeyed_by_no_terminal() {
        let file = "table bridge t {\n\tchain c { }\n}\r\n\n# \x1b[2J";
        assert_eq!(fit(file.to_owned(), false), file);
        let shown = "table bridge t {\n\tchain c { }\n}\\r\n\n# \\u{1b}[2J";
        assert_eq!(fit(file.to_owned(), true), shown);
    }

    #[test]
    fn what_cannot_be_shown_says_what_to_do() {
        for (error, says) in [
            (
                Error::NotTaken("fw".to_owned()),
                "fw takes no rules; what it counts shows: outboard stats fw",
            ),
            (
                Error::NotYet("fw".to_owned()),
                "fw has no rules in force yet: it was started a moment ago; try again",
            ),
            (
                Error::NoSource("fw".to_owned(), "the text is not UTF-8"),
                "fw: the text of its rules is not known: the text is not UTF-8; give it a file: \
                 outboard rules load fw FILE",
            ),
        ] {
            assert_eq!(error.to_string(), says);
        }
    }
}
