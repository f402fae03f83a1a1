//! Frames that go round and round between the two ports of an image, both of which are on one hub.
//!
//! A card of QEMU's delivers what it sends before the instruction that told it so has ended:
//! nothing but the image runs, its ports are never empty, and each batch is all frames of a
//! direction.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use abi::share::{self, COUNTERS_OFFSET, COUNTERS_PER_PORT, PortCounter};
use linux::netlink::{self, Netlink};
use linux::packet::PacketSocket;
use linux::tap::Tap;
use rustix::io::{FdFlags, fcntl_setfd};

use super::cards::Cards;
use super::{Case, Programs, Wire};
use testbed::contender::Process;
use testbed::segment::Segment;
use testbed::traffic::SMALLEST_FRAME;

/// Memory of the guests.
const MEMORY: &str = "--mem=32";
/// Indices of the ports: there is nothing else in the manifests.
const PORTS: [usize; 2] = [1, 2];
/// How long is looked at, in instructions: where they are counted, one takes a nanosecond.
const WINDOW: Duration = Duration::from_millis(80);
/// What starts gets this long to become steady.
const SETTLE: Duration = Duration::from_millis(20);
/// An image's cards get this long to have their links. It costs nothing, for the image sleeps.
const LINK: Duration = Duration::from_secs(2);
/// Looks are published every tenth of a second, or a little later.
const PUBLISHED_MAX: Duration = Duration::from_secs(2);
/// How soon after that it is seen.
const POLL: Duration = Duration::from_millis(1);
/// How far batches may be from what was put in; more is another experiment.
const TOLERANCE: f64 = 0.05;
const HUB: &str = "hub";

/// What is counted for each frame that is received at one port and sent at the other.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Instructions of the whole machine.
    pub instructions: f64,
    /// Looks at a NIC of the image's own that found nothing.
    pub empty_looks: f64,
}

/// Runs the case on this host.
///
/// # Errors
/// It cannot be run, or frames were lost.
pub fn cost(programs: &Programs, cards: &Cards, host: &str, case: &Case) -> io::Result<Cost> {
    let run = Run::new()?;
    match case.wire {
        Wire::Cards => {
            let options = [0, 1].map(|card| {
                let name = case.ports[card];
                format!("--pci:{name}={}", cards.addresses[card])
            });
            let _process = run.start(programs, host, case, &options)?;
            thread::sleep(LINK);
            cards.inject(case.batch, &SMALLEST_FRAME)?;
            run.measure(case)
        }
        Wire::Taps => {
            let taps = Taps::new()?;
            let options = taps.options(case);
            let _process = run.start(programs, host, case, &options)?;
            thread::sleep(SETTLE);
            taps.inject(case.batch)?;
            run.measure(case)
        }
    }
}

/// The files of a run, which go when dropped.
struct Run {
    folder: PathBuf,
    share: File,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Run {
    fn new() -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("outboard-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        let share = options.open(folder.join("share"))?;
        share.set_len(share::BYTES)?;
        Ok(Self { folder, share })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn start(
        &self,
        programs: &Programs,
        host: &str,
        case: &Case,
        devices: &[String],
    ) -> io::Result<Process> {
        let mut command = Command::new(&programs.tender);
        command
            .args([MEMORY, &format!("--host={host}")])
            .arg(format!("--share={}", self.path("share").display()))
            .args(devices)
            .arg("--")
            .arg(programs.image(case.image))
            .arg(case.argument)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Ok(command.spawn()?.into())
    }

    fn measure(&self, case: &Case) -> io::Result<Cost> {
        if case.wire == Wire::Taps {
            thread::sleep(SETTLE);
            let instructions = self.instructions()?;
            return Ok(Cost {
                instructions,
                empty_looks: 0.0,
            });
        }
        let before = self.published()?;
        let instructions = self.instructions()?;
        let after = self.published()?;
        let since = |number: usize| (after[number] - before[number]) as f64;
        let [frames, busy, empty] = [since(0), since(1), since(2)];
        let (batch, expected) = (frames / busy, case.batch as f64);
        if (batch / expected - 1.0).abs() > TOLERANCE {
            let what = format!("batches of {batch:.2} frames instead of {expected}");
            return Err(io::Error::other(what));
        }
        Ok(Cost {
            instructions,
            empty_looks: empty / frames,
        })
    }

    /// Instructions for each frame.
    fn instructions(&self) -> io::Result<f64> {
        let ([before, ..], begin) = (self.counts()?, Instant::now());
        thread::sleep(WINDOW);
        let ([after, ..], time) = (self.counts()?, begin.elapsed());
        match after - before {
            0 => Err(io::Error::other("no frame goes round")),
            frames => Ok(time.as_nanos() as f64 / frames as f64),
        }
    }

    /// What is counted at the moment when looks are published.
    fn published(&self) -> io::Result<[u64; 3]> {
        let begin = Instant::now();
        let [_, before, _] = self.counts()?;
        while begin.elapsed() < PUBLISHED_MAX {
            thread::sleep(POLL);
            let counts @ [_, busy, _] = self.counts()?;
            if busy != before {
                return Ok(counts);
            }
        }
        Err(io::Error::other("no looks are published"))
    }

    /// Frames received, looks that found some, and looks that found none, of both ports.
    fn counts(&self) -> io::Result<[u64; 3]> {
        let counters = [
            PortCounter::RxFrames,
            PortCounter::PollsBusy,
            PortCounter::PollsIdle,
        ];
        let mut counts = [0; 3];
        for port in PORTS {
            for (count, counter) in counts.iter_mut().zip(counters) {
                *count += self.counter(port, counter)?;
            }
        }
        Ok(counts)
    }

    fn counter(&self, port: usize, counter: PortCounter) -> io::Result<u64> {
        let mut bytes = [0; size_of::<u64>()];
        let number = port * COUNTERS_PER_PORT + counter as usize;
        let offset = COUNTERS_OFFSET + number * bytes.len();
        self.share.read_exact_at(&mut bytes, offset as u64)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Two taps of a hub, in a network of their own.
struct Taps {
    segment: Segment,
    taps: [OwnedFd; 2],
}

impl Taps {
    fn new() -> io::Result<Self> {
        let segment = Segment::new().map_err(io::Error::other)?;
        let within = |act: fn(&mut Netlink) -> Result<(), netlink::Error>| {
            segment.netlink(act).map_err(io::Error::other)
        };
        within(|netlink| {
            netlink.add_hub(HUB)?;
            netlink.set_up(HUB)
        })?;
        let tap = |name: &'static str| -> io::Result<OwnedFd> {
            let tap = segment.run(|| Tap::create(name, true))?.into_fd();
            // The tender is to have it.
            fcntl_setfd(&tap, FdFlags::empty())?;
            let joined = segment.netlink(|netlink| {
                netlink.set_master(name, HUB)?;
                netlink.set_up(name)
            });
            joined.map_err(io::Error::other)?;
            Ok(tap)
        };
        let taps = [tap("left")?, tap("right")?];
        Ok(Self { segment, taps })
    }

    fn options(&self, case: &Case) -> [String; 2] {
        [0, 1].map(|port| {
            let name = case.ports[port];
            format!("--net:{name}=@{}", self.taps[port].as_raw_fd())
        })
    }

    fn inject(&self, frames: usize) -> io::Result<()> {
        let socket = self.segment.run(|| PacketSocket::open(HUB))?;
        for _ in 0..frames {
            socket.send(&SMALLEST_FRAME)?;
        }
        Ok(())
    }
}
