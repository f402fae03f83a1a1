//! The registers, as data (datasheet, 10.2).
//!
//! Transcribed from the datasheet for this model; the driver has its own transcription, and the two
//! must agree.

use crate::gigabit::statistics::Counter::{self, *};
use crate::gigabit::statistics::Half::{self, High, Low, Whole};
use crate::registers::{Alias, Register};

/// Bytes of BAR 0 (10.1).
pub(crate) const REGISTER_BYTES: usize = 128 << 10;
/// Queues in each direction (7.1.11, 7.2).
pub(crate) const QUEUES: usize = 2;
/// How far apart registers of the two queues lie.
pub(crate) const QUEUE_STRIDE: usize = 0x100;

/// A register that does more than to hold what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Plain,
    Ctrl,
    Status,
    Eec,
    Eerd,
    CtrlExt,
    Mdic,
    ExtcnfCtrl,
    Pba,
    Swsm,
    Icr,
    Ics,
    Ims,
    Imc,
    Eiac,
    Iam,
    Ivar,
    Rctl,
    /// Others that say how frames are received.
    Receiving,
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

/// A register of each queue.
const fn queues(
    id: Id,
    name: &'static str,
    offset: usize,
    bits: [u32; 3],
    section: &'static str,
) -> Register<Id> {
    many(id, name, (offset, QUEUES, QUEUE_STRIDE), bits, section)
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
    one(
        Id::Counter(counter, half),
        name,
        offset,
        [0, 0, 0],
        "10.2.7",
    )
}

/// What a file of the registers has.
static TABLES: [&[Register<Id>]; 2] = [REGISTERS, COUNTERS];
/// Registers are accessed as aligned 32-bit words (10.1.1.1).
pub(crate) const ACCESS_BYTES: usize = 4;

/// What registers hold.
pub(crate) type RegisterFile = crate::registers::RegisterFile<Id>;
/// A register at its place.
pub(crate) type Place = crate::registers::Place<Id>;

/// All registers, as after a reset.
pub(crate) fn file() -> RegisterFile {
    RegisterFile::new(REGISTER_BYTES, &TABLES, &ALIASES, Some(ACCESS_BYTES))
}

/// Registers that lie at a second place too, where older controllers had them (10.2.1).
#[rustfmt::skip]
static ALIASES: [Alias; 17] = [
    alias((0x00004, 1, 4), (0x00000, 4)),
    // RAL and RAH, MTA, VFTA.
    alias((0x00040, 32, 4), (0x05400, 4)),
    alias((0x00200, 128, 4), (0x05200, 4)),
    alias((0x00600, 128, 4), (0x05600, 4)),
    // RDTR, RDBAL, RDBAH, RDLEN, RDH, RDT.
    alias((0x00108, 1, 4), (0x02820, 4)),
    alias((0x00110, 1, 4), (0x02800, 4)),
    alias((0x00114, 1, 4), (0x02804, 4)),
    alias((0x00118, 1, 4), (0x02808, 4)),
    alias((0x00120, 1, 4), (0x02810, 4)),
    alias((0x00128, 1, 4), (0x02818, 4)),
    // TDBAL, TDBAH, TDLEN, TDH, TDT, TIDV.
    alias((0x00420, 1, 4), (0x03800, 4)),
    alias((0x00424, 1, 4), (0x03804, 4)),
    alias((0x00428, 1, 4), (0x03808, 4)),
    alias((0x00430, 1, 4), (0x03810, 4)),
    alias((0x00438, 1, 4), (0x03818, 4)),
    alias((0x00440, 1, 4), (0x03820, 4)),
    // FCRTH.
    alias((0x00160, 1, 4), (0x02168, 4)),
];

const fn alias(
    (offset, count, stride): (usize, usize, usize),
    (of, of_stride): (usize, usize),
) -> Alias {
    Alias {
        offset,
        count,
        stride,
        of,
        of_stride,
    }
}

