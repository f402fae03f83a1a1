//! `outboard send`: one frame into the segment of a guest's port, and what became of it.

mod evidence;
mod place;
mod report;
mod target;

use crate::frame;
use crate::instance::{self, Device, Instance};
use crate::rules::trace::Trace;
use crate::stats;
use crate::stats::raw::Raw;
use crate::stats::reader::Reader;
use abi::extension::feature;
use evidence::{Counts, Expected, Finding, Rise};
use linux::interface::Interfaces;
use linux::namespace;
use linux::packet::PacketSocket;
use report::{Report, Sent};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};
use tender::suggest;

/// How long the guest may take to count the frame.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the kernel may take to notice that a guest which has just started has its tap.
const CARRIER_PATIENCE: Duration = Duration::from_secs(2);
/// How often the counters are looked at, and the interface.
const PAUSE: Duration = Duration::from_millis(5);
/// Shortest frame that an interface takes, in bytes: an Ethernet header.
const FRAME_BYTES_MIN: usize = 14;

/// `outboard send`.
#[derive(clap::Args)]
#[command(after_help = frame::HELP)]
pub struct Arguments {
    /// A port of a guest that runs under a name, such as fw-private
    #[arg(value_name = "NAME-PORT")]
    target: String,
    #[command(flatten)]
    frame: frame::Typed,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why a frame was not sent, or nobody knows what became of it.
#[derive(Debug)]
pub enum Error {
    /// No instance.
    Instance(instance::Error),
    /// No guest's name and port's name with a hyphen between; the ports that there are.
    Target(String, Vec<String>),
    /// The frame is none.
    Frame(frame::Error),
    /// The frame goes into this port, and not into the one that was named.
    OtherPort(String),
    /// The packet of a capture came into one port, and another one was named.
    Captured {
        /// The frame as it was typed.
        text: String,
        /// Where it was captured.
        of: String,
        /// The port that was named.
        port: String,
    },
    /// The frame has this many bytes, less than an Ethernet header.
    Runt(usize),
    /// No frame of this host gets into the port.
    NoTap(String),
    /// The interface is in another network namespace, and this user may not look for it, or not
    /// enter that.
    Elsewhere(String, io::Error),
    /// The guest has no tap of this name any more.
    Lost(String),
    /// This user may not.
    Permission(String),
    /// The interface is down.
    Down(String),
    /// The frame has this many bytes and is over the MTU of the interface.
    TooBig(String, usize),
    /// The interface did not take the frame.
    Transmit(String, io::Error),
    /// The counters cannot be read.
    Counters(stats::Error),
    /// What was found cannot be printed.
    Print(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(e) => e.fmt(f),
            Self::Target(target, ports) if ports.is_empty() => write!(
                f,
                "no port {}: no guest runs under a name; start one with: outboard run --name=NAME",
                target.escape_debug()
            ),
            Self::Target(target, ports) => {
                write!(f, "no port {}; ", target.escape_debug())?;
                if let Some(near) = suggest::nearest(target, ports.iter().map(String::as_str)) {
                    write!(f, "did you mean {near}? ")?;
                }
                write!(f, "there is {}", suggest::listed(ports))
            }
            Self::Frame(e) => e.fmt(f),
            Self::OtherPort(port) => write!(
                f,
                "the frame itself says that it goes into {port}; leave that out, or name that port"
            ),
            Self::Captured { text, of, port } => write!(
                f,
                "this packet was captured at {}; to send it into {port}, type: '{} in {port}'",
                of.escape_debug(),
                text.escape_debug()
            ),
            Self::Runt(size) => write!(
                f,
                "a frame of {size} bytes; an interface takes {FRAME_BYTES_MIN} and more"
            ),
            Self::NoTap(port) => write!(
                f,
                "{port} is no tap of which the namespace is known: macvtaps and PCI devices take \
                 frames from the wire alone; send from a host in that segment"
            ),
            Self::Elsewhere(interface, e) => write!(
                f,
                "{interface} is in another network namespace, and sending there takes root ({e}); \
                 type: {} $(command -v outboard) send ...",
                instance::sudo()
            ),
            Self::Lost(interface) => write!(
                f,
                "the guest has no tap called {interface} any more: it was renamed or deleted; \
                 start the guest again with one of those that there are: ip tuntap"
            ),
            Self::Permission(interface) => write!(
                f,
                "sending through {interface} takes CAP_NET_RAW; type: {} $(command -v \
                 outboard) send ...",
                instance::sudo()
            ),
            Self::Down(interface) => write!(
                f,
                "{interface} is down, as after a move to another network namespace; there, type: \
                 sudo ip link set dev {interface} up"
            ),
            Self::TooBig(interface, size) => write!(
                f,
                "a frame of {size} bytes is over the MTU of {interface}; send a shorter one"
            ),
            Self::Transmit(interface, e) => write!(
                f,
                "{interface} did not take the frame: {e}; where it is, type: ip link show \
                 {interface}"
            ),
            Self::Counters(e) => e.fmt(f),
            Self::Print(e) => write!(f, "cannot print: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// Sends the frame and prints what became of it. False if nobody knows.
///
/// # Errors
/// It was not sent.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let text = arguments.frame.text().map_err(Error::Frame)?;
    let (instance, port) = find_target(&arguments.target)?;
    let description = instance.description();
    let nets: Vec<_> = description.nets().collect();
    let device = nets[port];
    let frame = read_frame(text, &device.name)?;
    let interface = enter(device, description.monitor)?;
    let refused = |e| refused(interface, e, frame.len());
    let socket = PacketSocket::open(interface).map_err(refused)?;
    await_carrier(interface);
    let others = nets.iter().copied();
    let others = others.filter(|other| other.index != device.index);
    let ports: Vec<_> = std::iter::once(device).chain(others).collect();
    // Before the text is read: rules that are replaced meanwhile are noticed.
    let watch = Watch::new(&instance, &ports)?;
    let features = description.features;
    let trace = match features & feature::RULES {
        0 => None,
        _ => trace(&instance, &frame, port)?,
    };
    socket.send(&frame).map_err(refused)?;
    let (finding, rise) = match features & feature::COUNTERS {
        0 => (Finding::Uncounted, None),
        _ => watch.until_found(&expected(features, trace.as_ref()))?,
    };
    let sent = Sent {
        guest: instance.name(),
        features,
        ports: &ports,
        bytes: frame.len(),
    };
    let report = Report::new(&sent, trace.as_ref(), finding, rise.as_ref());
    let text = if arguments.json {
        serde_json::to_string_pretty(&report).map_err(|e| Error::Print(e.into()))? + "\n"
    } else {
        report.to_string()
    };
    io::Write::write_all(&mut io::stdout(), text.as_bytes()).map_err(Error::Print)?;
    Ok(report.is_known())
}

/// The guest, and the number of its port.
fn find_target(target: &str) -> Result<(Instance, usize), Error> {
    let mut instances = Instance::all().map_err(Error::Instance)?;
    instances.retain(|instance| instance.is_running().unwrap_or(false));
    let find = |guest: &str, port: &str| {
        let number = instances.iter().position(|i| i.name() == guest)?;
        let mut nets = instances[number].description().nets();
        let port = nets.position(|d| d.name == port)?;
        Some((number, port))
    };
    let found = target::split(target, |guest, port| find(guest, port).is_some());
    match found.and_then(|(guest, port)| find(guest, port)) {
        Some((number, port)) => Ok((instances.swap_remove(number), port)),
        None => {
            let ports = instances.iter().flat_map(|instance| {
                let name = instance.name();
                let nets = instance.description().nets();
                nets.map(move |d| format!("{name}-{}", d.name))
            });
            Err(Error::Target(target.to_owned(), ports.collect()))
        }
    }
}

fn read_frame(text: &str, port: &str) -> Result<Vec<u8>, Error> {
    let crafted = frame::read(text).map_err(Error::Frame)?;
    match crafted.port {
        Some(of) if of != port && crafted.is_captured => Err(Error::Captured {
            text: text.trim().to_owned(),
            of,
            port: port.to_owned(),
        }),
        Some(other) if other != port => Err(Error::OtherPort(other)),
        _ if crafted.bytes.len() < FRAME_BYTES_MIN => Err(Error::Runt(crafted.bytes.len())),
        _ => Ok(crafted.bytes),
    }
}

/// The interface behind a port, if a frame that leaves by it comes to the guest. This thread is in
/// the interface's network namespace from then on: one of the same name in another is not meant.
fn enter(device: &Device, monitor: u32) -> Result<&str, Error> {
    let no_tap = || Error::NoTap(device.name.clone());
    let interface = device.interface.as_ref().ok_or_else(no_tap)?;
    let started = device.tap_namespace;
    let elsewhere = |e| Error::Elsewhere(interface.clone(), e);
    let here = namespace::network().map_err(io::Error::other);
    let here = here.and_then(place::inode).map_err(elsewhere)?;
    let found = place::find(interface, started, monitor);
    if let Ok(Some(there)) = &found {
        if place::inode(there).ok() != Some(here) {
            let entered = namespace::enter_network(there.as_fd());
            entered.map_err(|e| elsewhere(io::Error::other(e)))?;
        }
        return Ok(interface);
    }
    // Nobody says where it is now: it is taken to be where it was, if one of its name is there.
    let is_here = || Interfaces::here().is_ok_and(|here| here.is_up(interface).is_ok());
    match (started, found) {
        (None, _) => Err(no_tap()),
        (Some(started), _) if started == here && is_here() => Ok(interface),
        (Some(_), Err(e)) => Err(elsewhere(e)),
        (Some(_), Ok(_)) => Err(Error::Lost(interface.clone())),
    }
}

/// Waits until the interface does not drop what is sent, if it is to do so. One that does after all
/// is told of otherwise: the frame does not arrive.
fn await_carrier(interface: &str) {
    let Ok(here) = Interfaces::here() else {
        return;
    };
    let has_begun =
        || !here.is_up(interface).unwrap_or(false) || here.is_running(interface).unwrap_or(true);
    let begin = Instant::now();
    while !has_begun() && begin.elapsed() < CARRIER_PATIENCE {
        thread::sleep(PAUSE);
    }
}

fn refused(interface: &str, error: io::Error, size: usize) -> Error {
    let interface = interface.to_owned();
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => Error::Permission(interface),
        Some(Errno::MSGSIZE) => Error::TooBig(interface, size),
        Some(Errno::NODEV | Errno::NXIO) => Error::Lost(interface),
        Some(Errno::NETDOWN) => Error::Down(interface),
        _ => Error::Transmit(interface, error),
    }
}

/// What the text of the rules in force says of the frame; `None` if there is no such text.
fn trace(instance: &Instance, frame: &[u8], port: usize) -> Result<Option<Trace>, Error> {
    let reader = Reader::of(instance).map_err(Error::Counters)?;
    let text = reader.text().map_err(Error::Counters)?;
    let ports: Result<[&str; 2], _> = instance.description().ports().try_into();
    let (Ok(text), Ok(ports)) = (text, ports) else {
        return Ok(None);
    };
    Ok(Trace::new(&text, ports, frame, port).ok())
}

fn expected(features: u32, trace: Option<&Trace>) -> Expected {
    match trace {
        _ if features & feature::RULES == 0 => Expected::Arrival,
        None | Some(Trace::Refused { .. } | Trace::Part { .. }) => Expected::Anything,
        // What the guest knows of connections is not known here.
        Some(Trace::Judged(judged)) if judged.connection.is_some() => Expected::Anything,
        Some(Trace::Malformed { reason, .. }) => Expected::Malformed(*reason),
        Some(Trace::Judged(judged)) => Expected::Counted(judged.counted.clone()),
    }
}

/// Counters from the moment before a frame is sent.
struct Watch<'a> {
    instance: &'a Instance,
    /// Indices in the manifest, the port that the frame enters first.
    ports: Vec<usize>,
    before: Counts,
}

impl<'a> Watch<'a> {
    fn new(instance: &'a Instance, ports: &[&Device]) -> Result<Self, Error> {
        let ports: Vec<_> = ports.iter().map(|port| port.index).collect();
        let before = counts(instance, &ports)?;
        Ok(Self {
            instance,
            ports,
            before,
        })
    }

