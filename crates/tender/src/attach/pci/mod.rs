//! PCIe devices and the DMA memory that they reach.
//!
//! | module | what |
//! |---|---|
//! | `vfio` | devices behind the IOMMU |
//! | `vfio_user` | devices that are processes |
//! | `virtio` | what a virtio device says of itself, of either kind |
//! | `dma`, `iova` | the DMA memory, and where it lies for devices |
//! | `report` | what was attached, in words |

mod dma;
mod iova;
mod report;
mod vfio;
pub mod vfio_user;
mod virtio;

use super::Error;
use crate::options::{self, PciSource};
use crate::sys::window::Window;
use abi::pci::{BAR_BYTES_MAX, DEVICES_MAX, Dma, Info, Request, info_flag};
use linux::pci::sysfs::Member;
use linux::pci::{Address, Identity};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::{fmt, io};

pub use dma::{Arena, Pages};
pub use iova::Iova;
pub use report::lines as report;

/// The command register of the configuration space, and its bits (PCI Local Bus 3.0, 6.2.2).
const COMMAND: u64 = 4;
const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_BUS_MASTER: u16 = 1 << 2;
const COMMAND_NO_PIN: u16 = 1 << 10;

/// The PCIe devices of an image and its DMA memory.
#[derive(Debug, Default)]
pub struct Pci {
    /// In the order of the image.
    pub devices: Vec<Device>,
    /// The DMA memory, if the image asks for some.
    pub dma: Option<Arena>,
    /// What keeps devices attached and the IOMMU's mappings in place. The guest can make no call
    /// about them.
    held: Vec<OwnedFd>,
}

/// A PCIe device, attached.
#[derive(Debug)]
pub struct Device {
    /// Its name in the manifest.
    pub name: String,
    /// What the guest is told.
    pub info: Info,
    /// Its BARs, mapped.
    pub windows: Vec<Window>,
    /// Its doorbells, where its other registers are reached by message.
    pub doorbells: Option<Window>,
    /// What its interrupt raises.
    pub event: Option<OwnedFd>,
    /// The connection to the process that it is.
    pub socket: Option<OwnedFd>,
}

impl Device {
    /// A device of which nothing but that is known yet.
    fn attached() -> Self {
        Self {
            name: String::new(),
            info: Info {
                flags: info_flag::ATTACHED,
                ..Info::ZERO
            },
            windows: Vec::new(),
            doorbells: None,
            event: None,
            socket: None,
        }
    }
}

/// What is wrong with a PCIe device or the DMA memory.
#[derive(Debug)]
pub enum Reason {
    /// There is no such device.
    NoDevice,
    /// It is a process, with which something is wrong.
    Software(vfio_user::Problem),
    /// It is another one than the manifest asks for: that, and what was found.
    Identity(Identity, Identity),
    /// No IOMMU keeps it in its place.
    NoIommu,
    /// Another driver has it, or none.
    Driver(Address, Option<String>),
    /// These are in the same group, of this number.
    Neighbours(u32, Vec<Member>),
    /// The user may not open this group.
    Permission(u32),
    /// Another process has it.
    Busy,
    /// VFIO cannot be opened.
    Vfio(io::Error),
    /// The machine does not remap interrupts.
    Interrupts,
    /// It cannot be reset.
    NoReset,
    /// It has a pin for interrupts, and no messages.
    NoInterrupt,
    /// It is a virtio device with which something is wrong.
    Virtio(virtio::Problem),
    /// This BAR cannot be mapped.
    Bar(usize, BarProblem),
    /// There is not so much memory, in MiB, for DMA.
    Memory(u64, io::Error),
    /// So many MiB of DMA memory are more than the IOMMU has addresses for.
    NoRoom(u64),
    /// More DMA memory than may be locked, both in bytes.
    Locked {
        /// What the image asks for.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// What the kernel says about a step.
    System(&'static str, io::Error),
}

/// Why a BAR cannot be mapped.
#[derive(Debug)]
pub enum BarProblem {
    /// The device has none of this number.
    Missing,
    /// So many bytes are over [`BAR_BYTES_MAX`].
    TooLarge(u64),
    /// It has ports, or shares a page with something else.
    NotMappable,
    /// What the kernel says.
    Refused(io::Error),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => write!(f, "no such PCI device; type: outboard pci list"),
            Self::Software(problem) => problem.fmt(f),
            Self::Identity(wanted, found) => write!(
                f,
                "the manifest asks for {wanted}, and this is {found}; name another device, or \
                 change manifest.json"
            ),
            Self::NoIommu => write!(
                f,
                "no IOMMU keeps this device to its DMA memory; type: outboard doctor"
            ),
            Self::Driver(address, driver) => {
                let driver = driver.as_deref().unwrap_or("none");
                write!(
                    f,
                    "its driver is {driver}, not vfio-pci; type: sudo $(command -v outboard) pci \
                     bind {address}"
                )
            }
            Self::Neighbours(group, neighbours) => write_neighbours(f, *group, neighbours),
            Self::Permission(group) => write!(
                f,
                "permission denied; type: sudo chown $USER /dev/vfio/{group}"
            ),
            Self::Busy => write!(f, "in use by another process; stop that or choose another"),
            Self::Vfio(error) => write!(
                f,
                "VFIO: {error}; type: sudo modprobe -a vfio-pci vfio_iommu_type1"
            ),
            Self::Interrupts => write!(
                f,
                "this machine does not remap interrupts, so that a device could raise any; switch \
                 that on with the IOMMU in the firmware"
            ),
            Self::NoReset => write!(
                f,
                "it cannot be reset, so that what it did before could go on; plug it into a slot \
                 of its own, or choose another"
            ),
            Self::NoInterrupt => write!(
                f,
                "it has neither MSI nor MSI-X, by which a guest could wait for it; choose another"
            ),
            Self::Virtio(problem) => problem.fmt(f),
            Self::Bar(bar, problem) => write!(f, "BAR {bar} {problem}"),
            Self::Memory(mib, error) => write!(
                f,
                "no {mib} MiB of DMA memory: {error}; lower dma_size in manifest.json"
            ),
            Self::NoRoom(mib) => write!(
                f,
                "the IOMMU has no addresses for {mib} MiB of DMA memory; lower dma_size in \
                 manifest.json"
            ),
            Self::Locked { bytes, limit } => write!(
                f,
                "{} KiB of DMA memory are locked, and {} KiB may be; type: sudo prlimit --pid $$ \
                 --memlock={bytes}",
                bytes >> 10,
                limit >> 10
            ),
            Self::System(step, error) => write!(f, "{step}: {error}"),
        }
    }
}

