//! One of our images as the guest, with virtio's devices over memory-mapped I/O in place of the
//! PCI devices of its manifest. The tender's own code checks the image, loads it, and answers its
//! calls.
//!
//! | module | what |
//! |---|---|
//! | [`pair`] | every device of the manifest has one here, and nothing else has |
//! | [`jail`] | what is left of the kernel once the guest runs |
//! | `error` | why it was not started |
//!
//! | addresses | what |
//! |---|---|
//! | as on `hvt` | the image, its memory, its DMA memory |
//! | where BAR 0 would be | for the guest, the window of a device |
//! | [`layout::WINDOWS`] | the same, guest-physical: no memory, so that KVM tells of accesses |
//!
//! The guest takes no interrupts. A device raises an event, which is in the wait set that the guest
//! sleeps on by a call. Devices reach its DMA memory and nothing else of it.

mod error;
pub mod jail;
pub mod pair;

pub use error::Error;

use crate::attach::{self, Here, Interrupts};
use crate::bus::{Bus, Silent, Space};
use crate::complain;
use crate::ioregionfd::wire::Direction;
use crate::layout::{self, WINDOW_STRIDE, WINDOWS};
use crate::machine::{self, Children, Exits, Patience, Work, copied, count};
use crate::mapping;
use crate::options::{Device, Image};
use abi::exit;
use abi::pci::{Info, bar_address, info_flag};
use jail::Held;
use kvm_ioctls::VcpuExit;
use linux::{descriptor, event, process, signal};
use models::virtio::mmio::BYTES as WINDOW_BYTES;
use rustix::io::Errno;
use rustix::process::Signal;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use tender::attach::pci;
use tender::check::{self, Pairs};
use tender::hvt::{
    Cause, Ending, Exit, HostStep, Hypercalls, Names, Outcome, PageTables, Rights, Running, Setup,
    TenderGrants, wall_time,
};
use tender::load;
use tender::memory::Gpa;
use tender::options::{self, Host, Request};
use tender::start::{self, Resources, Start};

/// What messages begin with.
const PROGRAM: &str = "outboard-vmm";
/// How often a report steps back for the processor, whose accesses take far less time.
const YIELDS_MAX: usize = 10_000;

/// How the guest has ended.
enum End {
    /// As on any host.
    Guest(Ending),
    /// A device does not answer, which was said.
    Silent,
}

/// Starts an image, serves it until it ends, and ends with its exit status. This process has one
/// thread.
///
/// # Errors
/// Why it could not be started.
pub fn run(image: &Image) -> Result<i32, Error> {
    signal::reset_pipe();
    descriptor::open_standard().map_err(|error| Error::Step("/dev/null", error))?;
    let options = options(image)?;
    let unusable = |error| Error::Load(image.path.clone(), error);
    let (file, checked) = load::open(&image.path).map_err(unusable)?;
    load::host(&checked, options.host).map_err(unusable)?;
    check::host(&checked.entries, Host::Hvt).map_err(Error::Check)?;
    if let (Some(version), Some(device)) = (checked.other_version, image.devices.first()) {
        let option = pair::option(device);
        return Err(Error::Check(check::Error::Version(option, version)));
    }
    let devices = pair::pair(&checked.entries, &checked.pci, &image.devices)?;
    let start = Start {
        options: &options,
        image: &checked,
        file: &file,
    };
    let command_line = start.command_line().map_err(Error::Start)?;
    let mut setup = Setup::new(&start).map_err(Error::Hvt)?;
    // Of PCI devices proper there are none.
    let resources = start.resources(&Pairs::default());
    let mut resources = resources.map_err(Error::Start)?;
    // Before the guest is told its secrets, of which a device in a process of its own would have a
    // copy.
    let attached = attach(&setup, &mut resources, checked.entries.len(), &devices)?;
    let (mut bus, here, children) = machine::sort(attached).map_err(Error::Machine)?;
    mapping::follow(setup.machine().vm(), &mut bus).map_err(Error::Attach)?;
    let boot_bytes = setup.hand_over(&resources, &command_line, false);
    let boot_bytes = boot_bytes.map_err(Error::Hvt)?;
    let tables = setup.tables(&resources, boot_bytes, false);
    let mut tables = tables.map_err(Error::Hvt)?;
    map(&mut tables, devices.len())?;
    setup.prepare(&tables).map_err(Error::Hvt)?;
    let vm = setup.machine().vm().as_raw_fd();
    let running = setup.start(&resources);
    let names = Names::of(PROGRAM, &checked);
    serve_in_jail(
        image,
        &names,
        (running, vm),
        resources,
        (bus, here, children),
    )
}

