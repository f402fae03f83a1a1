//! One stack over several ports, each in a network of its own.

use super::{PATIENCE, tender};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, start};
use etherparse::PacketBuilder;
use libtest_mimic::{Failed, Trial};
use linux::packet::PacketSocket;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use testbed::segment::{Address, Segment};

/// Linux's address in each network, and the image's.
const SERVICE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
const INSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2)];
/// The link address of the image's first port.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// A host behind Linux of the second network.
const FAR: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = Vec::new();
    for host in ["spt", "process"] {
        let name = format!("ports::both are served and keep apart::{host}");
        trials.push(network.trial(name, move || both(images, host)));
    }
    let name = "ports::a name that there is not is refused".into();
    trials.push(network.trial(name, || refused(images)));
    trials
}

/// Two networks that know nothing of each other, and their taps.
struct Networks {
    segments: [Segment; 2],
    taps: [OwnedFd; 2],
}

impl Networks {
    fn new() -> Result<Self, Failed> {
        let segments = [Segment::new()?, Segment::new()?];
        let tap = |segment: &Segment, [ip, _]: [Ipv4Addr; 2]| {
            let (prefix, mtu) = (24, 1500);
            let tap = segment.tap("tap0", true, Address { ip, prefix, mtu })?;
            let tap = tap.into_fd();
            rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty())?;
            Ok::<OwnedFd, Failed>(tap)
        };
        let taps = [tap(&segments[0], SERVICE)?, tap(&segments[1], INSIDE)?];
        Ok(Self { segments, taps })
    }

    fn start(&self, images: &Images, host: &str, arguments: &[&str]) -> Result<Running, Failed> {
        let [service, inside] = self.taps.each_ref().map(AsRawFd::as_raw_fd);
        let mut command: Command = tender(images, host);
        command
            .arg("--mem=64")
            .arg(format!("--net:service=@{service}"))
            .arg("--net-mac:service=02:00:00:00:00:01")
            .arg(format!("--net:inside=@{inside}"))
            .arg(images.appliance("echo", "-ports"))
            .args(arguments);
        start(&mut command)
    }
}

/// What comes back over TCP and UDP to an address of the image's, from one of the network's.
fn echoes(segment: &Segment, from: Ipv4Addr, to: Ipv4Addr) -> Result<(), Failed> {
    let socket = segment.run(|| UdpSocket::bind((from, 0)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect((to, 7))?;
    let mut place = [0; 100];
    // A connected socket takes what comes from the address that was asked, and nothing else.
    socket.send(b"datagram")?;
    let count = socket.recv(&mut place)?;
    let mut stream = segment.run(|| TcpStream::connect((to, 7)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"bytes")?;
    stream.read_exact(&mut place[count..count + 5])?;
    match &place[..count + 5] == b"datagrambytes" {
        true => Ok(()),
        false => Err(format!("{to} sent something else back").into()),
    }
}

/// A datagram to port 7, as somebody sends it who knows the link address of the image's first port.
fn frame(from: u16, to: Ipv4Addr) -> Result<Vec<u8>, Failed> {
    let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], MAC);
    let datagram = link.ipv4(SERVICE[0].octets(), to.octets(), 64).udp(from, 7);
    let mut frame = Vec::new();
    datagram.write(&mut frame, b"in?")?;
    Ok(frame)
}

fn both(images: &Images, host: &str) -> Result<(), Failed> {
    let networks = Networks::new()?;
    let arguments = [
        "--ipv4=10.0.0.2/24",
        "--ipv4:inside=10.1.0.2/24",
        "--ipv4-gateway:inside=10.1.0.1",
    ];
    let mut running = networks.start(images, host, &arguments)?;
    running.wait_for("10.0.0.2/24 on service")?;
    running.wait_for("10.1.0.2/24 on inside")?;
    let [service, inside] = &networks.segments;
    echoes(service, SERVICE[0], SERVICE[1])?;
    echoes(inside, INSIDE[0], INSIDE[1])?;
    // A host that is behind the gateway of the second network is answered there.
    inside.netlink(|netlink| netlink.add_address("lo", FAR.into(), 32))?;
    echoes(inside, FAR, INSIDE[1])?;
    // Nobody reaches the address of the other port through this one.
    let stranger = service.run(|| UdpSocket::bind((SERVICE[0], 0)))?;
    stranger.set_nonblocking(true)?;
    let own = stranger.local_addr()?.port();
    let wire = service.run(|| PacketSocket::open("tap0"))?;
    for (to, expected) in [(INSIDE[1], 0), (SERVICE[1], 1)] {
        wire.send(&frame(own, to)?)?;
        // What comes later has its answer: so has what came before.
        echoes(service, SERVICE[0], SERVICE[1])?;
        let answers = std::iter::from_fn(|| stranger.recv(&mut [0; 9]).ok()).count();
        if answers != expected {
            return Err(format!("{to}: {answers} answers and not {expected}").into());
        }
    }
    match running.is_alive() {
        true => Ok(()),
        false => Err("it ended".into()),
    }
}

fn refused(images: &Images) -> Result<(), Failed> {
    let networks = Networks::new()?;
    let ended = networks
        .start(images, "spt", &["--ipv4:insid=10.1.0.2/24"])?
        .finish()?;
    ended.expect_status(abi::exit::FAILURE)?;
    let expected = "--ipv4:insid=10.1.0.2/24: the image's ports are service, inside";
    match ended.stdout.contains(expected) {
        true => Ok(()),
        false => Err(ended.stdout.into()),
    }
}
