//! `outboard try`: runs an image in a network of its own, with a tap for each of its networks. It
//! needs no root and no set-up, and leaves nothing behind. Cargo uses it as an appliance's runner.

mod frames;

use crate::instance::Claim;
use crate::metrics::Address;
use crate::{rules, run};
use abi::extension::feature;
use abi::manifest::{Entry, kind};
use abi::pci::Request;
use abi::region;
use image::Image;
use linux::netlink::{self, Netlink};
use linux::tap::Tap;
use nf::Verdict;
use rule_files::Source;
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
    #[arg(long, value_name = "MIB", default_value = "16")]
    mem: OsString,
    #[arg(long, value_name = "NAME", help = help("--name"))]
    name: Option<OsString>,
    #[arg(long, value_name = "FILE", help = help("--rules"))]
    rules: Option<OsString>,
    /// Be cargo's runner: a program that is no image, such as a test, runs as it is
    #[arg(long)]
    runner: bool,
    /// The image; in front of it there may be other options, which are those of outboard run
    #[arg(allow_hyphen_values = true)]
    image: OsString,
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
    /// An option of `outboard run` that makes no sense here, and why.
    Option(String, &'static str),
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
            Self::Option(option, why) => write!(f, "{option}: {why}; use outboard run"),
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
    if arguments.runner {
        let path = PathBuf::from(&arguments.image);
        if let Err(load::Error::Image(_)) = load::open(&path) {
            let error = Command::new(&path).args(&arguments.arguments).exec();
            return Err(Error::Program(path, error));
        }
    }
    let mut trial = Trial::new(words(arguments))?;
    let outside = user_namespace();
    privilege::acquire().map_err(Error::Privilege)?;
    linux::namespace::unshare_network().map_err(Error::Network)?;
    let taps = (0..trial.networks.len()).map(tap);
    let taps = taps.collect::<Result<Vec<_>, _>>()?;
    let shell = shell(user_namespace() != outside, by_sudo(), std::process::id());
    for line in trial.lines(&shell) {
        eprintln!("outboard: {line}");
    }
    // The monitor's child has the taps: nobody closes them before.
    let nets = trial.networks.iter().zip(taps);
    let nets = nets.map(|(net, tap)| format!("--net:{net}=@{}", tap.into_raw_fd()).into());
    trial.request.arguments.splice(0..0, nets);
    run::run_checked(&trial.request).map_err(Error::Run)
}

/// What `outboard run` is told: our own options in its words, what else stands in front of the
/// image, the image and its arguments.
fn words(arguments: Arguments) -> Vec<OsString> {
    let option = |key: &str, value: &OsStr| {
        let mut option = OsString::from(key);
        option.push(value);
        option
    };
    let own = [
        ("--mem=", Some(&arguments.mem)),
        ("--name=", arguments.name.as_ref()),
        ("--rules=", arguments.rules.as_ref()),
    ];
    let own = own.into_iter();
    let mut words: Vec<_> = own
        .filter_map(|(key, value)| Some(option(key, value?)))
        .collect();
    // Cargo has its own `--` in front of the arguments.
    words.extend(arguments.runner.then(|| "--".into()));
    words.push(arguments.image);
    words.extend(arguments.arguments);
    words
}

/// What is about to be tried: all that can be said of it without a network has been said.
struct Trial {
    request: run::Request,
    image: PathBuf,
    rules: Option<PathBuf>,
    networks: Vec<String>,
    /// Whether it takes rules.
    takes_rules: bool,
}