/// The registers that this model knows, by section; those of statistics are in [`COUNTERS`].
#[rustfmt::skip]
const REGISTERS: &[Register<Id>] = &[
    // General.
    one(Id::Ctrl, "CTRL", 0x00000, [0x0000_0201, 0xdcdc_1b65, 0], "10.2.2.1"),
    one(Id::Status, "STATUS", 0x00008, [0, 0x400, !0x400], "10.2.2.2"),
    one(Id::Eec, "EEC", 0x00010, [0, 0x0050_0077, 0x0009_ff88], "10.2.2.3"),
    one(Id::Eerd, "EERD", 0x00014, [0, 0x0000_fffd, 0xffff_0002], "10.2.2.4"),
    one(Id::CtrlExt, "CTRL_EXT", 0x00018, [0, 0xb9da_f000, 0], "10.2.2.5"),
    plain("FLA", 0x0001c, 1, "10.2.2.6"),
    one(Id::Mdic, "MDIC", 0x00020, [0x1000_0000, 0x2fff_ffff, 0x5000_0000], "10.2.2.7"),
    plain("FCAL", 0x00028, 1, "10.2.2.8"),
    one(Id::Plain, "FCAH", 0x0002c, [0, 0xffff, 0], "10.2.2.9"),
    one(Id::Plain, "FCT", 0x00030, [0, 0xffff, 0], "10.2.2.10"),
    one(Id::Plain, "VET", 0x00038, [0x8100, 0xffff, 0], "10.2.2.11"),
    one(Id::Plain, "FCTTV", 0x00170, [0, 0xffff, 0], "10.2.2.12"),
    // Of controllers with fibre, and without effect; Linux's test of registers expects it.
    one(Id::Plain, "TXCW", 0x00178, [0, 0xc000_ffff, 0], "10.2.2"),
    one(Id::Plain, "FCRTV", 0x05f40, [0, 0xffff, 0], "10.2.2.13"),
    plain("LEDCTL", 0x00e00, 1, "10.2.2.14"),
    one(Id::ExtcnfCtrl, "EXTCNF_CTRL", 0x00f00, [0, 0x0fff_002f, 0x50], "10.2.2.15"),
    plain("EXTCNF_SIZE", 0x00f08, 1, "10.2.2.16"),
    one(Id::Plain, "POEMB", 0x00f10, [0xc, 0x7f, 0], "10.2.2"),
    one(Id::Pba, "PBA", 0x01000, [0x0014_0014, 0x3f, 0x003f_0000], "10.2.2.17"),
    one(Id::Plain, "PBS", 0x01008, [0x28, 0x3f, 0], "10.2.2"),
    plain("EEMNGCTL", 0x01010, 1, "10.2.2.18"),
    plain("EEMNGDATA", 0x01014, 1, "10.2.2.19"),
    plain("FLMNGCTL", 0x01018, 4, "10.2.2.20"),
    plain("FLASHT", 0x01028, 1, "10.2.2.23"),
    plain("EEWR", 0x0102c, 1, "10.2.2.24"),
    plain("FLSWCTL", 0x01030, 4, "10.2.2.25"),
    // PCIe.
    one(Id::Plain, "GCR", 0x05b00, [0x0800_0000, ALL, 0], "10.2.3.1"),
    plain("FUNCTAG", 0x05b08, 1, "10.2.3.2"),
    plain("GSCL", 0x05b10, 4, "10.2.3.3"),
    plain("GSCN", 0x05b20, 4, "10.2.3.7"),
    one(Id::Plain, "FACTPS", 0x05b30, [0x8, 0, ALL], "10.2.3"),
    one(Id::Swsm, "SWSM", 0x05b50, [0, 0xf, 0], "10.2.3.12"),
    // No firmware manages anything.
    one(Id::Plain, "FWSM", 0x05b54, [0, 0, ALL], "10.2.3.13"),
    plain("GCR2", 0x05b64, 1, "10.2.3.15"),
    plain("PBACLR", 0x05b68, 1, "10.2.3.16"),
    // Interrupts.
    one(Id::Icr, "ICR", 0x000c0, [0, ALL, 0], "10.2.4.1"),
    one(Id::Plain, "ITR", 0x000c4, [0, 0xffff, 0], "10.2.4.2"),
    many(Id::Plain, "EITR", (0x000e8, 5, 4), [0, 0xffff, 0], "10.2.4.3"),
    one(Id::Ics, "ICS", 0x000c8, [0, 0x01f7_82d7, 0], "10.2.4.4"),
    one(Id::Ims, "IMS", 0x000d0, [0, 0x01f7_82d7, 0], "10.2.4.5"),
    // All ones mask all causes, those that there are not too.
    one(Id::Imc, "IMC", 0x000d8, [0, ALL, 0], "10.2.4.6"),
    one(Id::Eiac, "EIAC", 0x000dc, [0, 0x01f0_0000, 0], "10.2.4.7"),
    one(Id::Iam, "IAM", 0x000e0, [0, ALL, 0], "10.2.4.8"),
    one(Id::Ivar, "IVAR", 0x000e4, [0, 0x800f_ffff, 0], "10.2.4.9"),
    // Receive.
    one(Id::Rctl, "RCTL", 0x00100, [0, 0x7edf_bffe, 0], "10.2.5.1"),
    one(Id::Receiving, "PSRCTL", 0x02170, [0x0004_0402, 0x3f3f_3f7f, 0], "10.2.5.2"),
    one(Id::Plain, "FCRTL", 0x02160, [0, 0x8000_fff8, 0], "10.2.5.3"),
    one(Id::Plain, "FCRTH", 0x02168, [0, 0x8000_fff8, 0], "10.2.5.4"),
    queues(Id::RxBase, "RDBAL", 0x02800, [0, 0xffff_fff0, 0xf], "10.2.5.5"),
    queues(Id::RxBase, "RDBAH", 0x02804, [0, ALL, 0], "10.2.5.6"),
    queues(Id::RxLength, "RDLEN", 0x02808, [0, 0x000f_ff80, 0x7f], "10.2.5.7"),
    queues(Id::RxHead, "RDH", 0x02810, [0, 0xffff, 0], "10.2.5.8"),
    queues(Id::RxTail, "RDT", 0x02818, [0, 0xffff, 0], "10.2.5.9"),
    one(Id::Delay, "RDTR", 0x02820, [0, 0x8000_ffff, 0], "10.2.5.10"),
    queues(Id::Plain, "RXDCTL", 0x02828, [0x0101_0000, 0x013f_3f3f, 0], "10.2.5.11"),
    one(Id::Plain, "RADV", 0x0282c, [0, 0xffff, 0], "10.2.5.12"),
    one(Id::Plain, "RSRPD", 0x02c00, [0, 0xfff, 0], "10.2.5.13"),
    plain("RAID", 0x02c08, 1, "10.2.5.14"),
    one(Id::Plain, "RXCSUM", 0x05000, [0x300, 0x3bff, 0], "10.2.5.15"),
    one(Id::Receiving, "RFCTL", 0x05008, [0, 0x0003_ffff, 0], "10.2.5.16"),
    plain("MAVTV", 0x05010, 4, "10.2.5"),
    plain("MTA", 0x05200, 128, "10.2.5.17"),
    many(Id::Plain, "RAL", (0x05400, 16, 8), [0, ALL, 0], "10.2.5.18"),
    many(Id::Plain, "RAH", (0x05404, 16, 8), [0, 0x8003_ffff, 0], "10.2.5.19"),
    plain("VFTA", 0x05600, 128, "10.2.5.20"),
    one(Id::Plain, "MRQC", 0x05818, [0, 0xffff_0003, 0], "10.2.5.21"),
    many(Id::Plain, "RETA", (0x05c00, 32, 4), [0, 0x8080_8080, 0], "10.2.5.22"),
    plain("RSSRK", 0x05c80, 10, "10.2.5.23"),
    // Transmit.
    one(Id::Tctl, "TCTL", 0x00400, [0x8, 0x7fff_fffa, 0], "10.2.6.1"),
    one(Id::Plain, "TIPG", 0x00410, [0x0060_2006, 0x3fff_ffff, 0], "10.2.6.2"),
    one(Id::Plain, "AIT", 0x00458, [0, 0xffff, 0], "10.2.6.3"),
    queues(Id::TxBase, "TDBAL", 0x03800, [0, 0xffff_fff0, 0xf], "10.2.6.4"),
    queues(Id::TxBase, "TDBAH", 0x03804, [0, ALL, 0], "10.2.6.5"),
    queues(Id::TxLength, "TDLEN", 0x03808, [0, 0x000f_ff80, 0x7f], "10.2.6.6"),
    queues(Id::TxHead, "TDH", 0x03810, [0, 0xffff, 0], "10.2.6.7"),
    queues(Id::TxTail, "TDT", 0x03818, [0, 0xffff, 0], "10.2.6.8"),
    one(Id::Delay, "TIDV", 0x03820, [0, 0x8000_ffff, 0], "10.2.6.10"),
    queues(Id::Plain, "TXDCTL", 0x03828, [0, 0xff7f_3f3f, 0], "10.2.6.11"),
    one(Id::Plain, "TADV", 0x0382c, [0, 0xffff, 0], "10.2.6.12"),
    queues(Id::Plain, "TARC", 0x03840, [0x403, 0x7fff_ffff, 0], "10.2.6.9"),
    // Management, which is off, and waking up.
    plain("WUC", 0x05800, 1, "10.2.8"),
    plain("WUFC", 0x05808, 1, "10.2.8"),
    plain("WUS", 0x05810, 1, "10.2.8"),
    plain("MANC", 0x05820, 1, "10.2.9"),
    plain("MFUTP", 0x05828, 2, "10.2.9"),
    plain("IPAV", 0x05838, 1, "10.2.8"),
    plain("IP4AT", 0x05840, 8, "10.2.8"),
    plain("MANC2H", 0x05860, 1, "10.2.9"),
    plain("IP6AT", 0x05880, 4, "10.2.8"),
    plain("MDEF", 0x05890, 8, "10.2.9"),
    plain("WUPL", 0x05900, 1, "10.2.8"),
    plain("FFLT", 0x05f00, 8, "10.2.8"),
    // Time stamps: the clock stands still.
    plain("SYSTIM", 0x0b600, 2, "10.2.10"),
    plain("TIMINCA", 0x0b608, 1, "10.2.10"),
    plain("TIMADJ", 0x0b60c, 2, "10.2.10"),
    one(Id::Plain, "TSYNCTXCTL", 0x0b614, [0, 0x10, 1], "10.2.10"),
    many(Id::Plain, "TXSTMP", (0x0b618, 2, 4), [0, 0, ALL], "10.2.10"),
    one(Id::Plain, "TSYNCRXCTL", 0x0b620, [0, 0x1e, 1], "10.2.10"),
    many(Id::Plain, "RXSTMP", (0x0b624, 2, 4), [0, 0, ALL], "10.2.10"),
    many(Id::Plain, "RXSATR", (0x0b62c, 2, 4), [0, 0, ALL], "10.2.10"),
    plain("RXCFGL", 0x0b634, 1, "10.2.10"),
    one(Id::Plain, "RXUDP", 0x0b638, [0x3f01, 0xffff, 0], "10.2.10"),
    // Diagnostics: places in the packet buffer.
    queues(Id::Plain, "RDFH", 0x02410, [0, 0x1fff, 0], "10.2.11"),
    queues(Id::Plain, "RDFT", 0x02418, [0, 0x1fff, 0], "10.2.11"),
    one(Id::Plain, "RDFHS", 0x02420, [0, 0x1fff, 0], "10.2.11"),
    one(Id::Plain, "RDFTS", 0x02428, [0, 0x1fff, 0], "10.2.11"),
    one(Id::Plain, "RDFPC", 0x02430, [0, 0x1fff, 0], "10.2.11"),
    one(Id::Plain, "TDFH", 0x03410, [0, 0x1fff, 0], "10.2.11"),
    one(Id::Plain, "TDFT", 0x03418, [0, 0x1fff, 0], "10.2.11"),
    one(Id::Plain, "TDFHS", 0x03420, [0, 0x1fff, 0], "10.2.11"),
    one(Id::Plain, "TDFTS", 0x03428, [0, 0x1fff, 0], "10.2.11"),
    one(Id::Plain, "TDFPC", 0x03430, [0, 0x1fff, 0], "10.2.11"),
];

