//! Appliances on software NICs: the driver inside an image, the model of its NIC in a process.

use crate::build::Images;
use crate::frames;
use crate::process::{Running, start};
use crate::temporary::TemporaryFolder;
use libtest_mimic::{Failed, Trial};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// Frames that are played in, all at once: a descriptor ring holds so many.
const FRAMES: usize = 400;

type Test = fn(&Images, &str) -> Result<(), Failed>;

const TESTS: &[(&str, Test)] = &[
    ("what_is_played_in_comes_back", reflected),
    ("a_nic_that_is_killed_ends_the_run", killed),
];

pub fn trials(images: &'static Images) -> Vec<Trial> {
    let hosts = ["process", "spt"];
    let tests = TESTS.iter().flat_map(|test| hosts.map(|host| (test, host)));
    tests
        .map(|((name, test), host)| {
            Trial::test(format!("software_nic::{name}::{host}"), move || {
                test(images, host)
            })
        })
        .collect()
}

/// A model that serves one guest at `socket`.
fn model(images: &Images, socket: &Path, wire: &str) -> Result<Running, Failed> {
    let mut command = Command::new(images.program("outboard"));
    command
        .args([
            "model", "82599", "--once", "--json", "--wire", wire, "--socket",
        ])
        .arg(socket);
    let running = start(&mut command)?;
    await_until("its socket", || socket.exists())?;
    Ok(running)
}

fn reflector(images: &Images, host: &str, socket: &Path) -> Result<Running, Failed> {
    let mut command = Command::new(images.program("outboard"));
    command
        .args(["run", "--mem=32", &format!("--host={host}")])
        .arg(format!("--pci:nic=vfio-user:{}", socket.display()))
        .arg("--")
        .arg(&images.reflector);
    start(&mut command)
}

fn await_until(what: &str, done: impl Fn() -> bool) -> Result<(), Failed> {
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
    let payload = |number: usize| 18 + number * 7 % 1454;
    let frame = |number| frames::udp(number as u16, &frames::payload(payload(number)));
    (0..FRAMES).map(frame).collect()
}

fn reflected(images: &Images, host: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nic")?;
    let at = |name: &str| folder.path.join(name);
    let frames = played();
    fs::write(at("in"), capture(&frames))?;
    let wire = format!("pcap:{},{}", at("in").display(), at("out").display());
    let nic = model(images, &at("socket"), &wire)?;
    let guest = reflector(images, host, &at("socket"))?;
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

fn killed(images: &Images, host: &str) -> Result<(), Failed> {
    let folder = TemporaryFolder::new("nic")?;
    let socket = folder.path.join("socket");
    let record = format!("pcap:,{}", folder.path.join("out").display());
    let nic = model(images, &socket, &record)?;
    let guest = reflector(images, host, &socket)?;
    // As soon as the guest has its device, or a moment later: both must do.
    await_until("a guest", || is_connected(&nic))?;
    nic.signal(Signal::KILL);
    nic.finish()?.expect_status(128 + Signal::KILL.as_raw())?;
    let ended = guest.finish()?;
    ended.expect_status(abi::exit::DEVICE_GONE)?;
    ended.expect_stdout("outboard: device nic: the process that it was has ended")?;
    Ok(())
}

/// Whether a process has mapped somebody's DMA memory.
fn is_connected(process: &Running) -> bool {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.id()));
    maps.is_ok_and(|maps| maps.contains("memfd:dma"))
}
