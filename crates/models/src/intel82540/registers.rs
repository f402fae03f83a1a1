//! The registers, as data (manual, 13.4 to 13.8).

use crate::gigabit::statistics::Counter::{self, *};
use crate::gigabit::statistics::Half::{self, High, Low, Whole};
use crate::registers::{Alias, Register};

/// Bytes of BAR 0 (4.1).
pub(crate) const REGISTER_BYTES: usize = 128 << 10;

/// A register that does more than to hold what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Plain,
    Ctrl,
    Status,
    Eecd,
    Eerd,
    CtrlExt,
    Mdic,
    Pba,
    Icr,
    Ics,
    Ims,
    Imc,
    Rctl,
    RxBase,
    RxLength,
    RxHead,
    RxTail,
    TxBase,
    TxLength,
    TxHead,
    TxTail,
    Tctl,
    /// Its highest bit, which flushes descriptors, reads 0.
    Delay,
    /// Cleared when it is read.
    Counter(Counter, Half),
}

const ALL: u32 = u32::MAX;

/// A register alone: what it holds after a reset, its writable bits, its readable bits.
const fn one(
    id: Id,
    name: &'static str,
    offset: usize,
    bits: [u32; 3],
    section: &'static str,
) -> Register<Id> {
    many(id, name, (offset, 1, 4), bits, section)
}

/// An array of registers: offset of the first, number, distance.
const fn many(
    id: Id,
    name: &'static str,
    (offset, count, stride): (usize, usize, usize),
    [reset, writable, readable]: [u32; 3],
    section: &'static str,
) -> Register<Id> {
    Register {
        id,
        name,
        offset,
        count,
        stride,
        width: 4,
        reset,
        writable,
        readable,
        section,
    }
}

/// Registers that only hold what is written, 32 bits each.
const fn plain(
    name: &'static str,
    offset: usize,
    count: usize,
    section: &'static str,
) -> Register<Id> {
    many(Id::Plain, name, (offset, count, 4), [0, ALL, 0], section)
}

const fn count(counter: Counter, half: Half, name: &'static str, offset: usize) -> Register<Id> {
    one(Id::Counter(counter, half), name, offset, [0, 0, 0], "13.7")
}

/// What a file of the registers has.
pub(crate) static TABLES: [&[Register<Id>]; 2] = [REGISTERS, COUNTERS];
/// Registers are accessed as aligned 32-bit words (13.1).
pub(crate) const ACCESS_BYTES: usize = 4;

/// What registers hold.
pub(crate) type RegisterFile = crate::registers::RegisterFile<Id>;
/// A register at its place.
pub(crate) type Place = crate::registers::Place<Id>;

/// All registers, as after a reset.
pub(crate) fn file() -> RegisterFile {
    RegisterFile::new(REGISTER_BYTES, &TABLES, &ALIASES, Some(ACCESS_BYTES))
}

/// CTRL can be found a second time (13.4.1).
static ALIASES: [Alias; 1] = [Alias {
    offset: 0x00004,
    count: 1,
    stride: 4,
    of: 0x00000,
    of_stride: 4,
}];

