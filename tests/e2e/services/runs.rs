//! Datagrams that leave as one and are cut by the kernel behind the tap (USO).

use super::{OUR_SIDE, OUR_SIDE_V6, PLAIN, launch, tap, tender};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::start;
use crate::harness::programs;
use libtest_mimic::{Failed, Trial};
use linux::tap::{Tap, offload};
use serde_json::Value;
use std::fs;
use std::net::IpAddr;
use std::process::Command;
use testbed::segment::Segment;

/// The image's address of IPv6.
const IMAGE: &str = "fd00::2/64";
/// Datagrams that are sent, in runs of as many as a turn has. A socket's buffer holds them all, and
/// the frames of the test's TCP connection are far fewer.
const DATAGRAMS: u64 = 192;

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (host, offload) in [("spt", true), ("spt", false), ("process", true)] {
        for peer in [IpAddr::from(OUR_SIDE), OUR_SIDE_V6.into()] {
            let offloads = if offload { "with" } else { "without" };
            let version = if peer.is_ipv4() { "ipv4" } else { "ipv6" };
            let name = format!("runs::datagrams leave {offloads} offloads::{version}::{host}");
            let missing = programs::missing(&["iperf3"]);
            let test = move || sends(images, host, offload, peer);
            trials.push(network.trial_unless(missing, name, test));
        }
    }
    trials
}

/// Whether taps of this kernel cut datagrams.
fn kernel_cuts(segment: &Segment) -> Result<bool, Failed> {
    let tap = segment.run(|| Tap::create("probe", true))?;
    Ok(tap.set_offloads(offload::ALL | offload::USO).is_ok())
}

/// Frames that came out of the image, as the kernel has counted them: one for a run.
fn frames(segment: &Segment) -> Result<u64, Failed> {
    let table = segment.run(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("tap0:"));
    let packets = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(packets.ok_or("no counters of the tap")?.parse()?)
}

/// A stock server gets each datagram, whole and in order; in how many frames they left.
fn sends(images: &Images, host: &str, offload: bool, peer: IpAddr) -> Result<(), Failed> {
    let segment = Segment::new()?;
    let tap = tap(&segment, &PLAIN)?;
    super::speak_ipv6(&segment)?;
    let mut server = Command::new("iperf3");
    server.args(["--server", "--one-off", "--json", "--forceflush"]);
    let server = segment.run(|| start(&mut server))?;
    super::iperf3::wait_for_listener(&segment)?;
    let mut command = tender(images, host);
    if !offload {
        command.arg("--net-offload:service=off");
    }
    let words = format!(
        "--ipv4=10.0.0.2/24 --ipv6={IMAGE} --client {peer} --json --udp --bitrate 0 --length 100 \
         --blockcount {DATAGRAMS}"
    );
    let arguments: Vec<&str> = words.split(' ').collect();
    let image = launch(command, &tap, &images.iperf3, &arguments)?;
    image.finish()?.expect_status(0)?;
    let report = server.finish()?.stdout;
    let sum = &serde_json::from_str::<Value>(&report)?["end"]["sum"];
    let of = |name: &str| sum[name].as_u64();
    let (packets, lost) = (of("packets"), of("lost_packets"));
    if (packets, lost) != (Some(DATAGRAMS), Some(0)) {
        return Err(format!("not {DATAGRAMS} datagrams, of which 0 are lost: {report}").into());
    }
    let frames = frames(&segment)?;
    let cut = offload && kernel_cuts(&segment)?;
    match (cut, frames) {
        (true, ..DATAGRAMS) if frames < DATAGRAMS / 2 => Ok(()),
        (false, DATAGRAMS..) => Ok(()),
        _ => Err(format!("{frames} frames, cut by the kernel: {cut}").into()),
    }
}
