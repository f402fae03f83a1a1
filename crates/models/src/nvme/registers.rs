//! The registers, as data (Base 2.0, 3.1.3; PCIe Transport 1.0, 3.1).

use super::queue::QUEUES;
use crate::registers::{self, Register};

/// Bytes of the BAR: registers in its first page, doorbells behind it (3.1.1).
pub(crate) const BAR_BYTES: usize = 0x4000;

/// A register that does more than to hold what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Plain,
    MaskSet,
    MaskClear,
    Configuration,
    Status,
    /// What describes the admin queues.
    AdminQueues,
    Tail,
    Head,
}

pub(crate) type RegisterFile = registers::RegisterFile<Id>;
pub(crate) type Place = registers::Place<Id>;

const ALL: u32 = u32::MAX;
/// Where the first doorbell lies, and how far apart those of one kind lie: CAP.DSTRD is 0.
const DOORBELLS: usize = 0x1000;
const DOORBELL_STRIDE: usize = 8;

/// Most entries of a queue, which CAP.MQES tells less one.
pub(crate) const ENTRIES_MAX: u32 = 1024;
/// CAP, low half: MQES; CQR, queues lie in one piece; TO, ten seconds in halves.
const CAP_LOW: u32 = (ENTRIES_MAX - 1) | 1 << 16 | 20 << 24;
/// CAP, high half: CSS, the NVM Command Set. Doorbells lie densely, pages have 4 KiB.
const CAP_HIGH: u32 = 1 << 5;
/// VS: 1.4. A controller of 2.0 has to know of command sets, which this one has one of.
const VERSION: u32 = 0x0001_0400;

const fn one(
    id: Id,
    name: &'static str,
    offset: usize,
    [reset, writable, readable]: [u32; 3],
    section: &'static str,
) -> Register<Id> {
    Register {
        id,
        name,
        offset,
        count: 1,
        stride: 4,
        width: 4,
        reset,
        writable,
        readable,
        section,
    }
}

const fn doorbells(
    id: Id,
    name: &'static str,
    offset: usize,
    section: &'static str,
) -> Register<Id> {
    Register {
        count: QUEUES,
        stride: DOORBELL_STRIDE,
        ..one(id, name, offset, [0, 0xffff, 0], section)
    }
}

#[rustfmt::skip]
static TABLE: [Register<Id>; 19] = [
    one(Id::Plain, "CAP", 0x00, [CAP_LOW, 0, 0], "3.1.3.1"),
    one(Id::Plain, "CAP, high", 0x04, [CAP_HIGH, 0, 0], "3.1.3.1"),
    one(Id::Plain, "VS", 0x08, [VERSION, 0, 0], "3.1.3.2"),
    one(Id::MaskSet, "INTMS", 0x0c, [0, ALL, 0], "3.1.3.3"),
    one(Id::MaskClear, "INTMC", 0x10, [0, ALL, 0], "3.1.3.4"),
    one(Id::Configuration, "CC", 0x14, [0, 0x00ff_fff1, 0], "3.1.3.5"),
    one(Id::Status, "CSTS", 0x1c, [0, 0, 0x3f], "3.1.3.6"),
    one(Id::Plain, "NSSR", 0x20, [0, 0, ALL], "3.1.3.7"),
    one(Id::AdminQueues, "AQA", 0x24, [0, 0x0fff_0fff, 0], "3.1.3.8"),
    one(Id::AdminQueues, "ASQ", 0x28, [0, 0xffff_f000, 0], "3.1.3.9"),
    one(Id::AdminQueues, "ASQ, high", 0x2c, [0, ALL, 0], "3.1.3.9"),
    one(Id::AdminQueues, "ACQ", 0x30, [0, 0xffff_f000, 0], "3.1.3.10"),
    one(Id::AdminQueues, "ACQ, high", 0x34, [0, ALL, 0], "3.1.3.10"),
    // What is there of memory buffers and boot partitions: nothing.
    one(Id::Plain, "CMBLOC", 0x38, [0, 0, 0], "3.1.3.11"),
    one(Id::Plain, "CMBSZ", 0x3c, [0, 0, 0], "3.1.3.12"),
    one(Id::Plain, "BPINFO", 0x40, [0, 0, 0], "3.1.3.13"),
    one(Id::Plain, "BPRSEL", 0x44, [0, 0, 0], "3.1.3.14"),
    doorbells(Id::Tail, "SQyTDBL", DOORBELLS, "PCIe 3.1.2.1"),
    doorbells(Id::Head, "CQyHDBL", DOORBELLS + 4, "PCIe 3.1.2.2"),
];

pub(crate) static TABLES: [&[Register<Id>]; 1] = [&TABLE];

/// Offsets of all doorbells: of each queue its tail, and its head.
pub(crate) static DOORBELL_OFFSETS: [usize; 2 * QUEUES] = {
    let mut offsets = [0; 2 * QUEUES];
    let mut number = 0;
    while number < offsets.len() {
        offsets[number] = DOORBELLS + 4 * number;
        number += 1;
    }
    offsets
};

/// The registers, as after a reset.
pub(crate) fn file() -> RegisterFile {
    RegisterFile::new(BAR_BYTES, &TABLES, &[], None)
}

/// Offsets of the registers that the model itself looks at.
pub(crate) mod at {
    pub(crate) const CC: usize = 0x14;
    pub(crate) const AQA: usize = 0x24;
    pub(crate) const ASQ: usize = 0x28;
    pub(crate) const ACQ: usize = 0x30;
}

/// Bits of registers.
pub(crate) mod bit {
    /// CC: Enable.
    pub(crate) const EN: u32 = 1;
    /// CC: what may change only while EN is 0: CSS, MPS, AMS.
    pub(crate) const FIXED: u32 = 0x0000_3ff0;
    /// CSTS: Ready, Controller Fatal Status, and that a shutdown is complete.
    pub(crate) const RDY: u32 = 1 << 0;
    pub(crate) const CFS: u32 = 1 << 1;
    pub(crate) const SHUT_DOWN: u32 = 0b10 << 2;
}

/// CC taken apart.
pub(crate) mod cc {
    /// Bits from `low` to `high`.
    const fn field(value: u32, low: u32, high: u32) -> u32 {
        value >> low & ((1 << (high - low + 1)) - 1)
    }

    pub(crate) fn command_set(value: u32) -> u32 {
        field(value, 4, 6)
    }

    pub(crate) fn page_size(value: u32) -> u32 {
        field(value, 7, 10)
    }

    pub(crate) fn arbitration(value: u32) -> u32 {
        field(value, 11, 13)
    }

    pub(crate) fn shutdown(value: u32) -> u32 {
        field(value, 14, 15)
    }

    /// Sizes of entries of I/O queues, as powers of two: submissions, completions.
    pub(crate) fn entry_sizes(value: u32) -> (u32, u32) {
        (field(value, 16, 19), field(value, 20, 23))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbells_alternate_and_are_all_there() {
        let file = file();
        for (number, offset) in DOORBELL_OFFSETS.into_iter().enumerate() {
            let place = file.find(offset).unwrap();
            let expected = [Id::Tail, Id::Head][number % 2];
            assert_eq!((place.register.id, place.index), (expected, number / 2));
        }
        assert!(file.find(DOORBELLS + 8 * QUEUES).is_none());
    }
}
