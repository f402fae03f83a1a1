//! The contract between an image and the tender that runs it.
//!
//! Everything here is a byte layout or a number that both sides must agree on. The first half is
//! Solo5's (v0.12: ABI version 2 of `spt`, manifest version 1) and must never change; the second,
//! all that the table below calls Outboard's, has one version. [`version`] says when it goes up,
//! and who refuses what then.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`note`] | the ELF notes that an image carries | Solo5 `elf_abi.h` |
//! | [`manifest`] | the devices that an image may touch | Solo5 `mft_abi.h` |
//! | [`spt`] | boot information, system calls and addresses of the `spt` host | Solo5 `spt_abi.h` |
//! | [`hvt`] | boot information and hypercalls of the `hvt` host | Solo5 `hvt_abi.h` |
//! | [`version`] | the one rule for versions of what guest and host share | Outboard |
//! | [`extension`] | what Solo5's manifest cannot say, and what the tender answers | Outboard |
//! | [`pci`] | PCIe devices and DMA memory, in the extension | Outboard |
//! | [`share`] | the shared file: how the guest ended, counters, rules, captures | Outboard |
//! | [`state`] | memory that outlives an image: its header, what an image says of it | Outboard |
//! | [`inquiry`] | questions of the host, and their answers, in the shared file | Outboard |
//! | [`sockets`] | what is answered about a stack's sockets | Outboard |
//! | [`flows`] | what is answered about connections that are tracked | Outboard |
//! | [`ring`] | rings for frames and sectors on `hvt` | Outboard |
//! | [`backtrace`] | where a program was, by its frame pointers | Outboard |
//! | [`capture`] | how a guest writes captured frames into the shared file | Outboard |
//! | [`doorbell`] | registers of a PCI device in another process, in a shared page | Outboard |

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod backtrace;
pub mod capture;
pub mod doorbell;
pub mod elements;
pub mod extension;
pub mod flows;
pub mod hvt;
pub mod inquiry;
pub mod link;
pub mod manifest;
pub mod note;
pub mod pci;
pub mod region;
pub mod ring;
pub mod share;
pub mod sockets;
pub mod spt;
pub mod state;
pub mod version;

/// First address of guest memory; everything below stays unmapped, so that a null pointer faults.
pub const GUEST_BASE: u64 = 0x1_0000;

/// First address that a segment of an image may use. Between it and [`GUEST_BASE`] lies what the
/// tender hands over: boot information, manifest and command line.
pub const IMAGE_BASE: u64 = 0x10_0000;

/// Size of a page; segments and guest memory are multiples of it.
pub const PAGE_SIZE: u64 = 4096;

/// Longest command line (all arguments joined by one space), in bytes without the final NUL.
pub const COMMAND_LINE_BYTES_MAX: usize = 8191;

/// Exit statuses that mean something on every host.
pub mod exit {
    /// The guest did what it was asked to do.
    pub const SUCCESS: i32 = 0;
    /// The guest failed, or the tender could not start it.
    pub const FAILURE: i32 = 1;
    /// A device that the image was given went away while in use (a tap was deleted). The console
    /// names it. The number is `EX_UNAVAILABLE` of `sysexits.h`.
    pub const DEVICE_GONE: i32 = 69;
    /// The host failed at a step that only it does, while it served the guest: KVM, a timer, a
    /// wait. The tender's last line names the step. The number is `EX_OSERR` of `sysexits.h`.
    pub const HOST_FAILED: i32 = 71;
    /// The guest gave up: a panic, or memory was exhausted. Solo5's `SOLO5_EXIT_ABORT`.
    pub const ABORT: i32 = 255;
    /// Added to the number of the signal that ended a guest.
    pub const SIGNAL_BASE: i32 = 128;
}
