//! A router between two networks of Linux's: one has private addresses, the other one a server.
//!
//! ```text
//!   client 10.0.0.2 --- private === router === public --- server 192.0.2.1
//! ```

use super::tender;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::thread::scope;
use std::time::Duration;
use testbed::segment::{Address, Segment};

type Test = fn(&Images, &str) -> Result<(), Failed>;

const TESTS: [(&str, Test); 4] = [
    ("everybody inside has its public address", masqueraded),
    (
        "both versions go out, and IPv6 keeps its addresses",
        gone_out,
    ),
    ("nobody outside begins anything", closed),
    ("who is rejected is told", rejected),
];
const HOSTS: [&str; 2] = ["spt", "process"];

/// What is tried with a virtual machine.
pub type OnHvt = fn(&Images) -> Result<(), Failed>;

/// What a virtual machine must do as well.
pub const ON_HVT: [(&str, OnHvt); 1] = [("both versions go out", |images| gone_out(images, "hvt"))];

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const PUBLIC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const CLIENT6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);
pub const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const INSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
const PUBLIC6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 9);
/// The router's addresses of IPv6, as it is told of them.
pub const OWN6: [&str; 2] = [
    "--ipv6:private=2001:db8:2::1/64",
    "--ipv6:public=2001:db8:1::9/64",
];
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How long somebody waits for what is not to come.
const IN_VAIN: Duration = Duration::from_millis(500);
/// What goes through a connection.
const BYTES: usize = 4 << 20;
/// The same where all instructions are interpreted.
const BYTES_ON_HVT: usize = 256 << 10;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = programs::missing(&["ping"]);
    let each = TESTS.iter().flat_map(|one| HOSTS.map(|host| (one, host)));
    let trial = |(&(name, test), host): (&(&str, Test), &'static str)| {
        let name = format!("router::{name}::{host}");
        network.trial_unless(missing, name, move || test(images, host))
    };
    each.map(trial).collect()
}

/// Two networks, and what is between them.
pub struct Routed {
    pub inside: Segment,
    pub outside: Segment,
    pub running: Running,
}

impl Routed {
    /// The router with its own rules. Linux has these addresses, inside and outside.
    pub fn new(
        images: &Images,
        host: &str,
        linux: [Ipv4Addr; 2],
        arguments: &[&str],
    ) -> Result<Self, Failed> {
        Self::by(tender(images, host), images, linux, arguments)
    }

    /// The same by a command that lacks memory, ports and image.
    pub fn by(
        mut command: Command,
        images: &Images,
        linux: [Ipv4Addr; 2],
        arguments: &[&str],
    ) -> Result<Self, Failed> {
        let [inside, outside] = [Segment::new()?, Segment::new()?];
        let tap = |segment: &Segment, ip| {
            let (prefix, mtu) = (24, 1500);
            let tap = segment.tap("tap0", true, Address { ip, prefix, mtu })?;
            let tap = tap.into_fd();
            rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty())?;
            Ok::<OwnedFd, Failed>(tap)
        };
        let [private, public] = [tap(&inside, linux[0])?, tap(&outside, linux[1])?];
        command
            .arg("--mem=64")
            .arg(format!("--net:private=@{}", private.as_raw_fd()))
            .arg(format!("--net:public=@{}", public.as_raw_fd()))
            .arg(images.appliance("router", ""))
            .args(["--ipv4:private=10.0.0.1/24", "--ipv4:public=192.0.2.9/24"])
            .args(arguments);
        let running = start(&mut command)?;
        running.wait_for("192.0.2.9/24 on public")?;
        running.wait_for("10.0.0.1/24 on private")?;
        Ok(Self {
            inside,
            outside,
            running,
        })
    }

    /// The same, where both networks know their way.
    fn known(images: &Images, host: &str) -> Result<Self, Failed> {
        Self::known_by(tender(images, host), images)
    }

    /// The same by a command that lacks memory, ports and image.
    pub fn known_by(command: Command, images: &Images) -> Result<Self, Failed> {
        let routed = Self::by(command, images, [CLIENT, SERVER], &OWN6)?;
        let networks = [&routed.inside, &routed.outside];
        for (segment, gateway) in networks.into_iter().zip([INSIDE, PUBLIC]) {
            segment.netlink(|netlink| netlink.add_gateway(gateway.into()))?;
        }
        speak6(networks.map(|segment| (segment, "tap0")))?;
        Ok(routed)
    }

    /// As [`connects`], with many bytes.
    fn connects(&self, server: IpAddr) -> Result<IpAddr, Failed> {
        connects([&self.inside, &self.outside], server, BYTES)
    }

    fn ends(mut self) -> Result<(), Failed> {
        match self.running.is_alive() {
            true => Ok(()),
            false => Err(format!("it ended: {:?}", self.running.finish()?).into()),
        }
    }
}

