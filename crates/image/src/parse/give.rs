//! Another manifest for an image that is built: its code is the same for all of them.
//!
//! The extension note has room for what any manifest asks for. The manifest's own note, which no
//! segment needs to load, moves to the end of the file. Offsets are those of the System V ABI,
//! figures 4-3, 4-8 and 5-1, for 64 bits.

use super::{Image, find_note};
use crate::elf_file::{ElfFile, PROGRAM_HEADER_SIZE};
use crate::error::ImageError;
use crate::manifest::Manifest;
use crate::note::{extension_note, manifest_note};
use abi::extension::{DESCRIPTOR_BYTES, Descriptor, HEADER_SIZE};
use abi::note::{MANIFEST_TYPE, solo5_header};
use std::mem::offset_of;

/// Alignment of a note.
const ALIGNMENT: usize = 4;
/// Offsets in the ELF header.
const E_PHOFF: usize = 32;
const E_SHOFF: usize = 40;
const E_SHENTSIZE: usize = 58;
const E_SHNUM: usize = 60;
/// Offsets in a program header.
const P_OFFSET: usize = 8;
const P_FILESZ: usize = 32;
/// Offsets in a section header.
const SH_FLAGS: usize = 8;
const SH_OFFSET: usize = 24;
const SH_SIZE: usize = 32;

/// Makes the image ask for what `manifest` says, and for nothing that it asked for before.
///
/// # Errors
/// The first thing that is wrong with the image, or it has no room for another manifest
/// ([`ImageError::NoRoom`]); it is then unchanged.
pub fn give_manifest(bytes: &mut Vec<u8>, manifest: &Manifest) -> Result<(), ImageError> {
    let Some(descriptor) = Image::parse(bytes)?.extension else {
        return Err(ImageError::NoRoom);
    };
    let mut given = bytes.clone();
    extend(&mut given, &descriptor, manifest)?;
    move_manifest(&mut given, manifest)?;
    Image::parse(&given)?;
    *bytes = given;
    Ok(())
}

/// Writes what the extension note asks for.
fn extend(
    bytes: &mut [u8],
    descriptor: &Descriptor,
    manifest: &Manifest,
) -> Result<(), ImageError> {
    let headers = ElfFile::parse(bytes)?.program_headers;
    let found = find_note(bytes, &headers, &abi::extension::header())?;
    let found = found.filter(|note| note.descriptor.len() >= DESCRIPTOR_BYTES);
    let offset = found.ok_or(ImageError::NoRoom)?.offset;
    let (before, after) = extension_note(manifest, descriptor.features);
    let host_info = offset + HEADER_SIZE + offset_of!(Descriptor, host_info);
    write(bytes, offset, &before)?;
    write(bytes, host_info + size_of::<u64>(), &after)
}

/// Writes the manifest's note behind all else.
fn move_manifest(bytes: &mut Vec<u8>, manifest: &Manifest) -> Result<(), ImageError> {
    let headers = ElfFile::parse(bytes)?.program_headers;
    let found = find_note(bytes, &headers, &solo5_header(MANIFEST_TYPE, 0))?;
    let found = found.ok_or(ImageError::NoManifest)?;
    let (index, old) = (found.index, found.offset);
    let note = manifest_note(&manifest.entries);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    let place = (bytes.len() as u64).to_le_bytes();
    let size = (note.len() as u64).to_le_bytes();
    bytes.extend_from_slice(&note);

    // It is in no segment, and has no address: p_vaddr and p_paddr follow p_offset, and p_memsz
    // follows p_filesz.
    let header = number(bytes, E_PHOFF, 8)? + index * PROGRAM_HEADER_SIZE;
    write(bytes, header + P_OFFSET, &place)?;
    write(bytes, header + P_OFFSET + 8, &[0; 16])?;
    write(bytes, header + P_FILESZ, &[size, size].concat())?;
    // sh_addr follows sh_flags, and sh_size follows sh_offset. Without sections all is said.
    if let Some(section) = section_at(bytes, old) {
        write(bytes, section + SH_FLAGS, &[0; 16])?;
        write(bytes, section + SH_OFFSET, &[place, size].concat())?;
    }
    Ok(())
}

/// Where the header of the section lies that begins at `offset` of the file, if there is one.
fn section_at(bytes: &[u8], offset: usize) -> Option<usize> {
    let field = |at, size| number(bytes, at, size).ok();
    let (table, size) = (field(E_SHOFF, 8)?, field(E_SHENTSIZE, 2)?);
    let mut sections = (0..field(E_SHNUM, 2)?).map(|index| table + index * size);
    sections.find(|section| {
        field(section + SH_OFFSET, 8) == Some(offset) && field(section + SH_SIZE, 8) != Some(0)
    })
}

/// A little-endian number of `size` bytes, below 2^48: an offset in a file that is in memory.
fn number(bytes: &[u8], at: usize, size: usize) -> Result<usize, ImageError> {
    let end = at.checked_add(size).ok_or(ImageError::Header)?;
    let field = bytes.get(at..end).ok_or(ImageError::Header)?;
    let number = field
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    match number >> 48 {
        0 => Ok(number as usize),
        _ => Err(ImageError::Header),
    }
}

fn write(bytes: &mut [u8], at: usize, value: &[u8]) -> Result<(), ImageError> {
    let end = at.checked_add(value.len()).ok_or(ImageError::NoRoom)?;
    let place = bytes.get_mut(at..end).ok_or(ImageError::NoRoom)?;
    place.copy_from_slice(value);
    Ok(())
}