    /// What the counters say once the frame is sent; no rise if the rules were replaced.
    fn until_found(&self, expected: &Expected) -> Result<(Finding, Option<Rise>), Error> {
        let deadline = Instant::now() + PATIENCE;
        let mut settled = false;
        loop {
            let Some(rise) = counts(self.instance, &self.ports)?.since(&self.before) else {
                return Ok((Finding::Replaced, None));
            };
            let finding = evidence::find(&rise, expected);
            let found = finding.is_found();
            // Once more after it was found: counters of one frame rise one after the other.
            if (found && settled) || Instant::now() > deadline {
                return Ok((finding, Some(rise)));
            }
            settled = found;
            thread::sleep(PAUSE);
        }
    }
}

fn counts(instance: &Instance, ports: &[usize]) -> Result<Counts, Error> {
    let raw = Raw::read(instance.share()).map_err(Error::Counters)?;
    Ok(Counts::new(&raw, ports))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_of_another_port_is_sent_by_its_words() {
        let error = Error::Captured {
            text: "pub.pcapng#1".into(),
            of: "public".into(),
            port: "private".into(),
        };
        let says = "this packet was captured at public; to send it into private, type: \
                    'pub.pcapng#1 in private'";
        assert_eq!(error.to_string(), says);
    }
}
