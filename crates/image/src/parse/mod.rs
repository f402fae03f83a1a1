//! The checked reading of an image. Nothing in the file is trusted: the checks are those of Solo5's
//! tenders (`tenders/common/elf.c`), also for segments that those skip, and never panic.

mod give;

pub use give::give_manifest;

use crate::elf_file::{ElfFile, file_part};
use crate::error::ImageError;
use crate::requests::{self, Requests};
use crate::segment::{self, Segment};
use abi::extension::{self, Descriptor, HostInfo};
use abi::manifest::{self, Entry, kind};
use abi::note::{ABI_TARGET_OFFSET, ABI_TYPE, ABI_VERSION, AbiDescriptor, MANIFEST_PAD};
use abi::note::{MANIFEST_TYPE, Target, solo5_header};
use abi::pci::{CLASS_NETWORK, Request};
use abi::region;
use elf::abi::PT_NOTE;
use elf::segment::ProgramHeader;
use zerocopy::FromBytes;

/// What an image says about itself, all of it checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Guest address to begin at, in an executable segment.
    pub entry: u64,
    /// The host that it was built for.
    pub target: Target,
    /// Guest address of the word in its ABI note that names that host, if a segment loads it. By
    /// changing it there, an image that understands other hosts is started on one of those.
    pub target_address: Option<u64>,
    /// Version of the ABI that it speaks with that host.
    pub abi_version: u32,
    /// What to load, in ascending order; no two share a page. Never empty.
    pub segments: Vec<Segment>,
    /// The manifest, its reserved first entry included.
    pub entries: Vec<Entry>,
    /// The extension note, if it is of the version that this build knows. `host_info` is then the
    /// address of a [`HostInfo`] inside one writable segment.
    pub extension: Option<Descriptor>,
    /// The version of an extension note that this build does not know.
    pub other_version: Option<u32>,
    /// The PCIe devices that the extension note asks for. No name is that of another device, and
    /// the devices of both kinds are at most [`abi::pci::INDICES_MAX`].
    pub pci: Vec<Request>,
    /// The regions that the extension note asks for, of known kinds and sizes. No name is that of
    /// another device.
    pub regions: Vec<region::Request>,
    /// The DMA memory that it asks for in bytes, a multiple of [`abi::pci::DMA_GRANULE`].
    pub dma_bytes: u64,
    /// One past the last page of the last segment.
    pub end: u64,
}

impl Image {
    /// Network ports with index and name, in the order in which rules count them: the networks of
    /// the manifest, then PCIe devices of that class, then links.
    pub fn networks(&self) -> impl Iterator<Item = (usize, &str)> {
        let entries = self.entries.iter().enumerate();
        let networks = entries.filter(|(_, entry)| entry.kind == kind::NET_BASIC);
        let networks = networks.filter_map(|(index, entry)| Some((index, entry.name()?)));
        let requests = (self.entries.len()..).zip(&self.pci);
        let nics = requests.filter(|(_, request)| request.class == CLASS_NETWORK);
        let nics = nics.filter_map(|(index, request)| Some((index, request.name()?)));
        let regions = (self.entries.len() + self.pci.len()..).zip(&self.regions);
        let links = regions.filter(|(_, request)| request.is_link());
        let links = links.filter_map(|(index, request)| Some((index, request.name()?)));
        networks.chain(nics).chain(links)
    }

    /// Reads and checks an image.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        let file = ElfFile::parse(bytes)?;
        let segments = segment::parse(bytes, &file.program_headers)?;
        let end = segments.last().ok_or(ImageError::NoSegment)?.pages_end();
        if !segments
            .iter()
            .any(|s| s.rights.execute && s.contains(file.entry, 1))
        {
            return Err(ImageError::Entry(file.entry));
        }
        let (abi, note) = abi_note(bytes, &file.program_headers)?;
        let entries = manifest_entries(bytes, &file.program_headers)?;
        let found = extension(bytes, &file.program_headers, &segments)?;
        let (extension, other_version, requests) = match found {
            Found::Known(descriptor, rest) => {
                let requests = requests::parse(&descriptor, rest, &entries)?;
                (Some(descriptor), None, requests)
            }
            Found::Other(version) => (None, Some(version), Requests::default()),
            Found::None => (None, None, Requests::default()),
        };
        Ok(Self {
            entry: file.entry,
            target: Target::from_number(abi.target).ok_or(ImageError::Target(abi.target))?,
            target_address: loaded_at(&segments, note + ABI_TARGET_OFFSET),
            abi_version: abi.version,
            entries,
            dma_bytes: extension.map_or(0, |descriptor| descriptor.dma_bytes),
            extension,
            other_version,
            pci: requests.pci,
            regions: requests.regions,
            segments,
            end,
        })
    }
}

