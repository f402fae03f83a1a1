//! What keeps a demonstration from being shown.

use outboard::{build, stats};
use rustix::io::Errno;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::{fmt, io};
use testbed::{contender, privilege};

/// What keeps a demonstration from being shown.
#[derive(Debug)]
pub enum Error {
    /// Neither the repository nor an image is here: the appliance's folder.
    NoAppliance(&'static str),
    /// The image cannot be built.
    Build(build::Error),
    /// What was given as the image of the appliance in this folder is none, or another one's.
    Image(&'static str, PathBuf, String),
    /// No right to make networks.
    Privilege(privilege::Missing),
    /// No shared file.
    Share(Errno),
    /// The counters cannot be read.
    Stats(stats::Error),
    /// A program cannot be started.
    Spawn(PathBuf, io::Error),
    /// A contender cannot be put between two segments.
    Contender(contender::Error),
    /// The firewall has ended by itself.
    Ended(ExitStatus),
    /// A component does not come up, and what its supervisor said last.
    NotUp(String, String),
    /// iperf3 is not installed.
    NoIperf3,
    /// What iperf3 complains about.
    Iperf3(String),
    /// A program is not installed, and the package of Debian that has it.
    NoProgram(&'static str, &'static str),
    /// What a program that others wrote has said when it failed.
    Stock(String, String),
    /// Traffic through this contender failed.
    Traffic(&'static str, io::Error),
    /// Something else that the kernel refused.
    Io(&'static str, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAppliance(folder) => write!(
                f,
                "no image of {folder}: run this in Outboard's repository, or give one with \
                 --image=FILE"
            ),
            Self::Build(e) => e.fmt(f),
            Self::Image(folder, path, e) => write!(
                f,
                "{}: {e}; make one by `outboard build {folder}`",
                path.display()
            ),
            Self::Privilege(e) => e.fmt(f),
            Self::Share(e) => write!(f, "no file in memory: {e}; is `ulimit -n` high enough?"),
            Self::Stats(e) => e.fmt(f),
            Self::Spawn(path, e) => write!(f, "cannot start {}: {e}", path.display()),
            Self::Contender(e) => e.fmt(f),
            Self::Ended(status) => write!(
                f,
                "the firewall has ended by itself ({status}); what it said is above"
            ),
            Self::NotUp(name, said) => write!(f, "{name} does not come up: {said}"),
            Self::NoIperf3 => f.write_str(
                "iperf3 is not installed; sudo apt-get install iperf3, or leave --iperf3 out",
            ),
            Self::Iperf3(e) => write!(f, "iperf3: {e}; leave --iperf3 out for the built-in sender"),
            Self::NoProgram(program, package) => write!(
                f,
                "{program} is not installed; sudo apt-get install {package}"
            ),
            Self::Stock(words, said) => write!(f, "{words}: {said}"),
            Self::Traffic(contender, e) => write!(
                f,
                "traffic through the {contender} failed: {e}; on a loaded machine try again"
            ),
            Self::Io(what, e) => write!(f, "{what}: {e}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<contender::Error> for Error {
    fn from(error: contender::Error) -> Self {
        Self::Contender(error)
    }
}
