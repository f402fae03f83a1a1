//! Addresses that stock servers lend: dnsmasq, and busybox, which lends them for seconds.

use super::{PATIENCE, PLAIN, launch, tap, tender};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Running, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use testbed::segment::Segment;

type Test = fn(&Images) -> Result<(), Failed>;

const TESTS: &[(&str, &[&str], Test)] = &[
    ("dnsmasq lends an address", &["dnsmasq"], |images| {
        lent(images, "spt")
    }),
    (
        "dnsmasq lends an address::process",
        &["dnsmasq"],
        |images| lent(images, "process"),
    ),
    (
        "a lease is renewed, and ends with its server",
        &["busybox"],
        renewed,
    ),
    (
        "an address that somebody has is declined",
        &["busybox", "ip"],
        declined,
    ),
    ("an image waits for a server", &["dnsmasq"], late),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial = |&(name, programs, test): &(&str, &[&str], Test)| {
        let missing = programs::missing(programs);
        network.trial_unless(missing, format!("dhcp::{name}"), move || test(images))
    };
    TESTS.iter().map(trial).collect()
}

/// A network with a server of DHCP.
struct Lender {
    segment: Segment,
    tap: OwnedFd,
    /// Where the server keeps its files.
    folder: TemporaryFolder,
}

impl Lender {
    fn new() -> Result<Self, Failed> {
        let segment = Segment::new()?;
        let tap = tap(&segment, &PLAIN)?;
        let folder = TemporaryFolder::new("dhcp")?;
        Ok(Self {
            segment,
            tap,
            folder,
        })
    }

    /// It says on its standard error what it does.
    fn dnsmasq(&self) -> Result<Running, Failed> {
        let mut command = Command::new("dnsmasq");
        let leases = self.folder.path.join("leases");
        command
            .args(["--keep-in-foreground", "--conf-file=/dev/null", "--port=0"])
            .args(["--interface=tap0", "--bind-interfaces", "--log-facility=-"])
            .args(["--log-dhcp", "--pid-file=", "--user=root", "--no-ping"])
            .arg("--dhcp-range=10.0.0.50,10.0.0.60,255.255.255.0,2m")
            .arg("--dhcp-option=option:domain-search,lab.example.org,example.net")
            .arg("--dhcp-option=option:mtu,1400")
            .arg(format!("--dhcp-leasefile={}", leases.display()));
        self.segment.run(|| start(&mut command))
    }

    /// Lends two addresses for ten seconds.
    fn udhcpd(&self) -> Result<Running, Failed> {
        let path = |name| self.folder.path.join(name).display().to_string();
        let config = format!(
            "start 10.0.0.50\nend 10.0.0.51\ninterface tap0\nmin_lease 5\nlease_file {}\n\
             pidfile {}\noption subnet 255.255.255.0\noption lease 10\n",
            path("leases"),
            path("pid"),
        );
        fs::write(path("leases"), "")?;
        fs::write(path("config"), config)?;
        let mut command = Command::new("busybox");
        command.args(["udhcpd", "-f", &path("config")]);
        self.segment.run(|| start(&mut command))
    }

    fn echo(&self, images: &Images, host: &str) -> Result<Running, Failed> {
        launch(tender(images, host), &self.tap, &images.echo, &["--dhcp"])
    }

    /// Bytes come back from an address.
    fn speaks(&self, ip: Ipv4Addr) -> Result<(), Failed> {
        let mut stream = self.segment.run(|| TcpStream::connect((ip, 7)))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"hello")?;
        let mut back = [0; 5];
        stream.read_exact(&mut back)?;
        match &back {
            b"hello" => Ok(()),
            other => Err(format!("{other:?} came back").into()),
        }
    }
}

fn lent(images: &Images, host: &str) -> Result<(), Failed> {
    let lender = Lender::new()?;
    let server = lender.dnsmasq()?;
    let mut image = lender.echo(images, host)?;
    image.wait_for("/24 on service")?;
    let leases = fs::read_to_string(lender.folder.path.join("leases"))?;
    let ip = leases.split_whitespace().nth(2).unwrap_or_default();
    lender.speaks(ip.parse()?)?;
    image.wait_for(&format!("echo: {ip}/24 on service"))?;
    // It asked for what the server has.
    for option in ["domain-search", "mtu", "router", "dns-server"] {
        server.wait_for_stderr(option)?;
    }
    match image.is_alive() {
        true => Ok(()),
        false => Err("it ended".into()),
    }
}

fn renewed(images: &Images) -> Result<(), Failed> {
    let lender = Lender::new()?;
    let server = lender.udhcpd()?;
    let image = lender.echo(images, "spt")?;
    image.wait_for("/24 on service")?;
    let acknowledged = "sending ACK to 10.0.0.5";
    server.wait_for_stderr_times(acknowledged, 3)?;
    drop(server);
    image.wait_for("echo: no more 10.0.0.5")?;
    let _server = lender.udhcpd()?;
    image.wait_for_times("echo: 10.0.0.5", 2)
}

fn declined(images: &Images) -> Result<(), Failed> {
    let lender = Lender::new()?;
    // Linux has it, on whatever interface, and says so to who asks.
    let mut command = Command::new("ip");
    command.args(["address", "add", "10.0.0.50/32", "dev", "lo"]);
    lender.segment.run(|| run(&mut command))?.expect_status(0)?;
    let _server = lender.udhcpd()?;
    let image = lender.echo(images, "spt")?;
    image.wait_for("echo: 10.0.0.51/24 on service")?;
    lender.speaks(Ipv4Addr::new(10, 0, 0, 51))
}

/// It listens before it has an address, and asks again.
fn late(images: &Images) -> Result<(), Failed> {
    let lender = Lender::new()?;
    let image = lender.echo(images, "spt")?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    let _server = lender.dnsmasq()?;
    image.wait_for("/24 on service")
}
