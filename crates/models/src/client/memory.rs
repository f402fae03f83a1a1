//! The memory that the driver's side lets the device reach.

use super::Refused;
use crate::{Dma, DmaFault};
use hw::sim::View;
use rustix::fs::{SealFlags, fcntl_get_seals};
use std::io;
use std::os::fd::BorrowedFd;

/// Most mappings at a time.
const MAPPINGS_MAX: usize = 64;
/// Most bytes of all of them.
const BYTES_MAX: u64 = 64 << 30;

struct Mapping {
    iova: u64,
    bytes: u64,
    view: View,
}

impl Mapping {
    fn end(&self) -> u64 {
        self.iova + self.bytes
    }
}

/// All mappings; none overlaps another.
#[derive(Default)]
pub(crate) struct Memory {
    mappings: Vec<Mapping>,
    /// Whether the device is let at it at all.
    pub(crate) bus_master: bool,
    /// Whether files are taken that may become shorter while they are mapped.
    pub(crate) unsealed: bool,
}

/// What is to be mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Where devices find it.
    pub(crate) iova: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Whether devices may write it.
    pub(crate) writable: bool,
}

impl Memory {
    /// Maps a range of `file`.
    pub(crate) fn map(&mut self, file: BorrowedFd<'_>, range: Range) -> Result<(), Refused> {
        let Range {
            offset,
            iova,
            bytes,
            writable,
        } = range;
        let end = iova.checked_add(bytes).ok_or(Refused::Range)?;
        let used: u64 = self.mappings.iter().map(|mapping| mapping.bytes).sum();
        if self.mappings.len() >= MAPPINGS_MAX || bytes > BYTES_MAX - used {
            return Err(Refused::TooMuchMemory);
        }
        let overlaps = |mapping: &Mapping| iova < mapping.end() && mapping.iova < end;
        if self.mappings.iter().any(overlaps) {
            return Err(Refused::Overlap);
        }
        let sealed = || fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !self.unsealed && !sealed() {
            return Err(Refused::Unsealed);
        }
        let view = View::of_file(file, offset, bytes, iova, writable);
        let view = view.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Refused::Range,
            _ => Refused::Map(error),
        })?;
        self.mappings.push(Mapping { iova, bytes, view });
        Ok(())
    }

    /// Takes a mapping away that was made with these numbers.
    pub(crate) fn unmap(&mut self, iova: u64, bytes: u64) -> Result<(), Refused> {
        let same = |mapping: &Mapping| (mapping.iova, mapping.bytes) == (iova, bytes);
        let place = self
            .mappings
            .iter()
            .position(same)
            .ok_or(Refused::NotMapped)?;
        self.mappings.swap_remove(place);
        Ok(())
    }

    /// Takes all mappings away.
    pub(crate) fn clear(&mut self) {
        self.mappings.clear();
    }

    /// The only mapping.
    pub(crate) fn into_view(mut self) -> Option<View> {
        self.mappings.pop().map(|mapping| mapping.view)
    }

    /// Whether the client has taken a page away.
    pub(crate) fn is_lost(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.view.is_lost())
    }
}

impl Dma for Memory {
    #[inline]
    fn view(&self, iova: u64, bytes: usize) -> Result<&View, DmaFault> {
        let fault = DmaFault { iova, bytes };
        if !self.bus_master {
            return Err(fault);
        }
        let has = |mapping: &&Mapping| (mapping.iova..mapping.end()).contains(&iova);
        let mapping = self.mappings.iter().find(has).ok_or(fault)?;
        Ok(&mapping.view)
    }
}
