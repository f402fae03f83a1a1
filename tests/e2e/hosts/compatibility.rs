//! Solo5 both ways, on spt and on hvt: its own tests under our tender, our guests under its tender.
//!
//! The peer, v0.12 or later, is built outside the repository; `SOLO5_DIR` says where. What runs on
//! hvt is skipped where KVM is missing; the stage `lab` of `cargo xtask test` runs it.

use crate::harness::build::Images;
use crate::harness::frames::{self, TEST_MAC};
use crate::harness::network::Network;
use crate::harness::process::{run, start};
use crate::harness::temporary::TemporaryFile;
use crate::harness::wire::{BRIDGE, PORT, Wire};
use crate::hosts::guests::{PROMISES, Promise};
use crate::hosts::hvt;
use libtest_mimic::{Completion, Failed, Trial};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testbed::segment::{Address, Segment};
use testbed::traffic::ping::Icmp;

/// Solo5's own expectations, from its `tests/tests.bats`.
struct Expectation {
    name: &'static str,
    /// Size of the file behind the block device `storage`, in bytes.
    storage: Option<u64>,
    options: &'static [&'static str],
    arguments: &'static [&'static str],
    status: i32,
    says: &'static str,
}

const fn expect(name: &'static str, status: i32, says: &'static str) -> Expectation {
    Expectation {
        name,
        storage: None,
        options: &[],
        arguments: &[],
        status,
        says,
    }
}

const fn storage(bytes: u64, options: &'static [&'static str], status: i32) -> Expectation {
    let says = if status == 0 { "SUCCESS" } else { "" };
    Expectation {
        storage: Some(bytes),
        options,
        ..expect("test_blk", status, says)
    }
}

/// What holds on both hosts.
const ON_BOTH: &[Expectation] = &[
    Expectation {
        arguments: &["Hello_Solo5"],
        ..expect("test_hello", 0, "SUCCESS")
    },
    Expectation {
        arguments: &["--solo5:quiet"],
        ..expect("test_quiet", 0, "SUCCESS")
    },
    expect("test_output", 0, ""),
    expect("test_globals", 0, "SUCCESS"),
    expect("test_tls", 0, "SUCCESS"),
    expect("test_ssp", 255, "ABORT"),
    expect("test_fpu", 0, "SUCCESS"),
    expect("test_time", 0, "SUCCESS"),
    storage(4 << 20, &[], 0),
    storage(4 << 20, &["--block-sector-size:storage=4096"], 0),
    storage(6 << 10, &["--block-sector-size:storage=4096"], 1),
    storage(1563, &["--block-sector-size:storage=521"], 1),
    storage(256, &["--block-sector-size:storage=256"], 1),
];

/// The kernel ends a guest that does what it must not.
const ON_SPT: &[Expectation] = &[
    expect("test_exception", 139, ""),
    expect("test_zeropage", 139, ""),
    expect("test_xnow", 139, ""),
    expect("test_wnox", 139, ""),
    expect("test_notls", 139, ""),
    expect("test_seccomp", 159, ""),
];

/// In a virtual machine, Solo5's library takes exceptions and aborts.
const ON_HVT: &[Expectation] = &[
    expect("test_exception", 255, "Fatal trap"),
    expect("test_zeropage", 255, "Fatal trap"),
    expect("test_rnow", 255, "Fatal trap"),
    expect("test_rnox", 255, "Fatal trap"),
    expect("test_xnow", 255, "Fatal trap"),
    expect("test_wnox", 255, "Fatal trap"),
    expect("test_notls", 255, "Fatal trap"),
    expect("buggyelf", 1, ""),
];

const NO_PEER: &str = "SOLO5_DIR does not name a built Solo5: git clone it elsewhere, run \
                       ./configure.sh && make, and set SOLO5_DIR to its folder";

const THEIRS: &str = "solo5's image, our tender::";
const OURS: &str = "our image, solo5's tender::";

/// How long a connection or an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Guest memory for the tests of Solo5; those for hvt need 4 MiB.
const MEMORY: &str = "--mem=16";

