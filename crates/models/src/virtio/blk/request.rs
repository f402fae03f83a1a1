//! Requests (5.2.6).

use super::{DISCARD_SECTORS_MAX, DISCARD_SEGMENTS_MAX, NAME_BYTES, SECTOR, VirtioBlk, feature};
use crate::dma::{Dma, DmaFault};
use crate::misbehaviour::Fault;
use crate::violation::{Queue, Violation};
use crate::virtio::chain::Chain;
use crate::virtio::work::Work;
use hw::sim::vectored::{Span, SpanMut};
use std::io;
use std::ops::Range;

/// Bytes in front of the data, and behind them.
const HEADER: usize = 16;
const STATUS: u64 = 1;

/// Kinds.
mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}
/// Answers.
const OK: u8 = 0;
const IOERR: u8 = 1;
const UNSUPP: u8 = 2;
/// Bytes of a segment of a discard, and its flag: the room may be given back.
const SEGMENT: usize = 16;
const UNMAP: u32 = 1;

/// Why a request fails.
#[derive(Debug)]
enum Failure {
    /// The driver broke a rule, which has its section.
    Rule(&'static str),
    /// It asks for what is not there.
    Unsupported(&'static str),
    /// Its buffers are not in the memory.
    Dma(DmaFault),
    /// The kernel cannot do it to the file: the driver is told as of a disk that is broken.
    Disk,
}

impl From<DmaFault> for Failure {
    fn from(fault: DmaFault) -> Self {
        Self::Dma(fault)
    }
}

impl From<io::Error> for Failure {
    fn from(_: io::Error) -> Self {
        Self::Disk
    }
}

/// What stands in front of the data.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: u32,
    sector: u64,
}

impl VirtioBlk {
    /// Does a request, and writes its answer: how many bytes.
    pub(super) fn answer(&self, chain: &Chain, queue: Queue, work: &mut Work<'_>) -> u32 {
        let Some(data) = chain.writable_bytes().checked_sub(STATUS) else {
            work.report(Violation::Descriptor {
                queue,
                index: chain.head.into(),
                rule: "there must be room for status (5.2.6)",
            });
            return 0;
        };
        let done = self.perform(chain, data, work);
        let mut status = match &done {
            Ok(()) => OK,
            Err(Failure::Unsupported(_)) => UNSUPP,
            Err(_) => IOERR,
        };
        match done {
            Err(Failure::Rule(rule) | Failure::Unsupported(rule)) => {
                let bytes = (chain.readable_bytes() + data) as usize;
                work.report(Violation::Packet { queue, bytes, rule });
            }
            Err(Failure::Dma(fault)) => work.report(Violation::Dma { queue, fault }),
            Err(Failure::Disk) | Ok(()) => {}
        }
        if work.faults.strikes(Fault::Status) {
            status = work.faults.number() as u8;
        }
        // 5.2.6: the status is the last byte, whatever comes before.
        if let Err(fault) = chain.write(data, &[status], work.dma) {
            work.report(Violation::Dma { queue, fault });
            return 0;
        }
        (data + STATUS).min(u32::MAX.into()) as u32
    }

    fn perform(&self, chain: &Chain, data: u64, work: &Work<'_>) -> Result<(), Failure> {
        let mut bytes = [0; HEADER];
        if chain.read(0, &mut bytes, work.dma)? < HEADER {
            return Err(Failure::Rule("a request must have a header (5.2.6)"));
        }
        let word = u128::from_le_bytes(bytes);
        let header = Header {
            kind: word as u32,
            sector: (word >> 64) as u64,
        };
        let out = chain.readable_bytes() - HEADER as u64;
        match header.kind {
            kind::IN => self.read(chain, header, data, work),
            kind::OUT => self.write(chain, header, out, work),
            kind::FLUSH => Ok(self.disk.flush()?),
            kind::GET_ID => match data {
                bytes if bytes >= NAME_BYTES as u64 => {
                    chain.write(0, &self.name, work.dma)?;
                    Ok(())
                }
                _ => Err(Failure::Rule("GET_ID takes a buffer of 20 bytes (5.2.6.1)")),
            },
            kind::DISCARD | kind::WRITE_ZEROES => self.clear(chain, header.kind, out, work),
            _ => Err(Failure::Unsupported("there is no such type (5.2.6)")),
        }
    }

