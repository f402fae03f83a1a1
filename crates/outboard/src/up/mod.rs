//! `outboard up`: several guests and what joins them, from one file; `outboard down`, `outboard
//! restart`, `outboard replace`.
//!
//! ```text
//!   outboard up FILE           supervisor: reads the file, decides, says what happens
//!      |  requests, descriptors; ends (SOCK_SEQPACKET)
//!   outboard-keeper            parent of all components, holder of their descriptors
//!      |  fork
//!   outboard (monitor) ... one for each component, as `outboard run --name=NAME`
//!      |  fork
//!   outboard-tender    ... and its guest
//! ```
//!
//! | module | what | effects |
//! |---|---|---|
//! | [`file`](mod@file) | the file, with every mistake | none |
//! | [`check`] | what is wrong with images, devices and rules | reads files |
//! | [`component`] | command lines, and who holds what | none |
//! | [`program`] | components that are programs as they are | reads folders |
//! | [`join`](mod@join) | the end of a link that a program outside of the file has | a socket |
//! | [`handed`] | what a component is given by descriptor | none |
//! | [`policy`], [`machine`] | when a component is started, ended, killed | none |
//! | [`spare`] | when an instance is loaded for the next run | none |
//! | [`progress`] | whether a component has hung | none |
//! | [`groups`] | what bounds memory and time of a component | control groups |
//! | [`cores`] | core files of components | files |
//! | [`descriptors`] | how many open files a system needs | a limit |
//! | [`cause`] | why a run ended, in a line | none |
//! | [`supervisor`] | does what the machines say | all |
//! | [`keeper`] | starts, signals, reaps; outlives the supervisor | processes |
//! | [`message`], [`channel`] | what they say to each other | a socket |
//! | [`place`], [`status`] | files of a system | files |
//! | [`notify`], [`systemd`] | the service manager | a socket |

pub mod cause;
pub mod channel;
pub mod check;
pub mod component;
pub mod cores;
pub mod descriptors;
pub mod file;
pub mod groups;
pub mod handed;
pub mod join;
pub mod keeper;
pub mod machine;
pub mod message;
pub mod notify;
pub mod place;
pub mod policy;
pub mod program;
pub mod progress;
pub mod spare;
pub mod status;
pub mod supervisor;
pub mod systemd;

use crate::instance;
use crate::stats::table;
use channel::{Channel, Received};
use component::Component;
use groups::Groups;
use message::{Command, Reply};
use place::Place;
use rustix::process::{Pid, Signal};
use status::Status;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use supervisor::Supervisor;
use tender::suggest;

/// `outboard up`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The file that names components and what they are given: see docs/components.md
    file: PathBuf,
    /// Say every mistake in the file, a line each, and start nothing
    #[arg(long)]
    check: bool,
    /// Print who holds what, and start nothing
    #[arg(long, conflicts_with = "check")]
    show: bool,
    /// Print a unit of systemd for the file, and start nothing
    #[arg(long, conflicts_with_all = ["check", "show"])]
    systemd: bool,
    /// End all components when this process, which has to be the parent, has ended
    #[arg(long, value_name = "PID", hide = true)]
    end_with_parent: Option<i32>,
}

/// `outboard restart`.
#[derive(clap::Args)]
pub struct Restart {
    /// The component, as `outboard ps` lists it
    component: String,
}

/// `outboard replace`.
#[derive(clap::Args)]
pub struct Replace {
    /// The component, as `outboard ps` lists it
    component: String,
    /// The image that takes the place of its own
    image: PathBuf,
}

