//! `outboard debug`: gdb, attached to a component of `outboard up`.

use crate::instance::{self, Instance};
use crate::up;
use rustix::io::{FdFlags, fcntl_setfd};
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{fmt, io};
use testbed::meter::only_child;

/// `outboard debug`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The component, as `outboard ps` lists it
    component: String,
    /// Further arguments of gdb's, as in -- -batch -ex bt
    #[arg(last = true)]
    gdb: Vec<OsString>,
}

/// Why nobody could look into a component.
#[derive(Debug)]
pub enum Error {
    /// The supervisor says why, or there is none.
    Up(up::Error),
    /// It is gone again.
    Instance(instance::Error),
    /// Its process cannot be found.
    Process(String, io::Error),
    /// gdb cannot be started.
    Gdb(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up(e) => e.fmt(f),
            Self::Instance(e) => e.fmt(f),
            Self::Process(name, e) => write!(
                f,
                "the process of {name} cannot be found: {e}; type: outboard logs --ends {name}"
            ),
            Self::Gdb(e) => write!(f, "gdb: {e}; type: sudo apt-get install gdb"),
        }
    }
}

impl std::error::Error for Error {}

/// Has the supervisor leave a component alone, and becomes gdb in it. The supervisor has it back
/// when gdb has ended, which keeps the connection open and does not know of it.
///
/// # Errors
/// The component is not up, cannot be looked into, or there is no gdb.
pub fn run(arguments: &Arguments) -> Result<Infallible, Error> {
    let name = &arguments.component;
    let (connection, done) = up::debug(name).map_err(Error::Up)?;
    eprintln!("outboard: {done}");
    let instance = Instance::open(name).map_err(Error::Instance)?;
    let description = instance.description();
    let no_process = |error| Error::Process(name.clone(), error);
    // The monitor's child is the tender, which is the guest.
    let guest = only_child(description.monitor).map_err(no_process)?;
    let kept = fcntl_setfd(&connection, FdFlags::empty());
    kept.map_err(|errno| Error::Gdb(errno.into()))?;
    let symbols = format!(
        "with confirm off -- add-symbol-file {}",
        description.image.display()
    );
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-p", &guest.to_string(), "-ex", &symbols]);
    Err(Error::Gdb(gdb.args(&arguments.gdb).exec()))
}
