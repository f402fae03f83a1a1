//! Devices attached: what is behind them opened, their events and interrupts given to KVM, and
//! those that are processes started.

use crate::bus::{Front, Slot};
use crate::complain;
use crate::counters;
use crate::ioregionfd::{self, Broken, Commands};
use crate::jail::{self, Backing, DeviceHeld};
use crate::layout::{self, DEVICE_IRQ};
use crate::options::{Access, Device, Kind};
use crate::window::{self, DOORBELLS_MAX, Lines, Served, Shared, Window};
use hw::sim::View;
use kvm_ioctls::{IoEventAddress, VmFd};
use linux::descriptor;
use linux::process::{self, Child};
use linux::signal::Held;
use models::virtio::{Mmio, VirtioBlk, VirtioDevice, VirtioNet, VirtioRng, mmio};
use models::wire::{TapWire, Wire, WireFault};
use models::{Misbehaviour, disk};
use rustix::io::Errno;
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
    let numbered = devices.iter().enumerate();
    numbered
        .map(|(number, device)| machine.attach(number, device))
        .collect()
}

impl Machine<'_> {
    fn attach(&self, number: usize, device: &Device) -> Result<Attached, Error> {
        let step = |step| move |error| Error::Step(device.name.clone(), step, error);
        let opened = Opened::new(device)?;
        let memory = View::of_file(self.memory, 0, self.memory_bytes, self.memory_address, true);
        let file = counters::File::new().map_err(step("counters"))?;
        let served = Served {
            window: opened.window,
            memory: memory.map_err(step("guest memory"))?,
            counters: file.view().map_err(step("counters"))?,
        };
        let begin = layout::window(number);
        let doorbells = self.doorbells(begin, opened.queues);
        let (commands, socket) = match device.access {
            Access::Exit => (None, None),
            _ => {
                let (commands, socket) = ioregionfd::connect().map_err(step("a socket"))?;
                self.register(device, &commands, begin)?;
                (Some(commands), Some(socket))
            }
        };
        let lines = Lines {
            doorbells: doorbells.map_err(step("events of queues"))?,
            interrupt: self.interrupt(number).map_err(step("its interrupt"))?,
            wire: opened.wire,
            commands: socket,
            busy: device.busy,
        };
        let counters = file.view().map_err(step("counters"))?;
        let held = DeviceHeld::new(&lines, opened.backing);
        let name = device.name.clone();
        let (front, place) = match commands {
            Some(commands) if device.access.is_apart() => {
                let child = start(&name, served, lines, held).map_err(step("a process"))?;
                (Front::Socket(commands), Place::Process(child))
            }
            commands => {
                let device: &'static Shared = Box::leak(Box::new(Shared::new(served)));
                let front = commands.map_or(Front::Here(device), Front::Socket);
                let here = Here {
                    name,
                    device,
                    lines,
                    held,
                };
                (front, Place::Here(Box::new(here)))
            }
        };
        let slot = Slot {
            device: device.clone(),
            begin,
            front,
            counters,
        };
        Ok(Attached { slot, place })
    }

    /// An event for each queue, as far as there may be: a notification without one leaves the
    /// guest.
    fn doorbells(&self, begin: u64, queues: usize) -> io::Result<Vec<OwnedFd>> {
        let doorbell = |queue: usize| {
            let event = EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?;
            let address = IoEventAddress::Mmio(begin + mmio::NOTIFY);
            self.vm.register_ioevent(&event, &address, queue as u32)?;
            descriptor::adopt(event.as_raw_fd())
        };
        (0..queues.min(DOORBELLS_MAX)).map(doorbell).collect()
    }

    /// An event that is an edge of the interrupt of the device with this number.
    fn interrupt(&self, number: usize) -> io::Result<OwnedFd> {
        match self.interrupts {
            Interrupts::Lines => {
                let event = EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?;
                self.vm.register_irqfd(&event, DEVICE_IRQ + number as u32)?;
                descriptor::adopt(event.as_raw_fd())
            }
            Interrupts::Events(events) => {
                let event = events.get(number).ok_or(io::ErrorKind::NotFound)?;
                event.try_clone()
            }
        }
    }

    /// Has KVM send the accesses of a window, if the user wants that.
    fn register(&self, device: &Device, commands: &Commands, begin: u64) -> Result<(), Error> {
        if !device.access.is_ioregionfd() {
            return Ok(());
        }
        let registered = commands.register(self.vm, begin, device.posted);
        registered.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOTTY | Errno::INVAL) => Error::NoIoregionfd(device.name.clone()),
            _ => Error::Step(device.name.clone(), "KVM_SET_IOREGION", error),
        })
    }
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
    queues: usize,
    backing: Backing,
    /// What it receives from.
    wire: Option<OwnedFd>,
}

impl Opened {
    fn new(device: &Device) -> Result<Self, Error> {
        let step = |step| move |error| Error::Step(device.name.clone(), step, error);
        match &device.kind {
            Kind::Net(tap) => {
                let failed = |fault| Error::Tap(WireFault::Tap(tap.clone(), fault));
                let wire = TapWire::open(tap).map_err(failed)?;
                let clone = wire
                    .descriptor()
                    .map(|fd| fd.try_clone_to_owned())
                    .transpose()
                    .map_err(step("its tap"))?;
                let backing = Backing::Tap {
                    tap: wire.descriptor().map(|fd| fd.as_raw_fd()),
                    interfaces: wire.interfaces().map(|fd| fd.as_raw_fd()),
                };
                let card = VirtioNet::new(address(&device.name, tap), wire);
                Ok(Self::over(card, backing, clone))
            }
            Kind::Blk(spec) => {
                let disk = spec.open().map_err(Error::Disk)?;
                let backing = Backing::Disk {
                    file: disk.as_fd().as_raw_fd(),
                    bytes: disk.bytes(),
                    read_only: disk.is_read_only(),
                };
                Ok(Self::over(VirtioBlk::new(disk), backing, None))
            }
            Kind::Rng => {
                let source = VirtioRng::new().map_err(step("/dev/urandom"))?;
                let backing = Backing::Random(source.as_fd().as_raw_fd());
                Ok(Self::over(source, backing, None))
            }
        }
    }

    fn over<D>(device: D, backing: Backing, wire: Option<OwnedFd>) -> Self
    where
        D: VirtioDevice + Send + 'static,
    {
        Self {
            queues: device.queues().len(),
            window: Box::new(Mmio::new(device, &Misbehaviour::default())),
            backing,
            wire,
        }
    }
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
