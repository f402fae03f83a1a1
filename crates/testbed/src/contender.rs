//! What can stand between two segments.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use std::{fmt, io};

use linux::link;
use linux::tap::{Tap, offload};
use rustix::io::{FdFlags, fcntl_setfd};

use crate::meter;
use crate::relay::{self, Kind};
use crate::segment::{self, Segment};
use crate::topology::Pair;

/// Memory that is enough for the rules that the firewall comes with, in MiB.
pub const FIREWALL_MEMORY_MIB: u64 = 16;

/// The command of `outboard` that starts a tender and stays as its monitor.
pub const MONITOR: &str = "run";
/// Slots of each end of a link: those of images whose manifest says none.
const LINK_SLOTS: usize = 128;
/// Rules that let all frames pass.
const ALL: &str =
    "table bridge t { chain c { type filter hook forward priority 0; policy accept; }\n}";
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
    /// The firewall on `process`, without a jail: what the jail costs is the difference.
    UnjailedFirewall,
    /// The same on two software NICs, each of which is a process with one of the taps.
    FirewallOnNics,
    /// The kernel itself.
    KernelBridge,
}

impl Contender {
    /// What a demonstration compares, the baseline first.
    pub const ALL: [Self; 4] = [
        Self::PlainRelay,
        Self::OffloadedRelay,
        Self::Firewall,
        Self::KernelBridge,
    ];

    /// What the firewall on software NICs is compared with, and that.
    pub const BESIDE_NICS: [Self; 3] =
        [Self::PlainRelay, Self::OffloadedRelay, Self::FirewallOnNics];

    /// Its name in tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlainRelay => "plain relay",
            Self::OffloadedRelay => "offloaded relay",
            Self::Firewall => "firewall",
            Self::UnjailedFirewall => "firewall, no jail",
            Self::FirewallOnNics => "firewall on NICs",
            Self::KernelBridge => "kernel bridge",
        }
    }
}

/// The executables and the image that contenders are made of.
#[derive(Clone, Debug)]
pub struct Programs {
    /// A program with the command `relay KIND PARENT`; see [`relay::spawn`]. For software NICs, it
    /// is `outboard`.
    pub relay: PathBuf,
    /// `outboard-tender`, or a program of which it is a command.
    pub tender: PathBuf,
    /// That command, if there is one.
    pub tender_command: Option<&'static str>,
    /// The firewall's image for `spt`; for software NICs, one whose ports are those.
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
    /// A connection between two processes.
    Socket(io::Error),
    /// A descriptor that a process should inherit.
    Descriptor(io::Error),
    /// A program.
    Spawn(PathBuf, io::Error),
    /// nft refused a file of rules: what it said.
    Nft(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Segment(error) => error.fmt(f),
            Self::Tap(error) => write!(f, "cannot prepare a tap: {error}"),
            Self::Socket(error) => write!(f, "no connection between processes: {error}"),
            Self::Descriptor(error) => write!(f, "cannot pass a descriptor on: {error}"),
            Self::Spawn(path, error) => write!(f, "cannot start {}: {error}", path.display()),
            Self::Nft(said) => write!(f, "nft refuses the rules: {said}"),
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
    /// The firewall's, and those of its two NICs.
    OnNics {
        firewall: Process,
        nics: [Process; 2],
    },
    /// The firewall's, and those of the images that have the taps.
    InThree {
        firewall: Process,
        edges: [Process; 2],
    },
    /// A monitor, which takes its child along when it ends, and that child.
    Monitored {
        monitor: Process,
        tender: u32,
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
            Contender::UnjailedFirewall => {
                let options = ["--host=process".into()];
                return Self::firewall(programs, &options, None, Stdio::null());
            }
            Contender::FirewallOnNics => {
                return Self::on_nics(programs, &[], None, Stdio::null());
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
        let ports = taps.map(Port::tap);
        let process = spawn_firewall(programs, ports, options, &[], share, console)?;
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

    /// [`Contender::FirewallOnNics`], as [`Standing::firewall`].
    ///
    /// # Errors
    /// As [`Standing::start`].
    pub fn on_nics(
        programs: &Programs,
        options: &[OsString],
        share: Option<BorrowedFd>,
        console: Stdio,
    ) -> Result<Self, Error> {
        let (pair, taps) = Pair::tapped(true)?;
        let [first, second] = taps;
        let (private, first) = spawn_nic(&programs.relay, first)?;
        let (public, second) = spawn_nic(&programs.relay, second)?;
        let ports = [private, public];
        let firewall = spawn_firewall(programs, ports, options, &[], share, console)?;
        let nics = [first, second];
        let joint = Joint::OnNics { firewall, nics };
        Ok(Self { pair, joint })
    }

    /// The firewall without a tap, between two images that have one each and let all frames pass:
    /// `edge` is an image whose port `private` is a link. The links are `open`, or not.
    ///
    /// # Errors
    /// As [`Standing::start`].
    pub fn in_three(programs: &Programs, edge: &Path, open: bool) -> Result<Self, Error> {
        let port = if open { Port::OpenLink } else { Port::Link };
        let (pair, taps) = Pair::tapped(true)?;
        let slots = [LINK_SLOTS; 2];
        let [near, far] = taps;
        let between = |tap| -> Result<_, Error> {
            let [ours, theirs] = link::make(slots).map_err(Error::Socket)?;
            let programs = Programs {
                firewall: edge.to_owned(),
                ..programs.clone()
            };
            let ports = [port(ours), Port::tap(tap)];
            let edge = spawn_firewall(&programs, ports, &[], &[ALL.into()], None, Stdio::null())?;
            Ok((port(theirs), edge))
        };
        let (private, first) = between(near)?;
        let (public, second) = between(far)?;
        let ports = [private, public];
        let firewall = spawn_firewall(programs, ports, &[], &[], None, Stdio::null())?;
        let edges = [first, second];
        let joint = Joint::InThree { firewall, edges };
        Ok(Self { pair, joint })
    }

    /// Ends the firewall, and with it its software NICs: how those have ended, which is a failure
    /// if its drivers did what the datasheet forbids. There are none of other contenders.
    ///
    /// # Errors
    /// One cannot be waited for.
    pub fn verdicts(self) -> io::Result<Vec<ExitStatus>> {
        let Joint::OnNics { firewall, nics } = self.joint else {
            return Ok(Vec::new());
        };
        drop(firewall);
        nics.into_iter().map(|mut nic| nic.0.wait()).collect()
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
            | Joint::OnNics {
                firewall: process, ..
            }
            | Joint::InThree {
                firewall: process, ..
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
            | Joint::OnNics {
                firewall: process, ..
            }
            | Joint::InThree {
                firewall: process, ..
            }
            | Joint::Monitored {
                monitor: process, ..
            } => process.0.try_wait(),
            Joint::Bridge { .. } => Ok(None),
        }
    }

    /// All of the contender's processes, software NICs included; the kernel's bridge has none.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        let others: &[Process] = match &self.joint {
            Joint::OnNics { nics: others, .. } | Joint::InThree { edges: others, .. } => others,
            _ => &[],
        };
        self.process()
            .into_iter()
            .chain(others.iter().map(Process::id))
    }

    /// CPU time that the contender's processes have used; zero if it has none.
    ///
    /// # Errors
    /// The process is gone.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        self.processes().map(meter::cpu_time).sum()
    }
}

