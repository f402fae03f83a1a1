//! The registers, as data (datasheet, 8.2.3).
//!
//! Transcribed from the datasheet for this model; the driver has its own transcription, and the two
//! must agree.

use super::stored::STORED;
use crate::registers::{Alias, Register};
use Counter::*;
use Half::{High, Low, Whole};

/// Bytes of registers at the start of BAR 0; the flash follows (8.1).
pub(crate) const REGISTER_BYTES: usize = 128 << 10;
/// Queues in each direction (1.3).
pub(crate) const QUEUES: usize = 128;

/// A register that does more than to hold what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Plain,
    /// Writing ones clears bits.
    ClearedByOnes,
    Ctrl,
    Status,
    Esdp,
    I2c,
    Eec,
    Eerd,
    Swsm,
    Eicr,
    Eics,
    Eims,
    Eimc,
    /// Of the first 32 vectors: the low half is that of the register without a number.
    EicsVectors,
    EimsVectors,
    EimcVectors,
    EiamVectors,
    Eiac,
    Eiam,
    Gpie,
    Fctrl,
    Rxctrl,
    Rdrxctl,
    SecurityRxStatus,
    Autoc,
    Anlp1,
    Mrqc,
    FdirControl,
    FdirCommand,
    Links,
    Maxfrs,
    Dmatxctl,
    /// To be changed only while RTTDCS.ARBDIS is set (4.6.8).
    Arbitrated,
    RxBase,
    RxLength,
    RxHead,
    RxTail,
    RxControl,
    Srrctl,
    TxBase,
    TxLength,
    TxHead,
    TxTail,
    TxControl,
    /// Cleared when it is read.
    Counter(Counter, Half),
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// What this model has no cause to count.
    Never,
    /// Frames dropped since the packet buffer was full.
    Missed,
    LengthErrors,
    Oversized,
    GoodReceived,
    GoodReceivedBytes,
    BroadcastReceived,
    MulticastReceived,
    TotalReceived,
    TotalReceivedBytes,
    /// By size: 64, to 127, to 255, to 511, to 1023, larger.
    ReceivedBySize(u8),
    GoodTransmitted,
    TotalTransmitted,
    GoodTransmittedBytes,
    BroadcastTransmitted,
    MulticastTransmitted,
    TransmittedBySize(u8),
    ChecksumErrors,
    /// Frames that a filter of the flow director matched, and others.
    FlowMatched,
    FlowMissed,
    QueueReceived,
    QueueReceivedBytes,
    QueueDropped,
    QueueTransmitted,
    QueueTransmittedBytes,
}

/// What of a counter a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Whole,
    Low,
    High,
}

const ALL: u32 = u32::MAX;

/// A register alone: what it holds after a reset, its writable bits, its readable bits.
pub(super) const fn one(
    id: Id,
    name: &'static str,
    offset: usize,
    bits: [u32; 3],
    section: &'static str,
) -> Register<Id> {
    many(id, name, (offset, 1, 4), bits, section)
}

