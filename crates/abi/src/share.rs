//! The shared file: what outlives the guest and needs no live parent.
//!
//! | region | who writes it |
//! |---|---|
//! | [`Report`], one page | the tender, and a guest that panics |
//! | whether a panic leaves a core file ([`CORE_OFFSET`]), in that page | the tender |
//! | [`Exits`], at the end of that page ([`EXITS_OFFSET`]) | the tender, on `hvt` |
//! | counters ([`COUNTERS_OFFSET`]), those of TCP/IP ([`NET_COUNTERS`]) among them | the guest |
//! | [`RulesStatus`], and [`REVALIDATED_OFFSET`] in its page | the guest |
//! | counters of rules ([`RULE_COUNTERS_OFFSET`]) | the guest |
//! | [`CaptureHead`] and the capture ring ([`CAPTURE_OFFSET`]) | the guest |
//! | [`Control`]; in its page [`LEAVE_OFFSET`] and [`REVALIDATE_OFFSET`] | the host alone |
//! | MTUs ([`MTUS_OFFSET`]) | the host alone |
//! | two texts of rules ([`RULES_OFFSET`]) | the host alone |
//!
//! Numbers are native-endian. What the guest writes is numbers by index and frames, and no names:
//! those come from manifest and rules, so that a hostile guest can inject nothing. Whoever reads it
//! treats it as hostile all the same. A file of [`BYTES_MIN`] bytes holds report and counters
//! alone, one of [`BYTES`] all regions; it is sparse, and costs the pages that are touched.

use crate::backtrace::{Backtrace, Registers};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Address at which the file is mapped in a guest of `process` and `spt`.
pub const BASE: u64 = 1 << 38;
/// Offset of the first counter in the file.
pub const COUNTERS_OFFSET: usize = 4096;
/// Number of counters, eight bytes each.
pub const COUNTERS: usize = (RULES_STATUS_OFFSET - COUNTERS_OFFSET) / size_of::<u64>();

/// Offset of [`RulesStatus`].
pub const RULES_STATUS_OFFSET: usize = 64 << 10;
/// Offset of a word in the page of [`RulesStatus`]: the last generation with which the guest judges
/// connections anew; written before [`RulesStatus::generation`]. An image that does not know how
/// leaves it 0.
pub const REVALIDATED_OFFSET: usize = RULES_STATUS_OFFSET + 1024;
/// Most rules in a set, the policies of its base chains included.
pub const RULES_MAX: usize = 64 << 10;
/// Offset of the counters of rules: [`RULES_MAX`] pairs of frames and bytes ([`RuleCounter`]) for
/// each of the two slots.
pub const RULE_COUNTERS_OFFSET: usize = RULES_STATUS_OFFSET + PAGE;
/// Texts of rules that the file holds: the set in force, and the one before or behind it.
pub const SLOTS: usize = 2;

/// Offset of [`CaptureHead`].
pub const CAPTURE_OFFSET: usize =
    RULE_COUNTERS_OFFSET + SLOTS * RULES_MAX * size_of::<RuleCounter>();
/// Offset of the ring of captured frames.
pub const CAPTURE_RING_OFFSET: usize = CAPTURE_OFFSET + PAGE;
/// Bytes of that ring, a power of two.
pub const CAPTURE_RING_BYTES: usize = 8 << 20;

/// Offset of [`Control`]; from here on, the guest can only read.
pub const CONTROL_OFFSET: usize = CAPTURE_RING_OFFSET + CAPTURE_RING_BYTES;
/// Offset of the MTUs that the networks have by now, eight bytes for each entry of the manifest: 0
/// where it is that of the start, which the manifest says. They lie in the page of [`Control`].
pub const MTUS_OFFSET: usize = CONTROL_OFFSET + 1024;
/// Offset of a word in the page of [`Control`]. Not 0: the guest is to end between two turns, and
/// to leave its links as they are for whoever goes on in its place. For images with
/// [`crate::extension::feature::LEAVE`].
pub const LEAVE_OFFSET: usize = CONTROL_OFFSET + 512;
/// Offset of a word in the page of [`Control`]: the generation of rules with which connections that
/// began before are judged anew; written before [`Control::generation`].
pub const REVALIDATE_OFFSET: usize = LEAVE_OFFSET + size_of::<u64>();
/// Offset of the first text of rules; the second one is [`RULES_BYTES_MAX`] behind it.
pub const RULES_OFFSET: usize = CONTROL_OFFSET + PAGE;
/// Longest text of rules, in bytes.
pub const RULES_BYTES_MAX: usize = 16 << 20;

