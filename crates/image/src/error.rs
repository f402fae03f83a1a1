//! Why a file is not an image.

use abi::manifest::{Malformed, NAME_BYTES_MAX};
use abi::note::{ABI_VERSION, Target};
use abi::pci::{BARS, DMA_BYTES_MAX, DMA_GRANULE};
use abi::{IMAGE_BASE, PAGE_SIZE};
use std::fmt;

/// What to do about a file that no build of Outboard or Solo5 made: it does not say whose it is.
const REBUILD: &str = "build it anew";
/// The same where only Outboard has what is wrong.
const REBUILD_OURS: &str = "rebuild it with `outboard build`";

/// Why a file is not an image. Segments and notes are named by the index of their program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// It does not begin like a 64-bit little-endian ELF file.
    NotElf,
    /// It is an ELF file that is not a static program (`e_type` is another than `ET_EXEC`).
    NotStatic(u16),
    /// It is for another machine (`e_machine`).
    Machine(u16),
    /// The ELF header gives sizes or a version that no such file has.
    Header,
    /// The number of program headers is 0 or over [`crate::PROGRAM_HEADERS_MAX`].
    ProgramHeaderCount(u16),
    /// The file ends before its program headers do.
    ProgramHeadersCut,
    /// This program header cannot be loaded.
    Segment(usize, SegmentError),
    /// There is nothing to load.
    NoSegment,
    /// The entry point is not in an executable segment.
    Entry(u64),
    /// No note says which host the image is for.
    NoAbi,
    /// No note lists the image's devices.
    NoManifest,
    /// The descriptor of this program header's note ends outside of it, or is too short.
    NoteCut(usize),
    /// The image is for a host that Outboard does not know (`abi_target`).
    Target(u32),
    /// The image speaks another version of the ABI.
    AbiVersion(u32),
    /// The manifest is malformed.
    Manifest(Malformed),
    /// The extension note's `host_info` area is not inside one writable segment.
    HostInfo(u64),
    /// What the extension note asks for is malformed.
    Request(RequestError),
    /// The image has no extension note with room for what another manifest asks for.
    NoRoom,
}

/// Why the PCIe devices, the DMA memory or the regions of an image are refused. Devices and regions
/// are named by their number among their like, from 0: what is wrong may be the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// So many PCIe devices are more than there may be, beside those of the manifest.
    Count(u32),
    /// The note ends before its PCIe devices and regions do.
    Truncated,
    /// The name is empty, not ended, or has a character other than A-Z, a-z, 0-9.
    Name(usize),
    /// Another device has the name of this one.
    Duplicate(usize),
    /// It asks for a BAR that no device has.
    Bars(usize),
    /// It has an unknown flag.
    Flags(usize),
    /// So many bytes of DMA memory are over [`abi::pci::DMA_BYTES_MAX`], or no multiple of
    /// [`abi::pci::DMA_GRANULE`].
    DmaBytes(u64),
    /// So many regions are more than there may be, beside the other devices.
    RegionCount(u32),
    /// The name of a region is none.
    RegionName(usize),
    /// Another device has the name of this region.
    RegionDuplicate(usize),
    /// The region is the queue of a disk that the manifest does not have.
    RegionDisk(usize),
    /// The region is of no known kind.
    RegionKind(usize),
    /// A region of this kind has no such size.
    RegionBytes(usize),
}

/// Why a program header cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// The file ends before this part of it does.
    FileCut,
    /// More in the file than in memory.
    FileOverMemory,
    /// The alignment is no power of two of at least a page.
    Alignment(u64),
    /// Begins below [`IMAGE_BASE`].
    BelowBase(u64),
    /// Ends outside the address space.
    AddressOverflow,
    /// Does not begin behind the pages of the segment before it.
    Order,
    /// Both writable and executable.
    WriteAndExecute,
}

impl From<RequestError> for ImageError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}