/// Has two networks, by these interfaces, speak IPv6, with the router as their gateway.
pub fn speak6(networks: [(&Segment, &str); 2]) -> Result<(), Failed> {
    let own = [(CLIENT6, INSIDE6), (SERVER6, PUBLIC6)];
    for ((segment, interface), (own, gateway)) in networks.into_iter().zip(own) {
        segment.speak_ipv6(interface, own, 64)?;
        segment.netlink(|netlink| netlink.add_gateway(gateway.into()))?;
    }
    Ok(())
}

/// A connection from inside to a server outside carries bytes both ways; who the server sees.
pub fn connects(
    [inside, outside]: [&Segment; 2],
    server: IpAddr,
    bytes: usize,
) -> Result<IpAddr, Failed> {
    let listener = outside.run(|| TcpListener::bind((server, 0)))?;
    let to = listener.local_addr()?;
    let sent: Vec<u8> = (0..bytes).map(|n| (n / 7) as u8).collect();
    scope(|threads| {
        let client = threads.spawn(|| -> std::io::Result<Vec<u8>> {
            let mut stream = inside.run(|| TcpStream::connect_timeout(&to, PATIENCE))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(&sent)?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut back = Vec::new();
            stream.read_to_end(&mut back)?;
            Ok(back)
        });
        let (mut stream, from) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut arrived = Vec::new();
        stream.read_to_end(&mut arrived)?;
        stream.write_all(&arrived)?;
        drop(stream);
        let back = client.join().map_err(|_| "the client panicked")??;
        match arrived == sent && back == sent {
            true => Ok(from.ip()),
            false => Err(Failed::from("bytes are wrong")),
        }
    })
}

/// Who is inside reaches who is outside by ping and TCP: by IPv4 from the router's address, by IPv6
/// from their own.
pub fn go_out(networks: [&Segment; 2], bytes: usize) -> Result<(), Failed> {
    reaches(networks, SERVER.into(), PUBLIC.into(), bytes)?;
    reaches(networks, SERVER6.into(), CLIENT6.into(), bytes)
}

/// A server of the second network answers the first one's ping, and has a connection of its, which
/// comes from an address that it has `seen`.
pub fn reaches(
    networks: [&Segment; 2],
    server: IpAddr,
    seen: IpAddr,
    bytes: usize,
) -> Result<(), Failed> {
    // Linux's discovery takes its time.
    eventually(PATIENCE, || {
        let pinged = ping(networks[0], &format!("-c 1 -W 1 {server}"))?;
        match pinged.contains("1 received") {
            true => Ok(()),
            false => Err(pinged.into()),
        }
    })?;
    same(connects(networks, server, bytes)?, seen)
}

/// What `ping` prints, in a network.
pub fn ping(segment: &Segment, words: &str) -> Result<String, Failed> {
    let mut command = Command::new("ping");
    command.args(words.split_whitespace());
    Ok(segment.run(|| run(&mut command))?.stdout)
}

fn same(found: IpAddr, expected: IpAddr) -> Result<(), Failed> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("the server sees {found}, not {expected}").into()),
    }
}

fn masqueraded(images: &Images, host: &str) -> Result<(), Failed> {
    let routed = Routed::known(images, host)?;
    same(routed.connects(SERVER.into())?, PUBLIC.into())?;
    let server = routed.outside.run(|| UdpSocket::bind((SERVER, 53)))?;
    let client = routed.inside.run(|| UdpSocket::bind((CLIENT, 999)))?;
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    client.send_to(b"question", (SERVER, 53))?;
    let mut bytes = [0; 64];
    let (count, from) = server.recv_from(&mut bytes)?;
    // A port that is free is kept.
    if (&bytes[..count], from) != (b"question", SocketAddr::from((PUBLIC, 999))) {
        return Err(format!("{count} bytes from {from}").into());
    }
    server.send_to(b"answer", from)?;
    let (count, from) = client.recv_from(&mut bytes)?;
    if (&bytes[..count], from) != (b"answer", SocketAddr::from((SERVER, 53))) {
        return Err(format!("{count} bytes from {from}").into());
    }
    let pinged = ping(&routed.inside, "-c 3 -i 0.2 -W 5 192.0.2.1")?;
    if !pinged.contains("3 packets transmitted, 3 received") {
        return Err(pinged.into());
    }
    // Somebody outside has nothing there: that comes back inside, about the packet that was sent.
    let to = (SERVER, 9);
    let client = routed.inside.run(|| UdpSocket::bind((CLIENT, 0)))?;
    client.connect(to)?;
    client.set_read_timeout(Some(PATIENCE))?;
    client.send(b"is anybody there")?;
    match client.recv(&mut bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
        other => return Err(format!("{other:?} instead of a refusal").into()),
    }
    let late = ping(&routed.inside, "-c 1 -t 1 -W 5 192.0.2.1")?;
    if !late.contains("From 10.0.0.1") || !late.contains("Time to live exceeded") {
        return Err(late.into());
    }
    routed.ends()
}

