//! Programs that others wrote: which of them this machine lacks, and the traffic of those that each
//! network administrator knows, `ping` and `iperf3`.

use crate::harness::process::{Ended, run, start};
use crate::harness::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use std::ffi::OsStr;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use testbed::segment::Segment;

/// Packets that `ping` sends.
const PINGS: u32 = 20;
/// Bytes that `iperf3` sends: not for a time, for nobody knows what a slow machine does in it.
const BYTES: &str = "1M";
/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(15);

/// Which end of `iperf3` sends.
#[derive(Clone, Copy, Debug)]
pub enum Sender {
    /// The one that connects.
    Client,
    /// The one that listens (`--reverse`).
    Server,
}

/// Programs that a machine may lack on which all else is tested, and why a test is skipped then.
/// `xtask/src/packages.rs` offers to install them.
const OPTIONAL: [(&str, &str); 41] = [
    (
        "busybox",
        "needs busybox with udhcpd: sudo apt-get install busybox",
    ),
    ("curl", "needs curl: sudo apt-get install curl"),
    ("dig", "needs dig: sudo apt-get install dnsutils"),
    (
        "dnsmasq",
        "needs dnsmasq: sudo apt-get install dnsmasq-base",
    ),
    ("ethtool", "needs ethtool: sudo apt-get install ethtool"),
    ("gdb", "needs gdb: sudo apt-get install gdb"),
    ("go", "needs go: sudo apt-get install golang-go"),
    ("git", "needs git: sudo apt-get install git"),
    ("ip", "needs ip: sudo apt-get install iproute2"),
    ("iperf", "needs iperf 2: sudo apt-get install iperf"),
    ("iperf3", "needs iperf3: sudo apt-get install iperf3"),
    (
        "javac",
        "needs javac: sudo apt-get install default-jdk-headless",
    ),
    (
        "netperf",
        "needs netperf, which Debian has in non-free: sudo apt-get install netperf",
    ),
    ("mcopy", "needs mcopy: sudo apt-get install mtools"),
    ("mke2fs", "needs mke2fs: sudo apt-get install e2fsprogs"),
    (
        "mkfs.vfat",
        "needs mkfs.vfat: sudo apt-get install dosfstools",
    ),
    ("nc", "needs nc: sudo apt-get install netcat-openbsd"),
    ("nbdcopy", "needs nbdcopy: sudo apt-get install libnbd-bin"),
    ("nbdinfo", "needs nbdinfo: sudo apt-get install libnbd-bin"),
    ("nginx", "needs nginx: sudo apt-get install nginx-light"),
    ("nft", "needs nft: sudo apt-get install nftables"),
    ("ping", "needs ping: sudo apt-get install iputils-ping"),
    ("pgrep", "needs pgrep: sudo apt-get install procps"),
    ("psql", "needs psql: sudo apt-get install postgresql-client"),
    ("python3", "needs python3: sudo apt-get install python3"),
    (
        "qemu-img",
        "needs qemu-img: sudo apt-get install qemu-utils",
    ),
    ("qemu-io", "needs qemu-io: sudo apt-get install qemu-utils"),
    (
        "redis-benchmark",
        "needs redis-benchmark: sudo apt-get install redis-tools",
    ),
    (
        "redis-cli",
        "needs redis-cli: sudo apt-get install redis-tools",
    ),
    (
        "redis-server",
        "needs redis-server: sudo apt-get install redis-server",
    ),
    ("sfdisk", "needs sfdisk: sudo apt-get install fdisk"),
    ("ssh", "needs ssh: sudo apt-get install openssh-client"),
    (
        "ssh-keygen",
        "needs ssh-keygen: sudo apt-get install openssh-client",
    ),
    ("sshd", "needs sshd: sudo apt-get install openssh-server"),
    ("ss", "needs ss: sudo apt-get install iproute2"),
    ("sysctl", "needs sysctl: sudo apt-get install procps"),
    ("systemctl", "needs systemctl: sudo apt-get install systemd"),
    ("tar", "needs tar: sudo apt-get install tar"),
    ("tcpdump", "needs tcpdump: sudo apt-get install tcpdump"),
    ("xorriso", "needs xorriso: sudo apt-get install xorriso"),
    ("wrk", "needs wrk: sudo apt-get install wrk"),
];

