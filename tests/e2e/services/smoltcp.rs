//! The same appliances over smoltcp's sockets, with Linux at the other end.

use super::echo::{connect, random, round};
use super::iperf3::{client, judge};
use super::{PATIENCE, PLAIN, Port, SERVICE, beside, launch, serve, tap, tender};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use std::io::ErrorKind;
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use testbed::segment::Segment;

/// Ports: with offloads and without, and others than Ethernet's.
const PORTS: [Port; 3] = [
    PLAIN,
    Port {
        mtu: 1500,
        vnet_header: false,
    },
    Port {
        mtu: 9000,
        vnet_header: true,
    },
];

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: [(&str, &[&str], Test); 5] = [
    ("bytes come back", &[], bytes_come_back),
    ("datagrams come back", &[], datagrams),
    ("connections one after another", &[], many),
    ("what it cannot do is refused", &[], refused),
    ("stock clients of iperf3 are served", &["iperf3"], serves),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |(name, needed, test): (&str, &[&'static str], Test)| {
        let name = format!("smoltcp::{name}");
        network.trial_unless(programs::missing(needed), name, move || test(images))
    };
    TESTS.into_iter().map(trial).collect()
}

/// The same appliance over smoltcp's sockets.
fn on_smoltcp(image: &Path) -> PathBuf {
    beside(image, "-smoltcp.spt")
}

fn bytes_come_back(images: &Images) -> Result<(), Failed> {
    for port in &PORTS {
        let served = serve(images, "spt", port, &on_smoltcp(&images.echo), &[])?;
        for (seed, len) in [0, 1, 1448, 70_000, 3_000_000].into_iter().enumerate() {
            round(connect(&served, 7)?, &random(seed as u64, len))?;
        }
        let error = served.segment.run(|| TcpStream::connect((SERVICE, 8)));
        if error.map_err(|error| error.kind()).err() != Some(ErrorKind::ConnectionRefused) {
            return Err("port 8 is open".into());
        }
        served.goes_on()?;
    }
    Ok(())
}

/// In one packet and in fragments.
fn datagrams(images: &Images) -> Result<(), Failed> {
    for port in &PORTS {
        let served = serve(images, "spt", port, &on_smoltcp(&images.echo), &[])?;
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
        served.goes_on()?;
    }
    Ok(())
}

/// More than the image has memory for at a time: those that have ended make room.
fn many(images: &Images) -> Result<(), Failed> {
    let served = serve(images, "spt", &PLAIN, &on_smoltcp(&images.echo), &[])?;
    for seed in 0..400 {
        round(connect(&served, 7)?, &random(seed, 5000))?;
    }
    served.goes_on()
}

fn refused(images: &Images) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let tap = tap(&segment, &PLAIN)?;
    let image = on_smoltcp(&images.echo);
    let running = launch(tender(images, "spt"), &tap, &image, &["--dhcp"])?;
    let ended = running.finish()?;
    ended.expect_status(1)?.expect_stdout("not on smoltcp")?;
    Ok(())
}

fn serves(images: &Images) -> Result<(), Failed> {
    let served = serve(images, "spt", &PLAIN, &on_smoltcp(&images.iperf3), &["-s"])?;
    for (words, streams) in [
        ("--bytes 20M", 1),
        ("--bytes 20M --reverse", 1),
        ("--bytes 5M --parallel 8", 8),
        ("--bytes 5M --parallel 8 --reverse", 8),
        ("--bytes 5M --bidir", 2),
        ("--udp --time 1 --bitrate 20M", 1),
        ("--udp --time 1 --bitrate 20M --reverse", 1),
    ] {
        let ended = client(&served, words)?;
        judge(words, &ended.expect_status(0)?.stdout, streams)?;
    }
    served.goes_on()
}
