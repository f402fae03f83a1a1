//! What a router offers to stock clients: busybox's udhcpc, Linux's own configuration of IPv6, and
//! dig, whose questions it passes on to dnsmasq.

use super::PATIENCE;
use super::router::Routed;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, Running, run, start};
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testbed::segment::Segment;

/// Linux's address in each network: inside, where it has a lease beside, and outside.
const OURS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(192, 0, 2, 1)];
/// Says what udhcpc was lent.
const SCRIPT: &str = "#!/bin/sh\necho \"$1 $ip/$mask $router $dns $lease\"\n";

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let busybox = programs::missing(&["busybox"]);
    let ip = programs::missing(&["ip"]);
    let names = programs::missing(&["dig", "dnsmasq", "busybox"]);
    vec![
        network.trial_unless(busybox, "offers::udhcpc is lent an address".into(), || {
            lent(images)
        }),
        network.trial_unless(ip, "offers::Linux has networks announced".into(), || {
            announced(images)
        }),
        network.trial_unless(names, "offers::dig has names from dnsmasq".into(), || {
            forwarded(images)
        }),
    ]
}

/// A server of names outside: an address, and a text that no datagram holds.
fn dnsmasq(outside: &Segment) -> Result<Running, Failed> {
    let mut command = Command::new("dnsmasq");
    command
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--pid-file=",
        ])
        .args([
            "--user=root",
            "--no-resolv",
            "--no-hosts",
            "--log-facility=-",
        ])
        .args(["--log-queries", "--bind-interfaces", "--interface=tap0"])
        .args([
            "--host-record=www.example,192.0.2.80,60",
            "--local=/example/",
        ]);
    for _ in 0..8 {
        command.arg(format!("--txt-record=long.example,{}", "x".repeat(250)));
    }
    let running = outside.run(|| start(&mut command))?;
    running.wait_for_stderr("started")?;
    Ok(running)
}

/// What dig hears of the router at an address.
fn dig(inside: &Segment, own: &str, words: &[&str]) -> Result<Ended, Failed> {
    let mut command = Command::new("dig");
    command.arg(format!("@{own}"));
    command
        .args(["+tries=3", "+time=3", "+nocookie"])
        .args(words);
    inside.run(|| run(&mut command))
}

fn forwarded(images: &Images) -> Result<(), Failed> {
    let arguments = [
        "--ipv6:private=2001:db8:2::1/64",
        "--lend:private=10.0.0.100-10.0.0.101",
        "--advertise:private",
        "--forward-names:private",
        "--dns=192.0.2.1",
    ];
    let routed = Routed::new(images, "spt", OURS, &arguments)?;
    let (inside, outside) = (&routed.inside, &routed.outside);
    let server = dnsmasq(outside)?;
    super::speak_ipv6(inside)?;
    for own in ["10.0.0.1", "2001:db8:2::1"] {
        eventually(PATIENCE, || {
            let found = dig(inside, own, &["+short", "www.example"])?;
            found
                .expect_status(0)?
                .expect_stdout("192.0.2.80")
                .map(drop)
        })?;
        dig(inside, own, &["+tcp", "www.example"])?.expect_stdout("192.0.2.80")?;
        dig(inside, own, &["none.example"])?.expect_stdout("status: NXDOMAIN")?;
        // What does not fit says so, and comes by TCP.
        let short = dig(inside, own, &["+ignore", "long.example", "TXT"])?;
        short.expect_stdout(" tc rd")?;
        let whole = dig(inside, own, &["long.example", "TXT"])?;
        let texts = whole.stdout.matches(&"x".repeat(250)).count();
        if texts != 8 {
            return Err(format!("{texts} texts: {whole:?}").into());
        }
    }
    // It is told to who is lent an address, and answers nobody outside.
    let folder = TemporaryFolder::new("udhcpc")?;
    let script = script(&folder)?;
    ask(inside, &script, "0001")?.expect_stdout("/24 10.0.0.1 10.0.0.1 3600")?;
    let vain = ["+tries=1", "+time=1", "www.example"];
    let mut command = Command::new("dig");
    command.arg("@192.0.2.9").args(vain);
    outside.run(|| run(&mut command))?.expect_status(9)?;
    // An answer is kept, and gone with its server only once its time is over.
    drop(server);
    dig(inside, "10.0.0.1", &["+short", "www.example"])?.expect_stdout("192.0.2.80")?;
    dig(inside, "10.0.0.1", &["+time=30", "other.example"])?.expect_stdout("status: SERVFAIL")?;
    Ok(())
}

/// A program that says what udhcpc was lent.
fn script(folder: &TemporaryFolder) -> Result<PathBuf, Failed> {
    let script = folder.path.join("script");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// What udhcpc says, of this name.
fn ask(segment: &Segment, script: &Path, identifier: &str) -> Result<Ended, Failed> {
    let mut command = Command::new("busybox");
    command
        .args([
            "udhcpc", "-f", "-q", "-n", "-t", "3", "-T", "1", "-i", "tap0",
        ])
        .args(["-x", &format!("0x3d:{identifier}"), "-s"])
        .arg(script);
    segment.run(|| run(&mut command))
}

fn lent(images: &Images) -> Result<(), Failed> {
    let arguments = ["--lend:private=10.0.0.100-10.0.0.101", "--dns=192.0.2.1"];
    let routed = Routed::new(images, "spt", OURS, &arguments)?;
    let folder = TemporaryFolder::new("udhcpc")?;
    let script = script(&folder)?;
    let (public, private) = (&routed.outside, &routed.inside);
    let mut lent = Vec::new();
    for identifier in ["0001", "0002", "0001"] {
        let ended = ask(private, &script, identifier)?;
        ended.expect_status(0)?;
        ended.expect_stdout("/24 10.0.0.1 192.0.2.1 3600")?;
        let word = |word: &str| word.starts_with("10.0.0.10").then(|| word.to_owned());
        lent.extend(ended.stdout.split_whitespace().find_map(word));
    }
    if lent.len() != 3 || lent[0] == lent[1] || lent[0] != lent[2] {
        return Err(format!("{lent:?} were lent").into());
    }
    // All are lent; and outside, nobody is lent any.
    ask(private, &script, "0003")?.expect_status(1)?;
    ask(public, &script, "0001")?.expect_status(1).map(drop)
}

fn announced(images: &Images) -> Result<(), Failed> {
    let arguments = ["--ipv6:private=2001:db8:2::1/64", "--advertise:private"];
    let routed = Routed::new(images, "spt", OURS, &arguments)?;
    let private = &routed.inside;
    super::speak_ipv6(private)?;
    let says = |words: &[&str], expected: &str| {
        eventually(PATIENCE, || {
            let mut command = Command::new("ip");
            command.arg("-6").args(words);
            private
                .run(|| run(&mut command))?
                .expect_stdout(expected)
                .map(drop)
        })
    };
    says(&["address", "show", "dev", "tap0"], "inet6 2001:db8:2:")?;
    says(&["route", "show", "default"], "proto ra")
}
