//! `outboard logs`: the last lines of a guest's console, and how it ended if it has.
//!
//! | module | what |
//! |---|---|
//! | [`mod@line`] | what a rule has logged |

pub mod line;

use crate::instance::{self, Instance};
use crate::stats::table::printable;
use crate::stop;
use crate::up::cores;
use crate::up::place::Place;
use crate::up::status::{End, Status};
use line::Line;
use std::{fmt, io};

/// `outboard logs`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name under which the guest runs
    instance: String,
    /// How many lines, the last ones
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    lines: usize,
    /// Only what rules have logged
    #[arg(long)]
    rules: bool,
    /// What rules have logged, a line of JSON for each
    #[arg(long)]
    json: bool,
    /// What was said at the last ten ends of a component of `outboard up`, the oldest first
    #[arg(long, conflicts_with_all = ["lines", "rules", "json"])]
    ends: bool,
}

/// Why there are no lines.
#[derive(Debug)]
pub enum Error {
    /// No such instance.
    Instance(instance::Error),
    /// What was kept cannot be read.
    Read(io::Error),
    /// What was kept cannot be printed.
    Print(io::Error),
    /// No component of a system has this name.
    NoComponent(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e @ instance::Error::Unknown { name, .. }) => write!(
                f,
                "{e}; one that has ended said all there is to say where it was started: in that \
                 terminal, or in: journalctl -u outboard@{name}"
            ),
            Self::Instance(e) => e.fmt(f),
            Self::Read(e) => write!(f, "cannot read the console: {e}; is it another user's?"),
            Self::Print(e) => write!(f, "cannot print: {e}"),
            Self::NoComponent(name) => write!(
                f,
                "no component is called {name}; type: outboard ps, and outboard logs {name} for a \
                 guest of outboard run"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// Prints the last lines of a guest's console, and on standard error how it ended if it has.
///
/// # Errors
/// There is no such guest, or its console cannot be read.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    if arguments.ends {
        let text = ends(&arguments.instance)?;
        return io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print);
    }
    let instance = Instance::open(&arguments.instance).map_err(Error::Instance)?;
    // Before the console: it is gone when the monitor has removed it.
    let mut ending = instance.ending().map_err(Error::Instance)?;
    let kept = instance.console().map_err(Error::Read)?;
    let text = match arguments.rules || arguments.json {
        true => rule_lines(&kept, arguments.lines, arguments.json).map_err(Error::Print)?,
        false => last_lines(&kept, arguments.lines),
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)?;
    if !instance.is_running().map_err(Error::Instance)? {
        let ended = instance::read_ending(&mut ending).unwrap_or_default();
        eprint!("{}", stop::describe(instance.name(), ended.as_ref()));
    }
    Ok(())
}

/// What was said of the last runs of a component that have ended, each under a line with its cause.
fn ends(name: &str) -> Result<String, Error> {
    let place = Place::find().map_err(Error::Instance)?;
    let none = || Error::NoComponent(name.escape_debug().to_string());
    let status = Status::read(&place).ok_or_else(none)?;
    let mut components = status.components.into_iter();
    let component = components.find(|one| one.name == name).ok_or_else(none)?;
    let end = |end: &End| {
        let (run, cause) = (end.run, printable(&end.cause));
        let said = place.read_report(name, run);
        let said = last_lines(&said, usize::MAX);
        let lines = said.lines().filter(|line| !cores::is_gone(&place, line));
        let said: String = lines.map(|line| format!("{line}\n")).collect();
        format!("run {run}: {cause}\n{said}")
    };
    Ok(component.ends.iter().map(end).collect())
}

/// The last `count` lines of what a guest wrote, fit for a terminal.
pub(crate) fn last_lines(console: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(console);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(count)..];
    last.iter().map(|line| printable(line) + "\n").collect()
}

/// The last `count` lines that rules have logged, as they are or as JSON.
fn rule_lines(console: &[u8], count: usize, json: bool) -> io::Result<String> {
    let text = String::from_utf8_lossy(console);
    let lines = text
        .lines()
        .filter_map(|text| Some((text, Line::parse(text)?)));
    let lines: Vec<_> = lines.collect();
    let last = &lines[lines.len().saturating_sub(count)..];
    let shown = last.iter().map(|(text, line)| {
        let line = match json {
            true => serde_json::to_string(line)?,
            false => printable(text),
        };
        Ok(line + "\n")
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_one_that_is_gone_learns_where_its_last_words_are() {
        let unknown = instance::Error::Unknown {
            name: "fw".to_owned(),
            base: "/run/outboard".into(),
            running: Vec::new(),
        };
        let says = "no guest is called fw, and none runs under a name in /run/outboard; start one \
                    with: outboard run --name=fw ...; one that has ended said all there is to say \
                    where it was started: in that terminal, or in: journalctl -u outboard@fw";
        assert_eq!(Error::Instance(unknown).to_string(), says);
    }

    #[test]
    fn lines_of_rules_are_told_apart_from_others() {
        let logged = |rule| {
            format!(
                "log prefix=\"x\" rule={rule} in=a out=b ether=0x0806 src=02:00:00:00:00:01 \
                 dst=ff:ff:ff:ff:ff:ff len=60\n"
            )
        };
        let console = format!("ready\n{}log nonsense\n{}", logged(1), logged(2));
        let shown = |count, json| rule_lines(console.as_bytes(), count, json).unwrap();
        assert_eq!(shown(9, false), logged(1) + &logged(2));
        assert_eq!(shown(1, false), logged(2));
        let json = shown(1, true);
        assert!(
            json.starts_with("{\"suppressed\":0,\"prefix\":\"x\",\"rule\":2,"),
            "{json}"
        );
        assert_eq!(shown(0, true), "");
    }

    #[test]
    fn the_last_lines_are_shown_and_obeyed_by_no_terminal() {
        assert_eq!(last_lines(b"", 5), "");
        assert_eq!(last_lines(b"a\nb\nc", 2), "b\nc\n");
        assert_eq!(last_lines(b"a\nb\n", 5), "a\nb\n");
        assert_eq!(last_lines(b"a\n", 0), "");
        assert_eq!(last_lines(b"\x1b[2J\xff\n", 1), "\\u{1b}[2J\u{fffd}\n");
    }
}
