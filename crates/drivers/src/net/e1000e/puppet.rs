//! The 82574L that the [`Puppet`](crate::net::puppet::Puppet) plays.

use super::registers::*;
use super::{Driver, NicCounts, State};
use crate::net::Error;
use crate::net::puppet::{self, Part, Ring};
use crate::net::recovery::Recovery;
use hw::Register;

/// The address in its EEPROM.
pub const MAC: [u8; 6] = [0x02, 0x00, 0x00, 0x82, 0x57, 0x4c];

/// What a puppet knows of an 82574L.
pub struct Intel82574;

/// The device's end.
pub type Puppet = puppet::Puppet<Intel82574>;

impl Part for Intel82574 {
    const BAR_BYTES: usize = BAR_BYTES;
    const RECEIVE: Ring = Ring {
        low: RDBAL,
        high: RDBAH,
        len: RDLEN,
        tail: RDT,
    };
    const TRANSMIT: Ring = Ring {
        low: TDBAL,
        high: TDBAH,
        len: TDLEN,
        tail: TDT,
    };
    const RESET: (Register, u32) = (CTRL, CTRL_RST);
    const LINK: (Register, u32) = (STATUS, STATUS_LU | 2 << STATUS_SPEED_SHIFT);
    const READY: &'static [(Register, u32)] = &[
        (RAL, u32::from_le_bytes([MAC[0], MAC[1], MAC[2], MAC[3]])),
        (RAH, u32::from_le_bytes([MAC[4], MAC[5], 0, 0]) | RAH_AV),
        (EEC, EEC_AUTO_RD),
    ];
}

impl<const RX: usize, const TX: usize> Driver<RX, TX> {
    /// Makes the driver as new: a fuzzer has no memory for one per input.
    ///
    /// # Errors
    /// As for [`Driver::new`].
    pub fn renew(&mut self, clock: impl Fn() -> u64) -> Result<(), Error> {
        self.state = State::Faulty;
        self.counts = NicCounts::default();
        self.recovery = Recovery::default();
        self.start(clock)
    }
}