/// Why a system is not up, or not down.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Read(PathBuf, io::Error),
    /// The file is longer than [`file::BYTES_MAX`].
    TooLong(PathBuf),
    /// There are mistakes in the file, told already.
    Mistakes(PathBuf, usize),
    /// There is no place for its files.
    Place(instance::Error),
    /// Another supervisor is at work, and its process id, if it says.
    Taken(Option<u32>),
    /// No system is up.
    Nothing(PathBuf),
    /// A supervisor said why it did not do what was asked.
    Refused(String),
    /// Its components need so many open files, and so many are allowed.
    Descriptors(u64, u64),
    /// There is no keeper.
    Keeper(io::Error),
    /// What the kernel says.
    System(io::Error),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, e) => write!(
                f,
                "cannot read {}: {e}; name a file of components, as docs/components.md has it",
                path.display()
            ),
            Self::TooLong(path) => write!(
                f,
                "{}: more than {} MiB; a file of components is at most that long",
                path.display(),
                file::BYTES_MAX >> 20
            ),
            Self::Mistakes(path, 1) => {
                write!(f, "{}: 1 mistake; nothing was started", path.display())
            }
            Self::Mistakes(path, count) => {
                write!(
                    f,
                    "{}: {count} mistakes; nothing was started",
                    path.display()
                )
            }
            Self::Place(e) => e.fmt(f),
            Self::Taken(pid) => {
                write!(f, "a system is up already")?;
                if let Some(pid) = pid {
                    write!(f, " (process {pid})")?;
                }
                f.write_str(
                    "; end it with: outboard down, or set XDG_RUNTIME_DIR to another directory of \
                     yours",
                )
            }
            Self::Nothing(path) => write!(
                f,
                "no system is up in {}; start one with: outboard up FILE",
                path.display()
            ),
            Self::Refused(why) => f.write_str(why),
            Self::Descriptors(needed, most) => write!(
                f,
                "these components need {needed} open files, and {most} are allowed; type: \
                 ulimit -n {needed}"
            ),
            Self::Keeper(e) if e.kind() == io::ErrorKind::TimedOut => {
                write!(f, "no process that keeps components: {e}")
            }
            Self::Keeper(e) => write!(f, "no process that keeps components: {e}; see `ulimit -u`"),
            Self::System(e) => write!(f, "cannot go on: {e}; see `ulimit -n`"),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Starts and supervises the components of a file, until it is told to end them.
///
/// # Errors
/// There are mistakes in the file, or another system is up.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let path = &arguments.file;
    let components = read(path)?;
    if arguments.check {
        let path = path.display().to_string();
        let line = |one: &Component, note| format!("{path}: {}: {note}\n", one.name);
        let notes = components.iter().flat_map(|one| {
            let notes = check::notes(one);
            notes.into_iter().map(move |note| (one, note))
        });
        let notes: String = notes.map(|(one, note)| line(one, note)).collect();
        let count = components.len();
        return print(&format!("{notes}{path}: {count} components, no mistake\n"));
    }
    if arguments.show {
        return print(&show(&components, Groups::of_this_process().as_ref()));
    }
    let whole = std::path::absolute(path).map_err(|e| Error::Read(path.clone(), e))?;
    if arguments.systemd {
        return print(&systemd::unit(&whole));
    }
    let allowed = descriptors::allow(&components);
    allowed.map_err(|(needed, most)| Error::Descriptors(needed, most))?;
    if let Some(parent) = arguments.end_with_parent {
        end_with(parent).map_err(Error::System)?;
    }
    let place = Place::make().map_err(Error::Place)?;
    let lock = place.lock().map_err(Error::System)?;
    let lock = lock.ok_or_else(|| Error::Taken(supervisor_in(&place)))?;
    Supervisor::begin(place, lock, whole, components)?.run()
}