/// Size of a file that holds report and counters alone, in bytes.
pub const BYTES_MIN: u64 = RULES_STATUS_OFFSET as u64;
/// Size of a file that holds everything, in bytes.
pub const BYTES: u64 = (RULES_OFFSET + SLOTS * RULES_BYTES_MAX) as u64;

const PAGE: usize = crate::PAGE_SIZE as usize;
const _: () = assert!(CONTROL_OFFSET.is_multiple_of(PAGE));

/// What the guest says of its rules. Each field is written on its own, [`Self::generation`] or
/// [`Self::refused`] last.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RulesStatus {
    /// Generation in force: 0 are the rules that the guest came with.
    pub generation: u64,
    /// Slot whose text and counters belong to the generation in force.
    pub slot: u64,
    /// Number of counters in use there.
    pub rules: u64,
    /// The last generation that was refused, or 0.
    pub refused: u64,
    /// Why: a [`RulesRefused`], as a number.
    pub reason: u64,
    /// Where in the refused text, in bytes.
    pub position: u64,
}

/// Why a guest kept the rules that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum RulesRefused {
    /// The text is no rules; the loader should have noticed.
    Invalid = 1,
    /// The compiled rules need more memory than the guest has left.
    Memory = 2,
    /// The text changed while it was read.
    Torn = 3,
    /// The rules ask for connections, and there are no random bytes to hide them by.
    Random = 4,
}

/// How often a rule counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct RuleCounter {
    /// Frames.
    pub frames: u64,
    /// Bytes, as nft counts them on a bridge: from the network header on.
    pub bytes: u64,
}

/// What the guest says of the capture ring. Positions count bytes since the start and are taken
/// modulo [`CAPTURE_RING_BYTES`].
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CaptureHead {
    /// Position behind the last whole record.
    pub head: u64,
    /// Frames that were not captured because the ring was full.
    pub lost: u64,
}

/// What stands in front of each frame in the capture ring. Records are 8-byte aligned.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct CaptureRecord {
    /// Wall-clock time, in nanoseconds since 1970.
    pub time: u64,
    /// Bytes of the frame that follow, not counting the padding to the next record.
    pub captured: u32,
    /// Bytes that the frame had.
    pub length: u32,
    /// The port's index in the manifest.
    pub port: u16,
    /// 0 for a received frame, 1 for a transmitted one.
    pub direction: u16,
    /// What became of it: [`CAPTURE_PASSED`], a number below [`COUNTERS_PER_PORT`] for the counter
    /// of the port that counted its drop, or [`CAPTURE_RULE`] plus the rule that dropped it.
    pub fate: u32,
    /// Generation of the rules at that time.
    pub generation: u64,
}

/// [`CaptureRecord::fate`] of a frame that was not dropped.
pub const CAPTURE_PASSED: u32 = u32::MAX;
/// [`CaptureRecord::fate`] of a frame that rule 0 dropped.
pub const CAPTURE_RULE: u32 = 1 << 16;

/// What the host says to the guest.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Control {
    /// Generation of the rules that the guest is to use, 0 for those that it came with; written
    /// after text, slot and length.
    pub generation: u64,
    /// Slot in which their text lies.
    pub slot: u64,
    /// Length of that text in bytes.
    pub length: u64,
    /// Ports whose frames are captured: bit i for entry i of the manifest.
    pub capture_ports: u64,
    /// Most bytes of a frame that are captured.
    pub capture_snap: u64,
    /// Position up to which the host has taken records out of the capture ring.
    pub capture_tail: u64,
}

/// Value of [`Report::magic`] once there is a report: "OBRP".
pub const REPORT_MAGIC: u32 = 0x5052_424f;

/// [`Report::code`] where the tender has said why on standard error.
pub const CODE_EXPLAINED: i32 = i32::MAX;

/// How a guest faulted, or where it panicked.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Report {
    /// [`REPORT_MAGIC`], or 0 if the guest did not fault.
    pub magic: u32,
    /// Number of the signal, or 0 for a panic, which has only a backtrace.
    pub signal: u32,
    /// `si_code` of the signal, or [`CODE_EXPLAINED`].
    pub code: i32,
    /// For SIGSYS: number of the forbidden system call.
    pub syscall: u32,
    /// For SIGSEGV and SIGBUS: the address that was touched.
    pub address: u64,
    /// Where the guest was executing.
    pub instruction: u64,
    /// The flags, `rflags`.
    pub flags: u64,
    /// The other registers.
    pub registers: Registers,
    /// Who called it.
    pub backtrace: Backtrace,
}

