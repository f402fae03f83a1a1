//! Appliances on software NICs: the driver inside an image, the model of its NIC in a process.

use crate::harness::build::Images;
use crate::harness::frames;
use crate::harness::process::{Ended, Running, start};
use crate::harness::temporary::TemporaryFolder;
use crate::hosts::{self, Test};
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Frames that are played in, all at once, perhaps before the other port has a link: the shortest
/// descriptor ring holds so many.
const FRAMES: usize = 200;

const ACCEPT: &str = "table bridge t { chain c { type filter hook forward priority 0; policy \
                      accept; }\n}";

const TESTS: &[(&str, Test)] = &[
    ("what_is_played_in_comes_back", reflected),
    ("and_from_a_virtio_device", reflected_by_virtio),
    ("the_firewall_passes_frames_between_two", forwarded),
    ("and_between_two_82574", forwarded_at_a_gigabit),
    ("a_nic_that_is_killed_ends_the_run", killed),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    hosts::on_each(images, "software_nic", TESTS)
}

/// The same on one host.
pub fn on(images: &'static Images, host: &'static str) -> Vec<Trial> {
    hosts::on(images, host, "software_nic", TESTS)
}

/// A model of the 82599 that serves one guest at `socket`.
pub fn model(images: &Images, socket: &Path, wire: &str) -> Result<Running, Failed> {
    model_of(images, "82599", socket, wire, "")
}

/// The same, which does wrong what `outboard model --misbehave` takes.
pub fn misbehaving(
    images: &Images,
    socket: &Path,
    wire: &str,
    how: &str,
) -> Result<Running, Failed> {
    model_of(images, "82599", socket, wire, how)
}

/// The same of any card.
fn model_of(
    images: &Images,
    card: &str,
    socket: &Path,
    wire: &str,
    how: &str,
) -> Result<Running, Failed> {
    let mut command = Command::new(images.program("outboard"));
    command
        .args([
            "model", card, "--once", "--json", "--wire", wire, "--socket",
        ])
        .arg(socket)
        .arg(format!("--misbehave={how}"));
    let running = start(&mut command)?;
    await_until("its socket", || socket.exists())?;
    Ok(running)
}

fn reflector(images: &Images, host: &str, socket: &Path) -> Result<Running, Failed> {
    on_nic(images, host, socket, &images.reflector)
}

/// An image that drives one NIC.
fn on_nic(images: &Images, host: &str, socket: &Path, image: &Path) -> Result<Running, Failed> {
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=32", &format!("--host={host}")])
        .arg(format!("--pci:nic=vfio-user:{}", socket.display()))
        .arg("--")
        .arg(image);
    start(&mut command)
}

