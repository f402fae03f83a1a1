//! A network port by name, whichever kind of device the manifest makes of it: a network that the
//! host attaches, or a NIC that the image drives itself.
//!
//! An appliance that takes its ports from here runs unmodified with either.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use device::{Nic, Pool};
use drivers::net::{e1000e, ixgbe};
use hw::{DmaArena, Mmio, OutOfDma};
use unikernel::{DeviceError, Port};

/// The port of this name, once. A NIC receives all frames, whoever they are for.
///
/// # Errors
/// If the manifest has no such port, it was handed out already, or the NIC cannot be used.
pub fn port(name: &str) -> Result<Port, Error> {
    let found = match unikernel::net(name) {
        Err(DeviceError::NotInManifest) => nic(name),
        found => found.map_err(Reason::Device),
    };
    found.map_err(|reason| Error {
        name: name.into(),
        reason,
    })
}

/// A PCIe device that is driven by the driver for its ids.
fn nic(name: &str) -> Result<Port, Reason> {
    let device = unikernel::pci(name).map_err(Reason::Device)?;
    let bar = device.bar(0).ok_or(Reason::NoBar)?;
    let mut arena = unikernel::dma().ok_or(Reason::NoDma)?;
    let request = device.request();
    let (driver, pool) = match (request.vendor, request.device) {
        (e1000e::VENDOR, e1000e::DEVICE) => e1000e(bar, &mut arena)?,
        (ixgbe::VENDOR, ixgbe::DEVICE) => ixgbe(bar, &mut arena)?,
        (vendor, device) => return Err(Reason::NoDriver(vendor, device)),
    };
    Ok(Port::over(device, driver, pool))
}

/// A driver, and the pool of the frames that it receives.
type Driven = (Box<dyn Nic>, Pool);

fn e1000e(bar: Mmio, arena: &mut DmaArena) -> Result<Driven, Reason> {
    use e1000e::{BUFFER_BYTES, BUFFERS, Driver, Filter};
    let pool = Pool::dma(arena, BUFFERS, BUFFER_BYTES)?;
    let driver = <Driver>::new(bar, arena, pool, Filter::None, clock);
    Ok((Box::new(driver.map_err(Reason::E1000e)?), pool))
}

/// Coalesces received frames if the DMA memory suffices, here and for the NICs that are to come:
/// what receives them, of this runtime, passes large frames on.
fn ixgbe(bar: Mmio, arena: &mut DmaArena) -> Result<Driven, Reason> {
    use ixgbe::{BUFFER_BYTES, BUFFERS, Config, Driver};
    use ixgbe::{
        COALESCED_BUFFER_BYTES, COALESCED_BUFFERS, COALESCED_DMA_BYTES, COALESCED_RING as RING,
    };
    let share = arena.left() / (1 + unikernel::pci_left());
    if share >= COALESCED_DMA_BYTES {
        let pool = Pool::dma(arena, COALESCED_BUFFERS, COALESCED_BUFFER_BYTES)?;
        let driver = Driver::<RING, RING>::new(bar, arena, pool, Config::COALESCE, clock);
        return Ok((Box::new(driver.map_err(Reason::Ixgbe)?), pool));
    }
    let pool = Pool::dma(arena, BUFFERS, BUFFER_BYTES)?;
    let driver = <Driver>::new(bar, arena, pool, Config::FORWARD, clock);
    Ok((Box::new(driver.map_err(Reason::Ixgbe)?), pool))
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
    NoBar,
    NoDma,
    NoDriver(u16, u16),
    Dma(OutOfDma),
    E1000e(e1000e::Error),
    Ixgbe(ixgbe::Error),
}

impl From<OutOfDma> for Reason {
    fn from(error: OutOfDma) -> Self {
        Self::Dma(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.reason {
            Reason::Device(error) => error.fmt(f),
            Reason::NoBar => f.write_str("no registers: set map_bar0 in manifest.json"),
            Reason::NoDma => f.write_str("no DMA memory: set dma_size in manifest.json"),
            Reason::NoDriver(vendor, device) => write!(
                f,
                "no driver for {vendor:04x}:{device:04x}: there are for 8086:10d3 and 8086:10fb"
            ),
            Reason::Dma(error) => error.fmt(f),
            Reason::E1000e(error) => error.fmt(f),
            Reason::Ixgbe(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}