impl Trial {
    fn new(words: Vec<OsString>) -> Result<Self, Error> {
        let request = run::Request::parse(words).map_err(Error::Run)?;
        let options = match options::parse(request.arguments.iter().cloned()) {
            Ok(options::Request::Start(options)) => options,
            Ok(_) => return Err(Error::Option("--version".into(), "it starts nothing")),
            Err(error) => return Err(Error::Run(run::Error::Options(error))),
        };
        if let Some(net) = options.nets.first() {
            let why = "outboard try makes the networks itself";
            return Err(Error::Option(format!("--net:{}", net.name), why));
        }
        if matches!(request.metrics, Some(Address::Tcp(_))) {
            let why = "nobody outside reaches an address in a network of its own; name unix:PATH";
            return Err(Error::Option("--metrics".into(), why));
        }
        let wanted = Wanted::of(&options.image)?;
        run::check(&request).map_err(Error::Run)?;
        let claim = request.name.as_deref().map(Claim::new).transpose();
        claim.map_err(|error| Error::Run(run::Error::Instance(error)))?;
        Ok(Self {
            request,
            image: options.image,
            rules: options.rules,
            networks: wanted.networks,
            takes_rules: wanted.rules,
        })
    }
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
    let cards = image.pci.iter().map(Request::name);
    let regions = image.regions.iter().map(region::Request::name);
    if let Some(name) = cards.chain(regions).next() {
        return Err(name.unwrap_or_default().to_owned());
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

/// Said of a bridge's two taps.
const ONE_NAMESPACE: &str = "both taps are in one namespace, where no ping crosses a transparent \
                             bridge: use outboard send, or see docs/firewall.md for a real ping";

impl Trial {
    /// What was made, how to get there, and what to type there.
    fn lines(&self, shell: &str) -> Vec<String> {
        let networks = self.networks.iter().enumerate();
        let mut lines: Vec<_> = networks
            .map(|(index, network)| {
                let (tap, address) = (tap_name(index), address(index));
                format!("{network} is {tap}, with {address}/{PREFIX} on the host's side")
            })
            .collect();
        if self.networks.len() == 2 {
            lines.push(ONE_NAMESPACE.into());
        }
        lines.push(format!("a shell there, from another terminal: {shell}"));
        if self.takes_rules {
            match &self.request.name {
                Some(name) => lines.extend(self.frames_to_send(name)),
                None => lines.push("with --name=NAME, this says which frames to send there".into()),
            }
        }
        lines
    }

    /// Commands that send one frame that the rules pass, and one that they drop. There are none for
    /// rules of which the image does not have the text.
    fn frames_to_send(&self, name: &str) -> Vec<String> {
        let rules = match &self.rules {
            Some(file) => Source::read(file).ok().map(|source| source.text),
            None => rules::built_in(&self.image),
        };
        let (Some(rules), [from, to]) = (rules, self.networks.as_slice()) else {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command, FromArgMatches};
    use image::sample;

    #[test]
    fn networks_are_found_and_other_devices_named() {
        let bytes = sample::sample();
        let mut image = Image::parse(&bytes).unwrap();
        assert_eq!(only_networks(&image), Err("nic".to_owned()));
        image.pci.clear();
        assert_eq!(only_networks(&image), Err("peer".to_owned()));
        image.regions.clear();
        assert_eq!(only_networks(&image), Err("disk".to_owned()));
        image.entries.truncate(2);
        assert_eq!(only_networks(&image), Ok(vec!["net".to_owned()]));
    }

    /// What `outboard run` is told when this is typed behind `outboard try`.
    fn typed(line: &str) -> Vec<OsString> {
        let command = Arguments::augment_args(Command::new("try").no_binary_name(true));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        words(Arguments::from_arg_matches(&matches).unwrap())
    }

    #[test]
    fn options_are_those_of_run() {
        for key in ["--name", "--rules"] {
            assert!(!help(key).is_empty(), "{key}");
        }
        let expected = [
            "--mem=16",
            "--name=fw",
            "--rules=r",
            "fw.spt",
            "-x",
            "--mem=3",
        ];
        assert_eq!(typed("--rules=r --name fw fw.spt -x --mem=3"), expected);
        let expected = ["--mem=16", "--name=a", "--pcap:net=f", "a.spt"];
        assert_eq!(typed("--pcap:net=f --name=a a.spt"), expected);
        assert_eq!(typed("--runner -- a --b"), ["--mem=16", "--", "a", "--b"]);
    }

    #[test]
    fn what_is_wrong_is_said_before_there_is_a_network() {
        let says = |line: &str| Trial::new(typed(line)).err().unwrap().to_string();
        assert_eq!(
            says("--mem=64M /nonexistent"),
            "\"--mem=64M\": expected MiB of guest memory from 1 to 262144, as in --mem=64"
        );
        assert_eq!(
            says("--nam=fw a.spt"),
            "no such option: \"--nam=fw\"; did you mean --name=NAME?"
        );
        assert_eq!(
            says("--net:net=tap0 a.spt"),
            "--net:net: outboard try makes the networks itself; use outboard run"
        );
        assert_eq!(
            says("--metrics=127.0.0.1:9100 a.spt"),
            "--metrics: nobody outside reaches an address in a network of its own; name \
             unix:PATH; use outboard run"
        );
        assert!(says("/nonexistent").starts_with("/nonexistent: "));
    }

    fn trial(takes_rules: bool, name: Option<&str>) -> Trial {
        Trial {
            request: run::Request {
                name: name.map(str::to_owned),
                ..run::Request::default()
            },
            image: "fw.spt".into(),
            rules: Some("/nonexistent".into()),
            networks: vec!["private".into(), "public".into()],
            takes_rules,
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
        let said = |rules, name| trial(rules, name).lines("nsenter").join("\n");
        let taps = "private is tap0, with 10.0.0.1/24 on the host's side\n\
                    public is tap1, with 10.0.1.1/24 on the host's side\n\
                    both taps are in one namespace, where no ping crosses a transparent bridge: \
                    use outboard send, or see docs/firewall.md for a real ping\n\
                    a shell there, from another terminal: nsenter";
        assert_eq!(said(false, None), taps);
        let more = "with --name=NAME, this says which frames to send there";
        assert_eq!(said(true, None), format!("{taps}\n{more}"));
        assert_eq!(said(true, Some("fw")), taps, "there are no rules to ask");
        let mut single = trial(false, None);
        single.networks.truncate(1);
        assert_eq!(single.lines("x").len(), 2);
    }
}
