//! The 82574L that the [`Puppet`](crate::net::puppet::Puppet) plays.

use super::registers as reg;
use super::{Driver, Error, NicCounts, State};
use crate::net::puppet::{self, Part, Ring};
use hw::Register;

/// The address in its EEPROM.
pub const MAC: [u8; 6] = [0x02, 0x00, 0x00, 0x82, 0x57, 0x4c];

/// What a puppet knows of an 82574L.
pub struct Intel82574;

/// The device's end.
pub type Puppet = puppet::Puppet<Intel82574>;

impl Part for Intel82574 {
    const BAR_BYTES: usize = reg::BAR_BYTES;
    const RECEIVE: Ring = Ring {
        low: reg::RDBAL,
        high: reg::RDBAH,
        len: reg::RDLEN,
        tail: reg::RDT,
    };
    const TRANSMIT: Ring = Ring {
        low: reg::TDBAL,
        high: reg::TDBAH,
        len: reg::TDLEN,
        tail: reg::TDT,
    };
    const RESET: (Register, u32) = (reg::CTRL, reg::ctrl::RST);
    const LINK: (Register, u32) = (reg::STATUS, reg::status::LU | 2 << reg::status::SPEED_SHIFT);
    const READY: &'static [(Register, u32)] = &[
        (
            reg::RAL,
            u32::from_le_bytes([MAC[0], MAC[1], MAC[2], MAC[3]]),
        ),
        (
            reg::RAH,
            u32::from_le_bytes([MAC[4], MAC[5], 0, 0]) | reg::rah::AV,
        ),
        (reg::EEC, reg::eec::AUTO_RD),
    ];
}

impl<const RX: usize, const TX: usize> Driver<RX, TX> {
    /// Makes the driver as new: a fuzzer has no memory for one per input.
    ///
    /// # Errors
    /// As for [`Driver::new`].
    pub fn renew(&mut self, clock: impl Fn() -> u64) -> Result<(), Error> {
        self.state = State::Failed;
        self.resets = 0;
        self.counts = NicCounts::default();
        self.start(clock)
    }
}