/// The counters, which are cleared when they are read (10.2.7).
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
    count(Never, Whole, "MNGPRC", 0x040b4),
    count(Never, Whole, "MPDC", 0x040b8),
    count(Never, Whole, "MPTC", 0x040bc),
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
    count(MulticastTransmitted, Whole, "MCPTC", 0x040f0),
    count(BroadcastTransmitted, Whole, "BPTC", 0x040f4),
    count(Segmented, Whole, "TSCTC", 0x040f8),
    count(Never, Whole, "TSCTFC", 0x040fc),
    count(Never, Whole, "IAC", 0x04100),
    count(Never, Whole, "ICRXPTC", 0x04104),
    count(Never, Whole, "ICRXATC", 0x04108),
    count(Never, Whole, "ICTXPTC", 0x0410c),
    count(Never, Whole, "ICTXATC", 0x04110),
    count(Never, Whole, "ICTXQEC", 0x04118),
    count(Never, Whole, "ICTXQMTC", 0x0411c),
    count(Never, Whole, "ICRXDMTC", 0x04120),
    count(Never, Whole, "ICRXOC", 0x04124),
];

/// Offsets of the registers that the model itself looks at.
pub(crate) mod at {
    pub(crate) use crate::gigabit::at::*;

    pub(crate) const STATUS: usize = 0x00008;
    pub(crate) const CTRL_EXT: usize = 0x00018;
    pub(crate) const IVAR: usize = 0x000e4;
    pub(crate) const EITR: usize = 0x000e8;
    pub(crate) const MRQC: usize = 0x05818;
    pub(crate) const RETA: usize = 0x05c00;
    pub(crate) const RSSRK: usize = 0x05c80;
}