/// A child that does not outlive this value.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

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

/// What a port of an image is attached to.
#[derive(Debug)]
pub enum Port {
    /// A tap.
    Tap(OwnedFd),
    /// The connection to a software NIC.
    Nic(OwnedFd),
    /// An end of a link to another image.
    Link(link::Side),
    /// The same where the other image may see what comes in at this one and is not for it.
    OpenLink(link::Side),
}

impl Port {
    /// The other side of a tap.
    pub fn tap(tap: Tap) -> Self {
        Self::Tap(tap.into_fd())
    }

    /// The tender's option.
    pub fn option(&self, name: &str) -> String {
        match self {
            Self::Tap(fd) => format!("--net:{name}=@{}", fd.as_raw_fd()),
            Self::Nic(fd) => format!("--pci:{name}=vfio-user:@{}", fd.as_raw_fd()),
            Self::Link(side) => format!("--link:{name}={}", side.value()),
            Self::OpenLink(side) => format!("--link:{name}={},open", side.value()),
        }
    }

    /// Whether a process that is started from now on has it.
    ///
    /// # Errors
    /// It is not open.
    pub fn inherit(&self, whether: bool) -> Result<(), Error> {
        let flags = match whether {
            true => FdFlags::empty(),
            false => FdFlags::CLOEXEC,
        };
        set_flags(self.descriptors().into_iter(), flags)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Tap(fd) | Self::Nic(fd) => vec![fd.as_fd()],
            Self::Link(side) | Self::OpenLink(side) => vec![
                side.own.as_fd(),
                side.peer.as_fd(),
                side.bell.as_fd(),
                side.peer_bell.as_fd(),
            ],
        }
    }
}

/// Starts a software NIC, a command of the program `outboard`, whose wire is `tap`: what a port of
/// an image is attached to, and its process. It ends with whoever has the connection.
///
/// # Errors
/// What could not be made or started.
pub fn spawn_nic(outboard: &Path, tap: Tap) -> Result<(Port, Process), Error> {
    let (ours, theirs) = UnixStream::pair().map_err(Error::Socket)?;
    let theirs = OwnedFd::from(theirs);
    let passed = || [tap.as_fd(), theirs.as_fd()].into_iter();
    set_flags(passed(), FdFlags::empty())?;
    let child = Command::new(outboard)
        .args(["model", "82599", "--once"])
        .arg(format!("--socket=@{}", theirs.as_raw_fd()))
        .arg(format!("--wire=tap:@{}", tap.as_fd().as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let child = child.map_err(|error| Error::Spawn(outboard.to_owned(), error))?;
    Ok((Port::Nic(ours.into()), Process(child)))
}

/// `words` are what the image itself is told.
fn spawn_firewall(
    programs: &Programs,
    ports: [Port; 2],
    options: &[OsString],
    words: &[OsString],
    share: Option<BorrowedFd>,
    console: Stdio,
) -> Result<Process, Error> {
    let [private, public] = &ports;
    let share_option = share.map(|share| format!("--share=@{}", share.as_raw_fd()));
    let passed = || ports.iter().flat_map(Port::descriptors).chain(share);
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
        .arg(private.option("private"))
        .arg(public.option("public"))
        .args(share_option)
        .args(options)
        .arg("--")
        .arg(&programs.firewall)
        .args(words)
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
