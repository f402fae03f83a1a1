//! What a checkup of the device looks at.

use super::registers::*;
use crate::net::checkup::Examination;
use hw::{Mmio, Register};

/// See [`Examination`].
pub const EXAMINATION: Examination = Examination {
    registers: &REGISTERS,
    sent: GPTC,
    loop_back,
    sections: [
        "4.6", "4.6.5", "4.6.3", "10.2.5", "7.4", "10.2.2", "7.2", "7.1", "10.2.7",
    ],
};

const REGISTERS: [Register; 12] = [
    STATUS, CTRL, CTRL_EXT, EEC, GCR, IVAR, RAL, RAH, RCTL, RXDCTL, TCTL, TXDCTL,
];

/// 10.2.5: the MAC receives what it sends, if the PHY has a link.
fn loop_back(bar: &Mmio) {
    bar.change(RCTL, RCTL_LBM_MAC, 0);
}