impl From<Malformed> for ImageError {
    fn from(malformed: Malformed) -> Self {
        Self::Manifest(malformed)
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf => write!(
                f,
                "not a 64-bit little-endian ELF file; name an image, such as `outboard build` makes"
            ),
            Self::NotStatic(kind) => write!(
                f,
                "a linked program or library of ELF type {kind}, not a static image (type 2); \
                 link it by `image::appliance()`, or name another file"
            ),
            Self::Machine(machine) => write!(
                f,
                "built for ELF machine {machine}, not x86-64 (62); rebuild it for x86-64"
            ),
            Self::Header => write!(
                f,
                "the ELF header has a version or sizes that no such file has; {REBUILD}"
            ),
            Self::ProgramHeaderCount(count) => write!(
                f,
                "{count} program headers, not 1 to {}; {REBUILD}",
                crate::PROGRAM_HEADERS_MAX
            ),
            Self::ProgramHeadersCut => {
                write!(f, "the file ends inside its program headers; {REBUILD}")
            }
            Self::Target(target) => write!(
                f,
                "built for the unknown host {target} of Solo5; rebuild it for {} or {}",
                Target::Spt.name(),
                Target::Hvt.name()
            ),
            Self::AbiVersion(version) => write!(
                f,
                "speaks version {version} of Solo5's ABI, not {ABI_VERSION}; \
                 rebuild it with Solo5 v0.12 or Outboard"
            ),
            Self::Segment(i, cause) => write!(f, "segment {i} {cause}; {REBUILD}"),
            Self::NoSegment => write!(f, "nothing to load; {REBUILD}"),
            Self::Entry(address) => write!(
                f,
                "the entry point {address:#x} is not in an executable segment; {REBUILD}"
            ),
            Self::NoAbi => write!(f, "no note says which host it is for; {REBUILD}"),
            Self::NoManifest => write!(f, "no note lists its devices; {REBUILD}"),
            Self::NoteCut(i) => write!(f, "the note of segment {i} is cut short; {REBUILD}"),
            Self::Manifest(cause) => write!(f, "{cause}; {REBUILD}"),
            Self::Request(cause) => write!(f, "{cause}; {REBUILD_OURS}"),
            Self::HostInfo(address) => write!(
                f,
                "the host_info area at {address:#x} is not in a writable segment; {REBUILD_OURS}"
            ),
            Self::NoRoom => write!(
                f,
                "there is no room for what another manifest asks for; {REBUILD_OURS}"
            ),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(n) => write!(f, "{n} PCI devices are more than fit"),
            Self::Truncated => write!(f, "the list of PCI devices and regions is cut short"),
            Self::Name(i) => write!(
                f,
                "PCI device {i} has a name that is not 1 to {NAME_BYTES_MAX} letters and digits"
            ),
            Self::Duplicate(i) => write!(f, "PCI device {i} has the name of another device"),
            Self::Bars(i) => write!(f, "PCI device {i} asks for a BAR over {}", BARS - 1),
            Self::Flags(i) => write!(f, "PCI device {i} has unknown flags"),
            Self::RegionCount(n) => write!(f, "{n} links and states are more than fit"),
            Self::RegionName(i) => write!(
                f,
                "region {i} has a name that is not 1 to {NAME_BYTES_MAX} letters and digits"
            ),
            Self::RegionDuplicate(i) => write!(f, "region {i} has the name of another device"),
            Self::RegionDisk(i) => write!(f, "region {i} is the queue of a disk that there is not"),
            Self::RegionKind(i) => write!(f, "region {i} is neither a link nor a state"),
            Self::RegionBytes(i) => write!(f, "region {i} has a size that its kind cannot have"),
            Self::DmaBytes(bytes) => write!(
                f,
                "{bytes} bytes of DMA memory are not a multiple of {DMA_GRANULE} \
                 up to {DMA_BYTES_MAX}"
            ),
        }
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileCut => write!(f, "reaches over the end of the file"),
            Self::FileOverMemory => write!(f, "is larger in the file than in memory"),
            Self::Alignment(alignment) => write!(
                f,
                "is aligned to {alignment}, not to a power of two from {PAGE_SIZE}"
            ),
            Self::BelowBase(address) => {
                write!(f, "begins at {address:#x}, below {IMAGE_BASE:#x}")
            }
            Self::AddressOverflow => write!(f, "ends outside the address space"),
            Self::Order => write!(f, "does not begin behind the segment before it"),
            Self::WriteAndExecute => write!(f, "is both writable and executable"),
        }
    }
}

impl std::error::Error for ImageError {}
