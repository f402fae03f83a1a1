//! Devices attached: what is behind them opened, their events and interrupts given to KVM, and
//! those that are processes started.

use crate::bus::{COMMAND, Front, Home, Slot};
use crate::complain;
use crate::counters;
use crate::function::Function;
use crate::ioregionfd::{self, Broken, Commands};
use crate::jail::{self, Backing, DeviceHeld};
use crate::layout::{self, DEVICE_IRQ, PCI_MEMORY, PCI_PORTS};
use crate::options::{Access, Bus, Device, Kind};
use crate::ranges::{BARS, Ranges};
use crate::window::{self, DOORBELLS_MAX, Lines, Served, Shared, Window};
use hw::sim::View;
use kvm_ioctls::VmFd;
use linux::descriptor;
use linux::process::{self, Child};
use linux::signal::Held;
use models::config::ConfigSpace;
use models::virtio::{Mmio, Pci, VirtioBlk, VirtioDevice, VirtioNet, VirtioRng};
use models::wire::{TapWire, Wire, WireFault};
use models::{Identity, Intel82540, Misbehaviour, Msix, Rtl8139, disk};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use vmm_sys_util::eventfd::EventFd;

/// Why a device cannot be attached.
#[derive(Debug)]
pub enum Error {
    /// Its tap cannot be had.
    Tap(WireFault),
    /// Its file cannot be had.
    Disk(disk::Fault),
    /// The kernel has no ioregionfd.
    NoIoregionfd(String),
    /// A step that the kernel refused.
    Step(String, &'static str, io::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tap(fault) => fault.fmt(f),
            Self::Disk(fault) => fault.fmt(f),
            Self::NoIoregionfd(name) => write!(
                f,
                "{name}: this kernel's KVM has no ioregionfd; leave it off, or type: cargo xtask \
                 lab --ioregionfd"
            ),
            Self::Step(name, step, error) => write!(f, "{name}: {step}: {error}"),
        }
    }
}

/// A device that is attached.
pub struct Attached {
    /// What a processor finds at its window.
    pub slot: Slot,
    /// Where it runs.
    pub place: Place,
}

/// Where a device runs.
pub enum Place {
    /// In this process, once a thread serves it.
    Here(Box<Here>),
    /// In a process of its own.
    Process(Child),
}

/// A device that this process has.
pub struct Here {
    /// What messages call it.
    pub name: String,
    /// The device.
    pub device: &'static Shared,
    /// Its lines.
    pub lines: Lines,
    /// What a jail has to know of it.
    pub held: DeviceHeld,
}

/// The machine that devices are attached to.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// For KVM.
    pub vm: &'a VmFd,
    /// The file of the memory that devices reach.
    pub memory: BorrowedFd<'a>,
    /// Bytes of it.
    pub memory_bytes: u64,
    /// The address by which devices know its first byte.
    pub memory_address: u64,
    /// How devices interrupt.
    pub interrupts: Interrupts<'a>,
}

/// How devices interrupt.
#[derive(Clone, Copy)]
pub enum Interrupts<'a> {
    /// By lines of the kernel's interrupt controllers, from [`DEVICE_IRQ`] on.
    Lines,
    /// By these events, one for each device, which whoever waits for the guest watches.
    Events(&'a [OwnedFd]),
}

/// Attaches devices to a machine. This process has one thread.
///
/// # Errors
/// The first that cannot be attached.
pub fn attach(machine: Machine<'_>, devices: &[Device]) -> Result<Vec<Attached>, Error> {
    let mut room = Room::default();
    let numbered = devices.iter().enumerate();
    numbered
        .map(|(number, device)| machine.attach(number, device, &mut room))
        .collect()
}

/// Where the BARs of the next PCI device may be.
struct Room {
    memory: u64,
    ports: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            memory: PCI_MEMORY.start,
            ports: PCI_PORTS.start,
        }
    }
}