fn write_neighbours(f: &mut fmt::Formatter<'_>, group: u32, neighbours: &[Member]) -> fmt::Result {
    write!(f, "it shares group {group} of the IOMMU with")?;
    if neighbours.is_empty() {
        return write!(f, " others; type: outboard pci list");
    }
    for neighbour in neighbours {
        write!(f, " {neighbour}")?;
    }
    write!(f, "; type: sudo $(command -v outboard) pci bind")?;
    let mut names = neighbours.iter().map(|neighbour| &neighbour.name);
    names.try_for_each(|name| write!(f, " {name}"))
}

impl fmt::Display for BarProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(
                f,
                "does not exist, or is the upper half of the one before; change map_bar in \
                 manifest.json"
            ),
            Self::TooLarge(bytes) => write!(
                f,
                "has {bytes} bytes, and at most {BAR_BYTES_MAX} can be mapped; change map_bar in \
                 manifest.json"
            ),
            Self::NotMappable => write!(
                f,
                "has ports, or shares a page with others, and cannot be mapped; change map_bar in \
                 manifest.json"
            ),
            Self::Refused(error) => write!(f, "cannot be mapped: {error}"),
        }
    }
}

/// Attaches what an image asks for: `sources` are those of `requests`, in the same order.
///
/// # Errors
/// The first device that cannot be attached. The kernel resets those that were.
pub fn attach(
    requests: &[Request],
    sources: &[&options::Pci],
    dma_bytes: u64,
) -> Result<Pci, Error> {
    let mut pci = Pci::default();
    if dma_bytes > 0 {
        let arena = Arena::new(dma_bytes).map_err(|reason| error("dma_size".into(), reason))?;
        pci.dma = Some(arena);
    }
    let mut host = vfio::Host::default();
    let mut opened = Vec::new();
    let mut software = Vec::new();
    for (number, (request, source)) in requests.iter().zip(sources).enumerate() {
        let attached = match &source.source {
            PciSource::Address(address) => {
                let attached = host.attach(number, request, address);
                attached.map(|(device, handle)| {
                    opened.push(handle);
                    device
                })
            }
            PciSource::Socket(path) => {
                let socket = vfio_user::connect(path);
                let attached = socket.and_then(|socket| vfio_user::attach(number, request, socket));
                attached.map(|(device, handle)| {
                    software.push((number, handle));
                    device
                })
            }
        };
        let mut device = attached.map_err(|reason| error(source.option(), reason))?;
        device.name.clone_from(&source.name);
        pci.devices.push(device);
    }
    let held = host.start(opened, pci.dma.as_mut());
    pci.held = held.map_err(|reason| error("dma_size".into(), reason))?;
    // The IOMMU says where the memory lies for all devices, these too.
    for (number, handle) in software {
        let started = handle.start(&mut pci.devices[number], pci.dma.as_ref());
        started.map_err(|reason| error(sources[number].option(), reason))?;
    }
    Ok(pci)
}

fn error(option: String, reason: Reason) -> Error {
    let reason = super::Reason::Pci(reason);
    Error { option, reason }
}

impl Pci {
    /// What the guest is told of its devices.
    pub fn infos(&self) -> [Info; DEVICES_MAX] {
        let mut infos = [Info::ZERO; DEVICES_MAX];
        for (place, device) in infos.iter_mut().zip(&self.devices) {
            *place = device.info;
            place.handle = device.socket.as_ref().map_or(0, AsRawFd::as_raw_fd);
        }
        infos
    }

    /// What the guest is told of its DMA memory.
    pub fn dma(&self) -> Dma {
        self.dma.as_ref().map_or(Dma::ZERO, Arena::info)
    }

    /// The connections by which registers are reached by message.
    pub fn sockets(&self) -> impl Iterator<Item = RawFd> {
        let by_message = |d: &&Device| d.info.flags & info_flag::MESSAGE != 0;
        let devices = self.devices.iter().filter(by_message);
        devices
            .filter_map(|d| d.socket.as_ref())
            .map(AsRawFd::as_raw_fd)
    }

    /// Takes those connections away, each with the device's number.
    pub fn take_sockets(&mut self) -> Vec<(usize, OwnedFd)> {
        let by_message = |d: &Device| d.info.flags & info_flag::MESSAGE != 0;
        let devices = self.devices.iter_mut().enumerate();
        let devices = devices.filter(|(_, d)| by_message(d));
        devices
            .filter_map(|(number, d)| Some((number, d.socket.take()?)))
            .collect()
    }

    /// The descriptors that stay open as long as the guest runs, and that it may not use.
    pub fn held(&self) -> impl Iterator<Item = RawFd> {
        let devices = self.devices.iter();
        let kept = devices.flat_map(|d| d.event.iter().chain(&d.socket));
        self.held.iter().chain(kept).map(AsRawFd::as_raw_fd)
    }
}
