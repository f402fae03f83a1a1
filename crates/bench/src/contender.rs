//! What can stand between two segments.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fmt, io};

use rustix::io::{FdFlags, fcntl_setfd};
use tender::sys::tap::{Tap, offload};

use crate::meter;
use crate::relay::{self, Kind};
use crate::segment::{self, Segment};
use crate::topology::Pair;

/// Memory of the firewall's guest, in MiB.
pub const FIREWALL_MEMORY_MIB: u64 = 16;

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The baseline: one frame a wake-up, no offloads.
    PlainRelay,
    /// The firewall's offloads and batches, without rules and jail.
    OffloadedRelay,
    /// The firewall on `spt`.
    Firewall,
    /// The kernel itself.
    KernelBridge,
}

impl Contender {
    /// All of them, the baseline first.
    pub const ALL: [Self; 4] = [
        Self::PlainRelay,
        Self::OffloadedRelay,
        Self::Firewall,
        Self::KernelBridge,
    ];

    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlainRelay => "plain relay",
            Self::OffloadedRelay => "offloaded relay",
            Self::Firewall => "firewall",
            Self::KernelBridge => "kernel bridge",
        }
    }
}

/// The executables and the image that contenders are made of.
#[derive(Clone, Debug)]
pub struct Programs {
    /// A program with the command `relay KIND`; see [`relay::spawn`].
    pub relay: PathBuf,
    /// `outboard-tender`.
    pub tender: PathBuf,
    /// The firewall's image for `spt`.
    pub firewall: PathBuf,
}

/// Why a contender could not be put between two segments.
#[derive(Debug)]
pub enum Error {
    /// The segments.
    Segment(segment::Error),
    /// A tap's offloads or its descriptor.
    Tap(io::Error),
    /// A program.
    Spawn(PathBuf, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Segment(error) => error.fmt(f),
            Self::Tap(error) => write!(f, "cannot prepare a tap: {error}"),
            Self::Spawn(path, error) => write!(f, "cannot start {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for Error {}

impl From<segment::Error> for Error {
    fn from(error: segment::Error) -> Self {
        Self::Segment(error)
    }
}

/// A contender between two fresh segments. All of it goes when this is dropped.
#[derive(Debug)]
pub struct Standing {
    /// The segments.
    pub pair: Pair,
    joint: Joint,
}

#[derive(Debug)]
enum Joint {
    Process(Child),
    /// Never read: the bridge lives as long as its segment.
    Bridge {
        _segment: Segment,
    },
}

impl Standing {
    /// Makes two segments and puts `contender` between them. Its process dies with the thread that
    /// calls this.
    ///
    /// # Errors
    /// What could not be made or started.
    pub fn start(contender: Contender, programs: &Programs) -> Result<Self, Error> {
        let (pair, child) = match contender {
            Contender::PlainRelay => {
                let (pair, taps) = Pair::tapped(false)?;
                (pair, spawn_relay(programs, Kind::Plain, taps)?)
            }
            Contender::OffloadedRelay => {
                let (pair, taps) = Pair::tapped(true)?;
                for tap in &taps {
                    tap.set_offloads(offload::ALL).map_err(Error::Tap)?;
                }
                (pair, spawn_relay(programs, Kind::Batched, taps)?)
            }
            Contender::Firewall => {
                let (pair, taps) = Pair::tapped(true)?;
                (pair, spawn_firewall(programs, taps)?)
            }
            Contender::KernelBridge => {
                let (pair, segment) = Pair::bridged()?;
                let joint = Joint::Bridge { _segment: segment };
                return Ok(Self { pair, joint });
            }
        };
        let joint = Joint::Process(child);
        Ok(Self { pair, joint })
    }

    /// The contender's process; the kernel's bridge has none.
    pub fn process(&self) -> Option<u32> {
        match &self.joint {
            Joint::Process(child) => Some(child.id()),
            Joint::Bridge { .. } => None,
        }
    }

    /// CPU time that the contender's process has used; zero if it has none.
    ///
    /// # Errors
    /// The process is gone.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.process().map_or(Ok(Duration::ZERO), meter::cpu_time)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if let Joint::Process(child) = &mut self.joint {
            // Either fails only if the process has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn_relay(programs: &Programs, kind: Kind, taps: [Tap; 2]) -> Result<Child, Error> {
    let [a, b] = taps.map(Tap::into_fd);
    relay::spawn(&programs.relay, kind, a, b)
        .map_err(|error| Error::Spawn(programs.relay.clone(), error))
}

fn spawn_firewall(programs: &Programs, taps: [Tap; 2]) -> Result<Child, Error> {
    let [private, public] = taps.map(Tap::into_fd);
    for tap in [&private, &public] {
        fcntl_setfd(tap, FdFlags::empty()).map_err(|error| Error::Tap(error.into()))?;
    }
    Command::new(&programs.tender)
        .arg(format!("--mem={FIREWALL_MEMORY_MIB}"))
        .arg(format!("--die-with-parent={}", std::process::id()))
        .arg(format!("--net:private=@{}", number(&private)))
        .arg(format!("--net:public=@{}", number(&public)))
        .arg("--")
        .arg(&programs.firewall)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| Error::Spawn(programs.tender.clone(), error))
}

fn number(fd: &OwnedFd) -> i32 {
    use std::os::fd::AsRawFd;
    fd.as_fd().as_raw_fd()
}
