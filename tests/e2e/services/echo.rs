//! `echo`: bytes come back, over ports of all kinds, and however they are cut.

use super::{PATIENCE, PLAIN, Port, SERVICE, SOCKETS, Served, serve};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::run;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, Shutdown, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};
use testbed::meter::cpu_time;

/// What an idle image may use of two seconds, as the kernel counts: in ticks of 10 ms.
const IDLE_MAX: Duration = Duration::from_millis(30);

type Test = fn(&Images) -> Result<(), Failed>;

/// What a virtual machine must do as well.
pub const ON_HVT: &[(&str, Test)] = &[("bytes come back", |images| {
    bytes_come_back(images, "hvt", 1500, true)
})];

const TESTS: &[(&str, Test)] = &[
    ("bytes come back::spt", |images| {
        bytes_come_back(images, "spt", 1500, true)
    }),
    ("bytes come back::process", |images| {
        bytes_come_back(images, "process", 1500, true)
    }),
    ("bytes come back::without offloads", |images| {
        bytes_come_back(images, "spt", 1500, false)
    }),
    ("bytes come back::MTU 576", |images| {
        bytes_come_back(images, "spt", 576, false)
    }),
    ("bytes come back::MTU 9000", |images| {
        bytes_come_back(images, "spt", 9000, true)
    }),
    ("bytes come back::sockets", |images| {
        bytes_come_back(images, SOCKETS, 1500, true)
    }),
];

type HostTest = fn(&Images, &str) -> Result<(), Failed>;

/// The same over a tap and over the host's sockets.
const ON_BOTH: &[(&str, HostTest)] = &[
    ("datagrams come back", datagrams),
    ("nobody listens elsewhere", refused),
    ("many connections", many),
    ("without work it sleeps", idle),
    ("IPv6 is served as well", ipv6),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial =
        |&(name, test): &(&str, Test)| network.trial(format!("echo::{name}"), move || test(images));
    let mut trials: Vec<Trial> = TESTS.iter().map(trial).collect();
    for (name, test) in ON_BOTH {
        for host in ["spt", SOCKETS] {
            let name = format!("echo::{name}::{host}");
            trials.push(network.trial(name, move || test(images, host)));
        }
    }
    let missing = programs::missing(&["ping"]);
    let name = "echo::ping with 65,000 bytes".into();
    trials.push(network.trial_unless(missing, name, || ping(images)));
    trials
}

pub(super) fn connect(served: &Served, port: u16) -> Result<TcpStream, Failed> {
    let stream = served.segment.run(|| TcpStream::connect((SERVICE, port)))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Each byte that is sent is received, in order, and the end as well.
pub(super) fn round(stream: TcpStream, bytes: &[u8]) -> Result<(), Failed> {
    let mut received = Vec::new();
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            (&stream).write_all(bytes)?;
            stream.shutdown(Shutdown::Write)
        });
        let read = (&stream).read_to_end(&mut received);
        let sent = sender.join().expect("it does not panic");
        read.and(sent)
    })?;
    match received == bytes {
        true => Ok(()),
        false => Err(format!("{} of {} bytes", received.len(), bytes.len()).into()),
    }
}

