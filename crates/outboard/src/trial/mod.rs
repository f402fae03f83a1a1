//! `outboard try`: runs an image in a network of its own, with a tap for each of its networks. It
//! needs no root and no set-up, and leaves nothing behind. Cargo uses it as an appliance's runner.

mod frames;

use crate::rules::source::Source;
use crate::{rules, run};
use abi::extension::feature;
use abi::manifest::{Entry, kind};
use image::Image;
use linux::netlink::{self, Netlink};
use linux::tap::Tap;
use nf::Verdict;
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt, fs, io};
use tender::load;
use tender::options;
use testbed::privilege;

/// Bits of each tap's subnet.
const PREFIX: u8 = 24;

/// `outboard try`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The guest's memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    mem: u32,
    #[arg(long, value_name = "NAME", help = help("--name"))]
    name: Option<String>,
    #[arg(long, value_name = "FILE", help = help("--rules"))]
    rules: Option<PathBuf>,
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

/// What `outboard run --help` says of an option.
fn help(key: &str) -> &'static str {
    let mut choices = options::CHOICES.iter().chain(run::CHOICES);
    let choice = choices.find(|choice| choice.key() == key);
    choice.map_or("", |choice| choice.help)
}

/// Runs the image to its end, and returns its exit status.
///
/// # Errors
/// It was not started.
pub fn run(arguments: Arguments) -> Result<u8, Error> {
    let wanted = match Wanted::of(&arguments.image) {
        Err(Error::Load(path, load::Error::Image(_))) if arguments.runner => {
            let error = Command::new(&path).args(&arguments.arguments).exec();
            return Err(Error::Program(path, error));
        }
        wanted => wanted?,
    };
    let outside = user_namespace();
    privilege::acquire().map_err(Error::Privilege)?;
    linux::namespace::unshare_network().map_err(Error::Network)?;
    let taps = (0..wanted.networks.len()).map(tap);
    let taps = taps.collect::<Result<Vec<_>, _>>()?;
    let shell = shell(user_namespace() != outside, by_sudo(), std::process::id());
    for line in lines(&wanted, &arguments, &shell) {
        eprintln!("outboard: {line}");
    }
    let options = own_options(&arguments, &wanted, taps);
    let request = run::Request::parse(options).map_err(Error::Run)?;
    run::run(&request).map_err(Error::Run)
}

/// What `outboard run` is told: our own options in its words, the image and its arguments.
fn own_options(arguments: &Arguments, wanted: &Wanted, taps: Vec<OwnedFd>) -> Vec<OsString> {
    let option = |key: &str, value: &OsStr| {
        let mut option = OsString::from(key);
        option.push(value);
        option
    };
    let mut options = vec![format!("--mem={}", arguments.mem).into()];
    // The monitor's child has the taps: nobody closes them before.
    let nets = wanted.networks.iter().zip(taps);
    options.extend(nets.map(|(net, tap)| format!("--net:{net}=@{}", tap.into_raw_fd()).into()));
    let name = arguments.name.as_ref();
    options.extend(name.map(|name| option("--name=", name.as_ref())));
    let rules = arguments.rules.as_ref();
    options.extend(rules.map(|rules| option("--rules=", rules.as_ref())));
    options.extend(["--".into(), arguments.image.clone().into()]);
    options.extend(arguments.arguments.iter().cloned());
    options
}

/// What an image asks for.
struct Wanted {
    networks: Vec<String>,
    /// Whether it takes rules.
    rules: bool,
}

