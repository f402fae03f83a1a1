//! Ports: real taps, with and without virtio-net headers.

use crate::harness::build::Images;
use crate::harness::frames::{self, TEST_MAC};
use crate::harness::joined::{Setting, join};
use crate::harness::network::Network;
use crate::harness::process::{run, start};
use crate::harness::programs;
use crate::harness::wire::{PORT, Wire};
use abi::share::PortCounter;
use libtest_mimic::{Failed, Trial};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const REPEATER: Setting = Setting::of("repeater");
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(5);

type Test = fn(&Images) -> Result<(), Failed>;

/// What a virtual machine's ports must do as well.
pub const ON_HVT: [(&str, Test); 6] = [
    ("two interfaces", |images| two_interfaces(images, &["hvt"])),
    ("MTU is passed upwards, frames come back", |images| {
        echo(images, "hvt")
    }),
    ("a frame of 60 KiB crosses in one piece", |images| {
        unsegmented_frame_crosses(images, "hvt")
    }),
    ("a frame over the MTU is too_big", |images| {
        too_big(images, "hvt")
    }),
    ("link down is survived", |images| link_down(images, "hvt")),
    ("a port that disappears ends the guest", |images| {
        port_gone(images, "hvt", "")
    }),
];

const TESTS: &[(&str, Test)] = &[
    ("two interfaces", |images| {
        two_interfaces(images, &["spt", "process"])
    }),
    ("MTU is passed upwards, frames come back", |images| {
        echo(images, "spt")
    }),
    ("a frame of 60 KiB crosses in one piece", |images| {
        unsegmented_frame_crosses(images, "spt")
    }),
    (
        "a frame of 60 KiB is segmented for a plain port",
        unsegmented_frame_is_cut,
    ),
    ("a frame over the MTU is too_big", |images| {
        too_big(images, "spt")
    }),
    ("hostile virtio-net headers are counted", hostile_headers),
    ("link down is survived", |images| link_down(images, "spt")),
    ("a port that disappears ends the guest", |images| {
        port_gone(images, "spt", "port right")
    }),
    ("a missing tap is named", missing_tap),
    ("taps on request", create_taps),
];

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let trial =
        |&(name, test): &(&str, Test)| network.trial(format!("port::{name}"), move || test(images));
    let mut trials: Vec<Trial> = TESTS.iter().map(trial).collect();
    let name = "port::macvtap joins an interface".into();
    trials.push(network.trial_unless(network.root(), name, || macvtap(images)));
    let missing = programs::missing(&["ethtool", "ip"]);
    let name = "port::the monitor resets a persistent tap".into();
    trials.push(network.trial_unless(missing, name, || persistent_tap(images)));
    trials
}

