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
use device::Netif;
use drivers::net::{MTU, Resources, StartError, Started};
use ports::{Card, DeviceError, NicPort};

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

/// A PCIe device that is driven by the driver for its ids.
fn nic(name: &str, mtu: usize) -> Result<Box<dyn Netif>, Reason> {
    let device = unikernel::pci(name).map_err(Reason::Device)?;
    let bar = device.bar(0).ok_or(Reason::NoBar)?;
    let mut arena = unikernel::dma().ok_or(Reason::NoDma)?;
    let resources = Resources {
        bar0: bar,
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
    Mtu,
    Start(StartError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.name)?;
        match &self.reason {
            Reason::Device(error) => error.fmt(f),
            Reason::NoBar => f.write_str("no registers: set map_bar0 in manifest.json"),
            Reason::NoDma => f.write_str("no DMA memory: set dma_size in manifest.json"),
            Reason::Mtu => f.write_str(
                "its MTU is that of the host's interface: set it there, with ip link set",
            ),
            Reason::Start(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}
