//! `outboard ps`: which guests run under a name.

use crate::instance::{self, Instance};
use crate::stats::raw::Raw;
use crate::stats::{self, table};
use crate::up::place::Place;
use crate::up::status::Status;
use abi::extension::feature;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, io};

/// `outboard ps`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why they cannot be listed.
#[derive(Debug)]
pub enum Error {
    /// The instances cannot be found.
    Instance(instance::Error),
    /// The shared file of one cannot be read.
    Stats(stats::Error),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Stats(e) => e.fmt(f),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// A guest with a name, under the names that the JSON has.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// Whether it runs; what does not was left by a monitor that was killed, until the next guest
    /// of its name takes over.
    running: bool,
    monitor: u32,
    host: String,
    image: PathBuf,
    started: u64,
    uptime: u64,
    ports: Vec<Port>,
    /// Generation of its rules; `None` if it takes none.
    rules: Option<u64>,
    /// What its supervisor says, if it is a component of `outboard up`.
    #[serde(flatten)]
    component: Option<Component>,
}

/// A component of `outboard up`.
#[derive(Debug, Serialize)]
struct Component {
    state: String,
    restarts: u64,
    /// Why its last run ended that has.
    last_end: Option<String>,
}

#[derive(Debug, Serialize)]
struct Port {
    name: String,
    interface: Option<String>,
    mac: Option<String>,
}

/// Lists the guests that run under a name, and what dead ones have left. Those that cannot be read
/// are named on standard error; then the answer is false.
///
/// # Errors
/// They cannot be found, or the list cannot be printed.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |since| since.as_secs());
    let (instances, unread) = Instance::survey().map_err(Error::Instance)?;
    let mut rows = Vec::new();
    let mut failures: Vec<_> = unread.iter().map(ToString::to_string).collect();
    for instance in &instances {
        match row(instance, now) {
            Ok(row) => rows.push(row),
            Err(error) => failures.push(format!("{}: {error}", instance.name())),
        }
    }
    for failure in &failures {
        eprintln!("outboard: {failure}");
    }
    add_components(&mut rows);
    let text = match arguments.json {
        true => {
            let json = serde_json::to_string_pretty(&rows);
            json.map_err(|e| Error::Print(e.into()))? + "\n"
        }
        false => render(&rows),
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)?;
    Ok(failures.is_empty())
}

/// Adds what a supervisor says of its components, those that do not run at the moment included.
fn add_components(rows: &mut Vec<Row>) {
    let status = Place::find().ok().and_then(|place| Status::read(&place));
    for one in status.into_iter().flat_map(|status| status.components) {
        let component = Some(Component {
            state: one.state,
            restarts: one.restarts,
            last_end: one.ends.last().map(|end| end.cause.clone()),
        });
        match rows.iter_mut().find(|row| row.name == one.name) {
            Some(row) => row.component = component,
            None => rows.push(Row {
                name: one.name,
                running: false,
                monitor: 0,
                host: "-".to_owned(),
                image: "-".into(),
                started: 0,
                uptime: 0,
                ports: Vec::new(),
                rules: None,
                component,
            }),
        }
    }
}

fn row(instance: &Instance, now: u64) -> Result<Row, Error> {
    let description = instance.description();
    let running = instance.is_running().map_err(Error::Instance)?;
    let rules = match description.features & feature::RULES {
        0 => None,
        _ => Some(
            Raw::read(instance.share())
                .map_err(Error::Stats)?
                .status
                .generation,
        ),
    };
    Ok(Row {
        name: instance.name().to_owned(),
        running,
        monitor: description.monitor,
        host: description.host.clone(),
        image: description.image.clone(),
        started: description.started,
        uptime: now.saturating_sub(description.started),
        ports: description
            .nets()
            .map(|net| Port {
                name: net.name.clone(),
                interface: net.interface.clone(),
                mac: net.mac.clone(),
            })
            .collect(),
        rules,
        component: None,
    })
}

fn render(rows: &[Row]) -> String {
    let supervised = rows.iter().any(|row| row.component.is_some());
    let cells = |row: &Row| {
        let ports = row.ports.iter().map(|port| {
            let interface = port.interface.as_deref().unwrap_or("-");
            format!("{}={interface}", port.name)
        });
        let mut cells = vec![
            row.name.clone(),
            match row.running {
                true => row.monitor.to_string(),
                false => "dead".to_owned(),
            },
            row.host.clone(),
            match row.running {
                true => duration(row.uptime),
                false => "-".to_owned(),
            },
            row.rules
                .map_or_else(|| "-".to_owned(), |rules| rules.to_string()),
            table::printable(&ports.collect::<Vec<_>>().join(" ")),
            table::printable(&row.image.to_string_lossy()),
        ];
        if supervised {
            cells.extend(component_cells(row.component.as_ref()));
        }
        cells
    };
    let rows: Vec<_> = rows.iter().map(cells).collect();
    let mut head = vec!["<name", "pid", "<host", "up", "rules", "<ports", "<image"];
    if supervised {
        head.extend(["<state", "restarts", "<last end"]);
    }
    table::columns(&head, &rows)
}

fn component_cells(component: Option<&Component>) -> [String; 3] {
    let none = || "-".to_owned();
    let Some(component) = component else {
        return [none(), none(), none()];
    };
    let last = component.last_end.as_deref();
    [
        component.state.clone(),
        component.restarts.to_string(),
        last.map_or_else(none, table::printable),
    ]
}

/// Seconds for a person: the two largest units that are not zero.
fn duration(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match hours / 24 {
        0 if hours == 0 && minutes == 0 => format!("{seconds}s"),
        0 if hours == 0 => format!("{minutes}m{:02}s", seconds % 60),
        0 => format!("{hours}h{:02}m", minutes % 60),
        days => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(name: &str, running: bool) -> Row {
        Row {
            name: name.into(),
            running,
            monitor: 42,
            host: "spt".into(),
            image: "/fw.spt".into(),
            started: 0,
            uptime: 61,
            ports: vec![
                Port {
                    name: "private".into(),
                    interface: Some("tap0".into()),
                    mac: None,
                },
                Port {
                    name: "public".into(),
                    interface: None,
                    mac: None,
                },
            ],
            rules: Some(3),
            component: None,
        }
    }

    #[test]
    fn components_have_a_state_and_the_cause_of_their_last_end() {
        let mut supervised = guest("fw", true);
        supervised.component = Some(Component {
            state: "up".into(),
            restarts: 2,
            last_end: Some("killed\n".into()),
        });
        let text = render(&[supervised, guest("other", true)]);
        let lines: Vec<_> = text.lines().collect();
        assert!(
            lines[0].ends_with("image    state  restarts  last end"),
            "{text}"
        );
        assert!(
            lines[1].ends_with("/fw.spt  up            2  killed\\n"),
            "{text}"
        );
        assert!(lines[2].ends_with("/fw.spt  -             -  -"), "{text}");
    }

    #[test]
    fn dead_ones_are_told_apart() {
        let expected = "\
name   pid  host     up  rules  ports                  image
fw      42  spt   1m01s      3  private=tap0 public=-  /fw.spt
old   dead  spt       -      3  private=tap0 public=-  /fw.spt
";
        assert_eq!(render(&[guest("fw", true), guest("old", false)]), expected);
    }

    #[test]
    fn durations_are_short() {
        let cases = [
            (0, "0s"),
            (59, "59s"),
            (3599, "59m59s"),
            (3600, "1h00m"),
            (90_000, "1d01h"),
            (u64::MAX, "213503982334601d07h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(seconds), text);
        }
    }
}
