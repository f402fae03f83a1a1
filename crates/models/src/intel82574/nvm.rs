//! The non-volatile memory: words of 16 bits that the card and its driver read (datasheet, chapter
//! 6). It is an EEPROM.

/// Words that there are: 8 Kb. EEC.NVSize tells it (10.2.2.3).
const WORDS: usize = 1 << (NVM_SIZE + 6);
/// As EEC.NVSize tells it.
pub(crate) const NVM_SIZE: u32 = 3;
/// Words that this model's has; behind them, all are erased.
const PROGRAMMED: usize = 0x40;
/// What an erased word reads.
const ERASED: u16 = 0xffff;
/// The word that makes the sum of all up to it what it must be (6.1.2.8).
const CHECKSUM: usize = 0x3f;
const SUM: u16 = 0xbaba;

/// What the words say that are programmed, behind the address.
#[rustfmt::skip]
const PROGRAM: &[(u16, u16)] = &[
    // Compatibility: nothing is asked for. LEDs as the card has them. The version of all this.
    (0x03, 0), (0x04, ERASED), (0x05, 0x1000),
    // The board's number, in two words of digits.
    (0x08, 0), (0x09, 1),
    // IDs are loaded from here, and are Intel's.
    (0x0a, 0x0005), (0x0b, 0), (0x0c, 0x8086), (0x0d, 0x10d3), (0x0e, 0x8086),
    // Controls of hardware: no management, full duplex, the transceiver at full power.
    (0x0f, 0x8058), (0x10, 0), (0x11, 0x0007), (0x12, 0), (0x13, 0), (0x14, 0), (0x15, 0),
    (0x16, 0), (0x17, 0), (0x18, 0), (0x19, 0), (0x1a, 0), (0x1b, 0), (0x1c, 0), (0x1d, 0),
    (0x1e, 0x10d3), (0x1f, 0), (0x20, 0), (0x21, 0), (0x22, 0), (0x23, 0), (0x24, 0x0001),
];

/// What the words hold.
#[derive(Debug)]
pub(crate) struct Nvm([u16; PROGRAMMED]);

impl Nvm {
    /// As a card with this address leaves its maker (6.1.1.1).
    pub(crate) fn new(address: [u8; 6]) -> Self {
        let mut nvm = Self([ERASED; PROGRAMMED]);
        for (word, bytes) in nvm.0.iter_mut().zip(address.as_chunks::<2>().0) {
            *word = u16::from_le_bytes(*bytes);
        }
        for &(at, value) in PROGRAM {
            nvm.0[usize::from(at)] = value;
        }
        let add = |sum: u16, word: &u16| sum.wrapping_add(*word);
        nvm.0[CHECKSUM] = SUM.wrapping_sub(nvm.0[..CHECKSUM].iter().fold(0, add));
        nvm
    }

    /// A word.
    pub(crate) fn read(&self, word: usize) -> u16 {
        let word = word % WORDS;
        self.0.get(word).copied().unwrap_or(ERASED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_add_up_and_begin_with_the_address() {
        let nvm = Nvm::new([2, 0x11, 0x22, 0x33, 0x44, 0x55]);
        let sum = (0..=CHECKSUM).fold(0u16, |sum, at| sum.wrapping_add(nvm.read(at)));
        assert_eq!(sum, 0xbaba);
        assert_eq!([0, 1, 2].map(|at| nvm.read(at)), [0x1102, 0x3322, 0x5544]);
        assert_eq!(nvm.read(WORDS - 1), ERASED);
    }
}
