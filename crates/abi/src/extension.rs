//! Outboard's extension: a note that stock tenders skip, and the area in the image's data that
//! Outboard's tender fills in. Under a stock tender the area stays zero and the runtime falls back
//! to what Solo5 offers.

use crate::manifest::ENTRIES_MAX;
use crate::pci::{self, Dma};
use crate::region;

pub use crate::version::VERSION;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Name of the note, as it lies in the file.
pub const NAME: [u8; 12] = *b"Outboard\0\0\0\0";
/// `namesz` of the note: the name and its NUL.
pub const NAME_SIZE: u32 = 9;
/// Type of the note, "OBX1".
pub const TYPE: u32 = 0x3158_424f;
/// Bytes of the note in front of its descriptor.
pub const HEADER_SIZE: usize = 24;

/// What an image understands, bits of [`Descriptor::features`].
pub mod feature {
    /// Frames carry a virtio-net header where [`super::device_flag::VIRTIO_NET_HEADER`] says so.
    pub const VIRTIO_NET_HEADER: u32 = 1 << 0;
    /// Counters are kept in the shared file (see [`crate::share`]).
    pub const COUNTERS: u32 = 1 << 1;
    /// Rules are taken from the shared file, at the start and later.
    pub const RULES: u32 = 1 << 2;
    /// Frames are captured into the shared file.
    pub const CAPTURE: u32 = 1 << 3;
    /// On `hvt`, frames and sectors move through rings where
    /// [`super::device_flag::RING`] says so.
    pub const RINGS: u32 = 1 << 4;
    /// The turns of the image are counted: see [`crate::share::PROGRESS`].
    pub const PROGRESS: u32 = 1 << 5;
    /// The image ends at the end of its turn when the host wants it to leave: see
    /// [`crate::share::LEAVE_OFFSET`].
    pub const LEAVE: u32 = 1 << 6;
    /// Disks are flushed, discarded and moved in large pieces where [`super::device_flag::DISK`]
    /// says so, and are not written where [`super::device_flag::READ_ONLY`] does.
    pub const DISKS: u32 = 1 << 7;
    /// What the runtime does for every appliance, without its help.
    pub const RUNTIME: u32 =
        VIRTIO_NET_HEADER | COUNTERS | CAPTURE | RINGS | PROGRESS | LEAVE | DISKS;
    /// All that this version has.
    pub const ALL: u32 = RUNTIME | RULES;
}

/// How the descriptor of the note begins. As many [`pci::Request`]s follow as [`Self::pci`] says,
/// and then as many [`region::Request`]s as [`Self::regions`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Descriptor {
    /// [`VERSION`], unchecked.
    pub version: u32,
    /// Bits of [`feature`].
    pub features: u32,
    /// Guest address of a [`HostInfo`] inside a writable segment, unchecked.
    pub host_info: u64,
    /// DMA memory that the image asks for, in bytes; unchecked.
    pub dma_bytes: u64,
    /// Number of PCIe devices that it asks for, unchecked.
    pub pci: u32,
    /// Number of regions that it asks for, unchecked.
    pub regions: u32,
}

/// Bytes of the note's descriptor: room for as many requests as an image may have, so that another
/// manifest's fit into the same image. What is behind the requests is zero, and nobody reads it.
pub const DESCRIPTOR_BYTES: usize = size_of::<Descriptor>()
    + pci::DEVICES_MAX * size_of::<pci::Request>()
    + region::REGIONS_MAX * size_of::<region::Request>();

/// Header and name of the note.
pub fn header() -> [u8; HEADER_SIZE] {
    let mut bytes = [0; HEADER_SIZE];
    bytes[0..4].copy_from_slice(&NAME_SIZE.to_le_bytes());
    bytes[4..8].copy_from_slice(&(DESCRIPTOR_BYTES as u32).to_le_bytes());
    bytes[8..12].copy_from_slice(&TYPE.to_le_bytes());
    bytes[12..24].copy_from_slice(&NAME);
    bytes
}