/// The tender's options for this image: those of its own command line that say the same.
fn options(image: &Image) -> Result<Box<options::Options>, Error> {
    let words = ["--host=hvt".into(), format!("--mem={}", image.memory_mib)];
    let words = words.into_iter().map(OsString::from);
    let guest = ["--".into(), image.path.clone().into_os_string()];
    let guest = guest.into_iter().chain(image.arguments.iter().cloned());
    match options::parse(words.chain(guest)) {
        Ok(Request::Start(options)) => Ok(options),
        Ok(_) => Err(Error::Options(options::Error::MissingImage)),
        Err(error) => Err(Error::Options(error)),
    }
}

/// Attaches the devices, one for each that the image asks for, and tells the tender's code of them.
fn attach(
    setup: &Setup<'_>,
    resources: &mut Resources,
    entries: usize,
    devices: &[Device],
) -> Result<Vec<attach::Attached>, Error> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let events = devices.iter().map(|_| event::new());
    let events = events.collect::<io::Result<Vec<OwnedFd>>>();
    let events = events.map_err(|error| Error::Step("an event", error))?;
    let pci = &mut resources.attachments.pci;
    let dma = pci.dma.as_ref().ok_or(Error::NoDma)?;
    let machine = attach::Machine {
        vm: setup.machine().vm(),
        memory: dma.memory.as_fd(),
        memory_bytes: dma.window.bytes(),
        memory_address: dma.iova.number(),
        interrupts: Interrupts::Events(&events),
    };
    let attached = attach::attach(machine, devices).map_err(Error::Attach)?;
    let told = devices.iter().zip(events);
    pci.devices = told.map(|(device, event)| told_of(device, event)).collect();
    start::interrupts(pci, entries, &resources.epoll).map_err(Error::Start)?;
    Ok(attached)
}

/// What the guest is told of a device, whose interrupt raises this event.
fn told_of(device: &Device, event: OwnedFd) -> pci::Device {
    let mut info = Info {
        flags: info_flag::ATTACHED | info_flag::INTERRUPT | info_flag::WINDOW,
        ..Info::ZERO
    };
    info.bar_bytes[0] = WINDOW_BYTES;
    pci::Device {
        name: device.name.clone(),
        info,
        windows: Vec::new(),
        doorbells: None,
        event: Some(event),
        socket: None,
    }
}

/// Maps the windows of so many devices for the guest.
fn map(tables: &mut PageTables, devices: usize) -> Result<(), Error> {
    let rights = Rights {
        write: true,
        execute: false,
        uncached: true,
    };
    for number in 0..devices {
        let begin = bar_address(number, 0);
        let physical = Gpa::new(layout::window(number));
        let mapped = tables.map(begin..begin + WINDOW_STRIDE, physical, rights);
        mapped.map_err(Error::Window)?;
    }
    Ok(())
}

/// Closes the jail around this process, serves the guest until it ends, and ends with its exit
/// status. The machine has the descriptor of this number.
fn serve_in_jail(
    image: &Image,
    names: &Names,
    (mut machine, vm): (Running, i32),
    resources: Resources,
    (bus, here, children): (Bus, Vec<Here>, Children),
) -> Result<i32, Error> {
    let pci = resources.attachments.pci;
    let calls = Hypercalls {
        devices: Vec::new(),
        sockets: Vec::new(),
        queues: Vec::new(),
        epoll: resources.epoll,
        timer: resources.timer,
    };
    // The first reading looks for the kernel's page with the clock, which the jail does not allow.
    wall_time();
    let held = Held {
        grants: TenderGrants {
            guest: calls.grants(None, pci.held()),
            vcpu: machine.vcpu().as_raw_fd(),
            core_file: None,
            rings: None,
            statistics: None,
            stop: None,
        },
        vm,
        signals: image.statistics,
        devices: machine::devices_held(&bus, &here, &children),
    };
    let counted: &'static Counted = Box::leak(Box::new(Counted {
        bus: Mutex::new(bus),
        exits: Exits::default(),
    }));
    let signals = image.statistics.then(|| counted.until_signal()).transpose();
    let signals = signals.map_err(|error| Error::Step("signals", error))?;
    let start = || machine::start_threads(signals, here, children);
    jail::close(&held, start).map_err(Error::Jail)?;
    let end = serve(&mut machine, &calls, counted);
    if image.statistics {
        counted.report();
    }
    process::end(match end {
        End::Silent => crate::FAILURE,
        End::Guest(ending) => ending.conclude(&machine, false, names, &image.path),
    })
}

