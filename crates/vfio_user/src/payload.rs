//! What follows the header of a message: one structure for each command, as the specification and
//! Linux `vfio.h` have them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What [`crate::header::command::VERSION`] carries both ways; JSON, ended by a NUL, may follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Version {
    /// [`crate::header::MAJOR`].
    pub major: u16,
    /// [`crate::header::MINOR`], or less in a reply.
    pub minor: u16,
}

/// Memory that the device may reach from now on. It has no reply but the header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DmaMap {
    /// Size of this structure.
    pub argsz: u32,
    /// Bits of [`dma_flag`].
    pub flags: u32,
    /// Where it begins in the file of the descriptor, in bytes.
    pub offset: u64,
    /// The I/O address of its first byte.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

/// Bits of [`DmaMap::flags`].
pub mod dma_flag {
    /// The device may read it.
    pub const READ: u32 = 1 << 0;
    /// The device may write it.
    pub const WRITE: u32 = 1 << 1;
}

/// Memory that the device may no longer reach, as it was mapped. The reply repeats it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DmaUnmap {
    /// Most bytes of the reply.
    pub argsz: u32,
    /// Zero.
    pub flags: u32,
    /// As in [`DmaMap::address`].
    pub address: u64,
    /// As in [`DmaMap::size`].
    pub size: u64,
}

/// What the device is; in a command all but `argsz` is zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DeviceInfo {
    /// Most bytes of the reply; in the reply: bytes that there are.
    pub argsz: u32,
    /// Bits of [`device_flag`].
    pub flags: u32,
    /// Number of regions.
    pub regions: u32,
    /// Number of kinds of interrupts.
    pub irqs: u32,
}

/// Bits of [`DeviceInfo::flags`].
pub mod device_flag {
    /// [`crate::command::DEVICE_RESET`] works.
    pub const RESET: u32 = 1 << 0;
    /// It is a PCI device.
    pub const PCI: u32 = 1 << 1;
}

/// Indices of the regions of a PCI device (Linux `vfio.h`); BAR n is region n.
pub mod region {
    /// The expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// Registers of VGA.
    pub const VGA: u32 = 8;
    /// How many every PCI device has; those of a device's own come behind.
    pub const COUNT: u32 = 9;
}

/// Indices of the kinds of interrupts of a PCI device (Linux `vfio.h`).
pub mod irq {
    /// Pins.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// How many kinds there are.
    pub const COUNT: u32 = 5;
}

/// A region; in a command all but `argsz` and `index` is zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RegionInfo {
    /// Most bytes of the reply; in the reply: bytes that there are, with capabilities.
    pub argsz: u32,
    /// Bits of [`region_flag`].
    pub flags: u32,
    /// Which region.
    pub index: u32,
    /// Where the first capability begins, from the beginning of this structure; or 0.
    pub cap_offset: u32,
    /// Size in bytes.
    pub size: u64,
    /// Where it begins in the file of the descriptor.
    pub offset: u64,
}

/// Bits of [`RegionInfo::flags`].
pub mod region_flag {
    /// It can be read.
    pub const READ: u32 = 1 << 0;
    /// It can be written.
    pub const WRITE: u32 = 1 << 1;
    /// It can be mapped, by the descriptor that comes with the reply.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities follow.
    pub const CAPS: u32 = 1 << 3;
}

/// A capability of a region (Linux `vfio.h`, `vfio_info_cap_header`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CapabilityHeader {
    /// A number of [`capability`].
    pub id: u16,
    /// 1.
    pub version: u16,
    /// Where the next one begins, from the beginning of [`RegionInfo`]; or 0.
    pub next: u32,
}

/// Values of [`CapabilityHeader::id`].
pub mod capability {
    /// Only parts of the region can be mapped.
    pub const SPARSE_MMAP: u16 = 1;
    /// [`super::TypeCapability`]: what a device's own region is.
    pub const TYPE: u16 = 2;
}

/// What a device's own region is (Linux `vfio.h`, `vfio_region_info_cap_type`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct TypeCapability {
    /// With [`capability::TYPE`].
    pub header: CapabilityHeader,
    /// Who says what the subtype means.
    pub kind: u32,
    /// What it is.
    pub subtype: u32,
}

/// A kind of interrupts; in a command all but `argsz` and `index` is zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IrqInfo {
    /// Size of this structure.
    pub argsz: u32,
    /// Bits of [`irq_info_flag`].
    pub flags: u32,
    /// Which kind.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

/// Bits of [`IrqInfo::flags`].
pub mod irq_info_flag {
    /// An event can be signalled.
    pub const EVENTFD: u32 = 1 << 0;
    /// It can be masked.
    pub const MASKABLE: u32 = 1 << 1;
    /// It masks itself when its event is signalled.
    pub const AUTOMASKED: u32 = 1 << 2;
    /// The number of interrupts in use cannot change without disabling all of them.
    pub const NO_RESIZE: u32 = 1 << 3;
}

/// What happens on interrupts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct IrqSet {
    /// Size of this structure and of the data behind it.
    pub argsz: u32,
    /// Bits of [`irq_set_flag`].
    pub flags: u32,
    /// Which kind.
    pub index: u32,
    /// The first one of it.
    pub start: u32,
    /// How many; 0 with [`irq_set_flag::NONE`] switches all of this kind off.
    pub count: u32,
}

/// Bits of [`IrqSet::flags`]: what comes with it, and what it is for.
pub mod irq_set_flag {
    /// No data.
    pub const NONE: u32 = 1 << 0;
    /// A byte for each interrupt.
    pub const BOOL: u32 = 1 << 1;
    /// A descriptor of an event for each interrupt, or none at all to take them away.
    pub const EVENTFD: u32 = 1 << 2;
    /// Mask the interrupt.
    pub const MASK: u32 = 1 << 3;
    /// Unmask it.
    pub const UNMASK: u32 = 1 << 4;
    /// Let the event be signalled by the interrupt.
    pub const TRIGGER: u32 = 1 << 5;
}

/// Bytes of a region; in a write the bytes follow, and in the reply of a read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RegionAccess {
    /// The first byte.
    pub offset: u64,
    /// Which region.
    pub region: u32,
    /// How many bytes.
    pub count: u32,
}

const _: () = assert!(size_of::<Version>() == 4);
const _: () = assert!(size_of::<DmaMap>() == 32 && size_of::<DmaUnmap>() == 24);
const _: () = assert!(size_of::<DeviceInfo>() == 16 && size_of::<RegionInfo>() == 32);
const _: () = assert!(size_of::<CapabilityHeader>() == 8 && size_of::<TypeCapability>() == 16);
const _: () = assert!(size_of::<IrqInfo>() == 16 && size_of::<IrqSet>() == 20);
const _: () = assert!(size_of::<RegionAccess>() == 16);