/// The registers that this model knows, by section; those of statistics are in [`COUNTERS`].
#[rustfmt::skip]
const REGISTERS: &[Register<Id>] = &[
    // General.
    one(Id::Ctrl, "CTRL", 0x00000, [0x0000_0201, 0xdffc_1ffb, 0], "13.4.1"),
    one(Id::Status, "STATUS", 0x00008, [0, 0, ALL], "13.4.2"),
    one(Id::Eecd, "EECD", 0x00010, [0x10, 0x77, 0x2388], "13.4.3"),
    one(Id::Eerd, "EERD", 0x00014, [0, 0x0000_ff01, 0xffff_0010], "13.4.4"),
    one(Id::CtrlExt, "CTRL_EXT", 0x00018, [0, 0x00c3_efff, 0], "13.4.6"),
    plain("FLA", 0x0001c, 1, "13.4.5"),
    one(Id::Mdic, "MDIC", 0x00020, [0x1000_0000, 0x2fff_ffff, 0x5000_0000], "13.4.7"),
    plain("FCAL", 0x00028, 1, "13.4.8"),
    one(Id::Plain, "FCAH", 0x0002c, [0, 0xffff, 0], "13.4.9"),
    one(Id::Plain, "FCT", 0x00030, [0, 0xffff, 0], "13.4.10"),
    one(Id::Plain, "VET", 0x00038, [0x8100, 0xffff, 0], "13.4.11"),
    one(Id::Plain, "FCTTV", 0x00170, [0, 0xffff, 0], "13.4.12"),
    one(Id::Plain, "TXCW", 0x00178, [0, 0xc000_ffff, 0], "13.4.13"),
    one(Id::Plain, "RXCW", 0x00180, [0, 0, ALL], "13.4.14"),
    plain("LEDCTL", 0x00e00, 1, "13.4.15"),
    // Interrupts.
    one(Id::Icr, "ICR", 0x000c0, [0, 0x1_ffff, 0], "13.4.17"),
    one(Id::Plain, "ITR", 0x000c4, [0, 0xffff, 0], "13.4.18"),
    one(Id::Ics, "ICS", 0x000c8, [0, 0x1_ffff, 0], "13.4.19"),
    one(Id::Ims, "IMS", 0x000d0, [0, 0x1_ffff, 0], "13.4.20"),
    // All ones mask all causes, those that there are not too.
    one(Id::Imc, "IMC", 0x000d8, [0, ALL, 0], "13.4.21"),
    // Receive.
    one(Id::Rctl, "RCTL", 0x00100, [0, 0x06df_b3fe, 0], "13.4.22"),
    one(Id::Plain, "FCRTL", 0x02160, [0, 0x8000_fff8, 0], "13.4.23"),
    one(Id::Plain, "FCRTH", 0x02168, [0, 0x0000_fff8, 0], "13.4.24"),
    one(Id::RxBase, "RDBAL", 0x02800, [0, 0xffff_fff0, 0xf], "13.4.25"),
    one(Id::RxBase, "RDBAH", 0x02804, [0, ALL, 0], "13.4.26"),
    one(Id::RxLength, "RDLEN", 0x02808, [0, 0x000f_ff80, 0x7f], "13.4.27"),
    one(Id::RxHead, "RDH", 0x02810, [0, 0xffff, 0], "13.4.28"),
    one(Id::RxTail, "RDT", 0x02818, [0, 0xffff, 0], "13.4.29"),
    one(Id::Delay, "RDTR", 0x02820, [0, 0x8000_ffff, 0], "13.4.30"),
    one(Id::Plain, "RXDCTL", 0x02828, [0x0101_0000, 0x013f_3f3f, 0], "13.4.42"),
    one(Id::Plain, "RADV", 0x0282c, [0, 0xffff, 0], "13.4.31"),
    one(Id::Plain, "RSRPD", 0x02c00, [0, 0xfff, 0], "13.4.32"),
    one(Id::Plain, "RXCSUM", 0x05000, [0, 0x7ff, 0], "13.4.43"),
    plain("MTA", 0x05200, 128, "13.5.1"),
    many(Id::Plain, "RAL", (0x05400, 16, 8), [0, ALL, 0], "13.5.2"),
    many(Id::Plain, "RAH", (0x05404, 16, 8), [0, 0x8003_ffff, 0], "13.5.3"),
    plain("VFTA", 0x05600, 128, "13.5.4"),
    // Transmit.
    one(Id::Tctl, "TCTL", 0x00400, [0, 0x03ff_fffa, 0], "13.4.33"),
    one(Id::Plain, "TIPG", 0x00410, [0x0060_2008, 0x3fff_ffff, 0], "13.4.34"),
    one(Id::Plain, "AIFS", 0x00458, [0, 0xffff, 0], "13.4.35"),
    one(Id::Plain, "TXDMAC", 0x03000, [0, 1, 0], "13.4.44"),
    one(Id::TxBase, "TDBAL", 0x03800, [0, 0xffff_fff0, 0xf], "13.4.36"),
    one(Id::TxBase, "TDBAH", 0x03804, [0, ALL, 0], "13.4.37"),
    one(Id::TxLength, "TDLEN", 0x03808, [0, 0x000f_ff80, 0x7f], "13.4.38"),
    one(Id::TxHead, "TDH", 0x03810, [0, 0xffff, 0], "13.4.39"),
    one(Id::TxTail, "TDT", 0x03818, [0, 0xffff, 0], "13.4.40"),
    one(Id::Plain, "TIDV", 0x03820, [0, 0xffff, 0], "13.4.41"),
    one(Id::Plain, "TXDCTL", 0x03828, [0, 0xff3f_3f3f, 0], "13.4.45"),
    one(Id::Plain, "TADV", 0x0382c, [0, 0xffff, 0], "13.4.46"),
    plain("TSPMT", 0x03830, 1, "13.4.47"),
    one(Id::Pba, "PBA", 0x01000, [0x0010_0030, 0xffff, 0xffff_0000], "13.4"),
    // Waking up, and management, which are off.
    plain("WUC", 0x05800, 1, "13.6"),
    plain("WUFC", 0x05808, 1, "13.6"),
    plain("WUS", 0x05810, 1, "13.6"),
    plain("MANC", 0x05820, 1, "13.6"),
    plain("IPAV", 0x05838, 1, "13.6"),
    plain("IP4AT", 0x05840, 8, "13.6"),
    plain("IP6AT", 0x05880, 4, "13.6"),
    plain("WUPL", 0x05900, 1, "13.6"),
    plain("FFLT", 0x05f00, 8, "13.6"),
    plain("FFMT", 0x09000, 256, "13.6"),
    plain("FFVT", 0x09800, 256, "13.6"),
    // Diagnostics: places in the packet buffer, and the buffer itself.
    one(Id::Plain, "RDFH", 0x02410, [0, 0x1fff, 0], "13.8"),
    one(Id::Plain, "RDFT", 0x02418, [0, 0x1fff, 0], "13.8"),
    one(Id::Plain, "RDFHS", 0x02420, [0, 0x1fff, 0], "13.8"),
    one(Id::Plain, "RDFTS", 0x02428, [0, 0x1fff, 0], "13.8"),
    one(Id::Plain, "RDFPC", 0x02430, [0, 0x1fff, 0], "13.8"),
    one(Id::Plain, "TDFH", 0x03410, [0, 0x7ff, 0], "13.8"),
    one(Id::Plain, "TDFT", 0x03418, [0, 0x7ff, 0], "13.8"),
    one(Id::Plain, "TDFHS", 0x03420, [0, 0x1fff, 0], "13.8"),
    one(Id::Plain, "TDFTS", 0x03428, [0, 0x1fff, 0], "13.8"),
    one(Id::Plain, "TDFPC", 0x03430, [0, 0x1fff, 0], "13.8"),
    plain("PBM", 0x10000, 0x4000, "13.8"),
];

