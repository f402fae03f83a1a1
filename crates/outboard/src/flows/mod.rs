//! `outboard flows`: the connections that a guest tracks.
//!
//! | module | what |
//! |---|---|
//! | [`flow`] | what a guest says of one, checked, and what JSON says of it |
//! | [`filter`] | which ones are meant, in the words of nft |
//! | [`table`], [`talkers`] | for people; summed up by who began them |
//! | [`watch`] | what becomes of them |
//! | [`mod@file`] | in a file |

pub mod file;
pub mod filter;
pub mod flow;
pub mod table;
pub mod talkers;
pub mod watch;

use crate::inquiry::{self, Inquiry};
use crate::instance::{self, Instance};
use crate::stats;
use crate::stats::raw::Raw;
use abi::extension::feature;
use abi::flows::{NAMES_MAX, Name};
use abi::inquiry::Subject;
use abi::share::CONNECTION_COUNTERS;
use filter::Filter;
use flow::Line;
use nf::conntrack::Entry;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io};
use talkers::{By, Talker};
use watch::{Event, Seen};
use zerocopy::IntoBytes;

/// Version of the JSON; it goes up when a field goes or changes its meaning.
const VERSION: u32 = 1;
/// Shortest pause between two looks of `--watch`.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause is at least so many times as long as the look before: a guest with a million
/// connections is asked for a fifth of the time at most.
const PAUSE_FACTOR: u32 = 4;

/// `outboard flows`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name under which the guest runs; or a file that --export has written, with a slash in
    /// its path, as in ./gw.jsonl
    #[arg(value_name = "NAME")]
    source: String,
    /// Which connections, in the words of nft, as in: ip saddr 10.0.0.2 tcp dport 443; all without
    /// words
    words: Vec<String>,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["flush", "export"])]
    json: bool,
    /// Print a line for each that begins, changes its state, or ends, until the guest ends
    #[arg(long, conflicts_with_all = ["flush", "export", "top"])]
    watch: bool,
    /// End them: what comes behind is judged as the first packet of a connection
    #[arg(long, conflicts_with_all = ["export", "top"])]
    flush: bool,
    /// Write them to a file, a line of JSON for each; - is standard output
    #[arg(long, value_name = "FILE", conflicts_with = "top")]
    export: Option<PathBuf>,
    /// Sum them up by who began them, and show those who talk most: ten, or so many
    #[arg(
        long,
        value_name = "NUMBER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "10"
    )]
    top: Option<usize>,
    /// What --top puts them in order by
    #[arg(long, value_enum, default_value = "bytes", requires = "top")]
    by: By,
}

