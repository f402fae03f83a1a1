//! What can stand between two segments.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{fmt, io};

use rustix::io::{FdFlags, fcntl_setfd};
use tender::sys::tap::{Tap, offload};

use crate::meter;
use crate::relay::{self, Kind};
use crate::segment::{self, Segment};
use crate::topology::{Pair, Side};

/// Memory that is enough for the rules that the firewall comes with, in MiB.
pub const FIREWALL_MEMORY_MIB: u64 = 16;

/// The command of `outboard` that starts a tender and stays as its monitor.
pub const MONITOR: &str = "run";
/// The kernel's own tool for rules. Administrators' programs are on the PATH of root alone.
const NFT: &str = "/usr/sbin/nft";

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
    /// A program with the command `relay KIND PARENT`; see [`relay::spawn`].
    pub relay: PathBuf,
    /// `outboard-tender`, or a program of which it is a command.
    pub tender: PathBuf,
    /// That command, if there is one.
    pub tender_command: Option<&'static str>,
    /// The firewall's image for `spt`.
    pub firewall: PathBuf,
    /// Memory of the firewall's guest, in MiB.
    pub memory_mib: u64,
}

/// Why a contender could not be put between two segments.
#[derive(Debug)]
pub enum Error {
    /// The segments.
    Segment(segment::Error),
    /// A tap's offloads.
    Tap(io::Error),
    /// A descriptor that a process should inherit.
    Descriptor(io::Error),
    /// A program.
    Spawn(PathBuf, io::Error),
    /// nft refused a file of rules: what it said.
    Nft(String),
    /// A software NIC does not come up: its socket.
    Card(PathBuf),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Segment(error) => error.fmt(f),
            Self::Tap(error) => write!(f, "cannot prepare a tap: {error}"),
            Self::Descriptor(error) => write!(f, "cannot pass a descriptor on: {error}"),
            Self::Spawn(path, error) => write!(f, "cannot start {}: {error}", path.display()),
            Self::Nft(said) => write!(f, "nft refuses the rules: {said}"),
            Self::Card(socket) => {
                write!(f, "there is no software NIC at {}", socket.display())
            }
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
    /// Ends before the segments do.
    joint: Joint,
    /// The segments.
    pub pair: Pair,
}

#[derive(Debug)]
enum Joint {
    Process(Process),
    /// A monitor, which takes its child along when it ends, and that child.
    Monitored {
        monitor: Process,
        tender: u32,
    },
    /// A tender whose guest drives NICs, and those: they end after it.
    Cards {
        tender: Process,
        _cards: [Card; 2],
    },
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
        let (pair, process) = match contender {
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
                return Self::firewall(programs, &[], None, Stdio::null());
            }
            Contender::KernelBridge => return Self::kernel(None),
        };
        let joint = Joint::Process(process);
        Ok(Self { pair, joint })
    }

    /// [`Contender::Firewall`] with options of the tender, a file that it counts in, and somewhere
    /// to print.
    ///
    /// # Errors
    /// As [`Standing::start`].
    pub fn firewall(
        programs: &Programs,
        options: &[OsString],
        share: Option<BorrowedFd>,
        console: Stdio,
    ) -> Result<Self, Error> {
        let (pair, taps) = Pair::tapped(true)?;
        let process = spawn_firewall(programs, options, taps, share, console)?;
        let joint = match programs.tender_command {
            Some(MONITOR) => {
                let tender = meter::only_child(process.0.id()).map_err(Error::Descriptor)?;
                Joint::Monitored {
                    monitor: process,
                    tender,
                }
            }
            _ => Joint::Process(process),
        };
        Ok(Self { pair, joint })
    }

    /// The firewall with drivers of its own: `image` drives two software NICs, which `monitor`
    /// makes of the segments' taps.
    ///
    /// # Errors
    /// As [`Standing::start`].
    pub fn on_cards(programs: &Programs, monitor: &Path, image: &Path) -> Result<Self, Error> {
        let pair = Pair::apart()?;
        let cards = [Card::new(&pair.a, monitor)?, Card::new(&pair.b, monitor)?];
        pair.address()?;
        let attach =
            |card: &Card, name: &str| format!("--pci:{name}=vfio-user:{}", card.socket.display());
        let child = Command::new(&programs.tender)
            .arg(format!("--mem={}", programs.memory_mib))
            .arg(format!("--die-with-parent={}", std::process::id()))
            .arg(attach(&cards[0], cards[0].name))
            .arg(attach(&cards[1], cards[1].name))
            .arg("--")
            .arg(image)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        let child = child.map_err(|error| Error::Spawn(programs.tender.clone(), error))?;
        let joint = Joint::Cards {
            tender: Process(child),
            _cards: cards,
        };
        Ok(Self { pair, joint })
    }

    /// [`Contender::KernelBridge`] under the rules of a file, which nft reads; its ports have the
    /// names of the firewall's.
    ///
    /// # Errors
    /// As [`Standing::start`]; nft is not there, or refuses the file.
    pub fn kernel(rules: Option<&Path>) -> Result<Self, Error> {
        let (pair, segment) = Pair::bridged()?;
        if let Some(rules) = rules {
            load_into_kernel(&segment, rules)?;
        }
        let joint = Joint::Bridge { _segment: segment };
        Ok(Self { pair, joint })
    }

    /// The contender's process that forwards; the kernel's bridge has none.
    pub fn process(&self) -> Option<u32> {
        match &self.joint {
            Joint::Process(process)
            | Joint::Cards {
                tender: process, ..
            } => Some(process.0.id()),
            Joint::Monitored { tender, .. } => Some(*tender),
            Joint::Bridge { .. } => None,
        }
    }

    /// How the contender's process has ended, if it has.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        match &mut self.joint {
            Joint::Process(process)
            | Joint::Cards {
                tender: process, ..
            }
            | Joint::Monitored {
                monitor: process, ..
            } => process.0.try_wait(),
            Joint::Bridge { .. } => Ok(None),
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