/// Value of [`HostInfo::magic`] once a tender has filled it in: "OBHI".
pub const HOST_INFO_MAGIC: u32 = 0x4948_424f;

/// What Outboard's tender tells the image beyond Solo5's boot information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HostInfo {
    /// [`HOST_INFO_MAGIC`], or 0 under a stock tender.
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// Bits of [`host_flag`].
    pub flags: u32,
    /// On `spt` and `process`, if there are links beside networks: the descriptor that is waited
    /// on for all but the networks. Otherwise 0.
    pub quiet_fd: i32,
    /// Guest address of the shared file, or 0 if there is none; see [`crate::share`].
    pub share: u64,
    /// Bytes of it that are mapped: those of a smaller file end within a region.
    pub share_bytes: u64,
    /// Bits of [`device_flag`] for each entry of the manifest.
    pub devices: [u32; ENTRIES_MAX],
    /// On `hvt`: guest address of the rings, or 0 if there are none.
    pub rings: u64,
    /// Their size in bytes.
    pub rings_bytes: u64,
    /// The DMA memory.
    pub dma: Dma,
    /// The PCIe devices that the image asked for, in its order.
    pub pci: [pci::Info; pci::DEVICES_MAX],
    /// Random bytes, new at each start, from which the image makes its secrets.
    pub seed: [u8; 32],
    /// The regions that the image asked for, in its order.
    pub regions: [region::Info; region::REGIONS_MAX],
}

impl HostInfo {
    /// The state in which an image carries it, and in which a stock tender leaves it.
    pub const ZERO: Self = Self {
        magic: 0,
        version: 0,
        flags: 0,
        quiet_fd: 0,
        share: 0,
        share_bytes: 0,
        devices: [0; ENTRIES_MAX],
        rings: 0,
        rings_bytes: 0,
        dma: Dma::ZERO,
        pci: [pci::Info::ZERO; pci::DEVICES_MAX],
        seed: [0; 32],
        regions: [region::Info::ZERO; region::REGIONS_MAX],
    };
}

/// `epoll_event.data` of the event by which the host says that [`crate::share::Control`] has
/// changed. It is edge-triggered: nobody reads what woke the guest up.
pub const EPOLL_SHARE: u64 = 0xffff_fffd;

/// This plus the index of a PCIe device is the `epoll_event.data` of the event by which the guest
/// learns that the process that was the device has gone.
pub const EPOLL_GONE: u64 = 0xffff_ff00;

/// Bits of [`HostInfo::flags`].
pub mod host_flag {
    /// The host is `process`: no jail.
    pub const PROCESS: u32 = 1 << 0;
    /// The guest polls its own NICs without ever sleeping.
    pub const SLEEPLESS: u32 = 1 << 1;
}

/// Bits of [`HostInfo::devices`].
pub mod device_flag {
    /// Each frame read or written begins with a 12-byte `virtio_net_hdr_v1`; checksums may be
    /// deferred and TCP left unsegmented in both directions (virtio 1.2, 5.1.6).
    pub const VIRTIO_NET_HEADER: u32 = 1 << 0;
    /// It is reached through its ring, on `hvt`.
    pub const RING: u32 = 1 << 1;
    /// With [`VIRTIO_NET_HEADER`]: UDP may be left unsegmented in frames that the guest writes
    /// (`VIRTIO_NET_HDR_GSO_UDP_L4`). It gets none.
    pub const UDP_SEGMENTATION: u32 = 1 << 2;
    /// A disk that can be flushed and discarded, and on `spt` and `process` moves up to
    /// [`crate::spt::TRANSFER_BYTES`] at once.
    pub const DISK: u32 = 1 << 3;
    /// A disk that is not to be written.
    pub const READ_ONLY: u32 = 1 << 4;
    /// A disk whose bytes pass no cache of the host's: buffers begin at a multiple of
    /// [`crate::PAGE_SIZE`].
    pub const DIRECT: u32 = 1 << 5;
}
