//! The shared file: what outlives the guest and needs no live parent.
//!
//! Its first page is the [`Report`] that the tender writes when a guest faults; behind it lie
//! counters, eight bytes each, native-endian, written by the guest alone. It holds numbers by index
//! and no names: those come from manifest and rules, so that a hostile guest can inject nothing.
//! Whoever reads it treats it as hostile all the same.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Address at which the file is mapped in a guest of `process` and `spt`.
pub const BASE: u64 = 1 << 38;
/// Offset of the first counter in the file.
pub const COUNTERS_OFFSET: usize = 4096;
/// Largest file, in bytes.
pub const BYTES_MAX: u64 = 16 << 20;
/// Size of the file that the monitor makes, in bytes.
pub const BYTES_DEFAULT: u64 = 64 << 10;

/// Value of [`Report::magic`] once there is a report: "OBRP".
pub const REPORT_MAGIC: u32 = 0x5052_424f;

/// How a guest faulted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Report {
    /// [`REPORT_MAGIC`], or 0 if the guest did not fault.
    pub magic: u32,
    /// Number of the signal.
    pub signal: u32,
    /// `si_code` of the signal.
    pub code: i32,
    /// For SIGSYS: number of the forbidden system call.
    pub syscall: u32,
    /// For SIGSEGV and SIGBUS: the address that was touched.
    pub address: u64,
    /// Where the guest was executing.
    pub instruction: u64,
}

const _: () = assert!(size_of::<Report>() == 32);

/// Counters of one network port; the block of manifest entry `i` begins at
/// `i * COUNTERS_PER_PORT`. Numbers 0 to 15 are the runtime's own.
pub const COUNTERS_PER_PORT: usize = 32;

/// What the runtime counts at each port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum PortCounter {
    /// Frames taken from the host.
    RxFrames = 0,
    /// Bytes taken from the host, virtio-net headers left out.
    RxBytes = 1,
    /// Frames handed to the host.
    TxFrames = 2,
    /// Bytes handed to the host, virtio-net headers left out.
    TxBytes = 3,
    /// Received frames dropped: longer than the port's largest frame.
    RxTooLong = 4,
    /// Received frames dropped: shorter than an Ethernet header.
    RxRunt = 5,
    /// Received frames dropped: a virtio-net header that contradicts the frame.
    RxBadHeader = 6,
    /// Reads that the host refused.
    RxError = 7,
    /// Frames not sent: over the port's MTU.
    TxTooBig = 8,
    /// Frames not sent: the link was down (EIO).
    TxLinkDown = 9,
    /// Frames not sent: the host refused them (EINVAL and other errors).
    TxRefused = 10,
    /// Frames not sent: the host had no room (EAGAIN, ENOBUFS, ENOMEM).
    TxNoRoom = 11,
    /// Frames segmented in software, each counted once.
    TxSegmented = 12,
    /// Times that receiving stopped because every buffer was in use.
    NoBuffer = 13,
}

/// Names of the runtime's counters of a port, by number.
pub const PORT_COUNTERS: [&str; 14] = [
    "rx_frames",
    "rx_bytes",
    "tx_frames",
    "tx_bytes",
    "rx_too_long",
    "rx_runt",
    "rx_bad_header",
    "rx_error",
    "too_big",
    "link_down",
    "tx_refused",
    "tx_no_room",
    "tx_segmented",
    "no_buffer",
];

/// First number that the appliance itself may use in a port's block.
pub const PORT_APPLIANCE: usize = 16;

/// Index of the first counter behind the ports' blocks, for a manifest of `entries` entries (the
/// reserved first one included): the appliance's own, such as one for each rule.
pub const fn appliance_counters(entries: usize) -> usize {
    entries * COUNTERS_PER_PORT
}
