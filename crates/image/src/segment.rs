//! The loadable segments of an image.

use crate::elf_file::file_part;
use crate::error::{ImageError, SegmentError};
use abi::{IMAGE_BASE, PAGE_SIZE};
use elf::abi::{PF_R, PF_W, PF_X, PT_LOAD};
use elf::segment::ProgramHeader;

/// A part of the image in guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Guest address of the first byte; need not be a multiple of a page, although the rights hold
    /// for whole pages.
    pub address: u64,
    /// Bytes in memory; those that are not in the file are zero.
    pub memory_size: u64,
    /// Offset of the first byte in the file.
    pub file_offset: usize,
    /// Bytes in the file, at most [`Segment::memory_size`]; may be 0.
    pub file_size: usize,
    /// What the guest may do with its pages.
    pub rights: Rights,
}

/// What a guest may do with the pages of a segment. Never both `write` and `execute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub struct Rights {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
}

impl Segment {
    /// The segment's part of the file. `bytes` are those that the image was parsed from.
    pub fn file<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        // Checked by `parse`; `get` keeps this total if other bytes are given.
        bytes
            .get(self.file_offset..self.file_offset + self.file_size)
            .unwrap_or_default()
    }

    /// One past the segment's last byte in memory.
    pub fn end(&self) -> u64 {
        self.address + self.memory_size
    }

    /// First address of the segment's first page.
    pub fn first_page(&self) -> u64 {
        self.address & !(PAGE_SIZE - 1)
    }

    /// One past the segment's last page.
    pub fn pages_end(&self) -> u64 {
        self.end().next_multiple_of(PAGE_SIZE)
    }

    /// Whether these addresses are all in the segment.
    pub fn contains(&self, address: u64, size: u64) -> bool {
        address >= self.address
            && address
                .checked_add(size)
                .is_some_and(|end| end <= self.end())
    }
}

/// The loadable segments in ascending order, none sharing a page with another; those that are empty
/// in memory are left out.
pub(crate) fn parse(bytes: &[u8], headers: &[ProgramHeader]) -> Result<Vec<Segment>, ImageError> {
    let mut segments = Vec::new();
    let mut free_from = IMAGE_BASE;
    for (i, header) in headers.iter().enumerate() {
        if header.p_type != PT_LOAD || (header.p_memsz == 0 && header.p_filesz == 0) {
            continue;
        }
        let (file_offset, file) = file_part(bytes, i, header)?;
        let refuse = |cause| Err(ImageError::Segment(i, cause));
        let end = match memory_end(header) {
            Ok(end) => end,
            Err(cause) => return refuse(cause),
        };
        let segment = Segment {
            address: header.p_vaddr,
            memory_size: header.p_memsz,
            file_offset,
            file_size: file.len(),
            rights: Rights {
                read: header.p_flags & PF_R != 0,
                write: header.p_flags & PF_W != 0,
                execute: header.p_flags & PF_X != 0,
            },
        };
        if segment.rights.write && segment.rights.execute {
            return refuse(SegmentError::WriteAndExecute);
        }
        // Stock tenders give rights to all that `p_align` spans, which may be more than a page.
        let start = segment.address & !(header.p_align - 1);
        if start < IMAGE_BASE {
            return refuse(SegmentError::BelowBase(start));
        }
        if start < free_from {
            return refuse(SegmentError::Order);
        }
        free_from = end;
        segments.push(segment);
    }
    Ok(segments)
}

/// One past the last byte that this segment's alignment spans, after its sizes have been checked.
fn memory_end(header: &ProgramHeader) -> Result<u64, SegmentError> {
    if !header.p_align.is_power_of_two() || header.p_align < PAGE_SIZE {
        return Err(SegmentError::Alignment(header.p_align));
    }
    if header.p_filesz > header.p_memsz {
        return Err(SegmentError::FileOverMemory);
    }
    header
        .p_vaddr
        .checked_add(header.p_memsz)
        .and_then(|end| end.checked_next_multiple_of(header.p_align))
        .ok_or(SegmentError::AddressOverflow)
}