pub(super) fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// Whoever listens at no address in particular hears both versions.
fn ipv6(images: &Images, host: &str) -> Result<(), Failed> {
    let (served, address) = match host {
        SOCKETS => (
            serve(images, host, &PLAIN, &images.echo, &[])?,
            Ipv6Addr::LOCALHOST,
        ),
        _ => {
            let arguments = ["--ipv6=fd00::2/64"];
            let served = serve(images, host, &PLAIN, &images.echo, &arguments)?;
            super::speak_ipv6(&served.segment)?;
            (served, "fd00::2".parse()?)
        }
    };
    // Its address is its own once it has asked whether it is another's.
    let deadline = Instant::now() + PATIENCE;
    let connect = || TcpStream::connect_timeout(&(address, 7).into(), Duration::from_secs(1));
    let stream = loop {
        match served.segment.run(connect) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
            connected => break connected?,
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    round(stream, &random(6, 70_000))?;
    let socket = served
        .segment
        .run(|| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect((address, 7))?;
    socket.send(b"six")?;
    let mut answer = [0; 9];
    let count = socket.recv(&mut answer)?;
    match &answer[..count] {
        b"six" => served.goes_on(),
        other => Err(format!("{other:?} came back").into()),
    }
}

fn bytes_come_back(images: &Images, host: &str, mtu: u32, vnet: bool) -> Result<(), Failed> {
    let port = Port {
        mtu,
        vnet_header: vnet,
    };
    let served = serve(images, host, &port, &images.echo, &[])?;
    for (seed, len) in [0, 1, 1448, 70_000, 3_000_000].into_iter().enumerate() {
        let result = round(connect(&served, 7)?, &random(seed as u64, len));
        result.map_err(|failed| format!("{len} bytes: {}", failed.message().unwrap_or("?")))?;
    }
    served.goes_on()
}

fn refused(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.echo, &[])?;
    let error = served.segment.run(|| TcpStream::connect((SERVICE, 8)));
    match error {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => served.goes_on(),
        other => Err(format!("{other:?}").into()),
    }
}

/// In one packet and in fragments; the port beside it refuses.
fn datagrams(images: &Images, host: &str) -> Result<(), Failed> {
    for vnet_header in [true, false] {
        let port = Port {
            mtu: 1500,
            vnet_header,
        };
        let served = serve(images, host, &port, &images.echo, &[])?;
        let socket = served.segment.run(|| UdpSocket::bind("0.0.0.0:0"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect((SERVICE, 7))?;
        for (seed, len) in [0, 1, 1472, 1473, 60_000].into_iter().enumerate() {
            let sent = random(seed as u64, len);
            socket.send(&sent)?;
            let mut received = vec![0; 65_536];
            let count = socket.recv(&mut received)?;
            if received[..count] != sent {
                return Err(format!("{len} bytes: {count} came back").into());
            }
        }
        socket.connect((SERVICE, 8))?;
        socket.send(b"?")?;
        let refused = socket.recv(&mut [0]).map_err(|error| error.kind());
        if refused != Err(ErrorKind::ConnectionRefused) {
            return Err(format!("port 8: {refused:?}").into());
        }
        served.goes_on()?;
    }
    Ok(())
}

/// More than the backlog has room for, all open together.
fn many(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.echo, &[])?;
    let streams: Vec<TcpStream> = (0..300)
        .map(|_| connect(&served, 7))
        .collect::<Result<_, _>>()?;
    for (seed, stream) in streams.into_iter().enumerate() {
        round(stream, &random(seed as u64, 5000))?;
    }
    served.goes_on()
}

/// With connections open, and nothing to do.
fn idle(images: &Images, host: &str) -> Result<(), Failed> {
    let served = serve(images, host, &PLAIN, &images.echo, &[])?;
    let streams: Vec<TcpStream> = (0..50)
        .map(|_| connect(&served, 7))
        .collect::<Result<_, _>>()?;
    // What was put off is done: delayed acknowledgements, announcements of addresses.
    std::thread::sleep(Duration::from_secs(3));
    let before = cpu_time(served.running.id())?;
    std::thread::sleep(Duration::from_secs(2));
    let used = cpu_time(served.running.id())? - before;
    drop(streams);
    match used < IDLE_MAX {
        true => served.goes_on(),
        false => Err(format!("it worked for {used:?} of two seconds").into()),
    }
}

fn ping(images: &Images) -> Result<(), Failed> {
    for vnet_header in [true, false] {
        let port = Port {
            mtu: 1500,
            vnet_header,
        };
        let served = serve(images, "spt", &port, &images.echo, &[])?;
        let mut ping = Command::new("ping");
        ping.args(["-c", "3", "-i", "0.2", "-s", "65000", &SERVICE.to_string()]);
        let ended = served.segment.run(|| run(&mut ping))?;
        ended.expect_status(0)?.expect_stdout("3 received")?;
        served.goes_on()?;
    }
    Ok(())
}