impl Room {
    /// Configuration space as firmware leaves it: each BAR has its place, and answers there.
    fn configure(&mut self, identity: &Identity, ranges: &Ranges) -> ConfigSpace {
        let mut config = ConfigSpace::new(identity);
        for bar in ranges.bars() {
            let bytes = ranges.bytes(bar);
            let (next, align) = match ranges.is_port(bar) {
                true => (&mut self.ports, bytes),
                false => (&mut self.memory, bytes.max(PAGE)),
            };
            let address = next.next_multiple_of(align);
            *next = address + bytes;
            // All that is behind the bridge is below 4 GiB.
            let register = FIRST_BAR + 4 * usize::from(bar);
            config.write(register, &(address as u32).to_le_bytes());
        }
        config.write(COMMAND as usize, &[DECODE]);
        config
    }
}

/// BARs in memory begin at pages, so that guests can tell them apart.
const PAGE: u64 = 0x1000;
/// The first BAR in configuration space, and I/O Space and Memory Space of the command register
/// (PCI 3.0, 6.1 and 6.2.2).
const FIRST_BAR: usize = 0x10;
const DECODE: u8 = 0b11;

impl Machine<'_> {
    fn attach(&self, number: usize, device: &Device, room: &mut Room) -> Result<Attached, Error> {
        let step = |step| move |error| Error::Step(device.name.clone(), step, error);
        let opened = Opened::new(device)?;
        let ranges = opened.ranges;
        let memory = View::of_file(self.memory, 0, self.memory_bytes, self.memory_address, true);
        let file = counters::File::new(&ranges).map_err(step("counters"))?;
        let counters = || file.view().map_err(step("counters"));
        let ends = Ends::new(device.access, &ranges).map_err(step("its events"))?;
        let interrupt = self.interrupt(number, opened.identity.is_some());
        let (interrupt, resample) = interrupt.map_err(step("its interrupt"))?;
        let doorbells = ends.events.iter().map(adopt).collect::<io::Result<_>>();
        let lines = Lines {
            doorbells: doorbells.map_err(step("its events"))?,
            interrupt,
            resample,
            kick: ends
                .kick
                .as_ref()
                .map(adopt)
                .transpose()
                .map_err(step("its events"))?,
            wire: opened.wire,
            commands: ends.socket,
            busy: device.busy,
        };
        let served = Served {
            window: opened.window,
            ranges,
            memory: memory.map_err(step("guest memory"))?,
            counters: counters()?,
        };
        let held = DeviceHeld::new(&lines, opened.backing);
        let name = device.name.clone();
        let (front, place) = match ends.commands {
            Some(commands) if device.access.is_apart() => {
                let child = start(&name, served, lines, held).map_err(step("a process"))?;
                (Front::Socket(commands), Place::Process(child))
            }
            commands => {
                let device: &'static Shared = Box::leak(Box::new(Shared::new(served)));
                let front = match commands {
                    Some(commands) => Front::Socket(commands),
                    None => Front::Here(device, ends.kick),
                };
                let here = Here {
                    name,
                    device,
                    lines,
                    held,
                };
                (front, Place::Here(Box::new(here)))
            }
        };
        let home = match &opened.identity {
            Some(identity) => Home::Function(Box::new(room.configure(identity, &ranges))),
            None => Home::Window(layout::window(number)),
        };
        let slot = Slot {
            device: device.clone(),
            front,
            counters: counters()?,
            ranges,
            home,
            at: [None; BARS],
            events: ends.events,
            refused: [false; BARS],
        };
        Ok(Attached { slot, place })
    }

    /// An event that is an edge of the interrupt of the device with this number; or one that
    /// asserts it until the guest has served it, and another event that tells of that.
    fn interrupt(&self, number: usize, is_level: bool) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
        if let Interrupts::Events(events) = self.interrupts {
            let event = events.get(number).ok_or(io::ErrorKind::NotFound)?;
            return Ok((event.try_clone()?, None));
        }
        let irq = DEVICE_IRQ + number as u32;
        let interrupt = event()?;
        if !is_level {
            self.vm.register_irqfd(&interrupt, irq)?;
            return Ok((adopt(&interrupt)?, None));
        }
        let resample = event()?;
        self.vm
            .register_irqfd_with_resample(&interrupt, &resample, irq)?;
        Ok((adopt(&interrupt)?, Some(adopt(&resample)?)))
    }
}

