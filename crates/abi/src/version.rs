//! The one rule for versions of what guest and host share.
//!
//! [`VERSION`] is the version of everything that Outboard's images and Outboard's programs share
//! beyond Solo5's ABI. It goes up with each change after which one side would misread the other:
//!
//! - a structure below gets, loses or moves a field, or changes its size;
//! - an offset, an address or a limit below changes;
//! - a bit or a number that is in use gets another meaning.
//!
//! It stays when a bit that was free, a counter behind the last one, or a field in space that was
//! reserved and zero is given a meaning, and the side that does not know it loses nothing.
//!
//! | what | defined in | how it reaches the other side |
//! |---|---|---|
//! | the extension's note | [`crate::extension`], [`crate::pci`], [`crate::region`] | the image |
//! | `HostInfo` | [`crate::extension`], [`crate::pci`], [`crate::region`] | in the image's data |
//! | rings | [`crate::ring`] | memory at a fixed address |
//! | the shared file | [`crate::share`], [`crate::capture`], [`crate::inquiry`] | a mapped file |
//!
//! Both sides refuse, and neither guesses:
//!
//! - **The host** (tender, monitor and commands) reads the version in the image's note. An image of
//!   another version has no extension for it: it runs as under a stock tender, without PCIe
//!   devices, counters, rules and captures, and `--host` cannot change its host. Who attaches a
//!   PCIe device to it, or asks for the rest, is told to build it again.
//! - **The guest** reads the version in `HostInfo`. Where it is another, or the area is zero, the
//!   guest uses what Solo5 offers and touches neither rings nor shared file.
//!
//! Two contracts have versions of their own, since their other side is not ours to update:
//! Solo5's ([`crate::note::ABI_VERSION`], [`crate::manifest::VERSION`]) never change. The page of
//! doorbells ([`crate::doorbell`]) is shared with a process that is a device: a page of another
//! layout is a region of another subtype, which a tender that does not know it leaves unmapped;
//! the guest then sends messages. A link ([`crate::link`]) is shared by two images, which may be of
//! different versions: its layout is named by [`crate::link::MAGIC`], and an end that finds another
//! one there finds nobody.

use crate::doorbell;
use crate::extension::{Descriptor, HostInfo};
use crate::flows;
use crate::inquiry;
use crate::link;
use crate::pci::{self, Dma, Info, Request, Structure, Virtio};
use crate::region;
use crate::ring;
use crate::share::{
    self, CaptureHead, CaptureRecord, Control, Exits, Report, RuleCounter, RulesStatus,
};
use crate::sockets;
use crate::spt;
use core::mem::offset_of;

/// The version of everything that this module lists.
pub const VERSION: u32 = 5;