    /// Where so many bytes from a sector on lie in the file.
    fn range(&self, sector: u64, bytes: u64) -> Result<Range<u64>, Failure> {
        if !bytes.is_multiple_of(SECTOR) {
            return Err(Failure::Rule("data must be whole sectors (5.2.6.1)"));
        }
        let end = sector.checked_add(bytes / SECTOR);
        match end.filter(|end| *end <= self.sectors()) {
            Some(end) => Ok(sector * SECTOR..end * SECTOR),
            None => Err(Failure::Rule(
                "a request must not reach beyond capacity (5.2.6.1)",
            )),
        }
    }

    fn writable(&self) -> Result<(), Failure> {
        match self.disk.is_read_only() {
            true => Err(Failure::Rule(
                "what is only to be read must not be written (5.2.6.1)",
            )),
            false => Ok(()),
        }
    }

    fn read(
        &self,
        chain: &Chain,
        header: Header,
        data: u64,
        work: &Work<'_>,
    ) -> Result<(), Failure> {
        let range = self.range(header.sector, data)?;
        let places = chain.to_write(0, data);
        let places = places.map(|part| work.dma.span_mut(part.iova, part.bytes));
        let places = places.collect::<Result<Vec<SpanMut<'_>>, _>>()?;
        Ok(self.disk.read(range.start, &places)?)
    }

    fn write(
        &self,
        chain: &Chain,
        header: Header,
        out: u64,
        work: &Work<'_>,
    ) -> Result<(), Failure> {
        self.writable()?;
        let range = self.range(header.sector, out)?;
        let spans = chain.to_read(HEADER as u64, out);
        let spans = spans.map(|part| work.dma.span(part.iova, part.bytes));
        let spans = spans.collect::<Result<Vec<Span<'_>>, _>>()?;
        self.disk.write(range.start, &spans)?;
        self.settle()
    }

    /// What a driver that cannot flush has written must survive at once (5.2.6.2).
    fn settle(&self) -> Result<(), Failure> {
        match self.writeback {
            true => Ok(()),
            false => Ok(self.disk.flush()?),
        }
    }

    /// Discards sectors, or makes them zero.
    fn clear(&self, chain: &Chain, what: u32, out: u64, work: &Work<'_>) -> Result<(), Failure> {
        let discards = what == kind::DISCARD;
        let takes = match discards {
            true => feature::DISCARD,
            false => feature::WRITE_ZEROES,
        };
        if self.features & takes == 0 {
            return Err(Failure::Unsupported(
                "it takes DISCARD or WRITE_ZEROES (5.2.6.1)",
            ));
        }
        self.writable()?;
        if !out.is_multiple_of(SEGMENT as u64) || out == 0 {
            return Err(Failure::Rule(
                "data must be whole segments, and one at least (5.2.6.1)",
            ));
        }
        if out > SEGMENT as u64 * u64::from(DISCARD_SEGMENTS_MAX) {
            return Err(Failure::Rule(
                "there are more segments than the device takes (5.2.6.1)",
            ));
        }
        let mut bytes = [0; SEGMENT * DISCARD_SEGMENTS_MAX as usize];
        let bytes = &mut bytes[..out as usize];
        chain.read(HEADER as u64, bytes, work.dma)?;
        let segments = bytes.as_chunks::<SEGMENT>().0;
        // All are checked before any is done.
        for segment in segments {
            self.segment(discards, segment)?;
        }
        for segment in segments {
            let (range, unmap) = self.segment(discards, segment)?;
            let bytes = range.end - range.start;
            match (discards, bytes) {
                (_, 0) => {}
                (true, _) => self.disk.discard(range.start, bytes)?,
                (false, _) => self.disk.zero(range.start, bytes, unmap)?,
            }
        }
        self.settle()
    }

    /// A segment: where it lies in the file, and whether its room may be given back.
    fn segment(
        &self,
        discards: bool,
        segment: &[u8; SEGMENT],
    ) -> Result<(Range<u64>, bool), Failure> {
        let word = u128::from_le_bytes(*segment);
        let (sector, count) = (word as u64, (word >> 64) as u32);
        let flags = (word >> 96) as u32;
        if flags & !UNMAP != 0 {
            return Err(Failure::Unsupported("reserved flags must be 0 (5.2.6.1)"));
        }
        if discards && flags & UNMAP != 0 {
            return Err(Failure::Unsupported(
                "a discard must not have unmap (5.2.6.1)",
            ));
        }
        if count > DISCARD_SECTORS_MAX {
            return Err(Failure::Rule(
                "a segment is longer than the device takes (5.2.6.1)",
            ));
        }
        let range = self.range(sector, u64::from(count) * SECTOR)?;
        Ok((range, flags & UNMAP != 0))
    }
}
