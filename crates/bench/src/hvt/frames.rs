//! Frames through rings: our tender with a guest that passes frames on, beside Solo5's with one
//! that does the same through its network ring.
//!
//! Both guests stand between two taps of one namespace. A packet socket floods the one with small
//! frames, and the other counts what comes out.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use abi::share::{self, EXITS_OFFSET, Exits};
use linux::packet::PacketSocket;
use zerocopy::FromBytes;

use super::{OURS, Programs, STOCK};
use crate::samples::{Measure, Samples};
use testbed::contender::Process;
use testbed::meter;
use testbed::segment::Segment;
use testbed::stats::turns;
use testbed::traffic::SMALLEST_FRAME;

/// Frames that reached the far tap in a second of CPU time of all of the tender's threads, the
/// guest's included.
pub const RATE: Measure = Measure::new("frames", "kframes/CPU s");
/// Times that the guest was left for each of those frames, interrupts of the host's left out.
pub const EXITS: Measure = Measure::new("exits", "per frame");

/// The guest that passes frames on, and the image of its peer.
pub const GUEST: &str = "repeater";
const PEER: &str = "forward.hvt";
const PEER_SOURCE: &str = include_str!("forward.c");
const PEER_MANIFEST: &str = include_str!("../../../../tests/guests/manifests/repeater.json");
/// The taps.
const LEFT: &str = "left";
const RIGHT: &str = "right";
/// Memory of the guests in MiB.
const MEMORY_MIB: u32 = 32;
/// Frames between two looks at the clock.
const BURST: usize = 32;
/// How long a flood is, and the one before it that does not count.
const FLOOD: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_millis(500);
/// What is still on its way gets this long to arrive and to be counted.
const DRAIN: Duration = Duration::from_millis(500);
/// How long a guest may take to pass its first frame on.
const START_MAX: Duration = Duration::from_secs(20);