/// The monitor's ends of what tells a device of work, and the device's socket.
struct Ends {
    /// Events of its queues.
    events: Vec<EventFd>,
    /// Tells of a write of a register, where no event and no command tells of work.
    kick: Option<EventFd>,
    commands: Option<Commands>,
    socket: Option<OwnedFd>,
}

impl Ends {
    fn new(access: Access, ranges: &Ranges) -> io::Result<Self> {
        let queues = ranges.doorbells.map_or(0, |doorbells| doorbells.queues);
        let (commands, socket) = match access {
            Access::Exit => (None, None),
            _ => ioregionfd::connect().map(|(commands, socket)| (Some(commands), Some(socket)))?,
        };
        let needs_kick = commands.is_none() && ranges.doorbells.is_none();
        Ok(Self {
            events: (0..queues).map(|_| event()).collect::<io::Result<_>>()?,
            kick: needs_kick.then(event).transpose()?,
            commands,
            socket,
        })
    }
}

/// An event for KVM at which nobody waits longer than he wants to.
///
/// # Errors
/// What the kernel says.
pub fn event() -> io::Result<EventFd> {
    EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)
}

fn adopt(event: &EventFd) -> io::Result<OwnedFd> {
    descriptor::adopt(event.as_raw_fd())
}

/// Starts the process of a device, which has it from then on.
fn start(name: &str, served: Served, lines: Lines, held: DeviceHeld) -> io::Result<Child> {
    let signals = Held::new([])?;
    let name = name.to_owned();
    process::fork(c"vmm-device", &signals, move || {
        let why = match jail::close_device(&held) {
            Ok(()) => match lines.serve(&name, &Shared::new(served)) {
                // The monitor has ended, and wants no message of that.
                window::End::Commands(Broken::Gone) => process::end(0),
                end => end.to_string(),
            },
            Err(error) => error.to_string(),
        };
        complain(&name, &why);
        // Nothing is closed here, which the jail forbids.
        process::end(crate::FAILURE)
    })
}

/// A device, and what is behind it.
struct Opened {
    window: Box<dyn Window>,
    ranges: Ranges,
    /// What it is on the PCI bus, if it is there.
    identity: Option<Identity>,
    backing: Backing,
    /// What it receives from.
    wire: Option<OwnedFd>,
}

impl Opened {
    fn new(device: &Device) -> Result<Self, Error> {
        let step = |step| move |error| Error::Step(device.name.clone(), step, error);
        let no_fault = Misbehaviour::default();
        match &device.kind {
            Kind::Net(tap) => {
                let (wire, backing, clone) = open_tap(device, tap)?;
                let card = VirtioNet::new(address(&device.name, tap), wire);
                Ok(Self::virtio(device.bus, card, backing, clone))
            }
            Kind::E1000(tap) => {
                let (wire, backing, clone) = open_tap(device, tap)?;
                let card = Intel82540::new(address(&device.name, tap), wire, &no_fault);
                let name = Intel82540::<TapWire>::register_name;
                Ok(Self::card(card, name, backing, clone))
            }
            Kind::Rtl8139(tap) => {
                let (wire, backing, clone) = open_tap(device, tap)?;
                let card = Rtl8139::new(address(&device.name, tap), wire, &no_fault);
                let name = Rtl8139::<TapWire>::register_name;
                Ok(Self::card(card, name, backing, clone))
            }
            Kind::Blk(spec) => {
                let disk = spec.open().map_err(Error::Disk)?;
                let backing = Backing::Disk {
                    file: disk.as_fd().as_raw_fd(),
                    bytes: disk.bytes(),
                    read_only: disk.is_read_only(),
                };
                Ok(Self::virtio(
                    device.bus,
                    VirtioBlk::new(disk),
                    backing,
                    None,
                ))
            }
            Kind::Rng => {
                let source = VirtioRng::new().map_err(step("/dev/urandom"))?;
                let backing = Backing::Random(source.as_fd().as_raw_fd());
                Ok(Self::virtio(device.bus, source, backing, None))
            }
        }
    }

