//! A network port or a disk by name, whichever kind of device the manifest makes of it: one that
//! the host attaches, or one that the image drives itself.
//!
//! An appliance that takes its ports and disks from here runs unmodified with either. Sources of
//! entropy are always driven by the image.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod driven;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use device::block::{BlockQueue, Blocking, Immediate};
use device::{BlockDevice, Netif};
use driven::Driven;
use drivers::net::{MTU, Resources, StartError, Started};
use drivers::virtio::mmio::Mmio as Registers;
use drivers::virtio::pci::Pci;
use drivers::virtio::{Either, PCI_DEVICE_BASE, Transport, VENDOR, Window};
use drivers::{block, entropy};
use hw::{DmaBuf, Mmio, OutOfDma};
use ports::{Card, DeviceError, NicPort};
use unikernel::PciDevice;
use unikernel::abi::pci::Structure;

/// The port of this name, once. A NIC receives all frames, whoever they are for.
///
/// # Errors
/// If the manifest has no such port, it was handed out already, or the NIC cannot be used.
pub fn port(name: &str) -> Result<Box<dyn Netif>, Error> {
    port_of_mtu(name, None)
}

/// The same, with an MTU in bytes for a NIC that the image drives itself. A network of the host's
/// has its interface's.
///
/// # Errors
/// As above, or the port is none of a NIC's and there is an MTU.
pub fn port_of_mtu(name: &str, mtu: Option<usize>) -> Result<Box<dyn Netif>, Error> {
    let found = match unikernel::net(name) {
        Err(DeviceError::NotInManifest(_)) => nic(name, mtu.unwrap_or(MTU)),
        Ok(_) if mtu.is_some() => Err(Reason::Mtu),
        found => found.map_err(Reason::Device),
    };
    found.map_err(|reason| Error {
        name: name.into(),
        reason,
    })
}

/// The disk of this name, once. Where the manifest gives it a queue, a process of the host's serves
/// it by that.
///
/// # Errors
/// If the manifest has no such disk, it was handed out already, or the device cannot be used.
pub fn disk(name: &str) -> Result<Box<dyn BlockDevice>, Error> {
    let found = match served(name, driven::BUFFERS, driven::BUFFER_BYTES) {
        Ok(Some((queue, buffers))) => Ok(Box::new(Blocking::new(queue, buffers)) as Box<_>),
        Ok(None) => attached(name),
        Err(reason) => Err(reason),
    };
    found.map_err(|reason| Error {
        name: name.into(),
        reason,
    })
}

/// A disk without a queue that a process of the host's serves.
fn attached(name: &str) -> Result<Box<dyn BlockDevice>, Reason> {
    match unikernel::block(name) {
        Err(DeviceError::NotInManifest(_)) => driven(name).and_then(Driven::device),
        found => found.map_err(Reason::Device),
    }
}

/// The disk of this name, once, as a queue, and `count` buffers of at least `bytes` bytes each that
/// it takes.
///
/// # Errors
/// As [`disk`].
pub fn queue(name: &str, count: usize, bytes: usize) -> Result<Queue, Error> {
    let found = match served(name, count, bytes) {
        Ok(None) => unserved(name, count, bytes),
        Ok(Some(queue)) => Ok(queue),
        Err(reason) => Err(reason),
    };
    found.map_err(|reason| Error {
        name: name.into(),
        reason,
    })
}

/// The queue of a disk that a process of the host's serves, if there is one.
fn served(name: &str, count: usize, bytes: usize) -> Result<Option<Queue>, Reason> {
    let found = unikernel::queue(name).map_err(Reason::Device)?;
    let Some((queue, mut arena)) = found else {
        return Ok(None);
    };
    let alignment = queue.limits().alignment;
    let buffers: Result<_, _> = (0..count).map(|_| arena.buf(bytes, alignment)).collect();
    Ok(Some((Box::new(queue), buffers.map_err(Reason::Served)?)))
}

/// The queue of any other disk.
fn unserved(name: &str, count: usize, bytes: usize) -> Result<Queue, Reason> {
    match unikernel::block(name) {
        Err(DeviceError::NotInManifest(_)) => {
            driven(name).and_then(|driven| driven.queue(count, bytes))
        }
        found => found
            .map(|disk| immediate(disk, count, bytes))
            .map_err(Reason::Device),
    }
}

/// A queue of a disk whose caller waits.
fn immediate(disk: Box<dyn BlockDevice>, count: usize, bytes: usize) -> Queue {
    let queue = Immediate::new(disk);
    let alignment = queue.limits().alignment;
    let buffers = (0..count).map(|_| plain(bytes, alignment)).collect();
    (Box::new(queue), buffers)
}

/// A queue and its buffers.
pub type Queue = (Box<dyn BlockQueue>, Vec<DmaBuf>);

/// Memory for ever that begins at a multiple of `alignment`.
fn plain(bytes: usize, alignment: usize) -> DmaBuf {
    let memory = vec![0; bytes + alignment].leak();
    let start = memory.as_ptr().align_offset(alignment).min(alignment);
    DmaBuf::plain(&mut memory[start..start + bytes])
}