/// Devices, and how often the processor left the guest.
struct Counted {
    /// The processor's, but for the end.
    bus: Mutex<Bus>,
    exits: Exits,
}

impl Counted {
    /// The devices, for the processor.
    fn bus(&self) -> MutexGuard<'_, Bus> {
        self.bus.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints what was counted, unless the processor waits for a device that does not answer.
    fn report(&self) {
        for _ in 0..YIELDS_MAX {
            if let Ok(bus) = self.bus.try_lock() {
                return machine::report(&bus, &self.exits);
            }
            thread::yield_now();
        }
    }

    /// A thread that reports before a signal ends the guest: most images never end by themselves.
    ///
    /// # Errors
    /// What the kernel says.
    fn until_signal(&'static self) -> io::Result<Work> {
        let held = signal::Held::new([Signal::TERM, Signal::INT])?;
        let wait = move || {
            let signal = loop {
                match held.wait() {
                    // Of children, another thread sees to.
                    Ok(Signal::CHILD) => {}
                    Ok(signal) => break signal.as_raw(),
                    Err(_) => break 0,
                }
            };
            self.report();
            process::end(exit::SIGNAL_BASE + signal)
        };
        Ok(("signals", Box::new(wait)))
    }
}

/// Serves the guest until it ends.
fn serve(machine: &mut Running, calls: &Hypercalls, counted: &Counted) -> End {
    let exits = &counted.exits;
    let windows = WINDOWS..layout::window(counted.bus().slots.len());
    let access = |direction, address, data: &mut [u8]| {
        let done = counted
            .bus()
            .access(Space::Memory, direction, address, data);
        done.map(drop)
    };
    let mut patience = Patience::default();
    loop {
        let accessed = match machine.enter() {
            Ok(VcpuExit::MmioRead(address, data)) if windows.contains(&address) => {
                count(&exits.reads);
                access(Direction::Read, address, data)
            }
            Ok(VcpuExit::MmioWrite(address, data)) if windows.contains(&address) => {
                count(&exits.writes);
                let (mut data, bytes) = copied(data);
                access(Direction::Write, address, &mut data[..bytes])
            }
            Ok(VcpuExit::Intr) => {
                count(&exits.others);
                if patience.interrupted(machine.vcpu_mut(), &counted.bus()) {
                    return End::Silent;
                }
                continue;
            }
            Ok(exit) => {
                let ending = answer(Exit::from(exit), machine, calls, exits);
                if let Some(ending) = ending {
                    return End::Guest(ending);
                }
                Ok(())
            }
            Err(Errno::FAULT) => return End::Guest(Ending::NoPage),
            Err(errno) => return End::Guest(Cause::Host(HostStep::Run, errno).into()),
        };
        if let Err(Silent { name, why }) = accessed {
            complain(&name, &why.to_string());
            return End::Silent;
        }
        patience.left(machine.vcpu_mut());
    }
}

/// Does what the guest asks for by other exits; how it has ended, if it has.
fn answer(exit: Exit, machine: &Running, calls: &Hypercalls, exits: &Exits) -> Option<Ending> {
    match exit {
        Exit::Port(port, argument) => {
            count(&exits.ports);
            match calls.handle(machine.memory(), port, argument) {
                Ok(Outcome::Continue) => None,
                Ok(Outcome::Halt(status, trap)) => Some(Ending::Halted(status, trap)),
                Err(cause) => Some(cause.into()),
            }
        }
        exit => {
            let rip = machine.vcpu().get_regs().map_or(0, |regs| regs.rip);
            Some(Ending::Stopped(exit, rip))
        }
    }
}
