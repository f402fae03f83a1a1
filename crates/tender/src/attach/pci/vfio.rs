//! Devices behind the IOMMU, by VFIO: all that is asked of the kernel, in order.
//!
//! A device is found and compared with the manifest before anything is opened; its group joins the
//! one container; it is opened, which resets it; its BARs are mapped and its interrupt is given an
//! event. DMA memory is mapped for the container once all groups are in, for each may narrow the
//! addresses. Last, the device may become bus master.

use super::iova::Iova;
use super::{
    BarProblem, COMMAND, COMMAND_BUS_MASTER, COMMAND_MEMORY, COMMAND_NO_PIN, Device, Reason, dma,
    iova, virtio,
};
use crate::sys::vfio::{self, Container, Group, Interrupt};
use crate::sys::window::Window;
use abi::PAGE_SIZE;
use abi::pci::{
    BAR_BYTES_MAX, BARS, DMA_BASE, Request, Structure, Virtio, bar_address, info_flag, request_flag,
};
use linux::pci::sysfs::{Tree, is_vfio};
use linux::pci::{Address, Class, Identity};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{pread, pwrite};
use rustix::process::Resource;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The container and the groups in it, of which several devices may be.
#[derive(Debug, Default)]
pub struct Host {
    container: Option<Container>,
    groups: Vec<(u32, Group)>,
}

/// A device that is attached but for its right to be bus master.
#[derive(Debug)]
pub struct Opened {
    device: vfio::Device,
    bus_master: bool,
}

impl Host {
    /// Attaches the device at `address` as PCIe device `number` of the image.
    ///
    /// # Errors
    /// The first thing that speaks against it.
    pub fn attach(
        &mut self,
        number: usize,
        request: &Request,
        address: &Address,
    ) -> Result<(Device, Opened), Reason> {
        let group = check(address, request)?;
        let group = self.group(group)?;
        let device =
            group
                .device(&address.to_string())
                .map_err(|error| match error.raw_os_error() {
                    Some(libc::EBUSY) => Reason::Busy,
                    _ => Reason::System("the device cannot be opened", error),
                })?;
        // To open it was to reset it, if that is possible (`vfio_pci_core_enable` of Linux).
        if !device.can_reset() {
            return Err(Reason::NoReset);
        }
        let bus_master = request.flags & request_flag::BUS_MASTER != 0;
        let mut attached = Device::attached();
        for bar in (0..BARS).filter(|bar| request.bars & 1 << bar != 0) {
            let mapped = map(&device, number, bar, &mut attached.windows);
            attached.info.bar_bytes[bar] = mapped.map_err(|problem| Reason::Bar(bar, problem))?;
        }
        command(&device, COMMAND_MEMORY | COMMAND_NO_PIN, COMMAND_BUS_MASTER)?;
        if virtio::is_virtio(request) {
            attached.info.virtio = structures(&device)?;
        }
        // A message-signalled interrupt is a write by the device: only a bus master has one.
        if bus_master {
            attached.event = Some(interrupt(&device)?);
            attached.info.flags |= info_flag::INTERRUPT;
        }
        Ok((attached, Opened { device, bus_master }))
    }

    /// The group of this number, in the container.
    fn group(&mut self, number: u32) -> Result<&Group, Reason> {
        let known = self.groups.iter().position(|(other, _)| *other == number);
        let place = match known {
            Some(place) => place,
            None => {
                let group = self.join(number)?;
                self.groups.push((number, group));
                self.groups.len() - 1
            }
        };
        Ok(&self.groups[place].1)
    }

    fn join(&mut self, number: u32) -> Result<Group, Reason> {
        let group = Group::open(number).map_err(|error| match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Reason::Permission(number),
            Some(libc::EBUSY) => Reason::Busy,
            _ => Reason::Vfio(error),
        })?;
        if !group.is_viable().map_err(step("its group"))? {
            return Err(Reason::Neighbours(
                number,
                Tree::host().group(number).live(&[]),
            ));
        }
        match &self.container {
            Some(container) => group.join(container).map_err(step("its group"))?,
            None => {
                let container = Container::open().map_err(Reason::Vfio)?;
                group.join(&container).map_err(step("its group"))?;
                container
                    .set_iommu()
                    .map_err(|error| match error.raw_os_error() {
                        Some(libc::EPERM) => Reason::Interrupts,
                        _ => Reason::System("its IOMMU", error),
                    })?;
                self.container = Some(container);
            }
        }
        Ok(group)
    }

    /// Lets the devices reach the DMA memory, and become bus masters. Returns what keeps them
    /// attached.
    ///
    /// In which order those descriptors are closed, when this process is killed, is of no
    /// importance: a device that is open keeps its group and the container, so that the kernel
    /// takes its right to be bus master away and resets it before the mappings go
    /// (`vfio_df_device_last_close` of Linux, `vfio_device_fops_release` before 6.2). One whose
    /// reset does nothing, as that of QEMU's network cards by a change of the power state, goes on
    /// here where the guest before left it: what it then reads or writes outside of this guest's
    /// memory, the IOMMU stops and the kernel logs.
    ///
    /// # Errors
    /// If the IOMMU has no room for it or not so much may be locked.
    pub fn start(
        self,
        devices: Vec<Opened>,
        arena: Option<&mut dma::Arena>,
    ) -> Result<Vec<OwnedFd>, Reason> {
        if let (Some(container), Some(arena)) = (&self.container, arena) {
            reach(container, arena)?;
        }
        let mut held: Vec<OwnedFd> = Vec::new();
        for Opened { device, bus_master } in devices {
            if bus_master {
                command(&device, COMMAND_BUS_MASTER, 0)?;
            }
            held.push(device.into());
        }
        held.extend(self.groups.into_iter().map(|(_, group)| group.into()));
        held.extend(self.container.map(OwnedFd::from));
        Ok(held)
    }
}

