//! The `hvt` host: a KVM virtual machine (Solo5 `hvt_abi.h`, version 2).
//!
//! At entry the processor is in 64-bit mode with SSE, `rdi` holds the address of [`BootInfo`] and
//! `rsp` is the size of guest memory minus 8. The guest calls the host by writing the address of an
//! argument structure, which lies below 4 GiB, to port [`CALL_PORT`] plus the number of the call.

use crate::backtrace::Registers;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Guest address of [`BootInfo`].
pub const BOOT_INFO: u64 = 0x1_0000;
/// Most guest memory, in bytes: what 32-bit argument addresses reach.
pub const MEMORY_BYTES_MAX: u64 = 4 << 30;
/// Port of call number 0.
pub const CALL_PORT: u16 = 0x500;

/// Numbers of the calls.
pub mod call {
    /// [`super::WallTime`].
    pub const WALL_TIME: u16 = 1;
    /// [`super::Puts`].
    pub const PUTS: u16 = 2;
    /// [`super::Poll`].
    pub const POLL: u16 = 3;
    /// [`super::Block`], to the disk.
    pub const BLOCK_WRITE: u16 = 4;
    /// [`super::Block`], from the disk.
    pub const BLOCK_READ: u16 = 5;
    /// [`super::Net`], to the network.
    pub const NET_WRITE: u16 = 6;
    /// [`super::Net`], from the network.
    pub const NET_READ: u16 = 7;
    /// [`super::Halt`].
    pub const HALT: u16 = 8;
    /// [`super::Net`], a message of at most [`super::MESSAGE_BYTES_MAX`] to a PCIe device that is
    /// another process, by its index. Outboard's own, as is the next.
    pub const MESSAGE_SEND: u16 = 0x40;
    /// [`super::Net`], what it has answered; [`super::result::AGAIN`] if it takes too long.
    pub const MESSAGE_RECEIVE: u16 = 0x41;
    /// [`super::Block`] without bytes: what was written to the disk is durable. Outboard's own, as
    /// is the next.
    pub const BLOCK_FLUSH: u16 = 0x42;
    /// [`super::Block`] without an address: these bytes of the disk are zeroes, and take no room.
    pub const BLOCK_DISCARD: u16 = 0x43;
}

/// Most bytes of a message that reaches a register.
pub const MESSAGE_BYTES_MAX: usize = 64;

/// Results of calls, `solo5_result_t`.
pub mod result {
    /// Done.
    pub const OK: i32 = 0;
    /// Nothing there yet.
    pub const AGAIN: i32 = 1;
    /// An argument is not valid.
    pub const INVALID: i32 = 2;
    /// Something else.
    pub const UNSPECIFIED: i32 = 3;
    /// The host cannot do this with this device. Outboard's own, as its calls.
    pub const UNSUPPORTED: i32 = 4;
}

/// What the tender tells the guest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct BootInfo {
    /// One past the last byte of guest memory.
    pub mem_size: u64,
    /// One past the last byte of the loaded image, page-aligned.
    pub kernel_end: u64,
    /// Frequency of the time-stamp counter, in Hz.
    pub cpu_cycle_freq: u64,
    /// Address of the command line, ended by a NUL.
    pub cmdline: u64,
    /// Address of the manifest: a [`crate::manifest::Header`] and its entries.
    pub mft: u64,
    /// What the tender offers; bit 0 is Solo5's network ring, which Outboard leaves at 0.
    pub host_features: u32,
    /// What the guest accepted.
    pub guest_features: u32,
    /// Address of Solo5's network ring, or 0.
    pub net_ring: u64,
}

const _: () = assert!(size_of::<BootInfo>() == 56);

/// Argument of [`call::WALL_TIME`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WallTime {
    /// Out: nanoseconds since 1970.
    pub nanoseconds: u64,
}

/// Argument of [`call::PUTS`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Puts {
    /// Address of the text.
    pub data: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// Argument of [`call::POLL`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Poll {
    /// Nanoseconds to wait at most.
    pub timeout: u64,
    /// Out: a bit for each network device that has something, by its index in the manifest.
    pub ready: u64,
    /// Out: how many those are.
    pub ret: i32,
    /// Padding.
    pub padding: u32,
}