/// The counters, which are cleared when they are read (13.7).
#[rustfmt::skip]
const COUNTERS: &[Register<Id>] = &[
    count(Never, Whole, "CRCERRS", 0x04000),
    count(Never, Whole, "ALGNERRC", 0x04004),
    count(Never, Whole, "SYMERRS", 0x04008),
    count(Never, Whole, "RXERRC", 0x0400c),
    count(Never, Whole, "MPC", 0x04010),
    count(Never, Whole, "SCC", 0x04014),
    count(Never, Whole, "ECOL", 0x04018),
    count(Never, Whole, "MCC", 0x0401c),
    count(Never, Whole, "LATECOL", 0x04020),
    count(Never, Whole, "COLC", 0x04028),
    count(Never, Whole, "DC", 0x04030),
    count(Never, Whole, "TNCRS", 0x04034),
    count(Never, Whole, "SEC", 0x04038),
    count(Never, Whole, "CEXTERR", 0x0403c),
    count(Never, Whole, "RLEC", 0x04040),
    count(Never, Whole, "XONRXC", 0x04048),
    count(Never, Whole, "XONTXC", 0x0404c),
    count(Never, Whole, "XOFFRXC", 0x04050),
    count(Never, Whole, "XOFFTXC", 0x04054),
    count(Never, Whole, "FCRUC", 0x04058),
    count(ReceivedBySize(0), Whole, "PRC64", 0x0405c),
    count(ReceivedBySize(1), Whole, "PRC127", 0x04060),
    count(ReceivedBySize(2), Whole, "PRC255", 0x04064),
    count(ReceivedBySize(3), Whole, "PRC511", 0x04068),
    count(ReceivedBySize(4), Whole, "PRC1023", 0x0406c),
    count(ReceivedBySize(5), Whole, "PRC1522", 0x04070),
    count(GoodReceived, Whole, "GPRC", 0x04074),
    count(BroadcastReceived, Whole, "BPRC", 0x04078),
    count(MulticastReceived, Whole, "MPRC", 0x0407c),
    count(GoodTransmitted, Whole, "GPTC", 0x04080),
    count(GoodReceivedBytes, Low, "GORCL", 0x04088),
    count(GoodReceivedBytes, High, "GORCH", 0x0408c),
    count(GoodTransmittedBytes, Low, "GOTCL", 0x04090),
    count(GoodTransmittedBytes, High, "GOTCH", 0x04094),
    count(Never, Whole, "RNBC", 0x040a0),
    count(Never, Whole, "RUC", 0x040a4),
    count(Never, Whole, "RFC", 0x040a8),
    count(Oversized, Whole, "ROC", 0x040ac),
    count(Never, Whole, "RJC", 0x040b0),
    count(Never, Whole, "MGTPRC", 0x040b4),
    count(Never, Whole, "MGTPDC", 0x040b8),
    count(Never, Whole, "MGTPTC", 0x040bc),
    count(TotalReceivedBytes, Low, "TORL", 0x040c0),
    count(TotalReceivedBytes, High, "TORH", 0x040c4),
    count(TotalTransmittedBytes, Low, "TOTL", 0x040c8),
    count(TotalTransmittedBytes, High, "TOTH", 0x040cc),
    count(TotalReceived, Whole, "TPR", 0x040d0),
    count(TotalTransmitted, Whole, "TPT", 0x040d4),
    count(TransmittedBySize(0), Whole, "PTC64", 0x040d8),
    count(TransmittedBySize(1), Whole, "PTC127", 0x040dc),
    count(TransmittedBySize(2), Whole, "PTC255", 0x040e0),
    count(TransmittedBySize(3), Whole, "PTC511", 0x040e4),
    count(TransmittedBySize(4), Whole, "PTC1023", 0x040e8),
    count(TransmittedBySize(5), Whole, "PTC1522", 0x040ec),
    count(MulticastTransmitted, Whole, "MPTC", 0x040f0),
    count(BroadcastTransmitted, Whole, "BPTC", 0x040f4),
    count(Segmented, Whole, "TSCTC", 0x040f8),
    count(Never, Whole, "TSCTFC", 0x040fc),
];

