//! Software devices, to run drivers against: written from the specifications of the hardware,
//! without a line or a number in common with the drivers, so that two readings must agree.
//!
//! | module | what |
//! |---|---|
//! | [`MODELS`], [`Model`] | the models by name |
//! | [`Intel82599`], [`Intel82574`], [`Intel82540`] | NICs: registers, rings, offloads |
//! | [`Rtl8139`] | a NIC whose descriptors say whose they are |
//! | [`Nvme`] | a disk behind queues of commands |
//! | [`virtio`] | virtio's devices, and transports in front of them |
//! | [`Device`] | what a device is to a transport |
//! | [`config`] | configuration space, which a transport has for a device |
//! | [`Local`], [`Threaded`] | a device in the process of its driver |
//! | [`vfio_user`] | a device as a process that others drive |
//! | [`vhost_user`] | a virtio device as a process, for front ends with registers of their own |
//! | [`client`] | whoever drives it: what it lends, and how it goes |
//! | [`Dma`] | the driver's memory, as a device reaches it |
//! | [`wire`] | what a NIC is connected to |
//! | [`disk`] | what a disk keeps its blocks in |
//! | [`Violations`], [`Report`], [`Violation`] | what a driver did that the specification forbids |
//! | [`Misbehaviour`] | what a device does wrong on demand |
//!
//! # A new model
//!
//! A model is its folder, which is declared below, and one line in [`MODELS`]. `outboard model`
//! offers it from there, with every wire, and serves it to guests. In its folder is what its
//! specification says, with the sections: a type that implements [`Device`], and a `MODEL` that
//! makes one. What is the same for all devices it takes from here:
//!
//! | what | where |
//! |---|---|
//! | registers as a table, and accesses of all sizes to them | `registers` |
//! | what NICs for 1 Gb/s have in common | `gigabit` |
//! | the MSI-X structures, and how often a vector is raised | `msix`, `moderation` |
//! | bits that take their time, and must be waited for | `settling` |
//! | rings of descriptors between a head and a tail | `ring` |
//! | the wire, or a loopback in its place | `line` |
//! | a serial EEPROM behind three lines | `microwire` |
//! | frames of a card that cuts none on their way in | `wire::frames` |
//! | memory that is reached by I/O address | [`Dma`] |
//! | which buffers the device has, so that none is given to it twice | `ownership` |
//! | checksums, segmentation, coalescing, hashes | `packet` |
//! | frames as they are counted | `traffic` |
//! | payload that goes between wire and DMA memory without a copy | `scatter` |
//! | faults, and whether one happens now | [`Misbehaviour`] |
//! | violations, and the list of them | [`Violation`], [`Violations`] |
//!
//! No table of `registers` is shared with a driver, nor any other number (see the invariants in
//! `ARCHITECTURE.md`).

#![forbid(unsafe_code)]

pub mod client;
pub mod config;
mod device;
pub mod disk;
mod dma;
mod gigabit;
mod intel82540;
mod intel82574;
mod intel82599;
mod iotlb;
mod line;
mod local;
mod microwire;
mod misbehaviour;
mod model;
mod moderation;
mod msix;
mod nvme;
mod ownership;
mod packet;
mod registers;
mod ring;
mod rtl8139;
mod scatter;
mod settling;
mod traffic;
pub mod vfio_user;
pub mod vhost_user;
mod violation;
pub mod virtio;
pub mod wire;

pub use device::{Capability, Device, Identity, Msix, Progress, Space};
pub use dma::{Dma, DmaFault};
pub use intel82540::Intel82540;
pub use intel82574::Intel82574;
pub use intel82599::Intel82599;
pub use iotlb::Iotlb;
pub use local::{Local, Threaded};
pub use misbehaviour::{Fault, Misbehaviour, NoFault, StuckBits};
pub use model::{DiskSetup, Make, Model, Setup};
pub use nvme::Nvme;
pub use rtl8139::Rtl8139;
pub use violation::{Queue, Report, Severity, Violation, Violations};

/// All models, in the order in which they are offered. A new one is its folder and its line here.
pub const MODELS: &[Model] = &[
    intel82599::MODEL,
    intel82574::MODEL,
    intel82540::MODEL,
    rtl8139::MODEL,
    virtio::net::MODEL,
    virtio::blk::MODEL,
    virtio::rng::MODEL,
    nvme::MODEL,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Loop;

    #[test]
    fn every_model_has_a_name_of_its_own_and_can_be_made() {
        for (number, model) in MODELS.iter().enumerate() {
            let same = MODELS.iter().position(|other| other.name == model.name);
            assert_eq!(same, Some(number), "two models are called {}", model.name);
            let misbehaviour = Misbehaviour::default();
            let device = match model.make {
                Make::Nic(make) => make(Setup {
                    mtu: None,
                    address: [2, 0, 0, 0, 0, 1],
                    wire: Box::new(Loop::new()),
                    misbehaviour,
                }),
                Make::Disk(make) => make(DiskSetup {
                    disk: disk::sample(0),
                    misbehaviour,
                }),
                Make::Alone(make) => make(&misbehaviour).unwrap(),
            };
            assert!(device.violations().is_empty());
            assert!(device.identity().bars.iter().any(|bytes| *bytes > 0));
        }
    }
}