/// Argument of [`call::BLOCK_READ`] and [`call::BLOCK_WRITE`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Block {
    /// Index of the disk in the manifest.
    pub handle: u64,
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// Address of the bytes.
    pub data: u64,
    /// How many.
    pub len: u64,
    /// Out: a number of [`result`].
    pub ret: i32,
    /// Padding.
    pub padding: u32,
}

/// Argument of [`call::NET_READ`] and [`call::NET_WRITE`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Net {
    /// Index of the network device in the manifest.
    pub handle: u64,
    /// Address of the frame, or of room for one.
    pub data: u64,
    /// Its length; out, for a read: that of the frame.
    pub len: u64,
    /// Out: a number of [`result`].
    pub ret: i32,
    /// Padding.
    pub padding: u32,
}

/// Argument of [`call::HALT`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Halt {
    /// Address of [`COOKIE_BYTES`] bytes that tell more, a [`Trap`] for instance; or 0.
    pub cookie: u64,
    /// Exit status.
    pub status: i32,
    /// Padding.
    pub padding: u32,
}

/// Bytes at [`Halt::cookie`] that must be guest memory.
pub const COOKIE_BYTES: u64 = 512;

/// Value of [`Trap::magic`]: "OBTRAP00". Outboard's own; to Solo5's tender a cookie is opaque.
pub const TRAP_MAGIC: u64 = u64::from_le_bytes(*b"OBTRAP00");

/// An exception that ended the guest, as its runtime found it (Intel SDM volume 3, 6.13 to 6.15).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Trap {
    /// [`TRAP_MAGIC`].
    pub magic: u64,
    /// The exception's vector.
    pub vector: u64,
    /// Its error code, or 0.
    pub error: u64,
    /// The address that a page fault was about (CR2).
    pub address: u64,
    /// Where the guest was executing.
    pub rip: u64,
    /// Its flags.
    pub rflags: u64,
    /// Its other registers.
    pub registers: Registers,
}

impl Trap {
    /// None.
    pub const ZERO: Self = Self {
        magic: 0,
        vector: 0,
        error: 0,
        address: 0,
        rip: 0,
        rflags: 0,
        registers: [0; 16],
    };

    /// The signal of Linux that a process would have got: the guest's exit status is
    /// [`crate::exit::SIGNAL_BASE`] plus this (Linux `arch/x86/kernel/traps.c`).
    pub fn signal(&self) -> i32 {
        const SIGILL: i32 = 4;
        const SIGTRAP: i32 = 5;
        const SIGBUS: i32 = 7;
        const SIGFPE: i32 = 8;
        const SIGSEGV: i32 = 11;
        match self.vector {
            vector::DIVIDE | vector::X87 | vector::SIMD => SIGFPE,
            vector::DEBUG | vector::BREAKPOINT => SIGTRAP,
            vector::INVALID_OPCODE => SIGILL,
            vector::ALIGNMENT => SIGBUS,
            _ => SIGSEGV,
        }
    }
}

/// Vectors of exceptions (Intel SDM volume 3, 6.15).
pub mod vector {
    /// Division error.
    pub const DIVIDE: u64 = 0;
    /// Debug exception.
    pub const DEBUG: u64 = 1;
    /// `int3`.
    pub const BREAKPOINT: u64 = 3;
    /// `ud2`, and what the processor does not know.
    pub const INVALID_OPCODE: u64 = 6;
    /// Page fault.
    pub const PAGE_FAULT: u64 = 14;
    /// Exception of the x87 unit.
    pub const X87: u64 = 16;
    /// Unaligned access.
    pub const ALIGNMENT: u64 = 17;
    /// Exception of SSE.
    pub const SIMD: u64 = 19;
}

const _: () = assert!(size_of::<Trap>() as u64 <= COOKIE_BYTES);
const _: () = assert!(size_of::<Poll>() == 24 && size_of::<Block>() == 40);
const _: () = assert!(size_of::<Net>() == 32 && size_of::<Halt>() == 16);