/// Offsets of the registers that the model itself looks at.
pub(crate) mod at {
    pub(crate) use crate::gigabit::at::*;

    pub(crate) const EECD: usize = 0x00010;
    pub(crate) const ITR: usize = 0x000c4;
}

/// Bits of registers that the model looks at.
pub(crate) mod bit {
    pub(crate) use crate::gigabit::bit::*;

    pub(crate) const CTRL_RESET: u32 = 1 << 26;
    pub(crate) const CTRL_PHY_RESET: u32 = 1 << 31;
    pub(crate) const STATUS_FULL_DUPLEX: u32 = 1 << 0;
    pub(crate) const STATUS_LINK_UP: u32 = 1 << 1;
    pub(crate) const STATUS_SPEED_1000: u32 = 2 << 6;
    pub(crate) const EECD_CLOCK: u32 = 1 << 0;
    pub(crate) const EECD_SELECT: u32 = 1 << 1;
    pub(crate) const EECD_IN: u32 = 1 << 2;
    pub(crate) const EECD_OUT: u32 = 1 << 3;
    pub(crate) const EECD_REQUEST: u32 = 1 << 6;
    pub(crate) const EECD_GRANT: u32 = 1 << 7;
    pub(crate) const EECD_PRESENT: u32 = 1 << 8;
    pub(crate) const EERD_START: u32 = 1 << 0;
    pub(crate) const EERD_DONE: u32 = 1 << 4;
    /// It clears itself.
    pub(crate) const CTRL_EXT_EEPROM_RESET: u32 = 1 << 13;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_registers_share_an_offset() {
        let mut taken = std::collections::HashMap::from([(4, "alias")]);
        for register in TABLES.iter().copied().flatten() {
            for index in 0..register.count {
                let offset = register.offset + index * register.stride;
                assert!(offset.is_multiple_of(4) && offset < REGISTER_BYTES);
                let name = register.name;
                assert_eq!(taken.insert(offset, name), None, "{name}");
            }
        }
        assert_eq!(file().find(4).map(|place| place.offset), Some(0));
    }

    #[test]
    fn a_register_is_writable_or_readable_and_has_a_section() {
        for register in TABLES.iter().copied().flatten() {
            let name = register.name;
            assert_eq!(register.writable & register.readable, 0, "{name}");
            assert!(register.section.starts_with("13."), "{name}");
        }
    }
}
