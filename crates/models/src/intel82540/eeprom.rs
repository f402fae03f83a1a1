//! The EEPROM: words of 16 bits that the card loads by itself, and that its driver reads (manual,
//! 5.6).

use crate::microwire::{Microwire, WORDS};

/// The word that makes the sum of all what it must be (5.6.35).
const CHECKSUM: usize = WORDS - 1;
const SUM: u16 = 0xbaba;

/// What the words say that are programmed, behind the address.
#[rustfmt::skip]
const PROGRAM: &[(usize, u16)] = &[
    // Compatibility: nothing is asked for. LEDs as the card has them. The version of all this.
    (0x03, 0), (0x04, 0xffff), (0x05, 0x1000),
    // The board's number, in two words of digits.
    (0x08, 0), (0x09, 1),
    // IDs are loaded from here, and are Intel's.
    (0x0a, 0x4408), (0x0b, 0x001e), (0x0c, 0x8086), (0x0d, 0x100e), (0x0e, 0x8086),
    // Controls of hardware, and none of waking up.
    (0x0f, 0x3040), (0x10, 0), (0x21, 0x7863), (0x24, 0),
];

/// As a card with this address leaves its maker.
pub(super) fn new(address: [u8; 6]) -> Microwire {
    let mut words = [0xffff; WORDS];
    for (word, bytes) in words.iter_mut().zip(address.as_chunks::<2>().0) {
        *word = u16::from_le_bytes(*bytes);
    }
    for &(at, value) in PROGRAM {
        words[at] = value;
    }
    let sum = words[..CHECKSUM]
        .iter()
        .fold(0u16, |sum, word| sum.wrapping_add(*word));
    words[CHECKSUM] = SUM.wrapping_sub(sum);
    Microwire::new(&words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_add_up_and_begin_with_the_address() {
        let eeprom = new([2, 0x11, 0x22, 0x33, 0x44, 0x55]);
        let words = (0..64).map(|at| eeprom.read(at));
        assert_eq!(words.fold(0u16, u16::wrapping_add), 0xbaba);
        assert_eq!(
            [0, 1, 2].map(|at| eeprom.read(at)),
            [0x1102, 0x3322, 0x5544]
        );
    }
}