const _: () = assert!(size_of::<Report>() <= CORE_OFFSET);

/// Offset of a word that is not 0 where the tender writes a core file in the guest's own process. A
/// guest that panics then leaves its report, and ends by an invalid instruction (`ud2`): what the
/// tender does about that shows the guest as it was.
pub const CORE_OFFSET: usize = EXITS_OFFSET - size_of::<u64>();
/// Offset of [`Exits`], at the end of the report's page.
pub const EXITS_OFFSET: usize = PAGE - 64;

/// How often a guest of `hvt` with rings was left, as KVM counts it. The tender writes this every
/// now and then, and once more when the guest has had nothing to do for a while.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Exits {
    /// For whatever reason.
    pub all: u64,
    /// For an interrupt of the host's, the timer's above all.
    pub interrupts: u64,
}

/// Counters of one network port; the block of the port with index `i` begins at
/// `i * COUNTERS_PER_PORT`. Numbers below [`PORT_APPLIANCE`] are the runtime's own.
pub const COUNTERS_PER_PORT: usize = 64;
const _: () = assert!(crate::pci::INDICES_MAX * COUNTERS_PER_PORT <= COUNTERS);

/// The counter of an image's turns, for images with [`crate::extension::feature::PROGRESS`]. It
/// lies in the block of the manifest's reserved first entry, which is no port. The number of the
/// turn is shifted left by one; the lowest bit is [`PROGRESS_ASLEEP`].
pub const PROGRESS: usize = 0;
/// Set while the image sleeps in its host's wait, where it makes no turn and need not.
pub const PROGRESS_ASLEEP: u64 = 1;

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
    /// Frames, received or to be sent, that were not captured because the ring was full.
    CaptureLost = 14,
    /// A NIC of the image's own: what its device reported of received frames and that cannot be.
    RxLie = 15,
    /// A NIC of the image's own: frames that it had no buffer for, as it says.
    RxMissed = 16,
    /// A NIC of the image's own: looks that found a frame.
    PollsBusy = 17,
    /// A NIC of the image's own: looks that found none.
    PollsIdle = 18,
    /// A NIC of the image's own: resets because it hung or lied.
    NicResets = 19,
    /// A NIC of the image's own: whether it was given up.
    NicGivenUp = 20,
    /// A link: frames that were under way to this image when the other end began anew.
    LinkLost = 21,
    /// A link: times that the other end broke a rule, and the link went down.
    LinkFaults = 22,
}

/// Names of the runtime's counters of a port, by number.
pub const PORT_COUNTERS: [&str; 23] = [
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
    "capture_lost",
    "rx_lie",
    "rx_missed",
    "polls_busy",
    "polls_idle",
    "nic_resets",
    "nic_given_up",
    "link_lost",
    "link_faults",
];
const _: () = assert!(PORT_COUNTERS.len() <= PORT_APPLIANCE);

/// First number that the appliance itself may use in a port's block.
pub const PORT_APPLIANCE: usize = 32;

/// Index of the first counter behind the ports' blocks, for an image with so many `devices`:
/// entries of the manifest, the reserved first one included, and PCIe devices. From there on they
/// are the appliance's own.
pub const fn appliance_counters(devices: usize) -> usize {
    devices * COUNTERS_PER_PORT
}

/// Index of the first counter of an image's TCP/IP stack; an appliance's own end before it. It is a
/// fingerprint of the table of all that the stack counts, or 0 where there is no stack; the
/// numbers follow, in the order of that table.
pub const NET_COUNTERS: usize = COUNTERS - 5 * PAGE / size_of::<u64>();
/// Most counters of a stack, the fingerprint included.
pub const NET_COUNTERS_MAX: usize = PAGE / size_of::<u64>();

/// Index of the first counter of an image that tracks connections; an appliance's own end before
/// it. It is the number of connections of one family that fit, or 0 where none are tracked. Behind
/// it is how many there are of each class and what has happened to them, in the order of the
/// tracker's tables.
pub const CONNECTION_COUNTERS: usize = NET_COUNTERS - CONNECTION_COUNTERS_MAX;
/// Most counters of connections, the first one included.
pub const CONNECTION_COUNTERS_MAX: usize = 32;
const _: () = assert!(appliance_counters(crate::pci::INDICES_MAX) <= CONNECTION_COUNTERS);
