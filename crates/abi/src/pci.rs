//! PCIe devices and DMA memory: what an image asks for, what it is told, and where they are mapped.
//!
//! The virtual addresses are those of Solo5's first PCIe support (BARs at 2^39, DMA memory at 2^40)
//! and the same on every host. Guest-physical addresses and I/O addresses are the same numbers
//! where the processor and the IOMMU have as many bits, and others where not: a guest is told the
//! I/O address of its DMA memory, and never sees a physical one.

use crate::manifest::{ENTRIES_MAX, NAME_BYTES_MAX, name_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most PCIe devices of an image: what the layout of addresses holds.
pub const DEVICES_MAX: usize = 32;
/// Request number `n` of an image has the number E + n in everything that counts devices: wait
/// sets, ready bits, counters, captures. E is the number of entries of the manifest, the reserved
/// first one included. Devices have so many numbers in all.
pub const INDICES_MAX: usize = ENTRIES_MAX;
/// Class of network controllers (PCI Code and ID Assignment 1.14, 1.3).
pub const CLASS_NETWORK: u8 = 2;
/// BARs of a device.
pub const BARS: usize = 6;
/// Largest BAR that can be mapped, in bytes: what the layout of addresses holds.
pub const BAR_BYTES_MAX: u64 = 1 << 30;
/// Virtual address of the DMA memory.
pub const DMA_BASE: u64 = 1 << 40;
/// DMA memory is handed out in multiples of this, in bytes: a large page.
pub const DMA_GRANULE: u64 = 2 << 20;
/// Most DMA memory of an image, in bytes.
pub const DMA_BYTES_MAX: u64 = 4 << 30;

/// Virtual address of BAR `bar` of PCIe device number `device` of the image.
pub const fn bar_address(device: usize, bar: usize) -> u64 {
    (1 << 39) + ((device as u64) << 34) + ((bar as u64) << 30)
}

const _: () = assert!(bar_address(DEVICES_MAX - 1, BARS - 1) + BAR_BYTES_MAX <= DMA_BASE);

/// What of PCIe devices can lie at a virtual address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Registers of the device with this number.
    Registers(usize),
    /// DMA memory.
    Dma,
}

/// What lies at a virtual address, if it is of PCIe devices.
pub fn place(address: u64) -> Option<Place> {
    const BARS_BASE: u64 = bar_address(0, 0);
    const DMA_LAST: u64 = DMA_BASE + (DMA_BYTES_MAX - 1);
    match address {
        BARS_BASE..DMA_BASE => {
            let device = (address - BARS_BASE) / (bar_address(1, 0) - BARS_BASE);
            Some(Place::Registers(device as usize))
        }
        DMA_BASE..=DMA_LAST => Some(Place::Dma),
        _ => None,
    }
}

/// A PCIe device that an image asks for, as it stands in the extension note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// Name, ended by a NUL; no device of the manifest has the same.
    pub name: [u8; NAME_BYTES_MAX + 1],
    /// Class code (PCI Local Bus 3.0, 6.2.1).
    pub class: u8,
    /// Subclass.
    pub subclass: u8,
    /// Programming interface.
    pub progif: u8,
    /// BARs to be mapped: bit i for BAR i.
    pub bars: u8,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Bits of [`request_flag`].
    pub flags: u32,
}

impl Request {
    /// The name, if it is one.
    pub fn name(&self) -> Option<&str> {
        name_of(&self.name)
    }
}

/// Bits of [`Request::flags`].
pub mod request_flag {
    /// The device reads and writes DMA memory by itself.
    pub const BUS_MASTER: u32 = 1 << 0;
}

/// What an image is told of a PCIe device that it asked for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Info {
    /// Sizes of the BARs that it asked for, in bytes; 0 for the others. With
    /// [`info_flag::WINDOW`], that of the registers is the first.
    pub bar_bytes: [u64; BARS],
    /// Bits of [`info_flag`].
    pub flags: u32,
    /// On `spt` and `process`: the descriptor by which registers are reached by message.
    pub handle: i32,
    /// What the tender has found in the configuration space of a virtio device.
    pub virtio: Virtio,
}

impl Info {
    /// No device.
    pub const ZERO: Self = Self {
        bar_bytes: [0; BARS],
        flags: 0,
        handle: 0,
        virtio: Virtio::ZERO,
    };
}

/// Vendor ID of virtio devices (Virtual I/O Device 1.2, 4.1.2).
pub const VIRTIO_VENDOR: u16 = 0x1af4;

/// Where the structures of a virtio device lie in its BARs (Virtual I/O Device 1.2, 4.1.4), all
/// zero for any other device. Each lies wholly in its BAR, be that mapped or not.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Virtio {
    /// Common configuration.
    pub common: Structure,
    /// Doorbells.
    pub notify: Structure,
    /// Interrupt status.
    pub isr: Structure,
    /// What the kind of device has of its own; a kind may have nothing.
    pub device: Structure,
    /// Bytes from one doorbell to the next (4.1.4.4).
    pub notify_multiplier: u32,
    /// Zero.
    pub reserved: u32,
}

impl Virtio {
    /// None.
    pub const ZERO: Self = Self {
        common: Structure::NONE,
        notify: Structure::NONE,
        isr: Structure::NONE,
        device: Structure::NONE,
        notify_multiplier: 0,
        reserved: 0,
    };
}

/// A part of a BAR.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Structure {
    /// Which BAR.
    pub bar: u32,
    /// Where it begins there, in bytes.
    pub offset: u32,
    /// Its size in bytes; 0 if there is none.
    pub bytes: u32,
}

impl Structure {
    /// None.
    pub const NONE: Self = Self {
        bar: 0,
        offset: 0,
        bytes: 0,
    };
}

/// Bits of [`Info::flags`].
pub mod info_flag {
    /// The device is attached.
    pub const ATTACHED: u32 = 1 << 0;
    /// Its first message-signalled interrupt wakes the guest up: the device is in the wait set,
    /// edge-triggered, under its index.
    pub const INTERRUPT: u32 = 1 << 1;
    /// Its BARs are not mapped: registers are read and written by message
    /// (crate `vfio_user`).
    pub const MESSAGE: u32 = 1 << 2;
    /// With [`MESSAGE`]: a page of doorbells lies where BAR 0 would be (see
    /// [`crate::doorbell`]).
    pub const DOORBELLS: u32 = 1 << 3;
    /// A virtio device over memory-mapped I/O (Virtual I/O Device 1.2, 4.2) stands for the one
    /// behind PCI: its registers lie where BAR 0 would be, whatever BARs the image asked for.
    /// [`Info::virtio`](super::Info::virtio) is zero. Each of its interrupts wakes the guest up by
    /// an event of its own, acknowledged or not.
    pub const WINDOW: u32 = 1 << 4;
}

/// The DMA memory of an image.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Dma {
    /// Its virtual address, [`DMA_BASE`]; 0 if there is none.
    pub address: u64,
    /// The I/O address of its first byte.
    pub iova: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Dma {
    /// None.
    pub const ZERO: Self = Self {
        address: 0,
        iova: 0,
        bytes: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_where_is_known() {
        for (device, bar) in [(0, 0), (0, 5), (1, 0), (31, 5)] {
            let last = bar_address(device, bar) + (BAR_BYTES_MAX - 1);
            assert_eq!(place(last), Some(Place::Registers(device)));
        }
        assert_eq!(place(DMA_BASE), Some(Place::Dma));
        for nothing in [0, bar_address(0, 0) - 1, DMA_BASE + DMA_BYTES_MAX, u64::MAX] {
            assert_eq!(place(nothing), None);
        }
    }
}
