//! `outboard model`: a device in software, for guests of other processes.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use models::client::{Around, End, LogLimit, Refused};
use models::disk;
use models::vhost_user::BackEnd;
use models::virtio::VirtioDevice;
use models::wire::{Spec, WireFault};
use models::{Device, DiskSetup, MODELS, Make, Misbehaviour, Model, Report, Setup, Violations};
use models::{vfio_user, vhost_user};
use serde_json::json;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use std::{error, fmt};

/// Each device, and each way to it.
const EXAMPLES: &str = "\
Over vfio-user, for outboard run --pci:NAME=vfio-user:SOCKET and others' machines:
  outboard model 82599 --socket=/tmp/nic0 --wire=tap:nic0
  outboard model 82574 --socket=/tmp/nic0 --wire=tap:nic0
  outboard model e1000 --socket=/tmp/nic0 --wire=tap:nic0
  outboard model rtl8139 --socket=/tmp/nic0 --wire=tap:nic0
  outboard model virtio-net --socket=/tmp/nic0 --wire=tap:nic0
  outboard model virtio-blk --socket=/tmp/disk0 --file=disk.img
  outboard model virtio-rng --socket=/tmp/rng0
  outboard model nvme --socket=/tmp/disk0 --file=disk.img
Over vhost-user, for QEMU's and DPDK's own virtio devices:
  outboard model virtio-net --vhost-user=/tmp/nic0 --wire=tap:nic0
  outboard model virtio-blk --vhost-user=/tmp/disk0 --file=disk.img";

/// Be a network card or a disk in software: guests drive it with --pci:NAME=vfio-user:SOCKET
///
/// A virtio device can be the back end of others' machines (--vhost-user). The device checks
/// what its driver does, and tells what the datasheet forbids. It serves one guest after the other
/// until it is interrupted; its exit status is 1 if a driver broke a rule.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Which device
    #[arg(value_parser = card())]
    card: &'static Model,
    /// The socket that guests name; @FD: an open connection to the only one
    #[arg(long, value_name = "PATH", required_unless_present = "vhost_user")]
    socket: Option<PathBuf>,
    /// The socket of vhost-user that front ends, as QEMU, name; what they had begun when this
    /// device was killed is done by the next one at the socket
    #[arg(long, value_name = "PATH", conflicts_with = "socket")]
    vhost_user: Option<PathBuf>,
    /// What a card is connected to: tap:NAME (tap:@FD: an open one), model:SOCKET (another card
    /// that names the same SOCKET), pcap:PLAY,RECORD (captures), loop, or flood:BYTES (a generator)
    #[arg(long, value_name = "WIRE")]
    wire: Option<Spec>,
    /// What a disk keeps its blocks in: a file or a block device; with `,ro`, only to be read
    #[arg(long, value_name = "FILE[,ro]")]
    file: Option<disk::Spec>,
    /// A card's Ethernet address; by default one that follows from the socket's name
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Address>,
    /// The longest packet, in bytes, that a virtio network card tells its driver of
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(MTU_MIN..))]
    mtu: Option<u16>,
    /// What it does wrong, one in N times, such as length=100,lost-interrupt=20,seed=7
    #[arg(long, value_name = "FAULTS", default_value = "")]
    misbehave: Misbehaviour,
    /// Never sleep while a guest is there: fewer microseconds, a whole core
    #[arg(long)]
    busy: bool,
    /// Take guest memory that is not sealed against shrinking, as that of cloud-hypervisor: who
    /// shrinks it ends his session, and frames that were under way are lost
    #[arg(long)]
    unsealed: bool,
    /// End with the first guest
    #[arg(long)]
    once: bool,
    /// At the end, print what drivers did wrong as JSON
    #[arg(long)]
    json: bool,
}

/// The least MTU of a virtio network card (5.1.4.1).
const MTU_MIN: i64 = 68;