/// Bits of registers that the model looks at.
pub(crate) mod bit {
    pub(crate) use crate::gigabit::bit::*;

    pub(crate) const CTRL_MASTER_DISABLE: u32 = 1 << 2;
    pub(crate) const CTRL_RESET: u32 = 1 << 26;
    pub(crate) const CTRL_PHY_RESET: u32 = 1 << 31;
    pub(crate) const STATUS_FULL_DUPLEX: u32 = 1 << 0;
    pub(crate) const STATUS_LINK_UP: u32 = 1 << 1;
    pub(crate) const STATUS_SPEED_1000: u32 = 2 << 6;
    pub(crate) const STATUS_PHY_RESET: u32 = 1 << 10;
    pub(crate) const STATUS_MASTER_ENABLED: u32 = 1 << 19;
    pub(crate) const EEC_REQUEST: u32 = 1 << 6;
    pub(crate) const EEC_GRANT: u32 = 1 << 7;
    pub(crate) const EEC_PRESENT: u32 = 1 << 8;
    pub(crate) const EEC_AUTO_READ_DONE: u32 = 1 << 9;
    pub(crate) const EEC_SIZE_SHIFT: u32 = 11;
    pub(crate) const EERD_START: u32 = 1 << 0;
    pub(crate) const EERD_DONE: u32 = 1 << 1;
    pub(crate) const CTRL_EXT_EEPROM_RESET: u32 = 1 << 13;
    pub(crate) const CTRL_EXT_AUTO_MASK_MSIX: u32 = 1 << 24;
    pub(crate) const CTRL_EXT_AUTO_MASK: u32 = 1 << 27;
    /// It clears itself.
    pub(crate) const CTRL_EXT_PBA_CLEAR: u32 = 1 << 31;
    pub(crate) const SWSM_HELD: u32 = 1 << 0;
    pub(crate) const MRQC_RSS: u32 = 1;
}

