//! What lies where in guest-physical addresses.
//!
//! | addresses | what |
//! |---|---|
//! | [`GDT`] | descriptor table |
//! | [`ZERO_PAGE`] | boot parameters |
//! | [`PAGE_TABLES`] | three pages of page tables |
//! | [`COMMAND_LINE`] | the kernel's command line |
//! | [`MP_TABLE`] up to [`LOW_END`] | MP table, where a PC has its extended BIOS data area |
//! | [`HIGH`] up to the end of memory | the kernel, and at the end the RAM disk |

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
/// The MP table: in the last KiB of the lower memory, which is one of the places where it is looked
/// for (MP specification 1.4, section 4).
pub const MP_TABLE: u64 = 0x9_fc00;
/// The end of lower memory.
pub const LOW_END: u64 = 0xa_0000;
/// Where memory goes on.
pub const HIGH: u64 = 0x10_0000;
/// Most memory, in MiB: what the page tables map.
pub const MEMORY_MIB_MAX: u64 = 1024;
/// Least memory, in MiB, that a distribution's kernel starts with.
pub const MEMORY_MIB_MIN: u64 = 64;
/// The serial line's ports and interrupt.
pub const SERIAL: u16 = 0x3f8;
/// As above.
pub const SERIAL_IRQ: u32 = 4;
/// `KVM_SET_TSS_ADDR`: three pages that Intel's processors need for KVM, which nothing else uses.
pub const TSS: usize = 0xfffb_d000;
/// The interrupt controllers, where a PC has them.
pub const LOCAL_APIC: u32 = 0xfee0_0000;
/// As above.
pub const IO_APIC: u32 = 0xfec0_0000;