/// Why a test is skipped that runs all of these programs, if one is not on the PATH.
///
/// # Panics
/// If one is not among those that a machine may lack.
pub fn missing(programs: &[&str]) -> Option<&'static str> {
    missing_on(&std::env::var_os("PATH").unwrap_or_default(), programs)
}

/// The same with another PATH.
///
/// # Panics
/// If one is not among those that a machine may lack.
pub fn missing_on(path: &OsStr, programs: &[&str]) -> Option<&'static str> {
    let lacks = programs
        .iter()
        .find(|program| find_on(path, program).is_none())?;
    let optional = OPTIONAL.iter().find(|(name, _)| name == lacks);
    Some(optional.expect("what is not listed is required").1)
}

/// Where a program is on a PATH.
pub fn find_on(path: &OsStr, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(program))
        .find(|program| program.is_file())
}

pub fn trials() -> Vec<Trial> {
    let name = "programs::each that a machine may lack is skipped with its reason";
    vec![Trial::test(name, each_is_skipped)]
}

/// Where no program is, and where each is.
fn each_is_skipped() -> Result<(), Failed> {
    let folder = TemporaryFolder::new("programs")?;
    for (program, why) in OPTIONAL {
        let said = missing_on(folder.path.as_os_str(), &[program]);
        if said != Some(why) || !why.contains(program) {
            return Err(format!("{program}: {said:?}").into());
        }
        fs::write(folder.path.join(program), "")?;
        let said = missing_on(folder.path.as_os_str(), &[program]);
        if said.is_some() {
            return Err(format!("{program} is there: {said:?}").into());
        }
    }
    Ok(())
}

/// No packet is lost that `ping` sends to `ip` and back.
pub fn ping(from: &Segment, ip: Ipv4Addr) -> Result<(), Failed> {
    let mut command = Command::new("ping");
    command.args(["-c", &PINGS.to_string(), "-i", "0.05", &ip.to_string()]);
    let ended = from.run(|| run(&mut command))?;
    // As busybox and iputils both say it.
    let all = format!("{PINGS} packets transmitted, {PINGS} ");
    ended.expect_status(0)?.expect_stdout(&all)?;
    ended.expect_stdout(" 0% packet loss").map(drop)
}

/// Both ends of an `iperf3` have counted bytes that arrived.
pub fn iperf3(from: &Segment, to: &Segment, ip: Ipv4Addr, sender: Sender) -> Result<(), Failed> {
    let ip = ip.to_string();
    let mut server = Command::new("iperf3");
    server.args(["--server", "--one-off", "--json", "--bind", &ip]);
    let server = to.run(|| start(&mut server))?;
    let mut client = Command::new("iperf3");
    client.args(["--client", &ip, "--json", "--bytes", BYTES]);
    // A server that sends does not ask what has arrived.
    let server_counts = match sender {
        Sender::Client => "sum_received",
        Sender::Server => "sum_sent",
    };
    if let Sender::Server = sender {
        client.arg("--reverse");
    }
    counted(&connected(from, &mut client)?, "sum_received")?;
    counted(&server.finish()?, server_counts)
}

/// Runs a client, again as long as nobody listens yet.
fn connected(from: &Segment, client: &mut Command) -> Result<Ended, Failed> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ended = from.run(|| run(client))?;
        let refused = ended.stdout.contains("Connection refused");
        if !refused || Instant::now() > deadline {
            return Ok(ended);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// One end has done its work, and this sum of its bytes is not 0.
fn counted(ended: &Ended, sum: &str) -> Result<(), Failed> {
    let report: serde_json::Value = serde_json::from_str(&ended.expect_status(0)?.stdout)?;
    let bytes = report["end"][sum]["bytes"].as_u64();
    // Its exit status is 0 after most errors.
    if report["error"].is_null() && bytes.is_some_and(|bytes| bytes > 0) {
        return Ok(());
    }
    Err(format!("iperf3: {}, {sum} {bytes:?}", report["error"]).into())
}
