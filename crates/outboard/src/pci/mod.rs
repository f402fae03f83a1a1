//! `outboard pci`: devices are taken from the host's drivers and handed to VFIO, and back.
//!
//! | module | what |
//! |---|---|
//! | [`list`], [`bind`], [`unbind`] | the commands |
//! | [`handover`] | what is written so that a device changes its driver |
//! | [`routes`] | which interfaces carry a default route |
//! | [`verdict`] | whether a device may be taken: a pure function of those |
//! | [`state`] | what is remembered of a device that was taken |
//! | [`guard`] | a process that takes devices for one run of a guest, and gives them back |
//!
//! A device is taken by `driver_override`, which no other device of its kind notices.

pub mod bind;
pub mod guard;
pub mod handover;
pub mod list;
pub mod routes;
pub mod state;
pub mod unbind;
pub mod verdict;

pub use linux::pci::Address;

use linux::pci::sysfs::Machine;
use rustix::io::Errno;
use state::Store;
use std::path::PathBuf;
use std::{fmt, io};
use verdict::Refusal;

/// `outboard pci`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List network cards, and whether a guest can have them
    List(list::Arguments),
    /// Take devices from the host, for guests
    Bind(bind::Arguments),
    /// Give devices back to the host's drivers, whatever state they are in
    Unbind(unbind::Arguments),
    /// Take devices for a run, and give them back after it: started by the monitor
    #[command(hide = true)]
    Guard(guard::Arguments),
}

/// Why a device was not taken or given back.
#[derive(Debug)]
pub enum Error {
    /// Neither an address of a device nor an interface of one.
    Unknown(String),
    /// Only root can: the command, and what it was given.
    Root(&'static str, Vec<String>),
    /// A device must not be taken.
    Refused(Address, Refusal),
    /// Routes cannot be asked for.
    Routes(linux::netlink::Error),
    /// The kernel refuses a step.
    Write(handover::Refused),
    /// The driver `vfio-pci` does not take a device.
    NotTaken(Address),
    /// Nor does its former driver.
    NotReturned(Address, String),
    /// The guard of another run has it.
    OfRun(Address, i32),
    /// Somebody has the device's group open.
    InUse(Address, PathBuf),
    /// A group's file cannot be given to a user.
    Node(PathBuf, io::Error),
    /// No such user.
    User(String),
    /// What has to be remembered cannot be.
    State(state::Error),
    /// No guard can be started that takes devices for a run.
    NoGuard(io::Error),
    /// The guard of a run cannot be talked to, or cannot get ready.
    Guard(io::Error),
    /// What the guard says.
    Guarded(String),
    /// Nothing can be printed.
    Print(io::Error),
}

impl Error {
    fn guard(errno: Errno) -> Self {
        Self::Guard(errno.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(
                f,
                "{name:?} is neither a PCI device nor an interface of one; type: outboard pci list \
                 --all"
            ),
            Self::Root(command, names) => {
                let names = names.join(" ");
                write!(
                    f,
                    "only root can; type: sudo $(command -v outboard) pci {command} {names}"
                )
            }
            Self::Refused(address, refusal) => {
                write!(f, "{address}: {refusal}")?;
                match refusal.remedy(*address) {
                    Some(remedy) => write!(f, "; type: {remedy}"),
                    None => Ok(()),
                }
            }
            Self::Routes(error) => error.fmt(f),
            Self::Write(refused) => write!(
                f,
                "{}: {}; what the kernel says of it: sudo dmesg | tail",
                refused.path.display(),
                refused.error
            ),
            Self::NotTaken(address) => write!(
                f,
                "{address}: vfio-pci did not take it; what the kernel says of it: sudo dmesg | tail"
            ),
            Self::NotReturned(address, driver) => write!(
                f,
                "{address}: {driver} did not take it back; type: sudo modprobe {driver} && sudo \
                 $(command -v outboard) pci unbind {address}"
            ),
            Self::OfRun(address, guard) => write!(
                f,
                "{address} is taken for another run; to see since when, type: ps -o pid,lstart,cmd \
                 -p {guard}"
            ),
            Self::InUse(address, node) => write!(
                f,
                "{address} is in use; to see by whom, type: sudo fuser -v {}",
                node.display()
            ),
            Self::Node(path, error) => write!(f, "cannot hand over {}: {error}", path.display()),
            Self::User(name) => write!(f, "--user={name}: no such user; type: getent passwd"),
            Self::State(error) => error.fmt(f),
            Self::NoGuard(error) => write!(
                f,
                "no process can be started that takes devices and gives them back: {error}; is \
                 /proc mounted?"
            ),
            Self::Guard(error) => write!(
                f,
                "the process that takes devices and gives them back: {error}; to give back what \
                 was taken, type: sudo $(command -v outboard) pci unbind DEVICE"
            ),
            Self::Guarded(text) => f.write_str(text),
            Self::Print(error) => write!(f, "cannot print: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// `outboard pci`.
///
/// # Errors
/// Why it was not done.
pub fn run(command: &Command) -> Result<(), Error> {
    match command {
        Command::List(arguments) => list::run(arguments),
        Command::Bind(arguments) => bind::run(arguments),
        Command::Unbind(arguments) => unbind::run(arguments),
        Command::Guard(arguments) => guard::run(arguments),
    }
}

fn require_root(command: &'static str, names: &[String]) -> Result<(), Error> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(Error::Root(command, names.to_vec())),
    }
}

/// The device of this address, or with this interface, now or before it was taken.
fn resolve(name: &str, machine: &Machine, store: &Store) -> Result<Address, Error> {
    let unknown = || Error::Unknown(name.to_owned());
    if let Ok(address) = name.parse::<Address>() {
        let known = machine.devices.contains_key(&address)
            || store.read(address).is_ok_and(|former| former.is_some());
        return known.then_some(address).ok_or_else(unknown);
    }
    let mut devices = machine.devices.values();
    let device = devices.find(|device| device.interfaces.contains(name));
    let address = device.map(|device| device.address);
    address.or_else(|| store.find(name)).ok_or_else(unknown)
}

fn print(text: &str) -> Result<(), Error> {
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)
}

#[cfg(test)]
mod tests;
