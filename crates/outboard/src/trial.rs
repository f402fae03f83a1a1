//! `outboard try`: runs an image in a network of its own, with a tap for each of its networks. It
//! needs no root and no set-up, and leaves nothing behind. Cargo uses it as an appliance's runner.

use crate::run;
use abi::manifest::{Entry, kind};
use image::Image;
use linux::netlink::{self, Netlink};
use linux::tap::Tap;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, fs, io};
use tender::load;
use testbed::privilege;

/// Bits of each tap's subnet.
const PREFIX: u8 = 24;

/// `outboard try`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The guest's memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    mem: u32,
    /// Be cargo's runner: a program that is no image, such as a test, runs as it is
    #[arg(long)]
    runner: bool,
    /// The image
    image: PathBuf,
    /// The guest's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Why an image was not tried.
#[derive(Debug)]
pub enum Error {
    /// The file is no image, or cannot be read.
    Load(PathBuf, load::Error),
    /// It asks for a device that cannot be made up.
    Device(PathBuf, String),
    /// There is no right to make a network.
    Privilege(privilege::Missing),
    /// The network cannot be made.
    Network(linux::namespace::Error),
    /// A tap cannot be made.
    Tap(String, io::Error),
    /// A tap cannot be given an address.
    Address(String, netlink::Error),
    /// A program that is no image cannot be run.
    Program(PathBuf, io::Error),
    /// What `outboard run` says.
    Run(run::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Device(path, name) => write!(
                f,
                "{} asks for {name:?}, which is no network; give it with outboard run, and see: \
                 outboard inspect {}",
                path.display(),
                path.display()
            ),
            Self::Privilege(e) => e.fmt(f),
            Self::Network(e) => write!(f, "{e}; type: outboard doctor"),
            Self::Tap(name, e) => {
                write!(f, "cannot make the tap {name}: {e}; type: outboard doctor")
            }
            Self::Address(name, e) => write!(f, "cannot give {name} an address: {e}"),
            Self::Program(path, e) => write!(f, "cannot run {}: {e}", path.display()),
            Self::Run(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// Runs the image to its end, and returns its exit status.
///
/// # Errors
/// It was not started.
pub fn run(arguments: Arguments) -> Result<u8, Error> {
    let Arguments {
        mem,
        runner,
        image: path,
        arguments,
    } = arguments;
    let networks = match networks(&path) {
        Err(Error::Load(_, load::Error::Image(_))) if runner => {
            let error = Command::new(&path).args(&arguments).exec();
            return Err(Error::Program(path, error));
        }
        networks => networks?,
    };
    let outside = user_namespace();
    privilege::acquire().map_err(Error::Privilege)?;
    linux::namespace::unshare_network().map_err(Error::Network)?;
    let mut options = vec![format!("--mem={mem}")];
    for (index, network) in networks.iter().enumerate() {
        // The monitor's child has it: nobody closes it before.
        let tap = tap(index)?.into_raw_fd();
        options.push(format!("--net:{network}=@{tap}"));
    }
    say(&networks, user_namespace() != outside);
    let ours = options.into_iter().map(OsString::from);
    let whole = ours.chain(["--".into(), path.into()]).chain(arguments);
    let request = run::Request::parse(whole.collect::<Vec<_>>()).map_err(Error::Run)?;
    run::run(&request).map_err(Error::Run)
}

/// The networks that an image asks for.
fn networks(path: &Path) -> Result<Vec<String>, Error> {
    let image = load::open(path).map_err(|e| Error::Load(path.to_owned(), e))?;
    only_networks(&image.1).map_err(|name| Error::Device(path.to_owned(), name))
}

/// The names of an image's networks, or that of another device.
fn only_networks(image: &Image) -> Result<Vec<String>, String> {
    if let Some(card) = image.pci.first() {
        return Err(card.name().unwrap_or_default().to_owned());
    }
    // The first entry is reserved, and has no name.
    let network = |entry: &Entry| {
        let name = entry.name()?.to_owned();
        Some(match entry.kind {
            kind::NET_BASIC => Ok(name),
            _ => Err(name),
        })
    };
    image.entries.iter().filter_map(network).collect()
}

/// A tap of this network, which is up and has an address.
fn tap(index: usize) -> Result<OwnedFd, Error> {
    let (name, address) = (tap_name(index), address(index));
    let tap = Tap::create(&name, true).map_err(|e| Error::Tap(name.clone(), e))?;
    let configure = || {
        let mut netlink = Netlink::open()?;
        netlink.add_address(&name, address.into(), PREFIX)?;
        netlink.set_up(&name)
    };
    configure().map_err(|e| Error::Address(name.clone(), e))?;
    Ok(tap.into_fd())
}

fn tap_name(index: usize) -> String {
    format!("tap{index}")
}

/// The host's address on a tap: an image has fewer than 256 devices.
fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, index as u8, 1)
}

/// What names the user namespace of this process, if the kernel has those.
fn user_namespace() -> Option<PathBuf> {
    fs::read_link("/proc/self/ns/user").ok()
}

/// Says what was made, and how to get there: by way of the user namespace, if it was made too.
fn say(networks: &[String], as_user: bool) {
    for (index, network) in networks.iter().enumerate() {
        let (tap, address) = (tap_name(index), address(index));
        eprintln!("outboard: {network} is {tap}, with {address}/{PREFIX} on the host's side");
    }
    let (sudo, user) = match as_user {
        true => ("", " --user --preserve-credentials"),
        false => ("sudo ", ""),
    };
    let pid = std::process::id();
    eprintln!(
        "outboard: a shell there, from another terminal: {sudo}nsenter --target={pid} --net{user}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::sample;

    #[test]
    fn networks_are_found_and_other_devices_named() {
        let bytes = sample::sample();
        let mut image = Image::parse(&bytes).unwrap();
        assert_eq!(only_networks(&image), Err("nic".to_owned()));
        image.pci.clear();
        assert_eq!(only_networks(&image), Err("disk".to_owned()));
        image.entries.truncate(2);
        assert_eq!(only_networks(&image), Ok(vec!["net".to_owned()]));
    }
}