/// Why there is nothing to show.
#[derive(Debug)]
pub enum Error {
    /// No such guest.
    Instance(instance::Error),
    /// The words are no conditions.
    Filter(filter::Error),
    /// The counters cannot be read.
    Stats(stats::Error),
    /// The guest's image takes no rules.
    NoRules(String),
    /// Its rules ask for no connections.
    NotTracked(String),
    /// The guest has not answered.
    Inquiry(inquiry::Error),
    /// A file of connections cannot be read.
    File(PathBuf, file::Error),
    /// It cannot be written.
    Write(PathBuf, io::Error),
    /// A file has no connections that could change or end.
    OnlyRead(PathBuf),
    /// What was read cannot be printed.
    Print(io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Filter(e) => e.fmt(f),
            Self::Stats(e) => e.fmt(f),
            Self::NoRules(name) => write!(
                f,
                "{name} takes no rules, and tracks no connections; the firewall and the router do. \
                 Its sockets, if it has any, shows: outboard sockets {name}"
            ),
            Self::NotTracked(name) => write!(
                f,
                "the rules of {name} ask for no connections; a rule such as \
                 ct state established accept does"
            ),
            Self::Inquiry(e) => e.fmt(f),
            Self::File(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Write(path, e) => write!(
                f,
                "cannot write to {}: {e}; name a file in a folder of yours",
                path.display()
            ),
            Self::OnlyRead(path) => write!(
                f,
                "{} is a file: --watch and --flush are for guests that run",
                path.display()
            ),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<Vec<Line>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    talkers: Option<Vec<Talker>>,
}

/// What `--watch --json` prints, each in a line.
#[derive(Serialize)]
struct Change {
    event: Event,
    flow: Line,
}

/// Shows the connections of a guest, ends some, or writes them down.
///
/// # Errors
/// There is no such guest, it tracks none, or it does not answer.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let filter = Filter::new(&arguments.words).map_err(Error::Filter)?;
    let (name, flows) = match arguments.source.contains('/') {
        true => from_file(arguments)?,
        false => {
            let instance = Instance::open(&arguments.source).map_err(Error::Instance)?;
            check(&instance)?;
            if arguments.watch {
                return watch(&instance, &filter, arguments.json);
            }
            let inquiry = Inquiry::begin(&instance).map_err(Error::Inquiry)?;
            let flows = list(&inquiry, &filter)?;
            if arguments.flush {
                let (ended, found) = (end(&inquiry, &flows)?, flows.len());
                return print(&format!("{}: {ended} of {found} ended\n", instance.name()));
            }
            (instance.name().to_owned(), flows)
        }
    };
    let flows: Vec<_> = flows.into_iter().filter(|one| filter.means(one)).collect();
    if let Some(path) = &arguments.export {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        let written = file::write(path, &name, now, &flows);
        return written.map_err(|e| Error::Write(path.clone(), e));
    }
    print(&shown(arguments, &name, &flows)?)
}

fn from_file(arguments: &Arguments) -> Result<(String, Vec<Entry>), Error> {
    let path = Path::new(&arguments.source);
    if arguments.watch || arguments.flush {
        return Err(Error::OnlyRead(path.to_owned()));
    }
    let read = file::read(path);
    read.map_err(|e| Error::File(path.to_owned(), e))
}

/// Whether a guest tracks connections at all.
fn check(instance: &Instance) -> Result<(), Error> {
    let name = || instance.name().to_owned();
    if instance.description().features & feature::RULES == 0 {
        return Err(Error::NoRules(name()));
    }
    let raw = Raw::read(instance.share()).map_err(Error::Stats)?;
    match raw.counters.get(CONNECTION_COUNTERS) {
        None | Some(0) => Err(Error::NotTracked(name())),
        Some(_) => Ok(()),
    }
}

/// The connections of a guest that are meant. What is none is left out.
fn list(inquiry: &Inquiry<'_>, filter: &Filter) -> Result<Vec<Entry>, Error> {
    let mut flows = Vec::new();
    let take = |record: &_| {
        flows.extend(flow::entry(record).filter(|flow| filter.means(flow)));
    };
    inquiry.list(Subject::Flows, take).map_err(Error::Inquiry)?;
    Ok(flows)
}

/// Ends these connections; how many there still were.
fn end(inquiry: &Inquiry<'_>, flows: &[Entry]) -> Result<u64, Error> {
    let mut ended = 0;
    for some in flows.chunks(NAMES_MAX) {
        let names: Vec<Name> = some.iter().map(|flow| flow::name(&flow.name)).collect();
        let count = names.len() as u64;
        let answer = inquiry.ask_about(Subject::FlowsEnd, count, names.as_bytes());
        // A guest may claim anything.
        ended += answer.map_err(Error::Inquiry)?.ended.min(count);
    }
    Ok(ended)
}

fn shown(arguments: &Arguments, name: &str, flows: &[Entry]) -> Result<String, Error> {
    let talkers = arguments
        .top
        .map(|most| talkers::top(flows, arguments.by, most));
    if arguments.json {
        let document = Document {
            version: VERSION,
            name,
            flows: talkers
                .is_none()
                .then(|| flows.iter().map(Line::from).collect()),
            talkers,
        };
        let json = serde_json::to_string_pretty(&document);
        return Ok(json.map_err(|e| Error::Print(e.into()))? + "\n");
    }
    Ok(match talkers {
        Some(talkers) => table::talkers(&talkers),
        None => table::render(flows),
    })
}

/// Prints what becomes of connections, until the guest ends. Those that there are in the beginning
/// are not told.
fn watch(instance: &Instance, filter: &Filter, json: bool) -> Result<(), Error> {
    let mut seen = Seen::default();
    let mut first = true;
    loop {
        let begun = Instant::now();
        // Others have their turn during the pause.
        let flows = Inquiry::begin(instance)
            .map_err(Error::Inquiry)
            .and_then(|inquiry| list(&inquiry, filter));
        let flows = match flows {
            Err(Error::Inquiry(inquiry::Error::Instance(instance::Error::Ended(_)))) => {
                return Ok(());
            }
            flows => flows?,
        };
        let took = begun.elapsed();
        let changes = seen.changes(flows);
        if !first {
            let mut text = String::new();
            for (event, flow) in changes {
                text += &change(event, &flow, json)?;
                text.push('\n');
            }
            print(&text)?;
        }
        first = false;
        sleep(PAUSE.max(took * PAUSE_FACTOR));
    }
}

fn change(event: Event, flow: &Entry, json: bool) -> Result<String, Error> {
    if !json {
        return Ok(table::line(event, flow));
    }
    let flow = flow.into();
    serde_json::to_string(&Change { event, flow }).map_err(|e| Error::Print(e.into()))
}

fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(Error::Print)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_tracks_nothing_is_told_what_would() {
        let says = Error::NotTracked("fw".into()).to_string();
        assert!(says.contains("ct state established accept"), "{says}");
        let says = Error::NoRules("echo".into()).to_string();
        assert!(says.contains("outboard sockets echo"), "{says}");
    }
}