/// An array of registers: offset of the first, number, distance.
pub(super) const fn many(
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
pub(super) const fn plain(
    name: &'static str,
    offset: usize,
    count: usize,
    section: &'static str,
) -> Register<Id> {
    many(Id::Plain, name, (offset, count, 4), [0, ALL, 0], section)
}

pub(super) const fn count(
    counter: Counter,
    half: Half,
    name: &'static str,
    place: (usize, usize, usize),
) -> Register<Id> {
    many(
        Id::Counter(counter, half),
        name,
        place,
        [0, 0, 0],
        "8.2.3.23",
    )
}

/// What a file of the registers has.
static TABLES: [&[Register<Id>]; 3] = [REGISTERS, COUNTERS, STORED];
/// Registers are accessed as aligned 32-bit words (8.1.1).
pub(crate) const ACCESS_BYTES: usize = 4;

/// What registers hold.
pub(crate) type RegisterFile = crate::registers::RegisterFile<Id>;
/// A register at its place.
pub(crate) type Place = crate::registers::Place<Id>;

/// All registers, as after a reset.
pub(crate) fn file() -> RegisterFile {
    RegisterFile::new(REGISTER_BYTES, &TABLES, &ALIASES, Some(ACCESS_BYTES))
}

/// Registers that lie at a second place too, where the 82598 had them: of queues and addresses, the
/// first sixteen. Drivers for both cards use these.
#[rustfmt::skip]
static ALIASES: [Alias; 9] = [
    // SRRCTL (8.2.3.8.7), DCA_RXCTRL (8.2.3.11.1).
    alias((0x02100, 16, 4), (0x01014, 64)),
    alias((0x02200, 16, 4), (0x0100c, 64)),
    // RAL, RAH (8.2.3.7.8, 8.2.3.7.9).
    alias((0x05400, 16, 8), (0x0a200, 8)),
    alias((0x05404, 16, 8), (0x0a204, 8)),
    // QPTC (8.2.3.23).
    alias((0x06030, 16, 64), (0x08680, 4)),
    // PSRTYPE, MRQC, RETA, RSSRK (8.2.3.7).
    alias((0x05480, 16, 4), (0x0ea00, 4)),
    alias((0x05818, 1, 4), (0x0ec80, 4)),
    alias((0x05c00, 32, 4), (0x0eb00, 4)),
    alias((0x05c80, 10, 4), (0x0eb80, 4)),
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
    // General control.
    one(Id::Ctrl, "CTRL", 0x00000, [0, 0x0400_000c, 0], "8.2.3.1.1"),
    one(Id::Status, "STATUS", 0x00008, [0, 0, ALL], "8.2.3.1.2"),
    one(Id::Plain, "CTRL_EXT", 0x00018, [0, 0x1403_4000, 0], "8.2.3.1.3"),
    one(Id::Esdp, "ESDP", 0x00020, [0, ALL, 0], "8.2.3.1"),
    one(Id::I2c, "I2CCTL", 0x00028, [0xa, 0xa, 5], "8.2.3.1"),
    plain("LEDCTL", 0x00200, 1, "8.2.3.1"),
    // EEPROM and flash.
    one(Id::Eec, "EEC", 0x10010, [0, 0x0000_0077, 0x0780_7f88], "8.2.3.2.1"),
    one(Id::Eerd, "EERD", 0x10014, [0, 0x0000_fffd, 0xffff_0002], "8.2.3.2.2"),
    // Flow control.
    plain("FCTTV", 0x03200, 4, "8.2.3.3.2"),
    // Bit 4 is held as well, though it has no meaning.
    many(Id::Plain, "FCRTL", (0x03220, 8, 4), [0, 0x8007_fff0, 0], "8.2.3.3.3"),
    many(Id::Plain, "FCRTH", (0x03260, 8, 4), [0, 0x8007_fff0, 0], "8.2.3.3.4"),
    one(Id::Plain, "FCRTV", 0x032a0, [0, 0xffff, 0], "8.2.3.3.5"),
    one(Id::Plain, "TFCS", 0x0ce00, [0, 0, ALL], "8.2.3.3"),
    one(Id::Plain, "FCCFG", 0x03d00, [0, 0x18, 0], "8.2.3.3.7"),
    // PCIe.
    one(Id::Swsm, "SWSM", 0x10140, [0, 3, 0], "8.2.3.4"),
    // Firmware is there, without an error, and manages nothing.
    one(Id::Plain, "FWSM", 0x10148, [0x8000, 0, ALL], "8.2.3.4.10"),
    plain("SW_FW_SYNC", 0x10160, 1, "8.2.3.4"),
    plain("GCR_EXT", 0x11050, 1, "8.2.3.4.12"),
    plain("DCA_ID", 0x11070, 1, "8.2.3.11"),
    one(Id::Plain, "DCA_CTRL", 0x11074, [1, 0x1f, 0], "8.2.3.11"),
    // Interrupts.
    one(Id::Eicr, "EICR", 0x00800, [0, 0x7fff_ffff, 0], "8.2.3.5.1"),
    one(Id::Eics, "EICS", 0x00808, [0, 0x7fff_ffff, 0], "8.2.3.5"),
    one(Id::Eims, "EIMS", 0x00880, [0, 0x7fff_ffff, 0], "8.2.3.5.3"),
    // All ones mask all causes, those that there are not too.
    one(Id::Eimc, "EIMC", 0x00888, [0, ALL, 0], "8.2.3.5.4"),
    one(Id::Eiac, "EIAC", 0x00810, [0, 0x4000_ffff, 0], "8.2.3.5.5"),
    one(Id::Eiam, "EIAM", 0x00890, [0, 0x7fff_ffff, 0], "8.2.3.5"),
    many(Id::EicsVectors, "EICS", (0x00a90, 2, 4), [0, ALL, 0], "8.2.3.5"),
    many(Id::EimsVectors, "EIMS", (0x00aa0, 2, 4), [0, ALL, 0], "8.2.3.5"),
    many(Id::EimcVectors, "EIMC", (0x00ab0, 2, 4), [0, ALL, 0], "8.2.3.5.9"),
    many(Id::EiamVectors, "EIAM", (0x00ad0, 2, 4), [0, ALL, 0], "8.2.3.5"),
    many(Id::Plain, "EITR", (0x00820, 24, 4), [0, 0x8fff_8ff8, 0], "8.2.3.5.12"),
    many(Id::Plain, "EITR", (0x12300, 105, 4), [0, 0x8fff_8ff8, 0], "8.2.3.5.12"),
    many(Id::Plain, "IVAR", (0x00900, 64, 4), [0, 0xbfbf_bfbf, 0], "8.2.3.5.16"),
    one(Id::Plain, "IVAR_MISC", 0x00a00, [0, 0xbfbf, 0], "8.2.3.5.17"),
    one(Id::Gpie, "GPIE", 0x00898, [0, 0xc000_ffff, 0], "8.2.3.5.18"),
    // Receive.
    one(Id::Fctrl, "FCTRL", 0x05080, [0, 0x702, 0], "8.2.3.7.1"),
    one(Id::Plain, "VLNCTRL", 0x05088, [0x8100, 0x7000_ffff, 0], "8.2.3.7.2"),
    one(Id::Plain, "MCSTCTRL", 0x05090, [0, 7, 0], "8.2.3.7.3"),
    plain("PSRTYPE", 0x0ea00, 64, "8.2.3.7"),
    one(Id::Plain, "RXCSUM", 0x05000, [0, 0x3000, 0], "8.2.3.7.5"),
    one(Id::Plain, "RFCTL", 0x05008, [0, 0x47e0, 0], "8.2.3.7.6"),
    plain("MTA", 0x05200, 128, "8.2.3.7.7"),
    many(Id::Plain, "RAL", (0x0a200, 128, 8), [0, ALL, 0], "8.2.3.7.8"),
    many(Id::Plain, "RAH", (0x0a204, 128, 8), [0, 0x8000_ffff, 0], "8.2.3.7.9"),
    plain("MPSAR", 0x0a600, 256, "8.2.3.7.10"),
    plain("VFTA", 0x0a000, 128, "8.2.3.7.11"),
    one(Id::Mrqc, "MRQC", 0x0ec80, [0, 0xffff_000f, 0], "8.2.3.7.12"),
    plain("RQTC", 0x0ec70, 1, "8.2.3.7.13"),
    plain("RSSRK", 0x0eb80, 10, "8.2.3.7"),
    plain("RETA", 0x0eb00, 32, "8.2.3.7"),
    plain("SAQF", 0x0e000, 128, "8.2.3.7"),
    plain("DAQF", 0x0e200, 128, "8.2.3.7"),
    plain("SDPQF", 0x0e400, 128, "8.2.3.7"),
    plain("FTQF", 0x0e600, 128, "8.2.3.7.19"),
    plain("SYNQF", 0x0ec30, 1, "8.2.3.7"),
    plain("ETQF", 0x05128, 8, "8.2.3.7.21"),
    plain("ETQS", 0x0ec00, 8, "8.2.3.7"),
    // Flow director.
    one(Id::FdirControl, "FDIRCTRL", 0x0ee00, [0, ALL, 0], "8.2.3.21"),
    one(Id::FdirCommand, "FDIRCMD", 0x0ee2c, [0, ALL, 0], "8.2.3.21"),
    // Receive DMA. Queues 64 and up lie apart. Of bases and lengths, seven bits are always zero.
    many(Id::RxBase, "RDBAL", (0x01000, 64, 64), [0, 0xffff_ff80, 0x7f], "8.2.3.8.1"),
    many(Id::RxBase, "RDBAL", (0x0d000, 64, 64), [0, 0xffff_ff80, 0x7f], "8.2.3.8.1"),
    many(Id::RxBase, "RDBAH", (0x01004, 64, 64), [0, ALL, 0], "8.2.3.8.2"),
    many(Id::RxBase, "RDBAH", (0x0d004, 64, 64), [0, ALL, 0], "8.2.3.8.2"),
    many(Id::RxLength, "RDLEN", (0x01008, 64, 64), [0, 0xf_ff80, 0x7f], "8.2.3.8.3"),
    many(Id::RxLength, "RDLEN", (0x0d008, 64, 64), [0, 0xf_ff80, 0x7f], "8.2.3.8.3"),
    many(Id::RxHead, "RDH", (0x01010, 64, 64), [0, 0, 0xffff], "8.2.3.8.4"),
    many(Id::RxHead, "RDH", (0x0d010, 64, 64), [0, 0, 0xffff], "8.2.3.8.4"),
    many(Id::RxTail, "RDT", (0x01018, 64, 64), [0, 0xffff, 0], "8.2.3.8.5"),
    many(Id::RxTail, "RDT", (0x0d018, 64, 64), [0, 0xffff, 0], "8.2.3.8.5"),
    many(Id::RxControl, "RXDCTL", (0x01028, 64, 64), [0, 0x4600_0000, 0], "8.2.3.8.6"),
    many(Id::RxControl, "RXDCTL", (0x0d028, 64, 64), [0, 0x4600_0000, 0], "8.2.3.8.6"),
    many(Id::Srrctl, "SRRCTL", (0x01014, 64, 64), [0x402, 0x1fc0_3f1f, 0], "8.2.3.8.7"),
    many(Id::Srrctl, "SRRCTL", (0x0d014, 64, 64), [0x402, 0x1fc0_3f1f, 0], "8.2.3.8.7"),
    many(Id::Plain, "RSCCTL", (0x0102c, 64, 64), [0, 0xd, 0], "8.2.3.8.13"),
    many(Id::Plain, "RSCCTL", (0x0d02c, 64, 64), [0, 0xd, 0], "8.2.3.8.13"),
    many(Id::Plain, "DCA_RXCTRL", (0x0100c, 64, 64), [0xb200, ALL, 0], "8.2.3.11.1"),
    many(Id::Plain, "DCA_RXCTRL", (0x0d00c, 64, 64), [0xb200, ALL, 0], "8.2.3.11.1"),
    one(Id::Rdrxctl, "RDRXCTL", 0x02f00, [0x0010_0000, 0x06be_0002, 8], "8.2.3.8.8"),
    many(Id::Plain, "RXPBSIZE", (0x03c00, 8, 4), [0x8_0000, 0xf_fc00, 0], "8.2.3.8.9"),
    one(Id::Rxctrl, "RXCTRL", 0x03000, [0, 1, 0], "8.2.3.8.10"),
    one(Id::Plain, "RSCDBU", 0x03028, [0, 0x80, 0], "8.2.3.8.12"),
    // Transmit DMA.
    one(Id::Arbitrated, "DTXMXSZRQ", 0x08100, [0x10, 0xfff, 0], "8.2.3.9.1"),
    one(Id::Dmatxctl, "DMATXCTL", 0x04a80, [0x8100_0000, 0xffff_0009, 0], "8.2.3.9.2"),
    one(Id::Plain, "DTXTCPFLGL", 0x04a88, [0x0f76_0ff6, 0x0fff_0fff, 0], "8.2.3.9.3"),
    one(Id::Plain, "DTXTCPFLGH", 0x04a8c, [0xf7f, 0xfff, 0], "8.2.3.9.4"),
    many(Id::TxBase, "TDBAL", (0x06000, 128, 64), [0, 0xffff_ff80, 0x7f], "8.2.3.9.5"),
    many(Id::TxBase, "TDBAH", (0x06004, 128, 64), [0, ALL, 0], "8.2.3.9.6"),
    many(Id::TxLength, "TDLEN", (0x06008, 128, 64), [0, 0xf_ff80, 0x7f], "8.2.3.9.7"),
    many(Id::TxHead, "TDH", (0x06010, 128, 64), [0, 0, 0xffff], "8.2.3.9.8"),
    many(Id::TxTail, "TDT", (0x06018, 128, 64), [0, 0xffff, 0], "8.2.3.9.9"),
    many(Id::TxControl, "TXDCTL", (0x06028, 128, 64), [0, 0x067f_7f7f, 0], "8.2.3.9.10"),
    many(Id::Plain, "TDWBAL", (0x06038, 128, 64), [0, 0xffff_fffd, 0], "8.2.3.9.11"),
    many(Id::Plain, "TDWBAH", (0x0603c, 128, 64), [0, ALL, 0], "8.2.3.9"),
    many(Id::Plain, "DCA_TXCTRL", (0x0600c, 128, 64), [0x2a00, ALL, 0], "8.2.3.11.2"),
    many(Id::Arbitrated, "TXPBSIZE", (0x0cc00, 8, 4), [0x2_8000, 0xf_fc00, 0], "8.2.3.9.13"),
    plain("MNGTXMAP", 0x0cd10, 1, "8.2.3.9"),
    one(Id::Arbitrated, "MTQC", 0x08120, [0, 0xf, 0], "8.2.3.9.15"),
    one(Id::Arbitrated, "TXPBTHRESH", 0x04950, [0x96, 0x3ff, 0], "8.2.3.9.16"),
    many(Id::Arbitrated, "TXPBTHRESH", (0x04954, 7, 4), [0, 0x3ff, 0], "8.2.3.9.16"),
    // Data centre bridging.
    plain("RTRPCS", 0x02430, 1, "8.2.3.10.1"),
    one(Id::Plain, "RTTDCS", 0x04900, [0x00c0_0000, 0x80c0_0053, 0], "8.2.3.10.2"),
    plain("RTTPCS", 0x0cd00, 1, "8.2.3.10.3"),
    plain("RTRUP2TC", 0x03020, 1, "8.2.3.10.4"),
    plain("RTTUP2TC", 0x0c800, 1, "8.2.3.10"),
    plain("RTRPT4C", 0x02140, 8, "8.2.3.10.6"),
    plain("RTTDT2C", 0x04910, 8, "8.2.3.10.9"),
    plain("RTTPT2C", 0x0cd20, 8, "8.2.3.10.10"),
    plain("RTTDQSEL", 0x04904, 1, "8.2.3.10.13"),
    plain("RTTDT1C", 0x04908, 1, "8.2.3.10.14"),
    plain("RTTBCNRC", 0x04984, 1, "8.2.3.10"),
    // Security.
    plain("SECTXCTRL", 0x08800, 1, "8.2.3.12"),
    one(Id::Plain, "SECTXSTAT", 0x08804, [3, 0, ALL], "8.2.3.12"),
    plain("SECTXMINIFG", 0x08810, 1, "8.2.3.12"),
    one(Id::Plain, "SECRXCTRL", 0x08d00, [1, 3, 0], "8.2.3.12.5"),
    one(Id::SecurityRxStatus, "SECRXSTAT", 0x08d04, [0, 0, ALL], "8.2.3.12.6"),
    // MAC.
    one(Id::Plain, "HLREG0", 0x04240, [0x0801_040b, 0x18f3_8407, 0], "8.2.3.22.8"),
    one(Id::Maxfrs, "MAXFRS", 0x04268, [0x05ee_0000, 0xffff_0000, 0], "8.2.3.22"),
    one(Id::Autoc, "AUTOC", 0x042a0, [0x0000_6000, ALL, 0], "8.2.3.22.19"),
    one(Id::Links, "LINKS", 0x042a4, [0, 0, ALL], "8.2.3.22"),
    one(Id::Plain, "LINKS2", 0x04324, [0, 0, ALL], "8.2.3.22"),
    // The serial link is SFI: a module.
    one(Id::Plain, "AUTOC2", 0x042a8, [0x0002_0000, ALL, 0], "8.2.3.22"),
    one(Id::Anlp1, "ANLP1", 0x042b0, [0, 0, ALL], "8.2.3.22"),
    plain("MSCA", 0x0425c, 1, "8.2.3.22"),
    plain("MSRWD", 0x04260, 1, "8.2.3.22"),
    one(Id::Plain, "MFLCN", 0x04294, [0, 0xf, 0], "8.2.3.22.34"),
    // Wake up.
    plain("WUC", 0x05800, 1, "8.2.3.24"),
    plain("WUFC", 0x05808, 1, "8.2.3.24.2"),
    // What statistics count.
    plain("RXDSTATCTRL", 0x02f40, 1, "8.2.3.23"),
    plain("RQSMR", 0x02300, 32, "8.2.3.23"),
    plain("TQSM", 0x08600, 32, "8.2.3.23"),
    // Virtualisation.
    plain("PFVTCTL", 0x051b0, 1, "8.2.3.27"),
    plain("PFVFRE", 0x051e0, 2, "8.2.3.27"),
    plain("PFVFTE", 0x08110, 2, "8.2.3.27"),
    plain("PFQDE", 0x02f04, 1, "8.2.3.27.9"),
    plain("PFDTXGSWC", 0x08220, 1, "8.2.3.27"),
    plain("PFVML2FLT", 0x0f000, 64, "8.2.3.27"),
    plain("PFVLVF", 0x0f100, 64, "8.2.3.27.15"),
    plain("PFVLVFB", 0x0f200, 128, "8.2.3.27.16"),
    plain("PFUTA", 0x0f400, 128, "8.2.3.27.17"),
];

/// The counters, which are cleared when they are read (8.2.3.23).
#[rustfmt::skip]
const COUNTERS: &[Register<Id>] = &[
    count(Never, Whole, "CRCERRS", (0x04000, 1, 4)),
    count(Never, Whole, "ILLERRC", (0x04004, 1, 4)),
    count(Never, Whole, "ERRBC", (0x04008, 1, 4)),
    count(Missed, Whole, "RXMPC", (0x03fa0, 8, 4)),
    count(Never, Whole, "MLFC", (0x04034, 1, 4)),
    count(Never, Whole, "MRFC", (0x04038, 1, 4)),
    count(LengthErrors, Whole, "RLEC", (0x04040, 1, 4)),
    count(Never, Whole, "SSVPC", (0x08780, 1, 4)),
    count(Never, Whole, "LXONRXCNT", (0x041a4, 1, 4)),
    count(Never, Whole, "LXOFFRXCNT", (0x041a8, 1, 4)),
    count(Never, Whole, "PXONRXCNT", (0x04140, 8, 4)),
    count(Never, Whole, "PXOFFRXCNT", (0x04160, 8, 4)),
    count(Never, Whole, "PXON2OFFCNT", (0x03240, 8, 4)),
    count(Never, Whole, "LXONTXC", (0x03f60, 1, 4)),
    count(Never, Whole, "LXOFFTXC", (0x03f68, 1, 4)),
    count(Never, Whole, "PXONTXC", (0x03f00, 8, 4)),
    count(Never, Whole, "PXOFFTXC", (0x03f20, 8, 4)),
    count(ReceivedBySize(0), Whole, "PRC64", (0x0405c, 1, 4)),
    count(ReceivedBySize(1), Whole, "PRC127", (0x04060, 1, 4)),
    count(ReceivedBySize(2), Whole, "PRC255", (0x04064, 1, 4)),
    count(ReceivedBySize(3), Whole, "PRC511", (0x04068, 1, 4)),
    count(ReceivedBySize(4), Whole, "PRC1023", (0x0406c, 1, 4)),
    count(ReceivedBySize(5), Whole, "PRC1522", (0x04070, 1, 4)),
    count(GoodReceived, Whole, "GPRC", (0x04074, 1, 4)),
    count(BroadcastReceived, Whole, "BPRC", (0x04078, 1, 4)),
    count(MulticastReceived, Whole, "MPRC", (0x0407c, 1, 4)),
    count(GoodReceivedBytes, Low, "GORCL", (0x04088, 1, 4)),
    count(GoodReceivedBytes, High, "GORCH", (0x0408c, 1, 4)),
    count(GoodTransmitted, Whole, "GPTC", (0x04080, 1, 4)),
    count(GoodTransmittedBytes, Low, "GOTCL", (0x04090, 1, 4)),
    count(GoodTransmittedBytes, High, "GOTCH", (0x04094, 1, 4)),
    count(Never, Whole, "RUC", (0x040a4, 1, 4)),
    count(Never, Whole, "RFC", (0x040a8, 1, 4)),
    count(Oversized, Whole, "ROC", (0x040ac, 1, 4)),
    count(Never, Whole, "RJC", (0x040b0, 1, 4)),
    count(Never, Whole, "MNGPRC", (0x040b4, 1, 4)),
    count(Never, Whole, "MNGPDC", (0x040b8, 1, 4)),
    count(TotalReceivedBytes, Low, "TORL", (0x040c0, 1, 4)),
    count(TotalReceivedBytes, High, "TORH", (0x040c4, 1, 4)),
    count(TotalReceived, Whole, "TPR", (0x040d0, 1, 4)),
    count(TotalTransmitted, Whole, "TPT", (0x040d4, 1, 4)),
    count(TransmittedBySize(0), Whole, "PTC64", (0x040d8, 1, 4)),
    count(TransmittedBySize(1), Whole, "PTC127", (0x040dc, 1, 4)),
    count(TransmittedBySize(2), Whole, "PTC255", (0x040e0, 1, 4)),
    count(TransmittedBySize(3), Whole, "PTC511", (0x040e4, 1, 4)),
    count(TransmittedBySize(4), Whole, "PTC1023", (0x040e8, 1, 4)),
    count(TransmittedBySize(5), Whole, "PTC1522", (0x040ec, 1, 4)),
    count(MulticastTransmitted, Whole, "MPTC", (0x040f0, 1, 4)),
    count(BroadcastTransmitted, Whole, "BPTC", (0x040f4, 1, 4)),
    count(Never, Whole, "MSPDC", (0x04010, 1, 4)),
    count(ChecksumErrors, Whole, "XEC", (0x04120, 1, 4)),
    count(QueueReceived, Whole, "QPRC", (0x01030, 16, 64)),
    count(QueueReceivedBytes, Low, "QBRC_L", (0x01034, 16, 64)),
    count(QueueReceivedBytes, High, "QBRC_H", (0x01038, 16, 64)),
    count(QueueDropped, Whole, "QPRDC", (0x01430, 16, 64)),
    count(QueueTransmitted, Whole, "QPTC", (0x08680, 16, 4)),
    count(QueueTransmittedBytes, Low, "QBTC_L", (0x08700, 16, 8)),
    count(QueueTransmittedBytes, High, "QBTC_H", (0x08704, 16, 8)),
    count(Never, Whole, "RXNFGPC", (0x041b0, 1, 4)),
    count(Never, Low, "RXNFGBCL", (0x041b4, 1, 4)),
    count(Never, High, "RXNFGBCH", (0x041b8, 1, 4)),
    count(Never, Whole, "FCCRC", (0x05118, 1, 4)),
    count(Never, Whole, "FCOERPDC", (0x0241c, 1, 4)),
    count(Never, Whole, "FCLAST", (0x02424, 1, 4)),
    count(Never, Whole, "FCOEPRC", (0x02428, 1, 4)),
    count(Never, Whole, "FCOEDWRC", (0x0242c, 1, 4)),
    count(Never, Whole, "FCOEPTC", (0x08784, 1, 4)),
    count(Never, Whole, "FCOEDWTC", (0x08788, 1, 4)),
    count(Never, Whole, "RXDGPC", (0x02f50, 1, 4)),
    count(Never, Low, "RXDGBCL", (0x02f54, 1, 4)),
    count(Never, High, "RXDGBCH", (0x02f58, 1, 4)),
    count(Never, Whole, "RXDDPC", (0x02f5c, 9, 4)),
    count(Never, Whole, "TXDGPC", (0x087a0, 1, 4)),
    count(Never, Low, "TXDGBCL", (0x087a4, 1, 4)),
    count(Never, High, "TXDGBCH", (0x087a8, 1, 4)),
];

/// Offsets of the registers that the model itself looks at.
pub(crate) mod at {
    pub(crate) const CTRL_EXT: usize = 0x00018;
    pub(crate) const EITR: usize = 0x00820;
    pub(crate) const IVAR: usize = 0x00900;
    pub(crate) const IVAR_MISC: usize = 0x00a00;
    pub(crate) const RX_QUEUE: usize = 0x01000;
    pub(crate) const RX_QUEUE_HIGH: usize = 0x0d000;
    pub(crate) const RQSMR: usize = 0x02300;
    pub(crate) const RDRXCTL: usize = 0x02f00;
    pub(crate) const RXCTRL: usize = 0x03000;
    pub(crate) const HLREG0: usize = 0x04240;
    pub(crate) const MAXFRS: usize = 0x04268;
    pub(crate) const RTTDCS: usize = 0x04900;
    pub(crate) const DMATXCTL: usize = 0x04a80;
    pub(crate) const DTXTCPFLGL: usize = 0x04a88;
    pub(crate) const DTXTCPFLGH: usize = 0x04a8c;
    pub(crate) const AUTOC: usize = 0x042a0;
    pub(crate) const RXCSUM: usize = 0x05000;
    pub(crate) const RFCTL: usize = 0x05008;
    pub(crate) const FCTRL: usize = 0x05080;
    pub(crate) const VLNCTRL: usize = 0x05088;
    pub(crate) const MCSTCTRL: usize = 0x05090;
    pub(crate) const MTA: usize = 0x05200;
    pub(crate) const TX_QUEUE: usize = 0x06000;
    pub(crate) const TQSM: usize = 0x08600;
    pub(crate) const SECRXCTRL: usize = 0x08d00;
    pub(crate) const VFTA: usize = 0x0a000;
    pub(crate) const RAL: usize = 0x0a200;
    pub(crate) const RAH: usize = 0x0a204;
    pub(crate) const RETA: usize = 0x0eb00;
    pub(crate) const RSSRK: usize = 0x0eb80;
    pub(crate) const MRQC: usize = 0x0ec80;
    pub(crate) const PSRTYPE: usize = 0x0ea00;
    pub(crate) const FDIRCTRL: usize = 0x0ee00;
    pub(crate) const FDIRIPSA: usize = 0x0ee18;
    pub(crate) const FDIRIPDA: usize = 0x0ee1c;
    pub(crate) const FDIRPORT: usize = 0x0ee20;
    pub(crate) const FDIRVLAN: usize = 0x0ee24;
    pub(crate) const FDIRHASH: usize = 0x0ee28;
    pub(crate) const FDIRDIP4M: usize = 0x0ee3c;
    pub(crate) const FDIRSIP4M: usize = 0x0ee40;
    pub(crate) const FDIRTCPM: usize = 0x0ee44;
    pub(crate) const FDIRUDPM: usize = 0x0ee48;
    pub(crate) const FDIRHKEY: usize = 0x0ee68;
    pub(crate) const FDIRSKEY: usize = 0x0ee6c;
    pub(crate) const FDIRM: usize = 0x0ee70;
    pub(crate) const FDIRSCTPM: usize = 0x0ee78;
    pub(crate) const EITR_HIGH: usize = 0x12300;
}

/// Bits of registers that the model looks at.
pub(crate) mod bit {
    pub(crate) const CTRL_MASTER_DISABLE: u32 = 1 << 2;
    pub(crate) const CTRL_LINK_RESET: u32 = 1 << 3;
    pub(crate) const CTRL_RESET: u32 = 1 << 26;
    pub(crate) const STATUS_MASTER_ENABLED: u32 = 1 << 19;
    pub(crate) const CTRL_EXT_NO_SNOOP_DISABLE: u32 = 1 << 16;
    /// What the cage of the module tells: it is not empty.
    pub(crate) const ESDP_SDP2: u32 = 1 << 2;
    pub(crate) const ESDP_SDP2_IS_OUTPUT: u32 = 1 << 10;
    pub(crate) const I2C_CLOCK_IN: u32 = 1 << 0;
    pub(crate) const I2C_CLOCK: u32 = 1 << 1;
    pub(crate) const I2C_DATA_IN: u32 = 1 << 2;
    pub(crate) const I2C_DATA: u32 = 1 << 3;
    pub(crate) const EEC_PRESENT: u32 = 1 << 8;
    pub(crate) const EEC_AUTO_READ_DONE: u32 = 1 << 9;
    pub(crate) const EEC_SIZE_SHIFT: u32 = 11;
    pub(crate) const EERD_START: u32 = 1 << 0;
    pub(crate) const EERD_DONE: u32 = 1 << 1;
    pub(crate) const RDRXCTL_CRC_STRIP: u32 = 1 << 1;
    pub(crate) const RDRXCTL_DMA_INIT_DONE: u32 = 1 << 3;
    pub(crate) const RDRXCTL_RSC_FIRST_SIZE: u32 = 0x1f << 17;
    pub(crate) const RDRXCTL_RSC_ACK: u32 = 1 << 25;
    pub(crate) const RDRXCTL_FCOE_WRITE_FIX: u32 = 1 << 26;
    pub(crate) const RXCTRL_ENABLE: u32 = 1 << 0;
    pub(crate) const SECRX_PATH_DISABLE: u32 = 1 << 1;
    pub(crate) const SECRX_READY: u32 = 1 << 0;
    /// The card encrypts and decrypts nothing (8.2.3.12.6).
    pub(crate) const SECRX_OFF: u32 = 1 << 1;
    pub(crate) const QUEUE_ENABLE: u32 = 1 << 25;
    pub(crate) const RX_VLAN_STRIP: u32 = 1 << 30;
    pub(crate) const SRRCTL_HEADER_SIZE: u32 = 0x3f << 8;
    pub(crate) const SRRCTL_DROP: u32 = 1 << 28;
    pub(crate) const PSRTYPE_TCP: u32 = 1 << 4;
    pub(crate) const RSC_ENABLE: u32 = 1 << 0;
    pub(crate) const RFCTL_RSC_DISABLE: u32 = 1 << 5;
    pub(crate) const DCA_RESERVED: u32 = 1 << 12;
    pub(crate) const FCTRL_MULTICAST_ALL: u32 = 1 << 8;
    pub(crate) const FCTRL_UNICAST_ALL: u32 = 1 << 9;
    pub(crate) const FCTRL_BROADCAST: u32 = 1 << 10;
    pub(crate) const MCSTCTRL_FILTER: u32 = 1 << 2;
    pub(crate) const VLNCTRL_FILTER: u32 = 1 << 30;
    pub(crate) const ADDRESS_VALID: u32 = 1 << 31;
    pub(crate) const DMATXCTL_ENABLE: u32 = 1 << 0;
    pub(crate) const RTTDCS_ARBITER_DISABLE: u32 = 1 << 6;
    pub(crate) const HLREG0_TX_CRC: u32 = 1 << 0;
    pub(crate) const HLREG0_RX_CRC_STRIP: u32 = 1 << 1;
    pub(crate) const HLREG0_JUMBO: u32 = 1 << 2;
    pub(crate) const HLREG0_TX_PAD: u32 = 1 << 10;
    pub(crate) const HLREG0_LOOPBACK: u32 = 1 << 15;
    /// The link is up, whatever the other side says.
    pub(crate) const AUTOC_FORCE: u32 = 1 << 0;
    /// Of LMS: the link is negotiated with a backplane.
    pub(crate) const AUTOC_BACKPLANE: u32 = 1 << 15;
    /// Negotiation has begun.
    pub(crate) const ANLP1_STATE: u32 = 1 << 16;
    pub(crate) const FDIRCTRL_DONE: u32 = 1 << 3;
    pub(crate) const FDIRCTRL_PERFECT: u32 = 1 << 4;
    /// Descriptors tell the filter that matched.
    pub(crate) const FDIRCTRL_REPORT: u32 = 1 << 5;
    pub(crate) const FDIRCTRL_DROP_SHIFT: u32 = 8;
    /// Where two bytes of a frame lie, in units of two.
    pub(crate) const FDIRCTRL_PLACE_SHIFT: u32 = 16;
    pub(crate) const FDIRCMD_VALID: u32 = 1 << 2;
    pub(crate) const FDIRCMD_KIND_SHIFT: u32 = 5;
    pub(crate) const FDIRCMD_CLEAR: u32 = 1 << 8;
    pub(crate) const FDIRCMD_DROP: u32 = 1 << 9;
    pub(crate) const FDIRCMD_QUEUE_SHIFT: u32 = 16;
    /// Of FDIRM: what does not count.
    pub(crate) const FDIRM_VLAN: u32 = 1 << 0;
    pub(crate) const FDIRM_PRIORITY: u32 = 1 << 1;
    pub(crate) const FDIRM_PROTOCOL: u32 = 1 << 3;
    pub(crate) const FDIRM_BYTES: u32 = 1 << 4;
    /// What the flow director is to do; zero when it is done.
    pub(crate) const FDIRCMD_COMMAND: u32 = 3;
    pub(crate) const RXCSUM_HASH: u32 = 1 << 13;
    pub(crate) const AUTOC_RESTART: u32 = 1 << 12;
    pub(crate) const LINKS_UP: u32 = 1 << 30;
    pub(crate) const LINKS_SPEED_10G: u32 = 3 << 28;
    pub(crate) const SWSM_HELD: u32 = 1 << 0;
    pub(crate) const HEAD_WRITE_BACK: u32 = 1 << 0;
}

/// The queue whose register lies at this offset.
#[inline]
pub(crate) fn rx_queue_of(offset: usize) -> usize {
    if offset >= at::RX_QUEUE_HIGH {
        64 + (offset - at::RX_QUEUE_HIGH) / 64
    } else {
        (offset - at::RX_QUEUE) / 64
    }
}

/// The offset of the register of a queue that queue 0 has at `offset`.
#[inline]
pub(crate) fn rx_queue_at(queue: usize, offset: usize) -> usize {
    let base = if queue < 64 {
        at::RX_QUEUE
    } else {
        at::RX_QUEUE_HIGH
    };
    base + (queue & 63) * 64 + (offset - at::RX_QUEUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_registers_share_an_offset() {
        let mut taken = std::collections::HashMap::new();
        for alias in ALIASES {
            for index in 0..alias.count {
                assert_eq!(
                    taken.insert(alias.offset + index * alias.stride, "alias"),
                    None
                );
                let place = file().find(alias.offset + index * alias.stride);
                let of = alias.of + index * alias.of_stride;
                assert_eq!(
                    place.map(|place| (place.offset, place.index)),
                    Some((of, index))
                );
            }
        }
        for register in TABLES.iter().copied().flatten() {
            for index in 0..register.count {
                let offset = register.offset + index * register.stride;
                assert!(offset.is_multiple_of(4) && offset < REGISTER_BYTES);
                assert_eq!(
                    taken.insert(offset, register.name),
                    None,
                    "{}",
                    register.name
                );
            }
        }
    }

    #[test]
    fn a_register_is_writable_or_readable_and_has_a_section() {
        for register in TABLES.iter().copied().flatten() {
            assert_eq!(
                register.writable & register.readable,
                0,
                "{}",
                register.name
            );
            assert!(register.section.starts_with("8.2.3."), "{}", register.name);
        }
    }

    #[test]
    fn queues_of_both_halves_are_found() {
        let file = file();
        for queue in [0, 1, 63, 64, 127] {
            let offset = rx_queue_at(queue, 0x1018);
            assert_eq!(rx_queue_of(offset), queue);
            assert_eq!(
                file.find(offset).map(|place| place.register.name),
                Some("RDT")
            );
        }
        // Counters of queues are found by their number as well.
        let place = file
            .find(0x1430 + 0x3c0)
            .map(|place| (place.register.name, place.index));
        assert_eq!(place, Some(("QPRDC", 15)));
    }
}