/// The queue whose register lies at this offset.
#[inline]
pub(crate) fn queue_of(offset: usize) -> usize {
    offset / QUEUE_STRIDE % QUEUES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_registers_share_an_offset() {
        let mut taken = std::collections::HashMap::new();
        for alias in ALIASES {
            for index in 0..alias.count {
                let at = alias.offset + index * alias.stride;
                assert_eq!(taken.insert(at, "alias"), None);
                let of = alias.of + index * alias.of_stride;
                assert_eq!(file().find(at).map(|place| place.offset), Some(of));
            }
        }
        for register in TABLES.iter().copied().flatten() {
            for index in 0..register.count {
                let offset = register.offset + index * register.stride;
                assert!(offset.is_multiple_of(4) && offset < REGISTER_BYTES);
                let name = register.name;
                assert_eq!(taken.insert(offset, name), None, "{name}");
            }
        }
    }

    #[test]
    fn a_register_is_writable_or_readable_and_has_a_section() {
        for register in TABLES.iter().copied().flatten() {
            let name = register.name;
            assert_eq!(register.writable & register.readable, 0, "{name}");
            assert!(register.section.starts_with("10.2."), "{name}");
        }
    }

    #[test]
    fn queues_are_found() {
        assert_eq!([0x2818, 0x2918, 0x3818, 0x3918].map(queue_of), [0, 1, 0, 1]);
    }
}