/// The devices that there are, by name.
fn card() -> impl TypedValueParser<Value = &'static Model> {
    let names = MODELS
        .iter()
        .map(|model| PossibleValue::new(model.name).help(model.about));
    PossibleValuesParser::new(names).try_map(|name| {
        let named = |model: &&Model| model.name == name;
        MODELS.iter().find(named).ok_or("no such device")
    })
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address([u8; 6]);

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const RULE: &str = "an address is six bytes, such as 02:00:00:00:00:01, and of one station";
        let mut address = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut address {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(RULE)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| RULE)?;
        }
        if parts.next().is_some() || address[0] & 1 != 0 || address == [0; 6] {
            return Err(RULE);
        }
        Ok(Self(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Address {
    /// The same for the same socket: locally administered (IEEE 802, 8.4).
    fn of(socket: &Path) -> Self {
        let mut hasher = DefaultHasher::new();
        socket.hash(&mut hasher);
        let [a, b, c, d, e, ..] = hasher.finish().to_le_bytes();
        Self([2, a, b, c, d, e])
    }
}

/// Why there is no device.
#[derive(Debug)]
pub enum Error {
    /// It is connected to something else than what was named, or to nothing that was.
    Connection(&'static str, &'static str),
    /// Its file cannot be had.
    Disk(disk::Fault),
    /// Its wire cannot be had.
    Wire(WireFault),
    /// It has no back end of vhost-user.
    NoBackEnd(&'static str),
    /// It tells its driver of no MTU.
    NoMtu(&'static str),
    /// Its socket cannot be made.
    Socket(PathBuf, io::Error),
    /// Signals cannot be caught, or a descriptor not be copied.
    System(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(name, takes) => write!(f, "{name} takes {takes}"),
            Self::NoBackEnd(name) => {
                write!(
                    f,
                    "{name} is no virtio device: type --socket in place of --vhost-user"
                )
            }
            Self::NoMtu(name) => {
                write!(f, "{name} is no virtio network card: leave --mtu out")
            }
            Self::Disk(fault) => write!(f, "{fault}"),
            Self::Wire(fault) => write!(f, "{fault}"),
            Self::Socket(path, error) if error.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "socket {}: there is something already; name another one",
                path.display()
            ),
            Self::Socket(path, error) => write!(f, "socket {}: {error}", path.display()),
            Self::System(error) => write!(f, "{error}"),
        }
    }
}

impl error::Error for Error {}

/// Serves guests until it is interrupted; whether their drivers kept to the datasheet.
///
/// # Errors
/// If the device cannot be had.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let mut teller = Teller::new()?;
    match (&arguments.vhost_user, &arguments.socket) {
        (Some(socket), _) => run_back_end(arguments, socket, &mut teller),
        (None, Some(socket)) => run_device(arguments, socket, &mut teller),
        (None, None) => unreachable!("the command line asks for one of both"),
    }
}

/// Serves guests that reach registers over vfio-user.
fn run_device(arguments: &Arguments, socket: &Path, teller: &mut Teller) -> Result<bool, Error> {
    let made = make(arguments, arguments.card.make, socket)?;
    let (mut device, title) = made;
    let bound = vfio_user::Server::bind(socket);
    let mut server = bound.map_err(|error| Error::Socket(socket.to_path_buf(), error))?;
    server.busy = arguments.busy;
    server.unsealed = arguments.unsealed;
    let wires: Option<OwnedFd> = device
        .wire_descriptor()
        .map(|wire| wire.try_clone_to_owned())
        .transpose()
        .map_err(Error::System)?;
    let wires: Vec<_> = wires.iter().map(AsFd::as_fd).collect();
    teller.begin(arguments, &title, socket);
    loop {
        let end = server.serve(&mut device, &wires, teller);
        if !teller.goes_on(arguments, &end) {
            return Ok(teller.end(arguments, device.violations()));
        }
    }
}

/// Serves front ends that have the registers themselves, over vhost-user.
fn run_back_end(arguments: &Arguments, socket: &Path, teller: &mut Teller) -> Result<bool, Error> {
    let make_back_end = arguments.card.back_end;
    let make_back_end = make_back_end.ok_or(Error::NoBackEnd(arguments.card.name))?;
    let (device, title) = make(arguments, make_back_end, socket)?;
    let mut device = BackEnd::new(device, &arguments.misbehave);
    if arguments.unsealed {
        device.accept_unsealed();
    }
    let bound = vhost_user::Server::bind(socket);
    let mut server = bound.map_err(|error| Error::Socket(socket.to_path_buf(), error))?;
    server.busy = arguments.busy;
    teller.begin(arguments, &title, socket);
    loop {
        let end = server.serve(&mut device, teller);
        if !teller.goes_on(arguments, &end) {
            return Ok(teller.end(arguments, device.violations()));
        }
    }
}

/// Makes the device, and says what it is.
fn make<D: ?Sized>(
    arguments: &Arguments,
    make: Make<D>,
    socket: &Path,
) -> Result<(Box<D>, String), Error> {
    let Arguments {
        card: Model { name, .. },
        wire,
        file,
        ..
    } = arguments;
    let is_virtio_nic = matches!(make, Make::Nic(_)) && arguments.card.back_end.is_some();
    if arguments.mtu.is_some() && !is_virtio_nic {
        return Err(Error::NoMtu(name));
    }
    let misbehaviour = arguments.misbehave.clone();
    let connection = |takes| Error::Connection(name, takes);
    match (make, wire, file) {
        (Make::Nic(make), Some(wire), None) => {
            let address = arguments.address.unwrap_or_else(|| Address::of(socket));
            let device = make(Setup {
                address: address.0,
                wire: wire.open(address.0).map_err(Error::Wire)?,
                mtu: arguments.mtu,
                misbehaviour,
            });
            Ok((device, format!("{name} {address}")))
        }
        (Make::Disk(make), None, Some(file)) => {
            let disk = file.open().map_err(Error::Disk)?;
            let device = make(DiskSetup { disk, misbehaviour });
            Ok((device, name.to_string()))
        }
        (Make::Alone(make), None, None) => {
            let device = make(&misbehaviour).map_err(Error::System)?;
            Ok((device, name.to_string()))
        }
        (Make::Nic(_), _, _) => Err(connection(
            "a wire, and no file: type --wire=tap:NAME, or another one that --help names",
        )),
        (Make::Disk(_), _, _) => Err(connection(
            "a file, and no wire: type --file=PATH, or --file=PATH,ro",
        )),
        (Make::Alone(_), _, _) => Err(connection("neither a wire nor a file")),
    }
}

/// Says what happens, and listens to signals.
struct Teller {
    stop: Arc<AtomicBool>,
    /// Somebody wants a summary.
    asked: Arc<AtomicBool>,
    /// Reports that were told when they came up.
    told: usize,
    start: Instant,
    limit: LogLimit,
}

impl Teller {
    fn new() -> Result<Self, Error> {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, stop.clone()).map_err(Error::System)?;
        }
        flag::register(SIGUSR1, asked.clone()).map_err(Error::System)?;
        Ok(Self {
            stop,
            asked,
            told: 0,
            start: Instant::now(),
            limit: LogLimit::default(),
        })
    }

    /// Says that clients can come.
    fn begin(&mut self, arguments: &Arguments, title: &str, socket: &Path) {
        if arguments.unsealed {
            tell(&"guests may lend memory that they can shrink; who does ends his session");
        }
        // Whoever has started it may start a guest from here on.
        println!("{title} at {}", socket.display());
    }

    /// Says how a session ended, and whether there is to be another one.
    fn goes_on(&mut self, arguments: &Arguments, end: &End) -> bool {
        if matches!(end, End::Stopped) {
            return false;
        }
        // That its only client goes is how it is meant to end.
        if !(arguments.once && matches!(end, End::Closed)) {
            self.tell_of_client(end);
        }
        !arguments.once
    }

    /// Says what there is left to say; whether drivers kept to the datasheet.
    fn end(&mut self, arguments: &Arguments, violations: &Violations) -> bool {
        let left_out = self.limit.left_out();
        if left_out > 0 {
            tell(&format_args!(
                "{left_out} lines about clients were left out"
            ));
        }
        if arguments.json {
            println!("{}", as_json(violations));
        } else if violations.total() > self.told as u64 {
            summarise(violations);
        }
        violations.is_empty()
    }

    /// What happens between two turns of a device.
    fn turn_of(&mut self, violations: &Violations) -> ControlFlow<()> {
        for Report { violation, .. } in &violations.reports()[self.told..] {
            tell(&format_args!("{violation} [{}]", violation.severity()));
            self.told += 1;
        }
        if self.asked.swap(false, Ordering::Relaxed) {
            summarise(violations);
        }
        match self.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Says what a client did, unless clients have given cause for too many lines.
    fn tell_of_client(&mut self, what: &dyn fmt::Display) {
        match self.limit.admit(self.start.elapsed()) {
            Some(0) => tell(what),
            Some(left_out) => tell(&format_args!(
                "{what} ({left_out} lines about clients were left out before this one)"
            )),
            None => {}
        }
    }
}