/// A built Solo5, as far as it is about one host: `spt` or `hvt`.
#[derive(Clone)]
struct Peer {
    folder: PathBuf,
    host: &'static str,
}

impl Peer {
    fn find(host: &'static str) -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os("SOLO5_DIR")?);
        let peer = Self { folder, host };
        peer.tender().exists().then_some(peer)
    }

    /// The program that starts images.
    fn tender(&self) -> PathBuf {
        let host = self.host;
        let file = format!("solo5-{host}");
        self.first(&[format!("tenders/{host}/{file}")], file)
    }

    /// An image of its tests.
    fn image(&self, name: &str) -> PathBuf {
        let file = format!("{name}.{}", self.host);
        let folders = [format!("tests/{name}"), format!("tests/test_{name}")];
        let places = folders.map(|folder| format!("{folder}/{file}"));
        self.first(&places, file)
    }

    /// Whether its tender does its part for this promise: on hvt, system calls are no instructions,
    /// and its page tables let data be executed.
    fn keeps(&self, promise: &Promise) -> bool {
        self.host == "spt" || !promise.jail && promise.guest != "execute_data"
    }

    /// The place where there is a file; `flat` in the lab, where all files lie in one folder.
    fn first(&self, places: &[String], flat: String) -> PathBuf {
        let built = places.iter().map(|place| self.folder.join(place));
        let built = built.into_iter().find(|path| path.exists());
        built.unwrap_or_else(|| self.folder.join(flat))
    }
}

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = on(images, network, "", "spt", ON_SPT, ANSWERING);
    let name = "our image, solo5's tender::rules as an argument".into();
    let missing = Peer::find("spt").is_none().then_some(NO_PEER);
    let test = || stock_rules(images, &Peer::find("spt").ok_or(NO_PEER)?);
    trials.push(network.trial_unless(missing, name, test));
    let name = "our image, solo5's tender::TCP comes back".into();
    let missing = Peer::find("spt").is_none().then_some(NO_PEER);
    let test = || stock_echo(images, &Peer::find("spt").ok_or(NO_PEER)?);
    trials.push(network.trial_unless(missing, name, test));
    let name = "the header for images in C compiles beside Solo5's";
    trials.push(Trial::ignorable_test(name, header));
    trials
}

/// The contract about PCIe devices, as a C compiler reads it.
fn header() -> Result<Completion, Failed> {
    let Some(peer) = Peer::find("spt") else {
        return Ok(Completion::ignored_with(NO_PEER));
    };
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../include/solo5_pci.h");
    for language in ["-xc", "-xc++"] {
        let mut command = Command::new("cc");
        let checks = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only", language];
        command.args(checks).arg(ours);
        command.arg("-I").arg(peer.folder.join("include"));
        run(&mut command)?.expect_status(0)?;
    }
    Ok(Completion::Completed)
}

/// The same in virtual machines.
pub fn on_hvt(images: &'static Images, network: &Network) -> Vec<Trial> {
    on(images, network, "hvt::", "hvt", ON_HVT, ANSWERING_ON_HVT)
}

