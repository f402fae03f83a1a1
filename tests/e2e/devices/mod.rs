//! Devices that a guest drives: ports, PCI devices of the machine, devices in software.

pub mod cards;
pub mod checkup;
pub mod model;
pub mod pci;
pub mod pci_guard;
pub mod pci_run;
pub mod ports;
pub mod software_device;
pub mod software_nic;
pub mod software_nvme;
pub mod software_virtio;
mod stored;
pub mod usb;
pub mod vfio;

use crate::harness::build::Images;
use crate::harness::network::Network;
use libtest_mimic::Trial;

/// All tests of this folder, but for those that `hvt` repeats.
pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    [
        software_device::trials(images),
        software_nic::trials(images),
        software_virtio::trials(images),
        software_nvme::trials(images),
        checkup::trials(images),
        ports::trials(images, network),
        model::trials(network),
        pci::trials(images),
        cards::trials(images),
        vfio::trials(images),
        stored::trials(images),
        usb::trials(images),
    ]
    .into_iter()
    .flatten()
    .collect()
}
