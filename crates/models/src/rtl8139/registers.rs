//! The registers, as data (datasheet, chapter 6).

use crate::registers::{self, Register};

/// Bytes of registers, in either space (6).
pub(crate) const REGISTER_BYTES: usize = 0x100;

/// A register that does more than to hold what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Plain,
    /// The Ethernet address and the hash table: 4 bytes at a time.
    Wide,
    /// Where descriptors are for sending and receiving.
    TxBase,
    RxBase,
    Dump,
    Command,
    Mask,
    Status,
    TxConfig,
    RxConfig,
    Missed,
    Eeprom,
    /// What may be changed while the EEPROM's register says so.
    Locked,
    Media,
    Bmcr,
    Bmsr,
    Partner,
    Expansion,
    Poll,
    CPlus,
}

pub(crate) type RegisterFile = registers::RegisterFile<Id>;
pub(crate) type Place = registers::Place<Id>;

const ALL: u32 = u32::MAX;

/// A register: where it lies, how wide it is, what it holds after a reset, its writable bits, its
/// readable bits.
const fn one(
    id: Id,
    name: &'static str,
    (offset, width): (usize, usize),
    [reset, writable, readable]: [u32; 3],
) -> Register<Id> {
    many(id, name, (offset, 1, width), [reset, writable, readable])
}

/// Several, one after the other: offset of the first, number, width.
const fn many(
    id: Id,
    name: &'static str,
    (offset, count, width): (usize, usize, usize),
    [reset, writable, readable]: [u32; 3],
) -> Register<Id> {
    Register {
        id,
        name,
        offset,
        count,
        stride: width,
        width,
        reset,
        writable,
        readable,
        section: match id {
            Id::CPlus => "6.33",
            _ => "6",
        },
    }
}

/// All registers of the C+ mode, and those of the others that software may look at.
#[rustfmt::skip]
static TABLE: [Register<Id>; 54] = [
    one(Id::Wide, "IDR0", (0x00, 4), [0, ALL, 0]),
    one(Id::Wide, "IDR4", (0x04, 4), [0, 0xffff, 0]),
    many(Id::Wide, "MAR", (0x08, 2, 4), [0, ALL, 0]),
    one(Id::Dump, "DTCCR", (0x10, 4), [0, 0xffff_ffc8, 0]),
    one(Id::Plain, "DTCCR, high", (0x14, 4), [0, ALL, 0]),
    one(Id::TxBase, "TNPDS", (0x20, 4), [0, ALL, 0]),
    one(Id::Plain, "TNPDS, high", (0x24, 4), [0, ALL, 0]),
    one(Id::Plain, "THPDS", (0x28, 4), [0, ALL, 0]),
    one(Id::Plain, "THPDS, high", (0x2c, 4), [0, ALL, 0]),
    one(Id::Plain, "RBSTART", (0x30, 4), [0, ALL, 0]),
    one(Id::Plain, "ERBCR", (0x34, 2), [0, 0, 0xffff]),
    one(Id::Plain, "ERSR", (0x36, 1), [0, 0, 0x0f]),
    one(Id::Command, "CR", (0x37, 1), [1, 0x1c, 1]),
    one(Id::Plain, "CAPR", (0x38, 2), [0xfff0, 0xffff, 0]),
    one(Id::Plain, "CBR", (0x3a, 2), [0, 0, 0xffff]),
    one(Id::Mask, "IMR", (0x3c, 2), [0, 0xe1ff, 0]),
    one(Id::Status, "ISR", (0x3e, 2), [0, 0xe1ff, 0]),
    one(Id::TxConfig, "TCR", (0x40, 4), [HARDWARE, 0x030f_07f1, 0x7cc0_0000]),
    one(Id::RxConfig, "RCR", (0x44, 4), [0, 0x0f03_ffff, 0]),
    one(Id::Plain, "TCTR", (0x48, 4), [0, ALL, 0]),
    one(Id::Missed, "MPC", (0x4c, 4), [0, ALL, 0]),
    one(Id::Eeprom, "9346CR", (0x50, 1), [0, 0xce, 0x01]),
    one(Id::Locked, "CONFIG0", (0x51, 1), [0, 0, 0xff]),
    one(Id::Locked, "CONFIG1", (0x52, 1), [0x0c, 0xf3, 0x0c]),
    one(Id::Plain, "TimerInt", (0x54, 4), [0, ALL, 0]),
    one(Id::Media, "MSR", (0x58, 1), [0x10, 0xc0, 0x1f]),
    one(Id::Locked, "CONFIG3", (0x59, 1), [0, 0x76, 0x89]),
    one(Id::Locked, "CONFIG4", (0x5a, 1), [0, 0xff, 0]),
    one(Id::Plain, "MULINT", (0x5c, 2), [0, 0x0fff, 0]),
    one(Id::Plain, "RERID", (0x5e, 1), [0x10, 0, 0xff]),
    one(Id::Plain, "TSAD", (0x60, 2), [0, 0, 0xffff]),
    one(Id::Bmcr, "BMCR", (0x62, 2), [0x3100, 0xb300, 0]),
    one(Id::Bmsr, "BMSR", (0x64, 2), [0x7809, 0, 0x24]),
    one(Id::Plain, "ANAR", (0x66, 2), [0x05e1, 0x2dff, 0x5000]),
    one(Id::Partner, "ANLPAR", (0x68, 2), [0, 0, 0xffff]),
    one(Id::Expansion, "ANER", (0x6a, 2), [0, 0, 0x1f]),
    one(Id::Plain, "DIS", (0x6c, 2), [0, 0, 0xffff]),
    one(Id::Plain, "FCSC", (0x6e, 2), [0, 0, 0xffff]),
    one(Id::Plain, "NWAYTR", (0x70, 2), [0, 0x80, 0x0f]),
    one(Id::Plain, "REC", (0x72, 2), [0, 0, 0xffff]),
    one(Id::Plain, "CSCR", (0x74, 2), [0x3c8, 0xffff, 0]),
    one(Id::Plain, "PHY1_PARM", (0x78, 4), [0, ALL, 0]),
    one(Id::Plain, "TW_PARM", (0x7c, 4), [0, ALL, 0]),
    one(Id::Plain, "PHY2_PARM", (0x80, 1), [0, 0xff, 0]),
    one(Id::Plain, "TDOKAD", (0x82, 2), [0, 0, 0xffff]),
    // Frames that wake the host up, which this one lets sleep.
    many(Id::Plain, "CRC", (0x84, 8, 1), [0, 0xff, 0]),
    many(Id::Plain, "Wakeup", (0x8c, 16, 4), [0, ALL, 0]),
    many(Id::Plain, "LSBCRC", (0xcc, 8, 1), [0, 0xff, 0]),
    one(Id::Plain, "CONFIG5", (0xd8, 1), [0, 0xff, 0]),
    one(Id::Poll, "TPPoll", (0xd9, 1), [0, 0xc0, 0]),
    one(Id::CPlus, "C+CR", (0xe0, 2), [0, 0x7b, 0]),
    one(Id::RxBase, "RDSAR", (0xe4, 4), [0, ALL, 0]),
    one(Id::Plain, "RDSAR, high", (0xe8, 4), [0, ALL, 0]),
    one(Id::Plain, "MTPS", (0xec, 1), [0, 0x3f, 0]),
];

