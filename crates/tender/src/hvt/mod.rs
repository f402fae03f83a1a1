//! The host `hvt`: check, attach, load, make a virtual machine, jail, serve its hypercalls.
//!
//! | guest-physical addresses | what | mapped for the guest |
//! |---|---|---|
//! | below [`abi::hvt::BOOT_INFO`] | descriptor table | no, so that a null pointer faults |
//! | from [`abi::hvt::BOOT_INFO`] | boot information, manifest, command line | read |
//! | from 0x20000 | page tables | no |
//! | from [`abi::IMAGE_BASE`] | the segments of the image | their rights |
//! | from the end of the image | heap, and the stack of Solo5's images | read, write |
//! | [`abi::share::BASE`] | the shared file, if there is one | as on `spt` |
//! | [`abi::ring::BASE`] | the rings, if the image understands them | read, write |
//! | from [`abi::region::BASE`] | links and states | read, write; other ends of links: read |
//! | see `windows` | BARs of PCIe devices, and DMA memory | read, write; BARs uncached |
//!
//! Virtual and physical addresses are the same, but for windows where the processor has too few
//! bits for that.

mod call;
mod cause;
mod complaint;
mod cpu;
pub mod device;
mod ending;
mod error;
mod exit;
mod jail;
mod paging;
pub mod probe;
mod queues;
mod registers;
mod ring_service;
mod setup;
mod statistics;
mod windows;

use self::ring_service::RingService;
use self::statistics::Statistics;
use crate::attach::pci::Pci;
use crate::attach::region::{self, Region};
use crate::start::{Resources, Start, announce};
use crate::sys::stop::Stop;
use abi::ring::Rings;
use call::Calls;
use complaint::Complaint;
use error::step_of;
use linux::process;
use rustix::io::Errno;
use std::convert::Infallible;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub use crate::sys::machine::Running;
pub use call::{Calls as Hypercalls, Outcome, wall_time};
pub use cause::{Cause, HostStep, Names, Violation};
pub use ending::Ending;
pub use error::Error;
pub use exit::Exit;
pub use jail::{TenderGrants, rules};
pub use paging::{Builder as PageTables, Error as PagingError, Rights};
pub use queues::{Done, Queues};
pub use setup::Setup;

/// What messages of the tender begin with.
const PROGRAM: &str = "outboard-tender";

/// Starts an image, serves it until it ends, and ends with its exit status.
///
/// # Errors
/// Why it could not be started; nothing is left behind then.
pub fn run(start: &Start<'_>) -> Result<Infallible, Error> {
    let pairs = start.pairs()?;
    let command_line = start.command_line()?;
    let mut setup = Setup::new(start)?;
    start.stand_by()?;
    let resources = start.resources(&pairs)?;
    setup.lend_share(&resources)?;
    let rings = setup.rings(&resources)?;
    let boot_bytes = setup.hand_over(&resources, &command_line, rings.is_some())?;
    let tables = setup.tables(&resources, boot_bytes, rings.is_some())?;
    setup.prepare(&tables)?;
    let machine = setup.start(&resources);
    announce(start, &resources);
    serve_in_jail(start, machine, resources, rings)
}