/// Compares a device with what the manifest asks for, and returns its group.
fn check(address: &Address, request: &Request) -> Result<u32, Reason> {
    let tree = Tree::host();
    let device = tree.device(*address).ok_or(Reason::NoDevice)?;
    let identity = device.identity();
    let wanted = Identity {
        vendor: request.vendor,
        device: request.device,
        class: Class::new(request.class, request.subclass, request.progif),
    };
    if identity != wanted {
        return Err(Reason::Identity(wanted, identity));
    }
    let (group, _) = tree.guarded_group(&device).ok_or(Reason::NoIommu)?;
    if !device.driver.as_deref().is_some_and(is_vfio) {
        return Err(Reason::Driver(*address, device.driver));
    }
    Ok(group)
}

/// Maps a BAR where the image finds it, and returns its size.
fn map(
    device: &vfio::Device,
    number: usize,
    bar: usize,
    windows: &mut Vec<Window>,
) -> Result<u64, BarProblem> {
    let region = device.region(bar as u32).map_err(BarProblem::Refused)?;
    if region.bytes == 0 {
        return Err(BarProblem::Missing);
    }
    if region.bytes > BAR_BYTES_MAX {
        return Err(BarProblem::TooLarge(region.bytes));
    }
    if region.mappable.is_empty() {
        return Err(BarProblem::NotMappable);
    }
    let start = bar_address(number, bar);
    for part in region.mappable {
        // A BAR of less than a page has the page for itself, or could not be mapped.
        let bytes = (part.end - part.start).next_multiple_of(PAGE_SIZE);
        let offset = region.offset + part.start;
        let window = Window::map(device, offset, start + part.start, bytes);
        windows.push(window.map_err(BarProblem::Refused)?);
    }
    Ok(region.bytes)
}

/// The structures of a virtio device that the IOMMU holds.
fn structures(device: &vfio::Device) -> Result<Virtio, Reason> {
    let mut config = [0; virtio::CONFIG_BYTES];
    for (offset, bytes) in (0..).step_by(2).zip(config.chunks_exact_mut(2)) {
        let value = device
            .config(offset)
            .map_err(step("its configuration space"))?;
        bytes.copy_from_slice(&value.to_le_bytes());
    }
    let mut bars = [0; BARS];
    for (number, bytes) in (0..).zip(&mut bars) {
        // A BAR that it does not have is refused.
        *bytes = device.region(number).map_or(0, |region| region.bytes);
    }
    let found = virtio::structures(&config, &bars);
    let Structure { bar, offset, bytes } = found.common;
    if bytes == 0 {
        return Err(Reason::Virtio(virtio::Problem::Legacy));
    }
    let region = device.region(bar).map_err(step("its registers"))?;
    let place = |register| region.offset + u64::from(offset) + register;
    let write = |register, value: u32| {
        let count = pwrite(device, &value.to_le_bytes(), place(register))?;
        whole(count)
    };
    let read = |register| {
        let mut bytes = [0; 4];
        let count = pread(device, &mut bytes, place(register))?;
        whole(count).map(|()| u32::from_le_bytes(bytes))
    };
    virtio::check_platform(write, read).map_err(Reason::Virtio)?;
    Ok(found)
}

/// Whether a register of 32 bits was read or written whole.
fn whole(count: usize) -> io::Result<()> {
    let partly = || io::ErrorKind::UnexpectedEof.into();
    (count == size_of::<u32>()).then_some(()).ok_or_else(partly)
}

/// An event that the device's first interrupt raises.
fn interrupt(device: &vfio::Device) -> Result<OwnedFd, Reason> {
    let refused = || step("its interrupt");
    for kind in [Interrupt::MsiX, Interrupt::Msi] {
        if device.interrupts(kind).map_err(refused())? == 0 {
            continue;
        }
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let event = eventfd(0, flags).map_err(|error| refused()(error.into()))?;
        device.trigger(kind, event.as_fd()).map_err(refused())?;
        return Ok(event);
    }
    Err(Reason::NoInterrupt)
}

/// Sets and clears bits of the command register.
fn command(device: &vfio::Device, set: u16, clear: u16) -> Result<(), Reason> {
    let refused = || step("its configuration space");
    let value = device.config(COMMAND).map_err(refused())?;
    let value = value & !clear | set;
    device.set_config(COMMAND, value).map_err(refused())
}

/// Lets all devices of the container reach the DMA memory.
fn reach(container: &Container, arena: &mut dma::Arena) -> Result<(), Reason> {
    let iommu = container.iommu().map_err(step("the IOMMU"))?;
    let bytes = arena.window.bytes();
    let place = iova::place(&iommu.ranges, bytes, Iova::new(DMA_BASE));
    let place = place.filter(|_| iommu.mappings_left > 0);
    arena.iova = place.ok_or(Reason::NoRoom(bytes >> 20))?;
    let mapped = container.map(&arena.window, arena.iova.number());
    mapped.map_err(|error| {
        let limit = rustix::process::getrlimit(Resource::Memlock).current;
        match (error.raw_os_error(), limit) {
            (Some(libc::ENOMEM), Some(limit)) if limit < bytes => Reason::Locked { bytes, limit },
            _ => Reason::System("its DMA memory", error),
        }
    })
}

fn step(step: &'static str) -> impl Fn(io::Error) -> Reason {
    move |error| Reason::System(step, error)
}