/// The tests of a host, or one that says that there is no peer.
fn on(
    images: &'static Images,
    network: &Network,
    prefix: &str,
    host: &'static str,
    own: &'static [Expectation],
    answering: &'static [Answering],
) -> Vec<Trial> {
    let Some(peer) = Peer::find(host) else {
        let skip = || Ok(Completion::ignored_with(NO_PEER));
        return vec![Trial::ignorable_test(format!("{prefix}solo5"), skip)];
    };
    let peer: &'static Peer = Box::leak(Box::new(peer));
    let mut trials = Vec::new();
    let mut add = |name: String, test: Box<dyn FnOnce() -> Result<(), Failed> + Send>| {
        trials.push(Trial::test(format!("{prefix}{}", name.trim_end()), test));
    };
    for expectation in ON_BOTH.iter().chain(own) {
        let words = [expectation.options, expectation.arguments].concat();
        let name = format!("{THEIRS}{} {}", expectation.name, words.join(" "));
        add(name, Box::new(|| theirs(images, peer, expectation)));
    }
    let name = format!("{THEIRS}test_mft_maxdevices");
    add(name, Box::new(|| most_devices(images, peer)));
    for promise in PROMISES.iter().filter(|promise| peer.keeps(promise)) {
        let name = format!("{OURS}{}", promise.name());
        add(name, Box::new(|| ours(images, peer, promise)));
    }
    add(
        format!("{OURS}block"),
        Box::new(|| stock_block(images, peer)),
    );
    for test in answering {
        let name = format!("{prefix}{THEIRS}{}", test.name);
        trials.push(network.trial(name, || answers(images, peer, test)));
    }
    let name = format!("{prefix}{OURS}port");
    trials.push(network.trial(name, || stock_port(images, peer)));
    trials
}

fn theirs(images: &Images, peer: &Peer, expectation: &Expectation) -> Result<(), Failed> {
    let mut command = Command::new(images.program("outboard-tender"));
    command.arg(MEMORY);
    let file = match expectation.storage {
        None => None,
        Some(bytes) => Some(TemporaryFile::new("storage", bytes)?),
    };
    if let Some(file) = &file {
        command.arg(format!("--block:storage={}", file.path.display()));
    }
    command
        .args(expectation.options)
        .arg("--")
        .arg(peer.image(expectation.name))
        .args(expectation.arguments);
    let ended = run(&mut command)?;
    ended
        .expect_status(expectation.status)?
        .expect_stdout(expectation.says)?;
    Ok(())
}

/// As many disks as a manifest can have.
fn most_devices(images: &Images, peer: &Peer) -> Result<(), Failed> {
    const DISKS: usize = 63;
    let files = (0..DISKS).map(|_| TemporaryFile::new("storage", 4096));
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut command = Command::new(images.program("outboard-tender"));
    command.arg(MEMORY);
    for (number, file) in files.iter().enumerate() {
        command.arg(format!("--block:storage{number}={}", file.path.display()));
    }
    let ended = run(command.arg("--").arg(peer.image("test_mft_maxdevices")))?;
    ended.expect_status(0)?.expect_stdout("SUCCESS").map(|_| ())
}

/// A guest of ours as the peer's host takes it: a file that lives as long as this.
fn guest(images: &Images, peer: &Peer, name: &str) -> Result<TemporaryFile, Failed> {
    if peer.host == "hvt" {
        return hvt::built_for_hvt(images, name);
    }
    let file = TemporaryFile::new(name, 0)?;
    std::fs::copy(images.guest(name), &file.path)?;
    Ok(file)
}

/// What Solo5's page tables allow and the host's do not: then, as where a processor stops, its
/// tender fails.
const AT_THE_HOST: [&str; 3] = ["stack_overflow", "write_text", "write_rodata"];

fn ours(images: &Images, peer: &Peer, promise: &Promise) -> Result<(), Failed> {
    let image = guest(images, peer, promise.guest)?;
    let mut command = Command::new(peer.tender());
    command.args(["--mem=16", "--"]).arg(&image.path);
    let ended = run(command.args(promise.arguments))?;
    let stops = promise.report == hvt::STOPPED || AT_THE_HOST.contains(&promise.guest);
    if peer.host == "hvt" && stops {
        return ended.expect_status(1).map(|_| ());
    }
    promise.check(&ended)
}

fn stock_block(images: &Images, peer: &Peer) -> Result<(), Failed> {
    let file = TemporaryFile::new("block", 1 << 20)?;
    let image = guest(images, peer, "block")?;
    for size in ["512", "4096"] {
        let mut command = Command::new(peer.tender());
        command
            .args(["--mem=16", &format!("--block-sector-size:disk={size}")])
            .arg(format!("--block:disk={}", file.path.display()))
            .arg(&image.path);
        run(&mut command)?
            .expect_status(0)?
            .expect_stdout("SUCCESS")?;
    }
    Ok(())
}

