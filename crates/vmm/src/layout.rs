//! What lies where in guest-physical addresses.
//!
//! | addresses | what |
//! |---|---|
//! | [`GDT`] | descriptor table |
//! | [`ZERO_PAGE`] | boot parameters |
//! | [`PAGE_TABLES`] | three pages of page tables |
//! | [`COMMAND_LINE`] | the kernel's command line |
//! | [`ACPI`] up to [`ACPI_END`] | ACPI tables, where a PC has its BIOS |
//! | [`HIGH`] up to the end of memory | the kernel, and at the end the RAM disk |
//! | [`WINDOWS`] | registers of virtio's devices, a page each |
//! | [`PCI_MEMORY`] | registers of PCI devices |

use std::ops::Range;

/// The descriptor table that the kernel begins with.
pub const GDT: u64 = 0x500;
/// Linux's `boot_params`.
pub const ZERO_PAGE: u64 = 0x7000;
/// Where the kernel's first stack ends.
pub const STACK: u64 = 0x8ff0;
/// Page tables that map the first GiB to itself.
pub const PAGE_TABLES: u64 = 0x9000;
/// The command line, with a NUL at its end.
pub const COMMAND_LINE: u64 = 0x2_0000;
/// Bytes of the command line, the NUL included: `COMMAND_LINE_SIZE` of Linux on x86.
pub const COMMAND_LINE_BYTES_MAX: usize = 2048;
/// The end of lower memory.
pub const LOW_END: u64 = 0xa_0000;
/// ACPI tables: one of the places where they are looked for (ACPI 6.5, 5.2.5.1). It is memory that
/// the map does not name.
pub const ACPI: u64 = 0xe_0000;
/// Where they must end.
pub const ACPI_END: u64 = HIGH;
/// Where memory goes on.
pub const HIGH: u64 = 0x10_0000;
/// Most memory, in MiB: what the page tables map.
pub const MEMORY_MIB_MAX: u64 = 1024;
/// Least memory, in MiB, that a distribution's kernel starts with.
pub const MEMORY_MIB_MIN: u64 = 64;
/// The serial line's ports and interrupt.
pub const SERIAL: u16 = 0x3f8;
/// As above.
pub const SERIAL_PORTS: u16 = 8;
/// As above.
pub const SERIAL_IRQ: u32 = 4;
/// Windows of virtio's devices: above all memory.
pub const WINDOWS: u64 = 0xc000_0000;
/// Bytes from one window to the next.
pub const WINDOW_STRIDE: u64 = 0x1000;
/// Memory behind the bridge of the PCI bus.
pub const PCI_MEMORY: Range<u64> = 0xd000_0000..0xd100_0000;
/// Ports behind it, where no device of a PC has any.
pub const PCI_PORTS: Range<u64> = 0xc000..0xd000;
/// Most devices: as many as the I/O APIC has lines behind those of the ISA bus.
pub const DEVICES_MAX: usize = 8;
/// The interrupt of the first device.
pub const DEVICE_IRQ: u32 = 16;
/// `KVM_SET_TSS_ADDR`: three pages that Intel's processors need for KVM, which nothing else uses.
pub const TSS: usize = 0xfffb_d000;
/// The interrupt controllers, where a PC has them.
pub const LOCAL_APIC: u32 = 0xfee0_0000;
/// As above.
pub const IO_APIC: u32 = 0xfec0_0000;

/// Where the window of a device begins.
pub const fn window(number: usize) -> u64 {
    WINDOWS + number as u64 * WINDOW_STRIDE
}