fn two_interfaces(images: &Images, hosts: &[&'static str]) -> Result<(), Failed> {
    for &host in hosts {
        for vnet_header in [false, true] {
            let setting = Setting {
                host,
                mtu: [1500, 9000],
                vnet_header: [vnet_header; 2],
                ..Setting::of("two_ports")
            };
            let joined = join(images, &setting)?;
            let frame = frames::udp(7, &frames::payload(300));
            let there = round(&joined.left, &joined.right, &frame);
            let back = round(&joined.right, &joined.left, &frame);
            let ended = joined.running.finish()?;
            let place = |what, failed: Failed| {
                let why = failed.message().unwrap_or("?").to_owned();
                format!("{what} (vnet {vnet_header}, {host}): {why}; {ended:?}")
            };
            there.map_err(|failed| place("there", failed))?;
            back.map_err(|failed| place("back", failed))?;
            ended.expect_status(0)?.expect_stdout("SUCCESS")?;
            ended.expect_stdout("mtu 1500")?.expect_stdout("mtu 9000")?;
        }
    }
    Ok(())
}

/// A frame goes in at one wire and must come out of the other unchanged.
fn round(from: &Wire, to: &Wire, frame: &[u8]) -> Result<(), Failed> {
    from.send(frame)?;
    let same = to.receive(TEST_MAC)? == frame;
    same.then_some(())
        .ok_or_else(|| "the frame was changed".into())
}

fn echo(images: &Images, host: &str) -> Result<(), Failed> {
    for mtu in [1500, 9000, 576] {
        let mut wire = Wire::new(mtu, false)?;
        let mut command = Command::new(images.program("outboard-tender"));
        command
            .arg(format!("--host={host}"))
            .arg(format!("--net:net={}", wire.descriptor()?))
            .arg(images.guest("port"));
        let running = start(&mut command)?;
        wire.hand_over();
        let longest = frames::udp(7, &frames::payload(mtu as usize - 28));
        wire.send(&longest)?;
        if wire.receive(TEST_MAC)? != longest {
            return Err("the longest frame came back changed".into());
        }
        wire.send(&frames::udp(7, b"quit"))?;
        let ended = running.finish()?;
        ended
            .expect_status(0)?
            .expect_stdout(&format!("mtu {mtu} max"))?;
    }
    Ok(())
}

fn unsegmented_frame_crosses(images: &Images, host: &'static str) -> Result<(), Failed> {
    let joined = join(images, &Setting { host, ..REPEATER })?;
    let sent = frames::unsegmented(7070, &frames::payload(60_000), 1448);
    joined.left.send_raw(&sent)?;
    let (header, frame) = joined.right.receive_raw(TEST_MAC)?;
    if frame != sent[12..] || header[..10] != sent[..10] {
        return Err(format!("{} bytes came with header {header:?}", frame.len()).into());
    }
    Ok(())
}

fn unsegmented_frame_is_cut(images: &Images) -> Result<(), Failed> {
    let setting = Setting {
        vnet_header: [true, false],
        ..REPEATER
    };
    let joined = join(images, &setting)?;
    let payload = frames::payload(60_000);
    joined
        .left
        .send_raw(&frames::unsegmented(7070, &payload, 1448))?;
    let mut collected = Vec::new();
    while collected.len() < payload.len() {
        let frame = joined.right.receive(TEST_MAC)?;
        let packet = etherparse::PacketHeaders::from_ethernet_slice(&frame)?;
        let (Some(net), Some(etherparse::TransportHeader::Tcp(tcp))) =
            (packet.net, packet.transport)
        else {
            return Err("a segment is not TCP over IP".into());
        };
        let (ip, _) = net.ipv4_ref().ok_or("a segment is not IPv4")?;
        let part = packet.payload.slice();
        let good = ip.calc_header_checksum() == ip.header_checksum
            && tcp.calc_checksum_ipv4(ip, part)? == tcp.checksum
            && tcp.sequence_number as usize == 1000 + collected.len()
            && frame.len() <= 1514;
        if !good {
            return Err(format!("bad segment behind {} bytes", collected.len()).into());
        }
        collected.extend_from_slice(part);
    }
    joined.await_counter(2, PortCounter::TxSegmented, 1)?;
    let same = collected == payload;
    same.then_some(())
        .ok_or_else(|| "the payload was changed".into())
}

fn too_big(images: &Images, host: &'static str) -> Result<(), Failed> {
    let setting = Setting {
        host,
        mtu: [1500, 1000],
        ..REPEATER
    };
    let joined = join(images, &setting)?;
    joined
        .left
        .send(&frames::udp(7, &frames::payload(1000 - 28 + 1)))?;
    joined.await_counter(2, PortCounter::TxTooBig, 1)?;
    let fits = frames::udp(7, &frames::payload(1000 - 28));
    joined.left.send(&fits)?;
    if joined.right.receive(TEST_MAC)? != fits {
        return Err("the frame that fits was changed".into());
    }
    // Segments of a size that the other port cannot carry.
    joined
        .left
        .send_raw(&frames::unsegmented(7070, &frames::payload(9000), 1448))?;
    joined.await_counter(2, PortCounter::TxTooBig, 2)?;
    joined.right.expect_silence(TEST_MAC)
}

/// What the host's kernel lets through to the guest, the guest must judge for itself.
fn hostile_headers(images: &Images) -> Result<(), Failed> {
    let joined = join(images, &REPEATER)?;
    let frame = frames::udp(7, &frames::payload(100));
    let hostile = |header: [u8; 12]| [&header[..], &frame].concat();
    // A checksum field that is the UDP destination port, and one that is the UDP length.
    joined
        .left
        .send_raw(&hostile([1, 0, 0, 0, 0, 0, 34, 0, 2, 0, 0, 0]))?;
    joined
        .left
        .send_raw(&hostile([1, 0, 0, 0, 0, 0, 34, 0, 4, 0, 0, 0]))?;
    joined.await_counter(1, PortCounter::RxBadHeader, 2)?;
    joined.left.send(&frame)?;
    let same = joined.right.receive(TEST_MAC)? == frame;
    same.then_some(())
        .ok_or_else(|| "the good frame was changed".into())
}

fn link_down(images: &Images, host: &'static str) -> Result<(), Failed> {
    let mut joined = join(images, &Setting { host, ..REPEATER })?;
    let frame = frames::udp(7, b"up again");
    joined.left.send(&frame)?;
    joined.right.receive(TEST_MAC)?;
    joined
        .right
        .segment
        .netlink(|netlink| netlink.set_down(PORT))?;
    joined.left.send(&frame)?;
    joined.await_counter(2, PortCounter::TxLinkDown, 1)?;
    joined
        .right
        .segment
        .netlink(|netlink| netlink.set_up(PORT))?;
    let deadline = Instant::now() + PATIENCE;
    while joined.right.expect_silence(TEST_MAC).is_ok() {
        if Instant::now() > deadline || !joined.running.is_alive() {
            return Err("nothing passes since the link is up again".into());
        }
        joined.left.send(&frame)?;
    }
    Ok(())
}

/// The runtime names the port; on hvt, the tender its number.
fn port_gone(images: &Images, host: &'static str, says: &str) -> Result<(), Failed> {
    for vnet_header in [false, true] {
        let setting = Setting {
            host,
            vnet_header: [vnet_header; 2],
            ..REPEATER
        };
        let joined = join(images, &setting)?;
        joined.left.send(&frames::udp(7, b"hello"))?;
        joined.right.receive(TEST_MAC)?;
        joined
            .right
            .segment
            .netlink(|netlink| netlink.delete(PORT))?;
        let ended = joined.running.finish()?;
        ended
            .expect_status(abi::exit::DEVICE_GONE)?
            .expect_stdout(says)?;
    }
    Ok(())
}

fn missing_tap(images: &Images) -> Result<(), Failed> {
    let mut command = Command::new(images.program("outboard-tender"));
    command.arg("--net:net=nosuchtap").arg(images.guest("port"));
    let ended = run(&mut command)?;
    ended
        .expect_status(1)?
        .expect_stderr("nosuchtap")?
        .expect_stderr("--create-taps")?;
    let lines = ended.stderr.lines().count();
    (lines == 1)
        .then_some(())
        .ok_or_else(|| format!("{lines} lines: {}", ended.stderr).into())
}

fn create_taps(images: &Images) -> Result<(), Failed> {
    let segment = testbed::segment::Segment::new()?;
    let mut command = Command::new(images.program("outboard-tender"));
    command
        .args(["--create-taps", "--net:left=obtest0", "--net:right=obtest1"])
        .arg(images.guest("repeater"));
    let running = segment.run(|| start(&mut command))?;
    let deadline = Instant::now() + PATIENCE;
    let exists = |name| {
        segment
            .run(|| linux::netlink::Netlink::open()?.index(name))
            .is_ok()
    };
    while !(exists("obtest0") && exists("obtest1")) {
        if Instant::now() > deadline {
            return Err("the taps were not made".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    running.signal(rustix::process::Signal::TERM);
    running.finish()?.expect_status(128 + 15)?;
    let gone = !exists("obtest0") && !exists("obtest1");
    gone.then_some(())
        .ok_or_else(|| "the taps outlived the guest".into())
}

/// Ping through: host === cable === macvtap === repeater === tap === wire's bridge.
fn macvtap(images: &Images) -> Result<(), Failed> {
    use testbed::segment::{Address, Segment};
    let outside = Segment::new()?;
    let mut wire = Wire::new(1500, true)?;
    wire.host([10, 77, 0, 2].into())?;
    wire.segment.cable("parent", &outside, "eth0")?;
    let address = Address {
        ip: [10, 77, 0, 1].into(),
        prefix: 24,
        mtu: 1500,
    };
    outside.configure("eth0", address)?;
    wire.segment.netlink(|netlink| netlink.set_up("parent"))?;
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--net:left=macvtap:parent"])
        .arg(format!("--net:right={}", wire.descriptor()?))
        .arg(images.guest("repeater"));
    let mut running = wire.segment.run(|| start(&mut command))?;
    wire.hand_over();
    let target = ([10, 77, 0, 2], 0).into();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ping = outside.run(|| testbed::traffic::ping::Icmp::new(target)?.ping(3));
        if ping.is_ok() {
            break;
        }
        if Instant::now() > deadline || !running.is_alive() {
            let _ = ping?;
            return Err(format!("no answer; {:?}", running.finish()).into());
        }
    }
    running.signal(rustix::process::Signal::TERM);
    running.finish()?.expect_status(128 + 15)?;
    Ok(())
}

fn persistent_tap(images: &Images) -> Result<(), Failed> {
    let segment = testbed::segment::Segment::new()?;
    let ip = |words: &str| {
        let mut command = Command::new("ip");
        command.args(words.split(' '));
        segment
            .run(|| run(&mut command))?
            .expect_status(0)
            .map(|_| ())
    };
    let tso = || -> Result<bool, Failed> {
        let mut command = Command::new("ethtool");
        command.args(["-k", "obtest"]);
        let ended = segment.run(|| run(&mut command))?;
        ended
            .expect_status(0)?
            .expect_stdout("tcp-segmentation-offload")?;
        Ok(ended.stdout.contains("tcp-segmentation-offload: on"))
    };
    ip("tuntap add obtest mode tap")?;
    ip("link set obtest up")?;
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--net:net=obtest"])
        .arg(images.guest("port"));
    let running = segment.run(|| start(&mut command))?;
    let deadline = Instant::now() + PATIENCE;
    while !tso()? {
        if Instant::now() > deadline {
            return Err("the running guest's tap has no TSO".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    running.signal(rustix::process::Signal::TERM);
    running.finish()?.expect_status(128 + 15)?;
    let reset = !tso()?;
    reset
        .then_some(())
        .ok_or_else(|| "the tap still has TSO".into())
}
