//! The EEPROM: words of 16 bits that the card and its driver read (datasheet, chapter 6).

/// Words that there are.
const WORDS: usize = 1 << (EEPROM_SIZE + 6);
/// As EEC.EE_SIZE tells it (8.2.3.2.1): 16 KiB.
pub(crate) const EEPROM_SIZE: u32 = 7;
/// Words that this model's has; behind them, all are erased.
const PROGRAMMED: usize = 0x80;
/// What an erased word reads, and a pointer to nothing.
const ERASED: u16 = 0xffff;
/// The word that makes the sum of all up to it what it must be (6.4.4).
const CHECKSUM: usize = 0x3f;
const SUM: u16 = 0xbaba;
/// Pointers to sections of so many words, which are added as well (6.4.4).
const SUMMED: std::ops::Range<usize> = 3..0xf;

/// Where sections lie that pointers name.
const BOARD_NUMBER: u16 = 0x50;
const FIRMWARE: u16 = 0x60;
const PASS_THROUGH: u16 = 0x68;
const MODULES: u16 = 0x72;
const MODULE_SETUP: u16 = 0x78;

/// What the words say that are programmed.
#[rustfmt::skip]
const PROGRAM: &[(u16, u16)] = &[
    // Controls of hardware, in pairs: nothing beyond the defaults.
    (0x00, 0), (0x01, 0), (0x02, 0),
    // Where the firmware's section is (6.3.1).
    (0x0f, FIRMWARE),
    // The board's number is text: so says this mark, and the next word where it is (6.3.4).
    (0x15, 0xfafa), (0x16, BOARD_NUMBER),
    // The modules that are known (6.3.5).
    (0x2b, MODULES),
    // What the card can: any module, and no FCoE.
    (0x2c, 0x0003),
    // The version of all this, the high half marked as valid.
    (0x2d, 0x0001), (0x2e, 0x8000),
    // Words of this section, and the text.
    (BOARD_NUMBER, 6),
    (BOARD_NUMBER + 1, text(b"OU")), (BOARD_NUMBER + 2, text(b"TB")),
    (BOARD_NUMBER + 3, text(b"RD")), (BOARD_NUMBER + 4, text(b"-0")),
    (BOARD_NUMBER + 5, text(b"01")),
    // Firmware: where the part for optical modules is, and its version, which must be 6 or later.
    (FIRMWARE + 4, PASS_THROUGH),
    (PASS_THROUGH + 7, 6),
    // For SR and LR modules in the first cage, the list of writes to CORECTL, which is empty.
    (MODULES, 2), (MODULES + 1, 5), (MODULES + 2, MODULE_SETUP),
    (MODULE_SETUP, 1),
];

/// Two letters.
const fn text(letters: &[u8; 2]) -> u16 {
    u16::from_be_bytes(*letters)
}

/// What the words hold.
#[derive(Debug)]
pub(crate) struct Eeprom([u16; PROGRAMMED]);

impl Eeprom {
    /// As the card leaves its maker.
    pub(crate) fn new() -> Self {
        let mut eeprom = Self([ERASED; PROGRAMMED]);
        for &(at, value) in PROGRAM {
            eeprom.0[usize::from(at)] = value;
        }
        eeprom.0[CHECKSUM] = SUM.wrapping_sub(eeprom.sum());
        eeprom
    }

    /// The sum of all words in front of the checksum, and of the sections that count.
    fn sum(&self) -> u16 {
        let add = |sum: u16, word: u16| sum.wrapping_add(word);
        let sections = SUMMED.map(|pointer| self.section(pointer));
        let words = (0..CHECKSUM).map(|at| self.read(at)).fold(0, add);
        sections.fold(words, add)
    }

    /// The sum of the section that a pointer names.
    fn section(&self, pointer: usize) -> u16 {
        let none = |word: u16| word == 0 || word == ERASED;
        let start = usize::from(self.read(pointer));
        let len = self.read(start);
        if none(self.read(pointer)) || none(len) {
            return 0;
        }
        let words = (start + 1..=start + usize::from(len)).map(|at| self.read(at));
        words.fold(0, u16::wrapping_add)
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
    fn the_words_add_up() {
        let eeprom = Eeprom::new();
        let sum = (0..=CHECKSUM).fold(0u16, |sum, at| sum.wrapping_add(eeprom.read(at)));
        assert_eq!(sum, 0xbaba, "no section counts");
        assert_eq!(eeprom.read(WORDS - 1), ERASED);
    }

    #[test]
    fn the_board_has_a_number() {
        let eeprom = Eeprom::new();
        assert_eq!(eeprom.read(0x15), 0xfafa);
        let start = usize::from(eeprom.read(0x16));
        let words = start + 1..start + usize::from(eeprom.read(start));
        let letters: Vec<u8> = words.flat_map(|at| eeprom.read(at).to_be_bytes()).collect();
        assert_eq!(letters, *b"OUTBRD-001");
    }

    #[test]
    fn sr_modules_are_known_and_the_list_ends() {
        let eeprom = Eeprom::new();
        let list = usize::from(eeprom.read(0x2b)) + 1;
        assert_eq!(eeprom.read(list), 5);
        let setup = usize::from(eeprom.read(list + 1));
        assert_eq!(
            (eeprom.read(setup + 1), eeprom.read(list + 2)),
            (ERASED, ERASED)
        );
    }
}
