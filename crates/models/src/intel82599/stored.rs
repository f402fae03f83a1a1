//! Registers that this model only stores: what drivers set up, look at or print, and what changes
//! nothing here (datasheet, 8.2.3). Those with effects are in [`super::registers`].

use super::registers::{Counter::*, Half::Whole};
use super::registers::{Id, count, many, one, plain};
use crate::registers::Register;

const ALL: u32 = u32::MAX;

#[rustfmt::skip]
pub(super) const STORED: &[Register<Id>] = &[
    // General control and timers.
    one(Id::Plain, "FRTIMER", 0x00048, [0, 0, ALL], "8.2.3.19"),
    plain("TCPTIMER", 0x0004c, 1, "8.2.3.19"),
    one(Id::Plain, "EXVET", 0x05078, [0x8100_0000, 0xffff_0000, 0], "8.2.3.1"),
    // EEPROM and flash: access of firmware, and of software to the flash.
    plain("FLA", 0x1001c, 1, "8.2.3.2"),
    plain("EEMNGCTL", 0x10110, 1, "8.2.3.2"),
    plain("EEMNGDATA", 0x10114, 1, "8.2.3.2"),
    plain("FLMNGCTL", 0x10118, 1, "8.2.3.2"),
    plain("FLMNGDATA", 0x1011c, 1, "8.2.3.2"),
    plain("FLMNGCNT", 0x10120, 1, "8.2.3.2"),
    plain("FLOP", 0x1013c, 1, "8.2.3.2"),
    plain("GRC", 0x10200, 1, "8.2.3.2"),
    // Flow control: the EtherType and the opcode of its frames.
    plain("PFCTOP", 0x03008, 1, "8.2.3.3.1"),
    // PCIe. Both functions are in full power; this is the first.
    plain("GCR", 0x11000, 1, "8.2.3.4"),
    plain("GSCL", 0x11010, 2, "8.2.3.4"),
    plain("GSCN", 0x11020, 4, "8.2.3.4"),
    plain("GSCL_5_8", 0x11030, 4, "8.2.3.4"),
    plain("PBACL", 0x11068, 1, "8.2.3.6"),
    one(Id::Plain, "FACTPS", 0x10150, [0x3, 0, ALL], "8.2.3.4"),
    // Flow director, but for its control and commands.
    plain("FDIRHKEY", 0x0ee68, 1, "8.2.3.21"),
    plain("FDIRSKEY", 0x0ee6c, 1, "8.2.3.21"),
    plain("FDIRDIP4M", 0x0ee3c, 1, "8.2.3.21"),
    plain("FDIRSIP4M", 0x0ee40, 1, "8.2.3.21"),
    plain("FDIRTCPM", 0x0ee44, 1, "8.2.3.21"),
    plain("FDIRUDPM", 0x0ee48, 1, "8.2.3.21"),
    plain("FDIRSCTPM", 0x0ee78, 1, "8.2.3.21"),
    plain("FDIRIP6M", 0x0ee74, 1, "8.2.3.21"),
    plain("FDIRM", 0x0ee70, 1, "8.2.3.21"),
    plain("FDIRSIPV6", 0x0ee0c, 3, "8.2.3.21"),
    plain("FDIRIPSA", 0x0ee18, 1, "8.2.3.21"),
    plain("FDIRIPDA", 0x0ee1c, 1, "8.2.3.21"),
    plain("FDIRPORT", 0x0ee20, 1, "8.2.3.21"),
    plain("FDIRVLAN", 0x0ee24, 1, "8.2.3.21"),
    plain("FDIRHASH", 0x0ee28, 1, "8.2.3.21"),
    one(Id::Plain, "FDIRFREE", 0x0ee38, [0x8000, ALL, 0], "8.2.3.21"),
    one(Id::Plain, "FDIRLEN", 0x0ee4c, [0, 0, ALL], "8.2.3.21"),
    one(Id::Plain, "FDIRUSTAT", 0x0ee50, [0, 0, ALL], "8.2.3.21"),
    one(Id::Plain, "FDIRFSTAT", 0x0ee54, [0, 0, ALL], "8.2.3.21"),
    count(FlowMatched, Whole, "FDIRMATCH", (0x0ee58, 1, 4)),
    count(FlowMissed, Whole, "FDIRMISS", (0x0ee5c, 1, 4)),
    // Five-tuple filters of immediate interrupts and queues.
    plain("L34TIMIR", 0x0e800, 128, "8.2.3.7"),
    // Data centre bridging: rates.
    plain("RTTBCNRM", 0x04980, 1, "8.2.3.10"),
    one(Id::Plain, "RTTBCNRS", 0x04988, [0, 0, ALL], "8.2.3.10"),
    // Security.
    plain("SECTXBUFFAF", 0x08808, 1, "8.2.3.12"),
    // MAC and its links of 1 Gb/s, which a module for 10 Gb/s has no use for.
    plain("PCS1GCFIG", 0x04200, 1, "8.2.3.22"),
    plain("PCS1GLCTL", 0x04208, 1, "8.2.3.22"),
    one(Id::Plain, "PCS1GLSTA", 0x0420c, [0, 0, ALL], "8.2.3.22"),
    plain("PCS1GDBG", 0x04210, 2, "8.2.3.22"),
    plain("PCS1GANA", 0x04218, 1, "8.2.3.22"),
    one(Id::Plain, "PCS1GANLP", 0x0421c, [0, 0, ALL], "8.2.3.22"),
    plain("PCS1GANNP", 0x04220, 1, "8.2.3.22"),
    one(Id::Plain, "PCS1GANLPNP", 0x04224, [0, 0, ALL], "8.2.3.22"),
    one(Id::Plain, "HLREG1", 0x04244, [0, 0, ALL], "8.2.3.22"),
    plain("PAP", 0x04248, 1, "8.2.3.22"),
    plain("MACA", 0x0424c, 1, "8.2.3.22"),
    plain("APAE", 0x04250, 3, "8.2.3.22"),
    plain("MLADD", 0x04264, 1, "8.2.3.22"),
    plain("TREG", 0x0426c, 1, "8.2.3.22"),
    one(Id::Plain, "PCSS", 0x04288, [0, 0, ALL], "8.2.3.22"),
    one(Id::Plain, "PCSS2", 0x0428c, [0, 0, ALL], "8.2.3.22"),
    one(Id::Plain, "XPCSS", 0x04290, [0, 0, ALL], "8.2.3.22"),
    plain("SERDESC", 0x04298, 1, "8.2.3.22"),
    one(Id::Plain, "MACS", 0x0429c, [0, 0, ALL], "8.2.3.22"),
    plain("AUTOC3", 0x042ac, 1, "8.2.3.22"),
    one(Id::Plain, "ANLP2", 0x042b4, [0, 0, ALL], "8.2.3.22"),
    one(Id::Plain, "MMNGC", 0x042d0, [0, 0, ALL], "8.2.3.22"),
    plain("MACC", 0x04330, 1, "8.2.3.22"),
    plain("CORECTL", 0x14f00, 1, "8.2.3.22"),
    // Wake-up and management.
    one(Id::ClearedByOnes, "WUS", 0x05810, [0, ALL, 0], "8.2.3.24"),
    plain("MANC", 0x05820, 1, "8.2.3.25"),
    plain("IPAV", 0x05838, 1, "8.2.3.24"),
    many(Id::Plain, "IP4AT", (0x05840, 4, 8), [0, ALL, 0], "8.2.3.24"),
    plain("IP6AT", 0x05880, 4, "8.2.3.24"),
    one(Id::Plain, "WUPL", 0x05900, [0, 0, ALL], "8.2.3.24"),
    one(Id::Plain, "WUPM", 0x05a00, [0, 0, ALL], "8.2.3.24"),
    plain("FHFT", 0x09000, 384, "8.2.3.24"),
    // The host's interface to firmware, which is off.
    plain("HICR", 0x15f00, 1, "8.2.3.25"),
    plain("FWSTS", 0x15f0c, 1, "8.2.3.25"),
    // Counters of management and of what it exchanges with software.
    count(Never, Whole, "MNGPTC", (0x0cf90, 1, 4)),
    count(Never, Whole, "BUPRC", (0x04180, 1, 4)),
    count(Never, Whole, "BMPRC", (0x04184, 1, 4)),
    count(Never, Whole, "BBPRC", (0x04188, 1, 4)),
    // Time stamps: the clock stands still.
    plain("TSYNCTXCTL", 0x08c00, 1, "8.2.3.26"),
    one(Id::Plain, "TXSTMP", 0x08c04, [0, 0, ALL], "8.2.3.26"),
    one(Id::Plain, "TXSTMPH", 0x08c08, [0, 0, ALL], "8.2.3.26"),
    plain("SYSTIM", 0x08c0c, 2, "8.2.3.26"),
    plain("TIMINCA", 0x08c14, 1, "8.2.3.26"),
    plain("TIMADJ", 0x08c18, 2, "8.2.3.26"),
    plain("TSAUXC", 0x08c20, 1, "8.2.3.26"),
    plain("TRGTTIME", 0x08c24, 4, "8.2.3.26"),
    plain("FREQOUT", 0x08c34, 2, "8.2.3.26"),
    one(Id::Plain, "AUXSTMP", 0x08c3c, [0, 0, ALL], "8.2.3.26"),
    plain("TSYNCRXCTL", 0x05188, 1, "8.2.3.26"),
    one(Id::Plain, "RXSTMP", 0x051a4, [0, 0, ALL], "8.2.3.26"),
    one(Id::Plain, "RXSTMPL", 0x051e8, [0, 0, ALL], "8.2.3.26"),
    plain("RXMTRL", 0x05120, 1, "8.2.3.26"),
    // Virtualisation, which is off.
    plain("PFMBICR", 0x00710, 4, "8.2.3.27"),
    plain("PFVMVIR", 0x08000, 64, "8.2.3.27"),
    plain("PFVMTXSW", 0x05180, 2, "8.2.3.27"),
    plain("PFVFSPOOF", 0x08200, 8, "8.2.3.27"),
    plain("PFMRCTL", 0x0f600, 4, "8.2.3.27"),
];