/// Frames that are sent before a port counts as dead.
const ATTEMPTS_MAX: usize = 20;
/// Pings in one go.
const PINGS_MAX: usize = 50_000;

/// A test of Solo5's that answers pings: its ports with the hosts' addresses, MTU, how many pings
/// each gets, and what it says in the end; nothing if it waits for more pings then.
#[derive(Clone, Copy)]
struct Answering {
    name: &'static str,
    ports: &'static [(&'static str, [u8; 4])],
    mtu: u32,
    arguments: &'static [&'static str],
    pings: usize,
    says: &'static str,
}

const ANSWERING: &[Answering] = &[
    Answering {
        name: "test_net",
        ports: &[("service0", [10, 0, 0, 1])],
        mtu: 1500,
        arguments: &["limit"],
        pings: 100_000,
        says: "SUCCESS",
    },
    Answering {
        name: "test_net_2if",
        ports: &[("service0", [10, 0, 0, 1]), ("service1", [10, 1, 0, 1])],
        mtu: 1500,
        arguments: &["limit"],
        pings: 50_000,
        says: "SUCCESS",
    },
    Answering {
        name: "test_net_mtu",
        ports: &[("service0", [10, 0, 0, 1])],
        mtu: 9000,
        arguments: &[],
        pings: 0,
        says: "MTU is 9000",
    },
];

/// Fewer pings than on spt, since the lab interprets all instructions. Solo5's ring is not offered;
/// its test falls back to hypercalls.
const ANSWERING_ON_HVT: &[Answering] = &[
    Answering {
        arguments: &[],
        pings: 1000,
        says: "",
        ..ANSWERING[0]
    },
    Answering {
        arguments: &[],
        pings: 500,
        says: "",
        ..ANSWERING[1]
    },
    ANSWERING[2],
    Answering {
        name: "test_net_ring",
        arguments: &[],
        pings: 10_000,
        ..ANSWERING[0]
    },
];

fn answers(images: &Images, peer: &Peer, test: &Answering) -> Result<(), Failed> {
    let mut command = Command::new(images.program("outboard-tender"));
    command.arg(MEMORY);
    let mut hosts = Vec::new();
    for (port, host) in test.ports {
        let segment = Segment::new()?;
        let address = Address {
            ip: (*host).into(),
            prefix: 24,
            mtu: test.mtu,
        };
        let tap = segment.tap("eth0", false, address)?.into_fd();
        rustix::io::fcntl_setfd(&tap, rustix::io::FdFlags::empty())?;
        command.arg(format!("--net:{port}=@{}", tap.as_raw_fd()));
        hosts.push((segment, *host, tap));
    }
    let image = peer.image(test.name);
    let running = start(command.arg("--").arg(image).args(test.arguments))?;
    let mut lost = 0;
    for (segment, [a, b, c, _], _) in &hosts {
        let target = ([*a, *b, *c, 2], 0).into();
        let socket = segment.run(|| Icmp::new(target))?;
        for _ in 0..test.pings.div_ceil(PINGS_MAX) {
            lost += socket.ping(test.pings.min(PINGS_MAX) as u16)?.lost;
        }
    }
    if test.says.is_empty() {
        let answered = lost as usize <= test.pings / 10;
        let verdict = answered.then_some(()).ok_or(format!("{lost} pings lost"));
        return Ok(verdict?);
    }
    let ended = running.finish()?;
    ended.expect_status(0)?.expect_stdout(test.says).map(|_| ())
}

/// A cable whose end for the guest is a tap that exists without it: the stock tender takes taps by
/// name.
fn stock_wire() -> Result<Wire, Failed> {
    let mut wire = Wire::new(1500, false)?;
    wire.hand_over();
    persistent_tap(&wire, PORT)?;
    wire.segment.netlink(|netlink| {
        netlink.set_master(PORT, BRIDGE)?;
        netlink.set_up(PORT)
    })?;
    Ok(wire)
}