pub(crate) static TABLES: [&[Register<Id>]; 1] = [&TABLE];

/// Of TCR: that the card is an 8139C+ (6, TCR).
const HARDWARE: u32 = 0x7480_0000;

/// The registers, as after a reset.
pub(crate) fn file() -> RegisterFile {
    RegisterFile::new(REGISTER_BYTES, &TABLES, &[], None)
}

/// Offsets of the registers that the model itself looks at: those of the four bytes around them.
pub(crate) mod at {
    pub(crate) const IDR: usize = 0x00;
    pub(crate) const MAR: usize = 0x08;
    /// The last of the registers that are accessed four bytes at a time.
    pub(crate) const WIDE_END: usize = 0x10;
    pub(crate) const DTCCR: usize = 0x10;
    pub(crate) const TNPDS: usize = 0x20;
    pub(crate) const CR: usize = 0x34;
    pub(crate) const RCR: usize = 0x44;
    pub(crate) const EECR: usize = 0x50;
    pub(crate) const CPLUS: usize = 0xe0;
    pub(crate) const RDSAR: usize = 0xe4;
}

/// Bits of registers that the model looks at, of four bytes around them where these are named.
pub(crate) mod bit {
    pub(crate) const DUMP: u32 = 1 << 3;
    pub(crate) const RESET: u32 = 1 << 4;
    /// Of the four bytes around CR.
    pub(crate) const RX_ON: u32 = 1 << (24 + 3);
    pub(crate) const TX_ON: u32 = 1 << (24 + 2);
    /// Of CR alone.
    pub(crate) const CR_RX_ON: u32 = 1 << 3;
    pub(crate) const CR_TX_ON: u32 = 1 << 2;
    pub(crate) const ACCEPT_ALL: u32 = 1 << 0;
    pub(crate) const ACCEPT_MATCH: u32 = 1 << 1;
    pub(crate) const ACCEPT_MULTICAST: u32 = 1 << 2;
    pub(crate) const ACCEPT_BROADCAST: u32 = 1 << 3;
    /// 9346CR: data out; the lines in; and both bits that allow configuration.
    pub(crate) const EE_OUT: u32 = 1 << 0;
    pub(crate) const EE_IN: u32 = 1 << 1;
    pub(crate) const EE_CLOCK: u32 = 1 << 2;
    pub(crate) const EE_SELECT: u32 = 1 << 3;
    pub(crate) const EE_MODE: u32 = 0xc0;
    /// The EEPROM's lines are software's.
    pub(crate) const EE_MODE_LINES: u32 = 0x80;
    /// CONFIGx and bits of BMCR can be written.
    pub(crate) const EE_MODE_CONFIG: u32 = 0xc0;
    pub(crate) const MEDIA_LINK_FAILS: u32 = 1 << 2;
    pub(crate) const BMCR_RESET: u32 = 1 << 15;
    pub(crate) const BMCR_RESTART: u32 = 1 << 9;
    /// Those that are locked with CONFIGx.
    pub(crate) const BMCR_LOCKED: u32 = 1 << 13 | 1 << 12 | 1 << 8;
    pub(crate) const BMSR_LINK: u32 = 1 << 2;
    pub(crate) const BMSR_NEGOTIATED: u32 = 1 << 5;
    pub(crate) const POLL_HIGH: u32 = 1 << 7;
    pub(crate) const POLL_NORMAL: u32 = 1 << 6;
    pub(crate) const CPLUS_TX: u32 = 1 << 0;
    pub(crate) const CPLUS_RX: u32 = 1 << 1;
    pub(crate) const CPLUS_CHECK: u32 = 1 << 5;
    pub(crate) const CPLUS_VLAN: u32 = 1 << 6;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_registers_share_a_byte() {
        let mut taken = [""; REGISTER_BYTES];
        for register in &TABLE {
            let bytes = register.count * register.width;
            assert!(register.offset.is_multiple_of(register.width));
            for place in &mut taken[register.offset..register.offset + bytes] {
                assert_eq!(*place, "", "{}", register.name);
                *place = register.name;
            }
            assert_eq!(
                register.writable & register.readable,
                0,
                "{}",
                register.name
            );
        }
    }
}
