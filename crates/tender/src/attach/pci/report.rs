//! What `--verbose` says of PCIe devices and DMA memory.

use super::{Arena, Pages, Pci};
use crate::options::{self, PciSource};
use abi::pci::info_flag;
use std::fmt::Write;

/// A line for each of the devices, which are attached to `sources`, and one for the DMA memory.
pub fn lines(pci: &Pci, sources: &[&options::Pci]) -> Vec<String> {
    let mut lines = Vec::with_capacity(pci.devices.len() + 1);
    for (device, source) in pci.devices.iter().zip(sources) {
        let mut line = match &source.source {
            PciSource::Address(address) => format!("{}: {address}", source.name),
            PciSource::Socket(path) => format!("{}: {}", source.name, path.display()),
        };
        let bars = device.info.bar_bytes.iter().enumerate();
        for (bar, bytes) in bars.filter(|(_, bytes)| **bytes > 0) {
            // Writing to a String cannot fail.
            let _ = write!(line, ", BAR {bar} of {bytes} bytes");
        }
        if device.info.flags & info_flag::MESSAGE != 0 {
            line.push_str(", registers by message");
        }
        if device.info.flags & info_flag::INTERRUPT != 0 {
            line.push_str(", interrupts");
        }
        lines.push(line);
    }
    lines.extend(pci.dma.as_ref().map(memory));
    lines
}

fn memory(arena: &Arena) -> String {
    let mib = arena.window.bytes() >> 20;
    let (pages, remedy) = match arena.pages {
        Pages::OneGib => ("pages of 1 GiB", String::new()),
        Pages::TwoMib => ("pages of 2 MiB", String::new()),
        Pages::Ordinary => {
            let count = mib.div_ceil(2);
            let remedy = format!("; for larger ones: sudo sysctl vm.nr_hugepages={count}");
            ("ordinary pages", remedy)
        }
    };
    let iova = arena.iova.number();
    format!("{mib} MiB of DMA memory at I/O address {iova:#x}, of {pages}{remedy}")
}
