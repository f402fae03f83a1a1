//! Commands of the NVM Command Set (1.0, 3).

use super::Nvme;
use super::command::Command;
use super::identify::{ALL_NAMESPACES, NAMESPACE};
use super::status::{Failure, Status};
use super::transfer::{PAGE, walk};
use crate::dma::Dma;
use hw::sim::vectored::{Span, SpanMut};
use std::ops::Range;

/// Opcodes (figure 14; Flush in Base 2.0, 7.1).
mod opcode {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Most bytes of a transfer, as a power of two of pages: MDTS.
pub(crate) const SECTORS_LIMIT_SHIFT: u8 = 8;
const TRANSFER_MAX: u64 = PAGE << SECTORS_LIMIT_SHIFT;
/// Bytes of a range of Dataset Management (figure 37), and most of them.
const RANGE: usize = 16;
const RANGES_MAX: usize = 256;
/// Dword 11 of Dataset Management: to be given back.
const DEALLOCATE: u32 = 1 << 2;
/// Dword 12: stored before it is done; the room may be given back.
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
const MAY_DEALLOCATE: u32 = 1 << 25;
/// Dword 12: protection information, which no namespace here has (figure 33).
const PROTECTION: u32 = 0xf << 26;

impl Nvme {
    /// Blocks of the namespace; what is left of the file is nobody's.
    pub(crate) fn blocks(&self) -> u64 {
        self.disk.bytes() >> self.block_shift
    }

    /// Does a command of an I/O queue.
    pub(crate) fn perform(&mut self, command: &Command, dma: &dyn Dma) -> Result<(), Failure> {
        let is_flush = command.opcode() == opcode::FLUSH;
        match command.namespace() {
            NAMESPACE => {}
            ALL_NAMESPACES if is_flush => {}
            _ => {
                let rule = "NSID must be that of an active namespace (Base, 3.2.1)";
                return Err(Failure::Rule(Status::INVALID_NAMESPACE, rule));
            }
        }
        match command.opcode() {
            opcode::FLUSH => self.disk.flush().map_err(Failure::of_write),
            opcode::READ => self.read(command, dma),
            opcode::WRITE => self.write(command, dma),
            opcode::WRITE_ZEROES => self.write_zeroes(command),
            opcode::DATASET_MANAGEMENT => self.manage(command, dma),
            _ => Err(Failure::Said(Status::INVALID_OPCODE)),
        }
    }

    /// Where so many blocks lie in the file.
    fn range(&self, block: u64, blocks: u64) -> Result<Range<u64>, Failure> {
        let end = block.checked_add(blocks);
        match end.filter(|end| *end <= self.blocks()) {
            Some(end) => Ok(block << self.block_shift..end << self.block_shift),
            None => Err(Failure::Rule(
                Status::LBA_OUT_OF_RANGE,
                "blocks must be those of the namespace (3.1.2)",
            )),
        }
    }

    /// Where the blocks of a command lie: SLBA, and NLB, which counts from 0.
    fn range_of(&self, command: &Command) -> Result<Range<u64>, Failure> {
        if command.dword(12) & PROTECTION != 0 {
            let rule = "PRINFO must be 0 where there is no protection information (3.2)";
            return Err(Failure::Rule(Status::INVALID_FIELD, rule));
        }
        let (last, _) = command.halves(12);
        self.range(command.start(), u64::from(last) + 1)
    }

    /// Where the data of a command lie, which are as long as a range of the file.
    fn pieces(
        &mut self,
        command: &Command,
        range: &Range<u64>,
        dma: &dyn Dma,
    ) -> Result<(), Failure> {
        let bytes = range.end - range.start;
        if bytes > TRANSFER_MAX {
            let rule = "a transfer must not be longer than MDTS says (Base, 5.17.2.1)";
            return Err(Failure::Rule(Status::INVALID_FIELD, rule));
        }
        walk(command.pointers(), bytes, dma, &mut self.pieces)
    }

    fn read(&mut self, command: &Command, dma: &dyn Dma) -> Result<(), Failure> {
        let range = self.range_of(command)?;
        self.pieces(command, &range, dma)?;
        let places = self.pieces.iter();
        let places = places.map(|piece| dma.span_mut(piece.iova, piece.bytes));
        let places = places.collect::<Result<Vec<SpanMut<'_>>, _>>()?;
        self.disk
            .read(range.start, &places)
            .map_err(Failure::of_read)
    }

    fn writable(&self) -> Result<(), Failure> {
        match self.disk.is_read_only() {
            true => Err(Failure::Rule(
                Status::WRITE_PROTECTED,
                "what is only to be read must not be written (Base, 8.12)",
            )),
            false => Ok(()),
        }
    }

    /// What must be stored before a command that changed something is done.
    fn settle(&self, forced: bool) -> Result<(), Failure> {
        match forced || !self.features.has_cache() {
            true => self.disk.flush().map_err(Failure::of_write),
            false => Ok(()),
        }
    }

    fn write(&mut self, command: &Command, dma: &dyn Dma) -> Result<(), Failure> {
        self.writable()?;
        let range = self.range_of(command)?;
        self.pieces(command, &range, dma)?;
        let spans = self.pieces.iter();
        let spans = spans.map(|piece| dma.span(piece.iova, piece.bytes));
        let spans = spans.collect::<Result<Vec<Span<'_>>, _>>()?;
        self.disk
            .write(range.start, &spans)
            .map_err(Failure::of_write)?;
        self.settle(command.dword(12) & FORCE_UNIT_ACCESS != 0)
    }

    fn write_zeroes(&mut self, command: &Command) -> Result<(), Failure> {
        self.writable()?;
        let range = self.range_of(command)?;
        let give_back = command.dword(12) & MAY_DEALLOCATE != 0;
        let bytes = range.end - range.start;
        let zeroed = self.disk.zero(range.start, bytes, give_back);
        zeroed.map_err(Failure::of_write)?;
        self.settle(command.dword(12) & FORCE_UNIT_ACCESS != 0)
    }

    /// Dataset Management: ranges may be given back, and other hints are none here.
    fn manage(&mut self, command: &Command, dma: &dyn Dma) -> Result<(), Failure> {
        let count = (command.dword(10) & 0xff) as usize + 1;
        let mut bytes = [0; RANGE * RANGES_MAX];
        let bytes = &mut bytes[..RANGE * count];
        walk(
            command.pointers(),
            bytes.len() as u64,
            dma,
            &mut self.pieces,
        )?;
        let mut at = 0;
        for piece in &self.pieces {
            dma.read(piece.iova, &mut bytes[at..at + piece.bytes])?;
            at += piece.bytes;
        }
        if command.dword(11) & DEALLOCATE == 0 {
            return Ok(());
        }
        self.writable()?;
        let ranges = bytes.as_chunks::<RANGE>().0.iter().map(|range| {
            // Attributes, length in blocks, first block.
            let word = u128::from_le_bytes(*range);
            self.range((word >> 64) as u64, u64::from((word >> 32) as u32))
        });
        let ranges = ranges.collect::<Result<Vec<_>, _>>()?;
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let discarded = self.disk.discard(range.start, range.end - range.start);
            discarded.map_err(Failure::of_write)?;
        }
        self.settle(false)
    }
}
