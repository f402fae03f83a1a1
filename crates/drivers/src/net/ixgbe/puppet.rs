//! The 82599 that the [`Puppet`](crate::net::puppet::Puppet) plays.

use super::registers::*;
use super::{Driver, NicCounts, State, init, wait};
use crate::net::Error;
use crate::net::puppet::{self, Part, Ring};
use crate::net::recovery::Recovery;
use hw::Register;

pub use super::descriptor::{RX_DD, RX_EOP, RX_IPE, RX_L4E, RX_RXE, TX_DD};

/// The address in its EEPROM.
pub const MAC: [u8; 6] = [0x02, 0x00, 0x00, 0x82, 0x59, 0x99];

/// What a puppet knows of an 82599.
pub struct Intel82599;

/// The device's end.
pub type Puppet = puppet::Puppet<Intel82599>;

impl Part for Intel82599 {
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
    const RESET: (Register, u32) = (CTRL, CTRL_RST | CTRL_LRST);
    const LINK: (Register, u32) = (LINKS, LINKS_UP | 3 << LINKS_SPEED_SHIFT);
    const READY: &'static [(Register, u32)] = &[
        (STATUS, 0),
        (RAL, u32::from_le_bytes([MAC[0], MAC[1], MAC[2], MAC[3]])),
        (RAH, u32::from_le_bytes([MAC[4], MAC[5], 0, 0]) | RAH_AV),
        (EEC, EEC_AUTO_RD),
        (RDRXCTL, RDRXCTL_DMA_DONE),
        (SECRXSTAT, SECRXSTAT_READY),
    ];
}

impl<const RX: usize, const TX: usize> Driver<RX, TX> {
    /// Makes the driver as new: a fuzzer has no memory for one per input.
    ///
    /// # Errors
    /// As for [`Driver::new`].
    pub fn renew(&mut self, clock: impl Fn() -> u64) -> Result<(), Error> {
        let wait = &mut wait::by(clock);
        init::reset(&self.bar, wait);
        wait(init::RESET_NANOSECONDS);
        self.state = State::Running;
        self.counts = NicCounts::default();
        self.recovery = Recovery::default();
        self.bring_up(wait)
    }
}