/// A software NIC on the tap of a segment. Its socket goes with it.
#[derive(Debug)]
struct Card {
    /// Dropped first.
    _process: Process,
    name: &'static str,
    socket: PathBuf,
}

impl Card {
    /// How often its socket is looked for, and how long in between.
    const LOOKS: usize = 500;
    const LOOK: Duration = Duration::from_millis(10);

    fn new(side: &Side, monitor: &Path) -> Result<Self, Error> {
        let file = format!("outboard-bench-{}-{}", std::process::id(), side.name);
        let socket = std::env::temp_dir().join(file);
        let mut command = Command::new(monitor);
        command
            .args(["model", "82599", "--wire=tap:eth0"])
            .arg(format!("--socket={}", socket.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = side.segment.run(|| command.spawn());
        let child = child.map_err(|error| Error::Spawn(monitor.to_owned(), error))?;
        let card = Self {
            _process: Process(child),
            name: side.name,
            socket,
        };
        for _ in 0..Self::LOOKS {
            // The tap is there before the socket is.
            if card.socket.exists() {
                return Ok(card);
            }
            std::thread::sleep(Self::LOOK);
        }
        Err(Error::Card(card.socket.clone()))
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // A model that is killed leaves it behind.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A child that does not outlive this value.
#[derive(Debug)]
pub struct Process(Child);

impl From<Child> for Process {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either fails only if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn_relay(programs: &Programs, kind: Kind, taps: [Tap; 2]) -> Result<Process, Error> {
    let [a, b] = taps.map(Tap::into_fd);
    relay::spawn(&programs.relay, kind, a, b)
        .map(Process)
        .map_err(|error| Error::Spawn(programs.relay.clone(), error))
}

fn load_into_kernel(segment: &Segment, rules: &Path) -> Result<(), Error> {
    let cannot_start = |error| Error::Spawn(PathBuf::from(NFT), error);
    let mut nft = Command::new(NFT);
    nft.arg("-f").arg(rules);
    let output = segment.run(|| nft.output()).map_err(cannot_start)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Nft(said.lines().next().unwrap_or("").to_owned()))
}

fn spawn_firewall(
    programs: &Programs,
    options: &[OsString],
    taps: [Tap; 2],
    share: Option<BorrowedFd>,
    console: Stdio,
) -> Result<Process, Error> {
    let [private, public] = taps.map(Tap::into_fd);
    let share_option = share.map(|share| format!("--share=@{}", share.as_raw_fd()));
    let passed = || [private.as_fd(), public.as_fd()].into_iter().chain(share);
    // A tender under a monitor ends with that one.
    let die_with_us = match programs.tender_command {
        Some(MONITOR) => None,
        _ => Some(format!("--die-with-parent={}", std::process::id())),
    };
    // Exactly what the tender is to inherit. Nothing else starts a process meanwhile.
    set_flags(passed(), FdFlags::empty())?;
    let child = Command::new(&programs.tender)
        .args(programs.tender_command)
        .arg(format!("--mem={}", programs.memory_mib))
        .args(die_with_us)
        .arg(format!("--net:private=@{}", private.as_raw_fd()))
        .arg(format!("--net:public=@{}", public.as_raw_fd()))
        .args(share_option)
        .args(options)
        .arg("--")
        .arg(&programs.firewall)
        .stdin(Stdio::null())
        .stdout(console)
        .spawn();
    let child = child.map_err(|error| Error::Spawn(programs.tender.clone(), error))?;
    let process = Process(child);
    set_flags(passed(), FdFlags::CLOEXEC)?;
    Ok(process)
}

fn set_flags<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>, flags: FdFlags) -> Result<(), Error> {
    for fd in fds {
        fcntl_setfd(fd, flags).map_err(|error| Error::Descriptor(error.into()))?;
    }
    Ok(())
}