fn gone_out(images: &Images, host: &str) -> Result<(), Failed> {
    let routed = Routed::known(images, host)?;
    let bytes = match host {
        "hvt" => BYTES_ON_HVT,
        _ => BYTES,
    };
    go_out([&routed.inside, &routed.outside], bytes)?;
    routed.ends()
}

/// Linux believes what it is told: it gives up at once, with the error that the rule says.
fn rejected(images: &Images, host: &str) -> Result<(), Failed> {
    const RULES: &str = "table inet t {
    chain forward {
        type filter hook forward priority filter
        tcp dport 23 reject with tcp reset
        tcp dport 24 reject with icmpx no-route
        udp dport 25 reject
        tcp dport 26 reject with icmpx admin-prohibited
    }
    chain input {
        type filter hook input priority filter
        udp dport 27 reject with icmpx admin-prohibited
    }
}
";
    let folder = TemporaryFolder::new("rejected")?;
    let (rules, share) = (folder.path.join("rules.nft"), folder.path.join("share"));
    std::fs::write(&rules, RULES)?;
    std::fs::File::create(&share)?.set_len(abi::share::BYTES)?;
    let mut command = tender(images, host);
    command
        .arg(format!("--share={}", share.display()))
        .arg(format!("--rules={}", rules.display()));
    let routed = Routed::known_by(command, images)?;
    for (server, router) in [
        (IpAddr::from(SERVER), IpAddr::from(INSIDE)),
        (SERVER6.into(), INSIDE6.into()),
    ] {
        let prohibited = match server {
            IpAddr::V4(_) => Errno::HOSTUNREACH,
            IpAddr::V6(_) => Errno::ACCESS,
        };
        let no_route = Errno::NETUNREACH;
        for (to, expected) in [(23, Errno::CONNREFUSED), (24, no_route), (26, prohibited)] {
            let to = SocketAddr::from((server, to));
            let connected = routed
                .inside
                .run(|| TcpStream::connect_timeout(&to, PATIENCE));
            told(connected.map(|_| ()), expected, to)?;
        }
        for (to, port, expected) in [(server, 25, Errno::CONNREFUSED), (router, 27, prohibited)] {
            let any = match to {
                IpAddr::V4(_) => "0.0.0.0:0",
                IpAddr::V6(_) => "[::]:0",
            };
            let client = routed.inside.run(|| UdpSocket::bind(any))?;
            let to = SocketAddr::from((to, port));
            client.connect(to)?;
            client.set_read_timeout(Some(PATIENCE))?;
            client.send(b"is anybody there")?;
            told(client.recv(&mut [0; 64]).map(|_| ()), expected, to)?;
        }
    }
    routed.ends()
}

fn told(said: std::io::Result<()>, expected: Errno, to: SocketAddr) -> Result<(), Failed> {
    match said {
        Err(error) if error.raw_os_error() == Some(expected.raw_os_error()) => Ok(()),
        said => Err(format!("{to}: {said:?} instead of {expected}").into()),
    }
}

fn closed(images: &Images, host: &str) -> Result<(), Failed> {
    let routed = Routed::known(images, host)?;
    let listener = routed.inside.run(|| TcpListener::bind((CLIENT, 0)))?;
    let to = listener.local_addr()?;
    let connected = routed
        .outside
        .run(|| TcpStream::connect_timeout(&to, IN_VAIN));
    if connected.is_ok() {
        return Err("somebody outside connects to the inside".into());
    }
    let pinged = ping(&routed.outside, "-c 1 -W 1 10.0.0.2")?;
    if !pinged.contains("0 received") {
        return Err(pinged.into());
    }
    // The router itself answers pings, and those who are inside may go out.
    let pinged = ping(&routed.outside, "-c 1 -W 5 192.0.2.9")?;
    if !pinged.contains("1 received") {
        return Err(pinged.into());
    }
    same(routed.connects(SERVER.into())?, PUBLIC.into())?;
    routed.ends()
}
