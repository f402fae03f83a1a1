//! Memory that an image shares with others than its host's programs: what it asks for, what it is
//! told, and where it is mapped.
//!
//! A region of the kind [`kind::LINK`] is one end of a link (see [`crate::link`]): memory of its
//! own, and the other end's, which it can only read. One of the kind [`kind::SOCKETS`] is the same,
//! and its frames carry sockets. One of the kind [`kind::STATE`] is memory that outlives the image.
//! One of the kind [`kind::QUEUE`] is shared with the process that serves a disk, which the tender
//! starts.
//! Regions are named in the manifest and lie in files that whoever starts the image has made.

use crate::PAGE_SIZE;
use crate::manifest::{NAME_BYTES_MAX, name_of};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most regions of an image. Region `n` has the number E + P + `n` in everything that counts
/// devices: E is the number of entries of the manifest, P that of PCIe devices.
pub const REGIONS_MAX: usize = 16;
/// Largest region, in bytes: what the layout of addresses holds.
pub const REGION_BYTES_MAX: u64 = 256 << 20;
/// Guest-physical and virtual address of the first region: between the rings and the BARs.
pub const BASE: u64 = 7 << 36;

/// Whether a state can have so many bytes.
pub const fn is_state(bytes: u64) -> bool {
    bytes > 0 && bytes <= REGION_BYTES_MAX && bytes.is_multiple_of(PAGE_SIZE)
}

/// Virtual address of the memory that region `n` writes.
pub const fn own_address(n: usize) -> u64 {
    BASE + 2 * n as u64 * REGION_BYTES_MAX
}

/// Virtual address of what the other end of link `n` writes.
pub const fn peer_address(n: usize) -> u64 {
    own_address(n) + REGION_BYTES_MAX
}

const _: () = assert!(crate::ring::BASE + crate::ring::BYTES <= BASE);
const _: () = assert!(own_address(REGIONS_MAX) <= crate::pci::bar_address(0, 0));

/// On `hvt`: the port by which the guest rings the other end of a link, 32 bits, without a way out
/// of the kernel. The value is the number of the region.
pub const BELL_PORT: u16 = 0x521;

/// Kinds of regions.
pub mod kind {
    /// An end of a link.
    pub const LINK: u32 = 1;
    /// Memory that outlives the image.
    pub const STATE: u32 = 2;
    /// An end of a link that carries sockets instead of an Ethernet's frames. To the host it is a
    /// link; one that does not know this kind refuses the image.
    pub const SOCKETS: u32 = 3;
    /// Requests to the disk of this name, several at a time, and their buffers: see
    /// [`crate::ring::lanes`]. The tender makes it.
    pub const QUEUE: u32 = 4;
}

/// A region that an image asks for, as it stands in the extension note behind the PCIe devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Request {
    /// Name, ended by a NUL; no other device of the image has the same, but that of a
    /// [`kind::QUEUE`] is its disk's.
    pub name: [u8; NAME_BYTES_MAX + 1],
    /// One of [`kind`].
    pub kind: u32,
    /// Bytes of what it writes, a multiple of the page size up to [`REGION_BYTES_MAX`].
    pub bytes: u32,
}

impl Request {
    /// The name, if it is one.
    pub fn name(&self) -> Option<&str> {
        name_of(&self.name)
    }

    /// Whether it is an end of a link, whatever that carries.
    pub const fn is_link(&self) -> bool {
        is_link(self.kind)
    }
}

/// Whether regions of this kind are ends of links.
pub const fn is_link(kind: u32) -> bool {
    matches!(kind, kind::LINK | kind::SOCKETS)
}

/// What an image is told of a region that it asked for; all zero if it was not attached.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Info {
    /// Bytes that are mapped at [`own_address`].
    pub own_bytes: u64,
    /// Bytes that are mapped at [`peer_address`], read-only; 0 unless it is a link.
    pub peer_bytes: u64,
    /// On `spt` and `process`: the descriptor by which the other end is rung, or who serves a
    /// disk.
    pub bell: i32,
    /// The MAC address of this end of a link.
    pub mac: [u8; 6],
    /// The MTU of a link in bytes; 0 for [`crate::link::MTU`], or the most that there is if it
    /// carries sockets.
    pub mtu: u16,
    /// Not 0 if the other end of a link may see what comes in here and is not for it: then frames
    /// may be received into the slots from which they are sent.
    pub open: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

impl Info {
    /// No region.
    pub const ZERO: Self = Self {
        own_bytes: 0,
        peer_bytes: 0,
        bell: 0,
        mac: [0; 6],
        mtu: 0,
        open: 0,
        reserved: [0; 3],
    };
}
