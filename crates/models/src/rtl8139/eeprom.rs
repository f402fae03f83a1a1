//! The EEPROM: words that the card loads by itself, and that its driver reads bit by bit
//! (datasheet, chapter 7).

use crate::microwire::Microwire;

/// The words of the Ethernet address.
pub(super) const ADDRESS: [usize; 3] = [7, 8, 9];

/// As the card leaves its maker.
pub(super) fn new(address: [u8; 6]) -> Microwire {
    let [a, b, c, d, e, f] = address;
    let words = [
        // What tells the card that there is something.
        0x8129,
        // Vendor and device, and those of the board.
        0x10ec,
        0x8139,
        0x10ec,
        0x8139,
        // Minimal grant and maximal latency.
        0x4020,
        // MSRBMCR and CONFIG3.
        0xe112,
        u16::from_le_bytes([a, b]),
        u16::from_le_bytes([c, d]),
        u16::from_le_bytes([e, f]),
    ];
    Microwire::new(&words)
}