/// Has the kernel ask this process to end when its parent, `parent`, has ended.
fn end_with(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    match rustix::process::getppid().map(Pid::as_raw_nonzero) {
        Some(found) if found.get() == parent => Ok(()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Ends all components, and their supervisor; if that was killed, in its place.
///
/// # Errors
/// No system is up.
pub fn down() -> Result<(), Error> {
    let place = Place::find().map_err(Error::Place)?;
    if !place.path().is_dir() {
        return Err(Error::Nothing(place.path().to_owned()));
    }
    match place.lock().map_err(Error::System)? {
        Some(lock) => {
            let mut supervisor = Supervisor::begin(place, lock, PathBuf::new(), Vec::new())?;
            supervisor.go_down();
            supervisor.run()
        }
        None => {
            ask(&place, &Command::Down)?;
            Ok(())
        }
    }
}

/// Ends a component, starts it again, and waits until it is up.
///
/// # Errors
/// It does not come up, or is none.
pub fn restart(arguments: &Restart) -> Result<(), Error> {
    told(&Command::Restart(arguments.component.clone()))
}

/// Has a component go on with another image, and waits until that has lasted a while, or the one
/// before is back.
///
/// # Errors
/// It does not last, cannot be used, or there is no such component.
pub fn replace(arguments: &Replace) -> Result<(), Error> {
    let Replace { component, image } = arguments;
    let whole = std::path::absolute(image).map_err(|e| Error::Read(image.clone(), e))?;
    told(&Command::Replace(component.clone(), whole))
}

/// Has the supervisor do something, and prints what it says.
fn told(command: &Command) -> Result<(), Error> {
    let place = Place::find().map_err(Error::Place)?;
    let reply = ask(&place, command)?;
    let ended = || Err("the supervisor has ended".to_owned());
    match reply.unwrap_or_else(ended) {
        Ok(done) => print(&format!("{done}\n")),
        Err(why) => Err(Error::Refused(why)),
    }
}

/// Has the supervisor leave a component to who looks into it, and waits until it is up. This lasts
/// as long as the connection; and what the supervisor says.
///
/// # Errors
/// It is not up, or does not come up again.
pub fn debug(component: &str) -> Result<(Channel, String), Error> {
    let place = Place::find().map_err(Error::Place)?;
    let nothing = |_| Error::Nothing(place.path().to_owned());
    let channel = Channel::connect(&place.control()).map_err(nothing)?;
    let command = Command::Debug(component.to_owned());
    channel.send(&command, &[]).map_err(Error::System)?;
    match channel.wait::<Reply>(None).map_err(Error::System)? {
        Received::Message(Ok(done), _) => Ok((channel, done)),
        Received::Message(Err(why), _) => Err(Error::Refused(why)),
        Received::Nothing | Received::End => {
            Err(Error::Refused("the supervisor has ended".to_owned()))
        }
    }
}

/// Asks the supervisor, and waits for its reply, or for its end.
fn ask(place: &Place, command: &Command) -> Result<Option<Reply>, Error> {
    let nothing = |_| Error::Nothing(place.path().to_owned());
    let channel = Channel::connect(&place.control()).map_err(nothing)?;
    channel.send(command, &[]).map_err(Error::System)?;
    match channel.wait(None).map_err(Error::System)? {
        Received::Message(reply, _) => Ok(Some(reply)),
        Received::Nothing | Received::End => Ok(None),
    }
}

fn supervisor_in(place: &Place) -> Option<u32> {
    Status::read(place).map(|status| status.supervisor)
}

/// What is said of a component that there is not.
fn no_component(name: &str, names: &[&str]) -> String {
    let near = suggest::nearest(name, names.iter().copied());
    let meant = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
    format!(
        "no component is called {name}; {meant}there is {}",
        suggest::listed(names)
    )
}

/// The components of a file without a mistake; mistakes are told on standard error.
fn read(path: &Path) -> Result<Vec<Component>, Error> {
    let failed = |error| Error::Read(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    let mut text = String::new();
    let mut reader = file.take(file::BYTES_MAX as u64 + 1);
    reader.read_to_string(&mut text).map_err(failed)?;
    if text.len() > file::BYTES_MAX {
        return Err(Error::TooLong(path.to_owned()));
    }
    let whole = std::path::absolute(path).map_err(failed)?;
    let folder = whole.parent().unwrap_or(Path::new("/"));
    let mistakes = match file::parse(&text, folder) {
        Err(mistakes) => mistakes,
        Ok(components) => {
            let wrong = components.iter().flat_map(|component| {
                let place = component.place;
                let all = check::component(component).into_iter();
                all.map(move |what| file::Mistake { place, what })
            });
            let carried = check::carried(&components).into_iter();
            let carried = carried.map(|(place, what)| file::Mistake { place, what });
            let wrong: Vec<_> = wrong.chain(carried).collect();
            if wrong.is_empty() {
                return Ok(components);
            }
            wrong
        }
    };
    for mistake in &mistakes {
        eprintln!("{}", mistake.line(path, &text));
    }
    Err(Error::Mistakes(path.to_owned(), mistakes.len()))
}

/// Who holds what.
fn show(components: &[Component], groups: Option<&Groups>) -> String {
    let rows = components.iter().flat_map(|component| {
        let holdings = component.holdings(groups).into_iter();
        holdings.map(|[what, source, right]| {
            vec![
                component.name.clone(),
                what,
                table::printable(&source),
                right,
            ]
        })
    });
    let rows: Vec<_> = rows.collect();
    table::columns(&["<component", "<holds", "<which", "<and may"], &rows)
}

fn print(text: &str) -> Result<(), Error> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(Error::Print)
}
