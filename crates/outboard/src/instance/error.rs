//! Why there is no instance.

use super::NAME_BYTES_MAX;
use std::path::PathBuf;
use std::{fmt, io};
use tender::suggest;

/// Why there is no instance, or none to be used.
#[derive(Debug)]
pub enum Error {
    /// Not a name: it would be a hidden directory, or another one.
    Name(String),
    /// A guest of this name is running already; its monitor's process id and command line.
    Running(String, Option<(u32, String)>),
    /// There is no instance of this name.
    Unknown {
        /// The name.
        name: String,
        /// Where it would be.
        base: PathBuf,
        /// The names of those that run there.
        running: Vec<String>,
    },
    /// The instance ended in the meantime.
    Ended(String),
    /// A directory or file of an instance could not be made.
    Make(PathBuf, io::Error),
    /// The directory in which instances would be found is not this user's alone.
    NotPrivate(PathBuf),
    /// A directory or file of an instance cannot be read.
    Read(PathBuf, io::Error),
    /// The shared file of an instance is no regular file.
    NoFile(PathBuf),
    /// The description is none of this version's.
    Description(PathBuf, serde_json::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "{name:?} is no name: 1 to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', of \
                 which '.' does not come first; as in --name=fw1"
            ),
            Self::Running(name, monitor) => {
                write!(f, "--name={name}: a guest of this name is running")?;
                if let Some((pid, command)) = monitor {
                    write!(f, " (process {pid}: {command})")?;
                }
                write!(
                    f,
                    "; end it with: outboard stop {name}, or choose another name"
                )
            }
            Self::Unknown {
                name,
                base,
                running,
            } if running.is_empty() => write!(
                f,
                "no guest is called {name}, and none runs under a name in {}; start one with: \
                 outboard run --name={name} ...",
                base.display()
            ),
            Self::Unknown {
                name,
                base,
                running,
            } => {
                write!(f, "no guest in {} is called {name}; ", base.display())?;
                if let Some(near) = suggest::nearest(name, running.iter().map(String::as_str)) {
                    write!(f, "did you mean {near}? ")?;
                }
                write!(f, "there is {}", suggest::listed(running))
            }
            Self::Ended(name) => write!(
                f,
                "{name} has ended; start it again with: outboard run --name={name} ..."
            ),
            Self::Make(path, error) => write!(
                f,
                "cannot make {}: {error}; set XDG_RUNTIME_DIR to a directory of yours",
                path.display()
            ),
            Self::NotPrivate(path) => write!(
                f,
                "{}: no folder that is yours alone (mode 0700); remove it, or set XDG_RUNTIME_DIR \
                 to a directory of yours",
                path.display()
            ),
            Self::Read(path, error) => write!(
                f,
                "cannot open {}: {error}; is it another user's?",
                path.display()
            ),
            Self::NoFile(path) => write!(
                f,
                "{}: no regular file, so no guest left it; remove the directory that it is in",
                path.display()
            ),
            Self::Description(path, error) => write!(
                f,
                "{}: {error}; was it started by another version of outboard?",
                path.display()
            ),
        }
    }
}