/// Waits until that is so.
pub fn await_until(what: &str, done: impl Fn() -> bool) -> Result<(), Failed> {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            return Err(format!("{what} is still missing after {PATIENCE:?}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A capture of frames, in the format of libpcap.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    const ETHERNET: u32 = 1;
    let mut bytes = Vec::new();
    let header = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 1 << 16, ETHERNET];
    bytes.extend(header.iter().flat_map(|word: &u32| word.to_le_bytes()));
    for frame in frames {
        let len = frame.len() as u32;
        bytes.extend([0, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(frame);
    }
    bytes
}

/// The whole frames of such a capture, so far as it is written.
fn captured(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_default();
    let mut rest = bytes.get(24..).unwrap_or_default();
    let mut frames = Vec::new();
    while let Some((header, behind)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let Some((frame, behind)) = behind.split_at_checked(len as usize) else {
            break;
        };
        frames.push(frame.to_vec());
        rest = behind;
    }
    frames
}

/// Frames of all sizes that Ethernet has, from its least on, which is where the wire pads.
fn played() -> Vec<Vec<u8>> {
    let payload = |number: usize| 18 + number * 29 % 1454;
    let frame = |number| frames::udp(number as u16, &frames::payload(payload(number)));
    (0..FRAMES).map(frame).collect()
}

fn reflected(images: &Images, host: &str) -> Result<(), Failed> {
    reflected_by(images, host, "82599", &images.reflector)
}

/// Our model has its registers in BAR 0, as its image's manifest says.
fn reflected_by_virtio(images: &Images, host: &str) -> Result<(), Failed> {
    let image = images.appliance("reflector", "-virtio-bar0");
    reflected_by(images, host, "virtio-net", &image)
}

fn reflected_by(images: &Images, host: &str, card: &str, image: &Path) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nic")?;
    let at = |name: &str| folder.path.join(name);
    let frames = played();
    fs::write(at("in"), capture(&frames))?;
    let wire = format!("pcap:{},{}", at("in").display(), at("out").display());
    let nic = model_of(images, card, &at("socket"), &wire, "")?;
    let guest = on_nic(images, host, &at("socket"), image)?;
    await_until("some of the frames", || {
        captured(&at("out")).len() >= FRAMES
    })?;
    guest.signal(Signal::TERM);
    guest.finish()?.expect_status(128 + Signal::TERM.as_raw())?;
    // It ends with its only guest, and has nothing to say of its driver.
    let ended = nic.finish()?;
    ended.expect_status(0)?.expect_stdout("\"violations\":0}")?;
    if captured(&at("out")) != frames {
        return Err("other frames came back than were played in".into());
    }
    Ok(())
}

fn forwarded(images: &Images, host: &str) -> Result<(), Failed> {
    forwarded_by(images, host, "82599", &images.firewall_on_nics)
}

fn forwarded_at_a_gigabit(images: &Images, host: &str) -> Result<(), Failed> {
    forwarded_by(images, host, "82574", &images.appliance("firewall", "-nic"))
}

/// What is played into the private NIC comes out of the public one.
fn forwarded_by(images: &Images, host: &str, card: &str, image: &Path) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nic")?;
    let at = |name: &str| folder.path.join(name);
    let frames = played();
    fs::write(at("in"), capture(&frames))?;
    let plays = format!("pcap:{},{}", at("in").display(), at("back").display());
    let records = format!("pcap:,{}", at("out").display());
    let private = model_of(images, card, &at("private"), &plays, "")?;
    let public = model_of(images, card, &at("public"), &records, "")?;
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=32", &format!("--host={host}")])
        .args(["private", "public"].map(|port| {
            let socket = at(port);
            format!("--pci:{port}=vfio-user:{}", socket.display())
        }))
        .arg("--")
        .args([image.as_os_str(), ACCEPT.as_ref()]);
    let guest = start(&mut command)?;
    let all = await_until("some of the frames", || {
        captured(&at("out")).len() >= FRAMES
    });
    all.map_err(|_| format!("{} of {FRAMES} frames came out", captured(&at("out")).len()))?;
    guest.signal(Signal::TERM);
    guest.finish()?.expect_status(128 + Signal::TERM.as_raw())?;
    for nic in [private, public] {
        let ended = nic.finish()?;
        ended.expect_status(0)?.expect_stdout("\"violations\":0}")?;
    }
    if captured(&at("out")) != frames || !captured(&at("back")).is_empty() {
        return Err("other frames came out than were played in".into());
    }
    Ok(())
}

/// As soon as the guest's tender has the device, when it may still be asking for the rest of it,
/// and when the guest has sent a frame: both must do.
fn killed(images: &Images, host: &str) -> Result<(), Failed> {
    let early = killed_when(images, host, |nic, _| is_connected(nic))?;
    if early.status == abi::exit::FAILURE {
        early.expect_stderr("the other side has closed the connection")?;
    } else {
        expect_gone(&early, host)?;
    }
    let late = killed_when(images, host, |_, out| !captured(out).is_empty())?;
    expect_gone(&late, host)
}

fn expect_gone(ended: &Ended, host: &str) -> Result<(), Failed> {
    ended.expect_status(abi::exit::DEVICE_GONE)?;
    ended.expect_stderr("a device of the guest went away while in use")?;
    // On hvt, the tender may be the first to know.
    if host != "hvt" {
        ended.expect_stdout("outboard: device nic: the process that it was has ended")?;
    }
    Ok(())
}

/// How the reflector ends whose NIC is killed once `now` is so of it and of its record.
fn killed_when(
    images: &Images,
    host: &str,
    now: impl Fn(&Running, &Path) -> bool,
) -> Result<Ended, Failed> {
    let folder = TemporaryFolder::new("nic")?;
    let at = |name: &str| folder.path.join(name);
    fs::write(at("in"), capture(&played()[..1]))?;
    let wire = format!("pcap:{},{}", at("in").display(), at("out").display());
    let nic = model(images, &at("socket"), &wire)?;
    let guest = reflector(images, host, &at("socket"))?;
    await_until("a guest", || now(&nic, &at("out")))?;
    nic.signal(Signal::KILL);
    nic.finish()?.expect_status(128 + Signal::KILL.as_raw())?;
    guest.finish()
}

/// Whether a process has mapped somebody's DMA memory.
fn is_connected(process: &Running) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.id()));
    maps.is_ok_and(|maps| maps.contains("memfd:dma"))
}