/// The peer's image, built from its source with the tools of `solo5` if it is not there.
///
/// # Errors
/// One of them fails.
pub fn peer(solo5: &Path) -> io::Result<PathBuf> {
    let there = solo5.join(PEER);
    if there.exists() {
        return Ok(there);
    }
    let folder = std::env::temp_dir().join(format!("outboard-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("forward.c"), PEER_SOURCE)?;
    fs::write(folder.join("manifest.json"), PEER_MANIFEST)?;
    let tool = |name: &str, words: &str| {
        let words = words.split(' ');
        let status = Command::new(solo5.join(name))
            .args(words)
            .current_dir(&folder)
            .status()?;
        status
            .success()
            .then_some(())
            .ok_or_else(|| io::Error::other(format!("{name}: {status}")))
    };
    const COMPILER: &str = "toolchain/bin/x86_64-solo5-none-static-cc";
    tool(
        "elftool/solo5-elftool",
        "gen-manifest manifest.json manifest.c",
    )?;
    tool(
        COMPILER,
        &format!("-O2 -c -I{}/include forward.c manifest.c", solo5.display()),
    )?;
    tool(
        COMPILER,
        &format!("-z solo5-abi=hvt forward.o manifest.o -o {PEER}"),
    )?;
    Ok(folder.join(PEER))
}

/// Measures each contender `rounds` times, by turns.
///
/// # Errors
/// Who could not be measured, and why.
pub fn measure(
    rounds: usize,
    programs: &Programs,
    say: &dyn Fn(&str),
    samples: &mut Samples,
) -> Result<(), (&'static str, io::Error)> {
    let peer = peer(&programs.solo5).map_err(|error| (STOCK, error))?;
    let contenders = [OURS, STOCK];
    for (round, index) in turns(contenders.len(), rounds) {
        let contender = contenders[index];
        say(&format!(
            "frames, round {} of {rounds}: {contender}",
            round + 1
        ));
        let flood = match contender {
            STOCK => flood(&programs.stock(), &[], &peer),
            _ => flood(
                &programs.tender,
                &["--host=hvt"],
                &programs.guests.join(GUEST),
            ),
        };
        let flood = flood.map_err(|error| (contender, error))?;
        let frames = flood.frames as f64;
        samples.add(
            RATE,
            contender,
            round,
            frames / 1000.0 / flood.cpu.as_secs_f64(),
        );
        if contender == OURS {
            samples.add(EXITS, contender, round, flood.exits as f64 / frames);
        }
    }
    Ok(())
}

/// What a flood came to.
#[derive(Clone, Copy, Debug)]
struct Flood {
    frames: u64,
    cpu: Duration,
    exits: u64,
}

fn flood(tender: &Path, options: &[&str], image: &Path) -> io::Result<Flood> {
    let segment = Segment::new().map_err(io::Error::other)?;
    for tap in [LEFT, RIGHT] {
        persistent_tap(&segment, tap)?;
        let up = segment.netlink(|netlink| netlink.set_up(tap));
        up.map_err(io::Error::other)?;
    }
    let counted = !options.is_empty();
    let path = std::env::temp_dir().join(format!("outboard-bench-{}.share", std::process::id()));
    let share = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    share.set_len(share::BYTES)?;
    let mut command = Command::new(tender);
    command.arg(format!("--mem={MEMORY_MIB}")).args(options);
    if counted {
        command.arg(format!("--share={}", path.display()));
    }
    command
        .arg(format!("--net:{LEFT}={LEFT}"))
        .arg(format!("--net:{RIGHT}={RIGHT}"))
        .arg("--")
        .arg(image)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let child = segment.run(|| command.spawn())?;
    let id = child.id();
    let _process = Process::from(child);
    let flood = flood_process(&segment, id, &share);
    fs::remove_file(path)?;
    flood
}

fn flood_process(segment: &Segment, id: u32, share: &File) -> io::Result<Flood> {
    let socket = segment.run(|| PacketSocket::open(LEFT))?;
    let arrived = || meter::frames_received(segment, RIGHT);
    let begin = Instant::now();
    while arrived()? == 0 {
        if begin.elapsed() > START_MAX {
            return Err(io::Error::other("the guest passes no frame on"));
        }
        send(&socket, Duration::from_millis(1));
        thread::sleep(Duration::from_millis(20));
    }
    send(&socket, WARM_UP);
    thread::sleep(DRAIN);
    let before = (arrived()?, cpu_time(id)?, exits(share)?);
    send(&socket, FLOOD);
    thread::sleep(DRAIN);
    Ok(Flood {
        frames: arrived()? - before.0,
        cpu: cpu_time(id)?.saturating_sub(before.1),
        exits: exits(share)?.saturating_sub(before.2),
    })
}

/// Sends for so long; what finds no room is no loss.
fn send(socket: &PacketSocket, length: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < length {
        for _ in 0..BURST {
            let _ = socket.send(&SMALLEST_FRAME);
        }
    }
}

/// CPU time of all threads.
fn cpu_time(id: u32) -> io::Result<Duration> {
    let threads = fs::read_dir(format!("/proc/{id}/task"))?;
    threads
        .map(|thread| {
            let name = thread?.file_name();
            let id = name.to_str().and_then(|name| name.parse().ok());
            meter::cpu_time(id.ok_or(io::ErrorKind::InvalidData)?)
        })
        .sum()
}

/// How often the guest was left, but for interrupts; 0 by a tender that does not say.
fn exits(share: &File) -> io::Result<u64> {
    let mut bytes = [0; size_of::<Exits>()];
    share.read_exact_at(&mut bytes, EXITS_OFFSET as u64)?;
    let exits = Exits::read_from_bytes(&bytes).unwrap_or_default();
    Ok(exits.all.saturating_sub(exits.interrupts))
}

/// A tap that exists without a holder: Solo5's tender takes taps by name.
fn persistent_tap(segment: &Segment, name: &str) -> io::Result<()> {
    // The busybox of the lab makes taps with a program of its own.
    for words in ["ip tuntap add mode tap", "busybox tunctl -t"] {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .arg(name)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if segment
            .run(|| command.status())
            .is_ok_and(|status| status.success())
        {
            return Ok(());
        }
    }
    Err(io::Error::other(format!("no tap {name} can be made")))
}
