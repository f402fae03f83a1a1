//! What the NICs for 1 Gb/s have in common: a MAC with rings, filters, offloads and counters, and a
//! transceiver. Each model has its registers, its interrupts and its memory for itself, and tells
//! what reading and writing a register does.
//!
//! Sections are those of the 82574's datasheet, and of the manual of the 8254x (`intel82574` and
//! `intel82540` say which these are). A rule names both: `7.2.6 / 3.3.6`.
//!
//! | module | what | 82574 | 82540 |
//! |---|---|---|---|
//! | [`descriptor`] | the descriptors of both directions | 7.1, 7.2 | 3.2.3, 3.3 |
//! | [`filter`] | which frames are for us | 7.1.1 | 3.2.1 |
//! | [`receive`] | filters, offloads, write-back | 7.1 | 3.2 |
//! | [`transmit`] | descriptors, packets, write-back | 7.2 | 3.3, 3.4 |
//! | [`segmentation`] | packets that are cut into segments | 7.3 | 3.5 |
//! | [`checksum_offload`] | checksums of packets that are not cut | 7.2.11 | 3.6 |
//! | [`control`] | registers that work alike | 10.2 | 13.4 |
//! | [`statistics`] | counters | 10.2.7 | 13.7 |
//! | [`phy`] | the transceiver, which MDIC leads to | 9 | 13.4.7 |

pub(crate) mod checksum_offload;
pub(crate) mod control;
pub(crate) mod descriptor;
pub(crate) mod filter;
pub(crate) mod phy;
pub(crate) mod receive;
pub(crate) mod segmentation;
pub(crate) mod statistics;
pub(crate) mod transmit;

use crate::device::Progress;
use crate::dma::Dma;
use crate::misbehaviour::{Fault, Faults, Misbehaviour};
use crate::ownership::Ownership;
use crate::registers::RegisterFile;
use crate::settling::Settling;
use crate::violation::Violations;
use crate::wire::Wire;
use phy::Phy;
use receive::{Format, Hashed, Late, RxQueue};
use statistics::Statistics;
use transmit::TxQueue;

/// Frames that one poll moves in each direction.
const POLL_FRAMES: u32 = 256;
/// Polls for which a link that flaps stays down.
const FLAP_POLLS: u32 = 16;

/// Offsets of the registers that are looked at here.
pub(crate) mod at {
    pub(crate) const CTRL: usize = 0x00000;
    pub(crate) const VET: usize = 0x00038;
    pub(crate) const RCTL: usize = 0x00100;
    pub(crate) const TCTL: usize = 0x00400;
    pub(crate) const PBA: usize = 0x01000;
    pub(crate) const PSRCTL: usize = 0x02170;
    pub(crate) const RXCSUM: usize = 0x05000;
    pub(crate) const RFCTL: usize = 0x05008;
    pub(crate) const MTA: usize = 0x05200;
    pub(crate) const RAL: usize = 0x05400;
    pub(crate) const RAH: usize = 0x05404;
    pub(crate) const VFTA: usize = 0x05600;
}

/// Bits of registers that are looked at here.
pub(crate) mod bit {
    pub(crate) const CTRL_LINK_UP: u32 = 1 << 6;
    pub(crate) const CTRL_VLAN: u32 = 1 << 30;
    pub(crate) const MDIC_READY: u32 = 1 << 28;
    pub(crate) const MDIC_INTERRUPT: u32 = 1 << 29;
    pub(crate) const MDIC_ERROR: u32 = 1 << 30;
    pub(crate) const RCTL_ENABLE: u32 = 1 << 1;
    pub(crate) const RCTL_UNICAST_ALL: u32 = 1 << 3;
    pub(crate) const RCTL_MULTICAST_ALL: u32 = 1 << 4;
    pub(crate) const RCTL_LONG: u32 = 1 << 5;
    /// Of LBM: the MAC loops back.
    pub(crate) const RCTL_LOOPBACK: u32 = 1 << 6;
    pub(crate) const RCTL_SPLIT: u32 = 1 << 10;
    pub(crate) const RCTL_MULTICAST_SHIFT: u32 = 12;
    pub(crate) const RCTL_BROADCAST: u32 = 1 << 15;
    pub(crate) const RCTL_SIZE_SHIFT: u32 = 16;
    pub(crate) const RCTL_VLAN_FILTER: u32 = 1 << 18;
    pub(crate) const RCTL_SIZE_EXTENDED: u32 = 1 << 25;
    pub(crate) const RCTL_FLEXIBLE_SHIFT: u32 = 27;
    pub(crate) const RCTL_STRIP_CHECK: u32 = 1 << 26;
    pub(crate) const RFCTL_EXTENDED: u32 = 1 << 15;
    pub(crate) const RXCSUM_IP: u32 = 1 << 8;
    pub(crate) const RXCSUM_L4: u32 = 1 << 9;
    pub(crate) const RXCSUM_HASH: u32 = 1 << 13;
    pub(crate) const ADDRESS_VALID: u32 = 1 << 31;
    pub(crate) const TCTL_ENABLE: u32 = 1 << 1;
    pub(crate) const TCTL_PAD: u32 = 1 << 3;
}

/// What differs from card to card.
#[derive(Debug)]
pub(crate) struct Kind<I: 'static> {
    /// Queues in each direction.
    pub(crate) queues: usize,
    /// What says where a frame goes.
    pub(crate) spread: fn(&RegisterFile<I>, &[u8]) -> Hashed,
    /// The identifier of the transceiver.
    pub(crate) phy: [u16; 2],
    /// KiB of the packet buffer, which PBA divides.
    pub(crate) packet_buffer: u32,
    /// Whether descriptors tell checksums of UDP from others.
    pub(crate) tells_udp: bool,
}

