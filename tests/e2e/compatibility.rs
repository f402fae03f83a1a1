//! Solo5 both ways: its own spt tests under our tender, our guests under its tender.
//!
//! The peer, v0.12 or later, is built outside the repository; `SOLO5_DIR` says where.

use crate::build::Images;
use crate::frames::{self, TEST_MAC};
use crate::guests::PROMISES;
use crate::network::Network;
use crate::process::{run, start};
use crate::temporary::TemporaryFile;
use crate::wire::{PORT, Wire};
use bench::segment::{Address, Segment};
use bench::traffic::ping::Icmp;
use libtest_mimic::{Completion, Failed, Trial};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

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

const SOLO5_TESTS: &[Expectation] = &[
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
    expect("test_exception", 139, ""),
    expect("test_zeropage", 139, ""),
    expect("test_xnow", 139, ""),
    expect("test_wnox", 139, ""),
    expect("test_notls", 139, ""),
    expect("test_tls", 0, "SUCCESS"),
    expect("test_ssp", 255, "ABORT"),
    expect("test_fpu", 0, "SUCCESS"),
    expect("test_time", 0, "SUCCESS"),
    expect("test_seccomp", 159, ""),
    storage(4 << 20, &[], 0),
    storage(4 << 20, &["--block-sector-size:storage=4096"], 0),
    storage(6 << 10, &["--block-sector-size:storage=4096"], 1),
    storage(1563, &["--block-sector-size:storage=521"], 1),
    storage(256, &["--block-sector-size:storage=256"], 1),
];

/// Why a test with the peer is skipped.
pub const NO_PEER: &str = "SOLO5_DIR does not name a built Solo5: git clone it elsewhere, run \
                       ./configure.sh && make, and set SOLO5_DIR to its folder";

/// The folder of a built Solo5.
pub fn peer() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("SOLO5_DIR")?);
    folder
        .join("tenders/spt/solo5-spt")
        .exists()
        .then_some(folder)
}

/// A test that is skipped, with the reason, where there is no peer.
fn with_peer(
    name: String,
    test: impl FnOnce(&Path) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::ignorable_test(name, move || match peer() {
        None => Ok(Completion::ignored_with(NO_PEER)),
        Some(peer) => test(&peer).map(|()| Completion::Completed),
    })
}

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = network_trials(images, network);
    for expectation in SOLO5_TESTS {
        let what = [expectation.options, expectation.arguments]
            .concat()
            .join(" ");
        let name = format!("solo5's image, our tender::{} {what}", expectation.name);
        trials.push(with_peer(name.trim_end().into(), |peer| {
            ours(images, peer, expectation)
        }));
    }
    for promise in PROMISES {
        let what = [&[promise.guest], promise.arguments].concat().join(" ");
        trials.push(with_peer(
            format!("our image, solo5's tender::{what}"),
            |peer| {
                let mut command = Command::new(peer.join("tenders/spt/solo5-spt"));
                command
                    .args(["--mem=16", "--"])
                    .arg(images.guest(promise.guest));
                promise.check(&run(command.args(promise.arguments))?)
            },
        ));
    }
    trials.push(with_peer(
        "our image, solo5's tender::block".into(),
        |peer| {
            let file = TemporaryFile::new("block", 1 << 20)?;
            for size in ["512", "4096"] {
                let mut command = Command::new(peer.join("tenders/spt/solo5-spt"));
                command
                    .args(["--mem=16", &format!("--block-sector-size:disk={size}")])
                    .arg(format!("--block:disk={}", file.path.display()))
                    .arg(images.guest("block"));
                run(&mut command)?
                    .expect_status(0)?
                    .expect_stdout("SUCCESS")?;
            }
            Ok(())
        },
    ));
    trials
}

fn ours(images: &Images, peer: &Path, expectation: &Expectation) -> Result<(), Failed> {
    let name = expectation.name;
    let mut command = Command::new(images.program("outboard-tender"));
    command.arg("--mem=2");
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
        .arg(peer.join(format!("tests/{name}/{name}.spt")))
        .args(expectation.arguments);
    let ended = run(&mut command)?;
    ended
        .expect_status(expectation.status)?
        .expect_stdout(expectation.says)?;
    Ok(())
}

/// Frames that are sent before a port counts as dead.
const ATTEMPTS_MAX: usize = 20;
/// Pings in one go.
const PINGS_MAX: usize = 50_000;

/// A test of Solo5's that answers pings, its ports with the hosts' addresses and MTU, and how many
/// pings to each it waits for.
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

fn network_trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let missing = peer().is_none().then_some(NO_PEER);
    let mut trials = Vec::new();
    for test in ANSWERING {
        let name = format!("solo5's image, our tender::{}", test.name);
        let run = move || answers(images, &peer().ok_or(NO_PEER)?, test);
        trials.push(network.trial_unless(missing, name, run));
    }
    let name = "our image, solo5's tender::port".to_owned();
    let run = || stock_port(images, &peer().ok_or(NO_PEER)?);
    trials.push(network.trial_unless(missing, name, run));
    let name = "our image, solo5's tender::rules as an argument".to_owned();
    let run = || stock_rules(images, &peer().ok_or(NO_PEER)?);
    trials.push(network.trial_unless(missing, name, run));
    trials
}

fn answers(images: &Images, peer: &Path, test: &Answering) -> Result<(), Failed> {
    let mut command = Command::new(images.program("outboard-tender"));
    command.arg("--mem=2");
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
    let image = peer.join(format!("tests/{0}/{0}.spt", test.name));
    let running = start(command.arg("--").arg(image).args(test.arguments))?;
    for (segment, [a, b, c, _], _) in &hosts {
        let target = ([*a, *b, *c, 2], 0).into();
        let socket = segment.run(|| Icmp::new(target))?;
        for _ in 0..test.pings.div_ceil(PINGS_MAX) {
            socket.ping(test.pings.min(PINGS_MAX) as u16)?;
        }
    }
    let ended = running.finish()?;
    ended.expect_status(0)?.expect_stdout(test.says).map(|_| ())
}

/// A cable whose end for the guest is a tap that exists without it: the stock tender takes taps by
/// name.
fn stock_wire() -> Result<Wire, Failed> {
    let mut wire = Wire::new(1500, false)?;
    wire.hand_over();
    ip(&wire, "tuntap add port mode tap")?;
    ip(&wire, "link set port master bridge up")?;
    Ok(wire)
}

fn ip(wire: &Wire, words: &str) -> Result<(), Failed> {
    let mut command = Command::new("ip");
    command.args(words.split(' '));
    wire.segment.run(|| run(&mut command))?.expect_status(0)?;
    Ok(())
}

/// Without a shared file there are no counters, but what rules log can be seen.
fn stock_rules(images: &Images, peer: &Path) -> Result<(), Failed> {
    let wire = stock_wire()?;
    ip(&wire, "tuntap add other mode tap")?;
    ip(&wire, "link set other up")?;
    let rules = "table bridge filter { chain forward { type filter hook forward priority 0; \
                 policy drop; udp dport 1001 log prefix \"one\" accept; }; }";
    let mut command = Command::new(peer.join("tenders/spt/solo5-spt"));
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

fn stock_port(images: &Images, peer: &Path) -> Result<(), Failed> {
    let wire = stock_wire()?;
    let mut command = Command::new(peer.join("tenders/spt/solo5-spt"));
    command
        .args(["--mem=16", &format!("--net:net={PORT}"), "--"])
        .arg(images.guest("port"));
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