/// The layouts of version 5. Who changes a number here has changed the contract: [`VERSION`] goes
/// up, and with it the numbers.
const _: () = {
    assert!(VERSION == 5);
    // The extension.
    assert!(size_of::<Descriptor>() == 32);
    assert!(offset_of!(Descriptor, host_info) == 8 && offset_of!(Descriptor, pci) == 24);
    assert!(offset_of!(Descriptor, regions) == 28 && offset_of!(HostInfo, regions) == 3944);
    assert!(size_of::<HostInfo>() == 4456 && offset_of!(HostInfo, seed) == 3912);
    assert!(offset_of!(HostInfo, version) == 4 && offset_of!(HostInfo, share) == 16);
    assert!(offset_of!(HostInfo, devices) == 32 && offset_of!(HostInfo, rings) == 288);
    assert!(offset_of!(HostInfo, dma) == 304 && offset_of!(HostInfo, pci) == 328);
    // PCIe devices and DMA memory.
    assert!(size_of::<Request>() == 80 && offset_of!(Request, class) == 68);
    assert!(offset_of!(Request, vendor) == 72 && offset_of!(Request, flags) == 76);
    assert!(size_of::<Info>() == 112 && offset_of!(Info, flags) == 48);
    assert!(offset_of!(Info, virtio) == 56 && size_of::<Virtio>() == 56);
    assert!(size_of::<Structure>() == 12 && offset_of!(Virtio, notify_multiplier) == 48);
    assert!(size_of::<Dma>() == 24 && offset_of!(Dma, iova) == 8);
    assert!(pci::bar_address(0, 0) == 1 << 39 && pci::bar_address(1, 2) == 0x84_8000_0000);
    assert!(pci::DMA_BASE == 1 << 40 && pci::DEVICES_MAX == 32);
    // Regions.
    assert!(size_of::<region::Request>() == 76 && offset_of!(region::Request, bytes) == 72);
    assert!(size_of::<region::Info>() == 32 && offset_of!(region::Info, mac) == 20);
    assert!(region::own_address(1) == 0x70_2000_0000 && region::REGIONS_MAX == 16);
    assert!(region::peer_address(0) == 0x70_1000_0000 && region::BELL_PORT == 0x521);
    // Rings.
    assert!(ring::BASE == 0x60_0000_0000 && ring::BYTES == 2 << 20 && ring::ENTRIES == 256);
    assert!(ring::first_word(0) == 512 && ring::first_word(1) == 512 + 16 + 4 * 256);
    assert!(ring::word::POSTED == 0 && ring::word::DONE == 8 && ring::word::ENTRIES == 16);
    assert!(ring::word::ADDRESS == 0 && ring::word::LENGTH == 1);
    assert!(ring::word::OFFSET == 2 && ring::word::RESULT == 3);
    assert!(ring::KICK_PORT == 0x520);
    assert!(ring::word::GONE == 16 && ring::lanes::LANES == 8);
    assert!(ring::lanes::DATA_OFFSET == 2 << 20);
    // Disks.
    assert!(spt::TRANSFER_BYTES == 64 << 10 && spt::DISCARD_BYTES == 1 << 20);
    // The shared file.
    assert!(share::BASE == 1 << 38 && share::COUNTERS_OFFSET == 0x1000);
    assert!(share::RULES_STATUS_OFFSET == 0x1_0000 && share::RULE_COUNTERS_OFFSET == 0x1_1000);
    assert!(share::CAPTURE_OFFSET == 0x21_1000 && share::CAPTURE_RING_OFFSET == 0x21_2000);
    assert!(share::CONTROL_OFFSET == 0xa1_2000 && share::RULES_OFFSET == 0xa1_3000);
    assert!(share::MTUS_OFFSET == 0xa1_2400 && share::LEAVE_OFFSET == 0xa1_2200);
    assert!(share::BYTES == 0x2a1_3000 && share::EXITS_OFFSET == 0xfc0);
    assert!(share::CORE_OFFSET == 0xfb8 && share::REVALIDATE_OFFSET == 0xa1_2208);
    assert!(share::REVALIDATED_OFFSET == 0x1_0400);
    assert!(size_of::<RulesStatus>() == 48 && size_of::<RuleCounter>() == 16);
    assert!(size_of::<Control>() == 48 && size_of::<Exits>() == 16);
    assert!(size_of::<Report>() == 432 && offset_of!(Report, registers) == 40);
    assert!(share::NET_COUNTERS == 5120 && share::NET_COUNTERS_MAX == 512);
    // Questions, and what is answered about sockets and flows.
    assert!(inquiry::ASK_OFFSET == 0xa1_2800 && inquiry::ANSWER_OFFSET == 0xc000);
    assert!(size_of::<inquiry::Ask>() == 24 && size_of::<inquiry::Answer>() == 64);
    assert!(inquiry::DETAILS_OFFSET == 0xa1_2840 && size_of::<sockets::Record>() == 96);
    assert!(size_of::<flows::Name>() == 40 && size_of::<flows::Record>() == 120);
    assert!(offset_of!(flows::Record, mark) == 76 && offset_of!(flows::Record, left) == 112);
    // Captured frames.
    assert!(size_of::<CaptureHead>() == 16 && size_of::<CaptureRecord>() == 32);
    assert!(offset_of!(CaptureRecord, port) == 16 && offset_of!(CaptureRecord, fate) == 20);
};

/// The layout of an end of a link with this magic number.
const _: () = {
    assert!(link::MAGIC == u64::from_le_bytes(*b"OBLINK\x01\0") && link::ENTRIES == 256);
    assert!(link::HEAD_BYTES == 12288 && link::SLOT_BYTES == 65728);
    assert!(link::word::STATE == 1 && link::word::SEEN == 2 && link::word::MAC == 3);
    assert!(link::word::LEFT == 4);
    assert!(link::word::SENT == 8 && link::word::TAKEN == 16 && link::word::WAITING == 24);
    assert!(link::word::ENTRIES == 64 && link::HEAD_WORDS == 64 + 4 * 256);
};

/// The layout of the page of doorbells with this subtype.
const _: () = {
    assert!(doorbell::REGION_SUBTYPE == u32::from_le_bytes(*b"OBDB"));
    assert!(doorbell::PAGE_BYTES == 4096 && doorbell::ASLEEP_WORD == 1);
    assert!(doorbell::offset_word(0) == 2 && doorbell::value_word(0) == 3);
};