/// Closes the jail around this process, serves the guest until it ends, and ends with its exit
/// status.
fn serve_in_jail(
    start: &Start<'_>,
    mut machine: Running,
    resources: Resources,
    rings: Option<RingService>,
) -> Result<Infallible, Error> {
    static COMPLAINT: Complaint = Complaint::new();
    let shared = resources.share.is_some();
    let mut pci = resources.attachments.pci;
    let regions = resources.attachments.regions;
    let shares = !pci.devices.is_empty() || !regions.is_empty();
    let calls: &'static Calls = Box::leak(Box::new(Calls {
        sockets: sockets(&mut pci, start.image.entries.len()),
        queues: queues(&regions, start.image.entries.len() + start.image.pci.len()),
        devices: resources.attachments.devices,
        epoll: resources.epoll,
        timer: resources.timer,
    }));
    // The first reading looks for the kernel's page with the clock, which the jail does not allow.
    wall_time();
    let core_file = start.core_file()?;
    let rings = rings.map(|rings| RingThread::new(rings, &machine, shared));
    let rings = rings.transpose()?;
    let grants = TenderGrants {
        guest: calls.grants(
            resources.event.as_ref(),
            pci.held().chain(region::held(&regions)),
        ),
        vcpu: machine.vcpu().as_raw_fd(),
        core_file: core_file.as_ref().map(|core| core.file.as_raw_fd()),
        stop: rings.as_ref().map(|rings| rings.stop.numbers()),
        statistics: rings.as_ref().and_then(RingThread::statistics),
        rings: rings.as_ref().map(|rings| rings.service.descriptors()),
    };
    let memory = machine.memory().clone();
    let names: &'static Names = Box::leak(Box::new(Names::of(PROGRAM, start.image)));
    let ended = move |cause| process::end(Ending::from(cause).say(shared, names));
    let start_rings = || match rings {
        Some(rings) => {
            let complaint = (&COMPLAINT, rings.stop);
            let RingThread {
                service,
                statistics,
                ..
            } = rings;
            service.start(&calls.devices, memory, statistics, complaint, ended)
        }
        None => Ok(()),
    };
    jail::close(&grants, start_rings).map_err(Error::Jail)?;
    let ending = serve(&mut machine, calls, shares, &COMPLAINT);
    if let Some(core_file) = &core_file {
        ending.leave(core_file, &machine, shared);
    }
    process::end(ending.conclude(&machine, shared, names, &start.options.image))
}

/// The thread that serves the rings, before it is started.
struct RingThread {
    service: RingService,
    stop: Stop,
    /// Where it reads how often the guest was left; an old kernel has none.
    statistics: Option<Statistics>,
}

impl RingThread {
    /// For the rings of `machine`, whose processor this thread runs. Statistics need the shared
    /// file, if it is `shared`.
    fn new(service: RingService, machine: &Running, shared: bool) -> Result<Self, Error> {
        let stop = Stop::new(machine.vcpu_fd()).map_err(step_of("its signal mask"))?;
        let statistics = shared.then(|| machine.statistics().ok().and_then(Statistics::new));
        Ok(Self {
            service,
            stop,
            statistics: statistics.flatten(),
        })
    }

    fn statistics(&self) -> Option<RawFd> {
        self.statistics.as_ref().map(Statistics::descriptor)
    }
}

/// Serves the guest until it ends, or there is a complaint. With PCIe devices, links or states it
/// `shares` memory with others.
fn serve(machine: &mut Running, calls: &Calls, shares: bool, complaint: &Complaint) -> Ending {
    loop {
        let exit = match machine.enter().map(Exit::from) {
            Ok(exit) => exit,
            Err(Errno::FAULT) if shares => return Ending::NoPage,
            Err(errno) => return Cause::Host(HostStep::Run, errno).into(),
        };
        match exit {
            Exit::Port(port, argument) => match calls.handle(machine.memory(), port, argument) {
                Ok(Outcome::Continue) => {}
                Ok(Outcome::Halt(status, trap)) => return Ending::Halted(status, trap),
                Err(cause) => return cause.into(),
            },
            Exit::Interrupted => {
                // First, or a complaint that comes in between would interrupt nothing.
                Stop::take(Duration::ZERO);
                if let Some(cause) = complaint.take() {
                    return cause.into();
                }
            }
            exit => {
                let rip = machine.vcpu().get_regs().map_or(0, |regs| regs.rip);
                return Ending::Stopped(exit, rip);
            }
        }
    }
}

/// The rings of disks that processes serve, by the indices of their regions, of which region 0
/// would have `first`.
fn queues(regions: &[Region], first: usize) -> Vec<(usize, Rings<'static>)> {
    let regions = (first..).zip(regions);
    let queues = regions.filter_map(|(index, region)| Some((index, region.queue.as_ref()?.rings)));
    queues.collect()
}

/// The connections to devices that are processes, by the devices' indices.
fn sockets(pci: &mut Pci, entries: usize) -> Vec<(usize, OwnedFd)> {
    let sockets = pci.take_sockets().into_iter();
    sockets
        .map(|(number, socket)| (entries + number, socket))
        .collect()
}
