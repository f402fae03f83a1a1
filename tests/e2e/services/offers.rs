//! What a router offers to stock clients: busybox's udhcpc, and Linux's own configuration of IPv6.

use super::PATIENCE;
use super::router::Routed;
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::run;
use crate::harness::programs;
use crate::harness::temporary::TemporaryFolder;
use crate::harness::wait::eventually;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use testbed::segment::Segment;

/// Linux's address in each network: inside, where it has a lease beside, and outside.
const OURS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 7), Ipv4Addr::new(192, 0, 2, 1)];
/// Says what udhcpc was lent.
const SCRIPT: &str = "#!/bin/sh\necho \"$1 $ip/$mask $router $dns $lease\"\n";

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let busybox = programs::missing(&["busybox"]);
    let ip = programs::missing(&["ip"]);
    vec![
        network.trial_unless(busybox, "offers::udhcpc is lent an address".into(), || {
            lent(images)
        }),
        network.trial_unless(ip, "offers::Linux has networks announced".into(), || {
            announced(images)
        }),
    ]
}

fn lent(images: &Images) -> Result<(), Failed> {
    let arguments = ["--lend:private=10.0.0.100-10.0.0.101", "--dns=192.0.2.1"];
    let routed = Routed::new(images, "spt", OURS, &arguments)?;
    let folder = TemporaryFolder::new("udhcpc")?;
    let script = folder.path.join("script");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let ask = |segment: &Segment, identifier: &str| {
        let mut command = Command::new("busybox");
        command
            .args([
                "udhcpc", "-f", "-q", "-n", "-t", "3", "-T", "1", "-i", "tap0",
            ])
            .args(["-x", &format!("0x3d:{identifier}"), "-s"])
            .arg(&script);
        segment.run(|| run(&mut command))
    };
    let (public, private) = (&routed.outside, &routed.inside);
    let mut lent = Vec::new();
    for identifier in ["0001", "0002", "0001"] {
        let ended = ask(private, identifier)?;
        ended.expect_status(0)?;
        ended.expect_stdout("/24 10.0.0.1 192.0.2.1 3600")?;
        let word = |word: &str| word.starts_with("10.0.0.10").then(|| word.to_owned());
        lent.extend(ended.stdout.split_whitespace().find_map(word));
    }
    if lent.len() != 3 || lent[0] == lent[1] || lent[0] != lent[2] {
        return Err(format!("{lent:?} were lent").into());
    }
    // All are lent; and outside, nobody is lent any.
    ask(private, "0003")?.expect_status(1)?;
    ask(public, "0001")?.expect_status(1).map(drop)
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