impl Around<Box<dyn Device>> for Teller {
    fn turn(&mut self, device: &mut Box<dyn Device>) -> ControlFlow<()> {
        self.turn_of(device.violations())
    }

    fn refused(&mut self, command: &'static str, why: &Refused) {
        self.tell_of_client(&format_args!("{command} was refused: {why}"));
    }
}

impl Around<BackEnd<Box<dyn VirtioDevice>>> for Teller {
    fn turn(&mut self, device: &mut BackEnd<Box<dyn VirtioDevice>>) -> ControlFlow<()> {
        self.turn_of(device.violations())
    }

    fn refused(&mut self, command: &'static str, why: &Refused) {
        self.tell_of_client(&format_args!("{command} was refused: {why}"));
    }
}

fn summarise(violations: &Violations) {
    let (total, counts) = (violations.total(), violations.counts());
    tell(&format_args!("{total} violations in all: {counts:?}"));
    for (severity, count) in violations.severities() {
        tell(&format_args!("{count} violations: {severity}"));
    }
    for report in violations.reports() {
        tell(report);
    }
    match violations.unreported() {
        0 => {}
        more => tell(&format_args!("and {more} more")),
    }
}

/// The same for programs: counts by kind and severity, and one entry for each kind and register.
fn as_json(violations: &Violations) -> serde_json::Value {
    let by_severity = violations.severities().into_iter();
    let severities: BTreeMap<_, _> = by_severity
        .map(|(severity, count)| (severity.name(), count))
        .collect();
    let reports = violations.reports().iter().map(|report| {
        json!({
            "kind": report.violation.kind(),
            "severity": report.violation.severity().name(),
            "what": report.violation.to_string(),
            "count": report.count,
        })
    });
    json!({
        "violations": violations.total(),
        "counts": violations.counts(),
        "severities": severities,
        "reports": reports.collect::<Vec<_>>(),
    })
}

fn tell(what: &dyn fmt::Display) {
    eprintln!("outboard model: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_one_station() {
        let parsed = "02:00:0a:ff:00:01".parse();
        assert_eq!(parsed, Ok(Address([2, 0, 10, 255, 0, 1])));
        for bad in [
            "",
            "02:00:00:00:00",
            "03:00:00:00:00:01",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_sockets_name_makes_an_address_of_its_own() {
        let address = |path: &str| Address::of(Path::new(path));
        assert_eq!(address("/run/a"), address("/run/a"));
        assert_ne!(address("/run/a"), address("/run/b"));
        assert_eq!(address("/run/a").0[0], 2);
    }
}