/// A disk that is driven by the driver for its class, or else by virtio's.
fn driven(name: &str) -> Result<Driven, Reason> {
    let device = unikernel::pci(name).map_err(Reason::Device)?;
    let request = device.request();
    let mut arena = unikernel::dma().ok_or(Reason::NoDma)?;
    if [request.class, request.subclass, request.progif] == block::nvme::CLASS {
        let bar = device.bar(0).unwrap_or_else(no_registers);
        let disk = block::nvme::Driver::new(bar, &mut arena, None, clock);
        return Ok(Driven::Nvme(Box::new(disk.map_err(Reason::Nvme)?)));
    }
    if [request.class, request.subclass, request.progif] == block::ahci::CLASS {
        let bar = device.bar(block::ahci::BAR).unwrap_or_else(no_registers);
        let disk = block::ahci::Driver::new(bar, &mut arena, clock);
        return Ok(Driven::Ahci(Box::new(disk.map_err(Reason::Ahci)?)));
    }
    if [request.class, request.subclass, request.progif] == block::usb::CLASS {
        let bar = device.bar(0).unwrap_or_else(no_registers);
        let disk = block::usb::Driver::new(bar, &mut arena, clock);
        return Ok(Driven::Usb(Box::new(disk.map_err(Reason::Usb)?)));
    }
    let transport = virtio_device(&device, block::virtio::KIND, block::virtio::CONFIG_BYTES)?;
    let disk = block::virtio::Driver::new(transport, &mut arena, clock);
    Ok(Driven::Virtio(Box::new(disk.map_err(Reason::Virtio)?)))
}

/// The source of entropy of this name, once.
///
/// # Errors
/// If the manifest has no such device, it was handed out already, or it cannot be used.
pub fn entropy(name: &str) -> Result<entropy::virtio::Driver<Either>, Error> {
    let found = virtio_entropy(name);
    found.map_err(|reason| Error {
        name: name.into(),
        reason,
    })
}

fn virtio_entropy(name: &str) -> Result<entropy::virtio::Driver<Either>, Reason> {
    let device = unikernel::pci(name).map_err(Reason::Device)?;
    let transport = virtio_device(&device, entropy::virtio::KIND, 0)?;
    let mut arena = unikernel::dma().ok_or(Reason::NoDma)?;
    entropy::virtio::Driver::new(transport, &mut arena, clock).map_err(Reason::Virtio)
}

/// A virtio device of this kind, of whose own configuration so many bytes are read.
fn virtio_device(device: &PciDevice, kind: u16, config_bytes: usize) -> Result<Either, Reason> {
    let request = device.request();
    if (request.vendor, request.device) != (VENDOR, PCI_DEVICE_BASE + kind) {
        return Err(Reason::Device(DeviceError::OtherKind));
    }
    let transport = transport(device).ok_or(drivers::virtio::Error::NoCapabilities);
    let transport = transport.map_err(Reason::Virtio)?;
    transport
        .check(kind, config_bytes)
        .map_err(Reason::Virtio)?;
    Ok(transport)
}

/// A PCIe device that is driven by the driver for its ids.
fn nic(name: &str, mtu: usize) -> Result<Box<dyn Netif>, Reason> {
    let device = unikernel::pci(name).map_err(Reason::Device)?;
    let mut arena = unikernel::dma().ok_or(Reason::NoDma)?;
    let resources = Resources {
        bar0: device.bar(0).unwrap_or_else(no_registers),
        virtio: transport(&device),
        arena: &mut arena,
        others: unikernel::pci_left(),
        mtu,
        clock: &clock,
    };
    let request = device.request();
    let Started { nic, pool } =
        drivers::net::start(request.vendor, request.device, resources).map_err(Reason::Start)?;
    let card = Card {
        index: device.index(),
        name: device.name(),
        interrupts: device.wait_handle().is_some(),
        driver: nic,
        pool,
    };
    Ok(Box::new(NicPort::new(unikernel::runtime(), card)))
}

/// A BAR that the manifest does not map.
fn no_registers() -> Mmio {
    Mmio::shared(&[])
}

/// How a virtio device is reached, as the tender says; `None` for any other.
fn transport(device: &PciDevice) -> Option<Either> {
    match device.window() {
        Some(registers) => Some(Either::Mmio(Registers::new(registers))),
        None => structures(device).map(Either::Pci),
    }
}

/// The structures of a virtio device in its BARs; `None` for any other.
fn structures(device: &PciDevice) -> Option<Pci> {
    let found = device.virtio()?;
    let window = |structure: &Structure| {
        let number = structure.bar as usize;
        let bar = device.bar(number).unwrap_or_else(no_registers);
        let (offset, bytes) = (structure.offset as usize, structure.bytes as usize);
        Window::new(bar, number, offset, bytes)
    };
    Some(Pci {
        common: window(&found.common),
        notify: window(&found.notify),
        notify_multiplier: found.notify_multiplier as usize,
        device: window(&found.device),
    })
}

fn clock() -> u64 {
    unikernel::monotonic().0
}

/// Why a port is not to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    name: String,
    reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    Device(DeviceError),
    NoDma,
    Mtu,
    Start(StartError),
    Virtio(drivers::virtio::Error),
    Nvme(block::nvme::Error),
    Ahci(block::ahci::Error),
    Usb(block::usb::Error),
    Buffers(OutOfDma),
    Served(OutOfDma),
}

impl Error {
    /// Whether the manifest has nothing of that name.
    pub fn is_missing(&self) -> bool {
        matches!(self.reason, Reason::Device(DeviceError::NotInManifest(_)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.reason {
            Reason::Device(error) => error.fmt(f),
            Reason::NoDma => f.write_str("no DMA memory: set dma_size in manifest.json"),
            Reason::Mtu => f.write_str(
                "its MTU is that of the host's interface: set it there, with ip link set",
            ),
            Reason::Start(error) => error.fmt(f),
            Reason::Virtio(error) => error.fmt(f),
            Reason::Nvme(error) => error.fmt(f),
            Reason::Ahci(error) => error.fmt(f),
            Reason::Usb(error) => error.fmt(f),
            Reason::Buffers(out) => out.fmt(f),
            Reason::Served(OutOfDma { wanted, left }) => write!(
                f,
                "its queue has {left} bytes left for a buffer of {wanted}: make \"queue\" larger \
                 in manifest.json"
            ),
        }
    }
}

impl core::error::Error for Error {}
