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
        "4.6.3",
        "8.2.3.7.9",
        "4.6.4",
        "8.2.3.22.8",
        "7.3.4",
        "4.2.1.6",
        "7.2",
        "7.1",
        "8.2.3.23",
    ],
};

const REGISTERS: [Register; 18] = [
    STATUS, CTRL, CTRL_EXT, ESDP, EEC, SW_FW_SYNC, GCR_EXT, AUTOC, LINKS, HLREG0, MAXFRS, RAL, RAH,
    FCTRL, RXCTRL, RDRXCTL, RXDCTL, TXDCTL,
];

/// 8.2.3.22.8: the MAC receives what it sends. The link is forced up for it, since nothing may be
/// plugged in.
fn loop_back(bar: &Mmio) {
    bar.change(AUTOC, AUTOC_FLU, 0);
    bar.change(HLREG0, HLREG0_LPBK, 0);
}