impl Wanted {
    fn of(path: &Path) -> Result<Self, Error> {
        let (_, image) = load::open(path).map_err(|e| Error::Load(path.to_owned(), e))?;
        let networks = only_networks(&image);
        let features = image.extension.map_or(0, |extension| extension.features);
        Ok(Self {
            networks: networks.map_err(|name| Error::Device(path.to_owned(), name))?,
            rules: features & feature::RULES != 0,
        })
    }
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

/// Whether this program was started by sudo, and the user's other terminals are not root's.
fn by_sudo() -> bool {
    env::var_os("SUDO_UID").is_some()
}

/// The command that starts a shell in the network of the process `pid`: by way of the user
/// namespace, if that was made too.
fn shell(as_user: bool, by_sudo: bool, pid: u32) -> String {
    let sudo = if by_sudo { "sudo " } else { "" };
    let user = match as_user {
        true => " --user --preserve-credentials",
        false => "",
    };
    // Named, so that it is no login shell, which would forget the user's PATH.
    format!("{sudo}nsenter --target={pid} --net{user} \"$SHELL\"")
}

/// What was made, how to get there, and what to type there.
fn lines(wanted: &Wanted, arguments: &Arguments, shell: &str) -> Vec<String> {
    let networks = wanted.networks.iter().enumerate();
    let mut lines: Vec<_> = networks
        .map(|(index, network)| {
            let (tap, address) = (tap_name(index), address(index));
            format!("{network} is {tap}, with {address}/{PREFIX} on the host's side")
        })
        .collect();
    lines.push(format!("a shell there, from another terminal: {shell}"));
    if wanted.rules {
        match &arguments.name {
            Some(name) => lines.extend(frames_to_send(wanted, arguments, name)),
            None => lines.push("with --name=NAME, this says which frames to send there".into()),
        }
    }
    lines
}

/// Commands that send one frame that the rules pass, and one that they drop. There are none for
/// rules that `outboard run` refuses, or of which the image does not have the text.
fn frames_to_send(wanted: &Wanted, arguments: &Arguments, name: &str) -> Vec<String> {
    let rules = match &arguments.rules {
        Some(file) => Source::read(file).ok().map(|source| source.text),
        None => rules::built_in(&arguments.image),
    };
    let (Some(rules), [from, to]) = (rules, wanted.networks.as_slice()) else {
        return Vec::new();
    };
    let verdicts = [(Verdict::Accept, "passes"), (Verdict::Drop, "is dropped")];
    let command = |(verdict, says): (Verdict, &str)| {
        let frame = frames::with(verdict, &rules, [from, to])?;
        Some(format!(
            "in that shell, a frame that {says}: outboard send {name}-{from} '{frame}'"
        ))
    };
    verdicts.into_iter().filter_map(command).collect()
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

    #[test]
    fn options_are_those_of_run() {
        for key in ["--name", "--rules"] {
            assert!(!help(key).is_empty(), "{key}");
        }
        let arguments = arguments(Some("fw"));
        let options = own_options(&arguments, &wanted(false), Vec::new());
        let request = run::Request::parse(options).unwrap();
        assert_eq!(request.name.as_deref(), Some("fw"));
        let expected = [
            "--mem=16",
            "--rules=/nonexistent",
            "--",
            "fw.spt",
            "--mem=3",
        ];
        assert_eq!(request.arguments, expected);
    }

    fn arguments(name: Option<&str>) -> Arguments {
        Arguments {
            mem: 16,
            name: name.map(str::to_owned),
            rules: Some("/nonexistent".into()),
            runner: false,
            image: "fw.spt".into(),
            arguments: vec!["--mem=3".into()],
        }
    }

    fn wanted(rules: bool) -> Wanted {
        Wanted {
            networks: vec!["private".into(), "public".into()],
            rules,
        }
    }

    #[test]
    fn a_shell_is_entered_as_its_user_may() {
        assert_eq!(
            shell(false, false, 7),
            "nsenter --target=7 --net \"$SHELL\""
        );
        assert_eq!(
            shell(false, true, 7),
            "sudo nsenter --target=7 --net \"$SHELL\""
        );
        let of_user = "nsenter --target=7 --net --user --preserve-credentials \"$SHELL\"";
        assert_eq!(shell(true, false, 7), of_user);
    }

    #[test]
    fn a_firewall_without_a_name_is_told_of_names() {
        let said = |rules, name| lines(&wanted(rules), &arguments(name), "nsenter").join("\n");
        let taps = "private is tap0, with 10.0.0.1/24 on the host's side\n\
                    public is tap1, with 10.0.1.1/24 on the host's side\n\
                    a shell there, from another terminal: nsenter";
        assert_eq!(said(false, None), taps);
        let more = "with --name=NAME, this says which frames to send there";
        assert_eq!(said(true, None), format!("{taps}\n{more}"));
        assert_eq!(said(true, Some("fw")), taps, "there are no rules to ask");
    }
}