/// Makes the image one for another host, by the one word in which the two differ. The image must
/// understand that host: Outboard's do.
///
/// # Errors
/// The first thing that is wrong with the image, which is then unchanged.
pub fn retarget(bytes: &mut [u8], target: Target) -> Result<(), ImageError> {
    Image::parse(bytes)?;
    let file = ElfFile::parse(bytes)?;
    let (_, offset) = abi_note(bytes, &file.program_headers)?;
    let word = bytes
        .get_mut(offset + ABI_TARGET_OFFSET..)
        .and_then(|rest| rest.first_chunk_mut::<4>())
        .ok_or(ImageError::NoAbi)?;
    *word = (target as u32).to_le_bytes();
    Ok(())
}

/// A note of an image.
struct Note<'a> {
    /// Index of its program header.
    index: usize,
    /// Where it begins in the file.
    offset: usize,
    /// What follows the name.
    descriptor: &'a [u8],
}

/// The first note that is the first of its `PT_NOTE` and begins like `header`, but for the size of
/// the descriptor. Tenders look at no others.
fn find_note<'a>(
    bytes: &'a [u8],
    headers: &[ProgramHeader],
    header: &[u8],
) -> Result<Option<Note<'a>>, ImageError> {
    for (index, program_header) in headers.iter().enumerate() {
        if program_header.p_type != PT_NOTE {
            continue;
        }
        let (offset, note) = file_part(bytes, index, program_header)?;
        let Some((found, rest)) = note.split_at_checked(header.len()) else {
            continue;
        };
        // namesz u32, descsz u32, type u32, name
        if found[..4] != header[..4] || found[8..] != header[8..] {
            continue;
        }
        let size = u32::from_le_bytes([found[4], found[5], found[6], found[7]]) as usize;
        let descriptor = rest.get(..size).ok_or(ImageError::NoteCut(index))?;
        return Ok(Some(Note {
            index,
            offset,
            descriptor,
        }));
    }
    Ok(None)
}

/// The guest address of the word at `offset` of the file, if one segment loads all of it.
fn loaded_at(segments: &[Segment], offset: usize) -> Option<u64> {
    let end = offset.checked_add(size_of::<u32>())?;
    let segment = segments.iter().find(|segment| {
        segment.file_offset <= offset && end - segment.file_offset <= segment.file_size
    })?;
    Some(segment.address + (offset - segment.file_offset) as u64)
}

/// The ABI note, and where it begins in the file. Its target is unchecked.
fn abi_note(bytes: &[u8], headers: &[ProgramHeader]) -> Result<(AbiDescriptor, usize), ImageError> {
    let note = find_note(bytes, headers, &solo5_header(ABI_TYPE, 0))?.ok_or(ImageError::NoAbi)?;
    let (descriptor, _) = AbiDescriptor::read_from_prefix(note.descriptor)
        .map_err(|_| ImageError::NoteCut(note.index))?;
    if descriptor.version != ABI_VERSION {
        return Err(ImageError::AbiVersion(descriptor.version));
    }
    Ok((descriptor, note.offset))
}

fn manifest_entries(bytes: &[u8], headers: &[ProgramHeader]) -> Result<Vec<Entry>, ImageError> {
    let note = find_note(bytes, headers, &solo5_header(MANIFEST_TYPE, 0))?
        .ok_or(ImageError::NoManifest)?;
    let manifest = note
        .descriptor
        .get(MANIFEST_PAD..)
        .ok_or(ImageError::NoteCut(note.index))?;
    Ok(manifest::parse(manifest)?.collect())
}

/// The extension's note.
enum Found<'a> {
    /// Its descriptor, and what follows that.
    Known(Descriptor, &'a [u8]),
    /// It is of this version, which is not known here.
    Other(u32),
    None,
}

/// The extension.
fn extension<'a>(
    bytes: &'a [u8],
    headers: &[ProgramHeader],
    segments: &[Segment],
) -> Result<Found<'a>, ImageError> {
    let Some(note) = find_note(bytes, headers, &extension::header())? else {
        return Ok(Found::None);
    };
    // Of another version nothing but the version is known, not even the size.
    let (version, _) =
        u32::read_from_prefix(note.descriptor).map_err(|_| ImageError::NoteCut(note.index))?;
    if version != extension::VERSION {
        return Ok(Found::Other(version));
    }
    let (descriptor, rest) = Descriptor::read_from_prefix(note.descriptor)
        .map_err(|_| ImageError::NoteCut(note.index))?;
    let inside = segments.iter().any(|segment| {
        segment.rights.write && segment.contains(descriptor.host_info, size_of::<HostInfo>() as u64)
    });
    if !inside {
        return Err(ImageError::HostInfo(descriptor.host_info));
    }
    Ok(Found::Known(descriptor, rest))
}

#[cfg(test)]
mod tests;