/// A tap that exists without a holder.
fn persistent_tap(wire: &Wire, name: &str) -> Result<(), Failed> {
    // The busybox of the lab makes taps with a program of its own.
    for words in ["ip tuntap add mode tap", "busybox tunctl -t"] {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg(name);
        if wire.segment.run(|| run(&mut command))?.status == 0 {
            return Ok(());
        }
    }
    Err(format!("no tap {name} can be made").into())
}

/// Without a shared file there are no counters, but what rules log can be seen.
fn stock_rules(images: &Images, peer: &Peer) -> Result<(), Failed> {
    let wire = stock_wire()?;
    persistent_tap(&wire, "other")?;
    wire.segment.netlink(|netlink| netlink.set_up("other"))?;
    let rules = "table bridge filter { chain forward { type filter hook forward priority 0; \
                 policy drop; udp dport 1001 log prefix \"one\" accept; }; }";
    let mut command = Command::new(peer.tender());
    command
        .args([
            "--mem=16",
            &format!("--net:private={PORT}"),
            "--net:public=other",
            "--",
        ])
        .arg(&images.firewall)
        .arg(rules);
    let running = wire.segment.run(|| start(&mut command))?;
    // Without a carrier until the tender has attached, the bridge lets nothing through.
    for _ in 0..ATTEMPTS_MAX {
        wire.send(&frames::udp(1001, b"logged"))?;
        wire.expect_silence(TEST_MAC)?;
    }
    running.signal(rustix::process::Signal::TERM);
    let expected = "log prefix=\"one\" rule=0 in=private out=public";
    running.finish()?.expect_stdout(expected).map(|_| ())
}

/// Without offloads, and with secrets from the processor.
fn stock_echo(images: &Images, peer: &Peer) -> Result<(), Failed> {
    let wire = stock_wire()?;
    let ours = Address {
        ip: [10, 0, 0, 1].into(),
        prefix: 24,
        mtu: 1500,
    };
    wire.segment.configure(BRIDGE, ours)?;
    let mut command = Command::new(peer.tender());
    command
        .args(["--mem=64", &format!("--net:service={PORT}"), "--"])
        .arg(&images.echo);
    let running = wire.segment.run(|| start(&mut command))?;
    running.wait_for("10.0.0.2/24 on service")?;
    // Linux repeats its SYN until the bridge lets it through.
    let mut stream = wire
        .segment
        .run(|| TcpStream::connect_timeout(&([10, 0, 0, 2], 7).into(), PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let sent: Vec<u8> = (0..60_000_u32).map(|n| (n / 7) as u8).collect();
    stream.write_all(&sent)?;
    let mut received = vec![0; sent.len()];
    stream.read_exact(&mut received)?;
    match received == sent {
        true => Ok(()),
        false => Err("other bytes came back".into()),
    }
}

fn stock_port(images: &Images, peer: &Peer) -> Result<(), Failed> {
    let wire = stock_wire()?;
    let image = guest(images, peer, "port")?;
    let mut command = Command::new(peer.tender());
    command
        .args(["--mem=16", &format!("--net:net={PORT}"), "--"])
        .arg(&image.path);
    let running = wire.segment.run(|| start(&mut command))?;
    let frame = frames::udp(7, &frames::payload(1400));
    // Without a carrier until the tender has attached, the bridge lets nothing through.
    let mut answered = false;
    for _ in 0..ATTEMPTS_MAX {
        wire.send(&frame)?;
        answered = wire.expect_silence(TEST_MAC).is_err();
        if answered {
            break;
        }
    }
    answered.then_some(()).ok_or("no frame came back")?;
    wire.send(&frame)?;
    let same = wire.receive(TEST_MAC)? == frame;
    same.then_some(()).ok_or("the frame came back changed")?;
    wire.send(&frames::udp(7, b"quit"))?;
    running
        .finish()?
        .expect_status(0)?
        .expect_stdout("mtu 1500")
        .map(|_| ())
}