/// The MAC, its transceiver, and what it holds.
#[derive(Debug)]
pub(crate) struct Mac<I: 'static> {
    kind: Kind<I>,
    pub(crate) file: RegisterFile<I>,
    pub(crate) statistics: Statistics,
    pub(crate) phy: Phy,
    pub(crate) rx: Vec<RxQueue>,
    pub(crate) tx: Vec<TxQueue>,
    /// How RCTL and RFCTL have received frames laid down.
    format: Format,
    pub(crate) ownership: Ownership,
    pub(crate) violations: Violations,
    pub(crate) faults: Faults,
    pub(crate) steps: Steps,
    /// What happened, and the interrupts do not know yet.
    happened: Happened,
    /// A segment that is being made.
    segment: Vec<u8>,
    /// Segments of the frame at the end of the wire that were received.
    segments_received: usize,
    /// Frames that come after their descriptors: the device misbehaves.
    late: Vec<Late>,
}

/// What takes its time, and must be waited for.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// CTRL.RST reads 1 for a while.
    pub(crate) reset_reads: u8,
    pub(crate) auto_read: Settling,
    pub(crate) link: Settling,
    link_was: bool,
    flap_polls: u32,
}

/// What interrupts tell of; of queues, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Happened {
    /// The link went up or down.
    pub(crate) link: bool,
    /// An access of the transceiver is done.
    pub(crate) phy: bool,
    /// Frames were received.
    pub(crate) received: u8,
    /// Transmit descriptors were written back.
    pub(crate) transmitted: u8,
    /// All transmit descriptors were used.
    pub(crate) empty: u8,
}

impl<I: Copy + PartialEq> Mac<I> {
    pub(crate) fn new(kind: Kind<I>, file: RegisterFile<I>, misbehaviour: &Misbehaviour) -> Self {
        let phy = Phy::new(kind.phy);
        Self {
            kind,
            file,
            statistics: Statistics::default(),
            phy,
            rx: Vec::new(),
            tx: Vec::new(),
            format: Format::default(),
            ownership: Ownership::default(),
            violations: Violations::default(),
            faults: Faults::new(misbehaviour),
            steps: Steps::default(),
            happened: Happened::default(),
            segment: Vec::with_capacity(1 << 16),
            segments_received: 0,
            late: Vec::new(),
        }
    }

    /// CTRL.RST (82574, 4.2.1; 82540, 14.1): all is as it was at first, but for what the driver did
    /// wrong. The first receive address comes from the EEPROM. The transceiver goes on.
    pub(crate) fn reset(&mut self, [a, b, c, d, e, f]: [u8; 6]) {
        self.file.reset();
        self.statistics = Statistics::default();
        self.rx.clear();
        self.rx.resize_with(self.kind.queues, RxQueue::default);
        self.tx.clear();
        self.tx.resize_with(self.kind.queues, TxQueue::default);
        self.configure_receive();
        self.ownership.clear();
        self.segments_received = 0;
        self.late.clear();
        self.happened = Happened::default();
        self.file.set(at::RAL, u32::from_le_bytes([a, b, c, d]));
        let high = u32::from(u16::from_le_bytes([e, f]));
        self.file.set(at::RAH, high | bit::ADDRESS_VALID);
        self.steps = Steps::default();
        self.steps.auto_read.want(true);
    }

    /// What interrupts do not know yet.
    pub(crate) fn take_happened(&mut self) -> Happened {
        std::mem::take(&mut self.happened)
    }

    /// Whether what is sent comes back: by the transceiver, or by the MAC.
    pub(crate) fn loops(&self) -> bool {
        self.phy.loops() || self.file.has(at::RCTL, bit::RCTL_LOOPBACK)
    }

    /// Moves frames in both directions.
    pub(crate) fn exchange(&mut self, wire: &mut impl Wire, dma: &dyn Dma) -> Progress {
        let mut progress = Progress::default();
        self.write_late(dma);
        if self.steps.link_was {
            progress.transmitted = self.transmit(wire, dma, POLL_FRAMES);
            if self.file.has(at::RCTL, bit::RCTL_ENABLE) {
                self.fetch_receive(dma);
                progress.received = self.receive_from(wire, dma, POLL_FRAMES);
            }
        }
        wire.flush();
        progress
    }

    /// The link is up if there is somebody at the other end, and nothing here is off (82574,
    /// 10.2.2.1; 82540, 13.4.1).
    pub(crate) fn want_link(&mut self, wire_is_up: bool) {
        let is_plugged = wire_is_up && self.steps.flap_polls == 0 || self.phy.loops();
        self.phy.plug(is_plugged);
        let is_set_up = self.file.has(at::CTRL, bit::CTRL_LINK_UP);
        self.steps.link.want(self.phy.has_link() && is_set_up);
    }

    /// What takes time is done.
    pub(crate) fn pass_time(&mut self, wire_is_up: bool) {
        let steps = &mut self.steps;
        steps.reset_reads = 0;
        steps.flap_polls = steps.flap_polls.saturating_sub(1);
        if self.faults.strikes(Fault::LinkFlap) {
            steps.flap_polls = FLAP_POLLS;
        }
        steps.auto_read.settle();
        self.phy.pass_time();
        self.want_link(wire_is_up);
        self.steps.link.settle();
        self.note_link(self.steps.link.is_wanted());
    }

    /// Notes what STATUS says of the link.
    pub(crate) fn note_link(&mut self, is_up: bool) {
        if is_up != self.steps.link_was {
            self.steps.link_was = is_up;
            self.happened.link = true;
        }
    }
}