    /// A device of virtio's, on either bus.
    fn virtio<D>(bus: Bus, device: D, backing: Backing, wire: Option<OwnedFd>) -> Self
    where
        D: VirtioDevice + Send + 'static,
    {
        let queues = device.queues().len().min(DOORBELLS_MAX);
        let no_fault = Misbehaviour::default();
        let (window, ranges, identity): (Box<dyn Window>, _, _) = match bus {
            Bus::Mmio => {
                let window = Box::new(Mmio::new(device, &no_fault));
                (window, Ranges::window(queues), None)
            }
            Bus::Pci => {
                let device = Pci::new(device, &no_fault);
                let identity = with_pin(&device);
                let ranges = Ranges::virtio(&identity, queues);
                let window = Function::new(device, &identity, ranges.doorbells);
                (Box::new(window), ranges, Some(identity))
            }
        };
        Self {
            window,
            ranges,
            identity,
            backing,
            wire,
        }
    }

    /// A network card that is notified by its registers, whose names are these.
    fn card<D>(
        device: D,
        name: fn(u8, u64) -> Option<&'static str>,
        backing: Backing,
        wire: Option<OwnedFd>,
    ) -> Self
    where
        D: models::Device + Send + 'static,
    {
        let identity = with_pin(&device);
        Self {
            window: Box::new(Function::new(device, &identity, None)),
            ranges: Ranges::of(&identity, name),
            identity: Some(identity),
            backing,
            wire,
        }
    }
}

/// What a device is here: one that interrupts by its pin. Messages would have to be routed by the
/// monitor, which does not see the table of them where KVM passes accesses on.
fn with_pin(device: &impl models::Device) -> Identity {
    let mut identity = device.identity();
    if identity.msix.vectors > 0 {
        identity.bars[usize::from(identity.msix.bar)] = 0;
        identity.msix = Msix::default();
    }
    identity
}

/// A tap, what a jail has to know of it, and a descriptor to wait for frames with.
fn open_tap(device: &Device, tap: &str) -> Result<(TapWire, Backing, Option<OwnedFd>), Error> {
    let failed = |fault| Error::Tap(WireFault::Tap(tap.into(), fault));
    let wire = TapWire::open(tap).map_err(failed)?;
    let clone = wire
        .descriptor()
        .map(|fd| fd.try_clone_to_owned())
        .transpose()
        .map_err(|error| Error::Step(device.name.clone(), "its tap", error))?;
    let backing = Backing::Tap {
        tap: wire.descriptor().map(|fd| fd.as_raw_fd()),
        interfaces: wire.interfaces().map(|fd| fd.as_raw_fd()),
    };
    Ok((wire, backing, clone))
}

/// An address that is the same for the same names: locally administered (IEEE 802, 8.4).
fn address(name: &str, tap: &str) -> [u8; 6] {
    let mut hasher = DefaultHasher::new();
    (name, tap).hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_le_bytes();
    [2, a, b, c, d, e]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_one_address_for_one_name() {
        let first = address("card", "tap0");
        assert_eq!(first, address("card", "tap0"));
        assert_ne!(first, address("card", "tap1"));
        assert_eq!(first[0], 2);
    }

    #[test]
    fn who_has_no_ioregionfd_is_told_what_to_type() {
        let text = Error::NoIoregionfd("card".into()).to_string();
        assert!(text.starts_with("card: ") && text.ends_with("xtask lab --ioregionfd"));
    }
}
