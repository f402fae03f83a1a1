//! The memory that the driver's side lets the device reach.

use super::Refused;
use crate::{Dma, DmaFault};
use hw::sim::vectored::{Span, SpanMut};
use hw::sim::{Outside, View};
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

    /// The mapping that has this address; what follows it is checked by the view.
    #[inline]
    fn mapping(&self, iova: u64, bytes: usize) -> Result<&View, DmaFault> {
        let fault = DmaFault { iova, bytes };
        if !self.bus_master {
            return Err(fault);
        }
        let has = |mapping: &&Mapping| (mapping.iova..mapping.end()).contains(&iova);
        let mapping = self.mappings.iter().find(has).ok_or(fault)?;
        Ok(&mapping.view)
    }
}

fn fault(outside: Outside) -> DmaFault {
    outside.into()
}

impl Dma for Memory {
    fn view(&self, iova: u64, bytes: usize) -> Result<&View, DmaFault> {
        self.mapping(iova, bytes)
    }

    fn load(&self, iova: u64) -> Result<u64, DmaFault> {
        self.mapping(iova, 8)?.load(iova).map_err(fault)
    }

    fn store(&self, iova: u64, value: u64) -> Result<(), DmaFault> {
        self.mapping(iova, 8)?.store(iova, value).map_err(fault)
    }

    fn load16(&self, iova: u64) -> Result<u16, DmaFault> {
        self.mapping(iova, 2)?.load16(iova).map_err(fault)
    }

    fn store16(&self, iova: u64, value: u16) -> Result<(), DmaFault> {
        self.mapping(iova, 2)?.store16(iova, value).map_err(fault)
    }

    fn read(&self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        self.mapping(iova, bytes.len())?
            .read(iova, bytes)
            .map_err(fault)
    }

    fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.mapping(iova, bytes.len())?
            .write(iova, bytes)
            .map_err(fault)
    }

    fn span(&self, iova: u64, bytes: usize) -> Result<Span<'_>, DmaFault> {
        self.mapping(iova, bytes)?.span(iova, bytes).map_err(fault)
    }

    fn span_mut(&self, iova: u64, bytes: usize) -> Result<SpanMut<'_>, DmaFault> {
        self.mapping(iova, bytes)?
            .span_mut(iova, bytes)
            .map_err(fault)
    }

    fn check(&self, iova: u64, bytes: usize) -> Result<(), DmaFault> {
        self.mapping(iova, bytes)?.check(iova, bytes)
    }
}
