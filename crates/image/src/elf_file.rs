//! The ELF part of an image: header and program headers, their places in the file checked.

use crate::error::{ImageError, SegmentError};
use elf::ParseError;
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::segment::{ProgramHeader, SegmentTable};

/// Most program headers. Solo5 and Outboard write about ten; stock tenders know no limit.
pub const PROGRAM_HEADERS_MAX: u16 = 64;

/// Size of an ELF64 header.
const HEADER_SIZE: usize = 64;
/// Size of an ELF64 program header.
pub(crate) const PROGRAM_HEADER_SIZE: usize = 56;
/// Bytes of `e_ident`, the part of the header that is the same for all classes.
const IDENT_SIZE: usize = 16;

/// The program headers of a static x86-64 program, and its entry point.
pub struct ElfFile {
    /// `e_entry`, unchecked.
    pub entry: u64,
    /// All program headers, unchecked.
    pub program_headers: Vec<ProgramHeader>,
}

impl ElfFile {
    /// Reads both; section headers do not matter.
    pub fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        let header = file_header(bytes)?;
        let start = usize::try_from(header.e_phoff).map_err(|_| ImageError::ProgramHeadersCut)?;
        let size = usize::from(header.e_phnum) * PROGRAM_HEADER_SIZE;
        let table = part(bytes, start, size).ok_or(ImageError::ProgramHeadersCut)?;
        let table = SegmentTable::new(LittleEndian, Class::ELF64, table);
        Ok(Self {
            entry: header.e_entry,
            program_headers: table.iter().collect(),
        })
    }
}

fn file_header(bytes: &[u8]) -> Result<FileHeader<LittleEndian>, ImageError> {
    let header = bytes.get(..HEADER_SIZE).ok_or(ImageError::NotElf)?;
    let (ident, tail) = header.split_at(IDENT_SIZE);
    let ident = parse_ident::<LittleEndian>(ident).map_err(|error| match error {
        ParseError::UnsupportedVersion(_) => ImageError::Header,
        _ => ImageError::NotElf,
    })?;
    if ident.1 != Class::ELF64 {
        return Err(ImageError::NotElf);
    }
    let header = FileHeader::parse_tail(ident, tail).map_err(|_| ImageError::NotElf)?;
    if header.e_machine != elf::abi::EM_X86_64 {
        return Err(ImageError::Machine(header.e_machine));
    }
    if header.e_type != elf::abi::ET_EXEC {
        return Err(ImageError::NotStatic(header.e_type));
    }
    if header.version != u32::from(elf::abi::EV_CURRENT)
        || usize::from(header.e_ehsize) != HEADER_SIZE
        || usize::from(header.e_phentsize) != PROGRAM_HEADER_SIZE
    {
        return Err(ImageError::Header);
    }
    if !(1..=PROGRAM_HEADERS_MAX).contains(&header.e_phnum) {
        return Err(ImageError::ProgramHeaderCount(header.e_phnum));
    }
    Ok(header)
}

/// The part of the file that program header `index` describes: its offset and its bytes. Linkers
/// give any offset to what has nothing in the file, also one behind its end.
pub fn file_part<'a>(
    bytes: &'a [u8],
    index: usize,
    header: &ProgramHeader,
) -> Result<(usize, &'a [u8]), ImageError> {
    if header.p_filesz == 0 {
        return Ok((0, &[]));
    }
    let offset = usize::try_from(header.p_offset).ok();
    let size = usize::try_from(header.p_filesz).ok();
    offset
        .zip(size)
        .and_then(|(offset, size)| Some((offset, part(bytes, offset, size)?)))
        .ok_or(ImageError::Segment(index, SegmentError::FileCut))
}

fn part(bytes: &[u8], offset: usize, size: usize) -> Option<&[u8]> {
    bytes.get(offset..offset.checked_add(size)?)
}
