//! A serial EEPROM like the 93C46: 64 words of 16 bits behind three lines in and one line out
//! (Microwire). Cards keep their Ethernet address in one, and have software shift every bit.

/// Words that there are.
pub(crate) const WORDS: usize = 1 << ADDRESS_BITS;
/// Bits of an address; two of an instruction stand before it.
const ADDRESS_BITS: u32 = 6;
const COMMAND_BITS: u32 = 2 + ADDRESS_BITS;
const WORD_BITS: u32 = 16;
/// What an erased word holds.
const ERASED: u16 = 0xffff;

/// The lines into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Chip select.
    pub(crate) select: bool,
    /// The clock: what `data` says counts when it rises.
    pub(crate) clock: bool,
    /// Data in.
    pub(crate) data: bool,
}

/// What it waits for.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// The start bit, a one.
    #[default]
    Start,
    /// The rest of an instruction, of which so many bits came.
    Command(u32, u16),
    /// Clocks: the next bits of words from here on are read.
    Read(usize, u32),
    /// Bits of a word that is to be written here, or everywhere.
    Write(Option<usize>, u32, u16),
    /// To be deselected.
    Done,
}

/// The memory, which keeps its words when the card is reset.
#[derive(Debug)]
pub(crate) struct Microwire {
    words: [u16; WORDS],
    lines: Lines,
    state: State,
    writable: bool,
    out: bool,
}

impl Microwire {
    /// A memory with these words, the rest of it erased.
    pub(crate) fn new(words: &[u16]) -> Self {
        let mut all = [ERASED; WORDS];
        for (place, word) in all.iter_mut().zip(words) {
            *place = *word;
        }
        Self {
            words: all,
            lines: Lines::default(),
            state: State::Start,
            writable: false,
            out: true,
        }
    }

    /// A word; addresses wrap.
    pub(crate) fn read(&self, address: usize) -> u16 {
        self.words[address % WORDS]
    }

    /// Data out: while nothing is read, that it is ready.
    pub(crate) fn out(&self) -> bool {
        self.out
    }

    /// Sets the lines.
    pub(crate) fn drive(&mut self, lines: Lines) {
        let rises = lines.clock && !self.lines.clock;
        self.lines = lines;
        if !lines.select {
            self.state = State::Start;
            self.out = true;
        } else if rises {
            self.state = self.step(u16::from(lines.data));
        }
    }

    fn step(&mut self, bit: u16) -> State {
        match self.state {
            State::Start if bit == 1 => State::Command(0, 0),
            State::Command(count, bits) => {
                let bits = bits << 1 | bit;
                match count + 1 {
                    COMMAND_BITS => self.obey(bits),
                    count => State::Command(count, bits),
                }
            }
            State::Read(address, count) => {
                self.out = self.read(address) >> (WORD_BITS - 1 - count) & 1 != 0;
                match count + 1 {
                    WORD_BITS => State::Read(address + 1, 0),
                    count => State::Read(address, count),
                }
            }
            State::Write(address, count, bits) => {
                let bits = bits << 1 | bit;
                match count + 1 {
                    WORD_BITS => self.write(address, bits),
                    count => State::Write(address, count, bits),
                }
            }
            state => state,
        }
    }

    fn obey(&mut self, bits: u16) -> State {
        let address = usize::from(bits) % WORDS;
        match (bits >> ADDRESS_BITS, address >> (ADDRESS_BITS - 2)) {
            (0b10, _) => {
                // A zero comes before the first bit.
                self.out = false;
                State::Read(address, 0)
            }
            (0b01, _) => State::Write(Some(address), 0, 0),
            (0b11, _) => self.write(Some(address), ERASED),
            (_, 0b11) => {
                self.writable = true;
                State::Done
            }
            (_, 0b00) => {
                self.writable = false;
                State::Done
            }
            (_, 0b01) => State::Write(None, 0, 0),
            _ => self.write(None, ERASED),
        }
    }

    /// Writes at once, so that it is ready when it is asked.
    fn write(&mut self, address: Option<usize>, word: u16) -> State {
        match address {
            _ if !self.writable => {}
            Some(address) => self.words[address] = word,
            None => self.words.fill(word),
        }
        State::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shifts bits in, the highest first; what came out at each clock.
    fn shift(memory: &mut Microwire, bits: u32, count: u32) -> u32 {
        let mut out = 0;
        for number in (0..count).rev() {
            let data = bits >> number & 1 != 0;
            for clock in [false, true] {
                memory.drive(Lines {
                    select: true,
                    clock,
                    data,
                });
            }
            out = out << 1 | u32::from(memory.out());
        }
        out
    }

    fn command(memory: &mut Microwire, bits: u32) {
        memory.drive(Lines::default());
        shift(memory, bits, 9);
    }

    fn word(memory: &mut Microwire, address: u32) -> u32 {
        command(memory, 0b110 << 6 | address);
        assert!(!memory.out(), "a zero comes first");
        shift(memory, 0, 16)
    }

    #[test]
    fn words_are_read_one_after_the_other() {
        let mut memory = Microwire::new(&[0x8129, 0x1234]);
        assert_eq!(word(&mut memory, 0), 0x8129);
        assert_eq!(shift(&mut memory, 0, 16), 0x1234);
        assert_eq!(word(&mut memory, 63), 0xffff);
        // Who takes it for a larger one reads the word too late.
        memory.drive(Lines::default());
        shift(&mut memory, 0b110 << 8, 11);
        assert_ne!(shift(&mut memory, 0, 16), 0x8129);
    }

    #[test]
    fn words_are_written_once_that_is_allowed() {
        let mut memory = Microwire::new(&[1, 2, 3]);
        let write = |memory: &mut Microwire, bits, value| {
            command(memory, bits);
            shift(memory, value, 16);
            memory.drive(Lines::default());
            memory.drive(Lines {
                select: true,
                ..Lines::default()
            });
            assert!(memory.out(), "it is ready");
        };
        write(&mut memory, 0b101 << 6 | 1, 0xbeef);
        assert_eq!(word(&mut memory, 1), 2);
        command(&mut memory, 0b100_110_000);
        write(&mut memory, 0b101 << 6 | 1, 0xbeef);
        command(&mut memory, 0b111 << 6 | 2);
        assert_eq!([0, 1, 2].map(|at| memory.read(at)), [1, 0xbeef, 0xffff]);
        write(&mut memory, 0b100_010_000, 7);
        assert_eq!([0, 63].map(|at| memory.read(at)), [7, 7]);
        command(&mut memory, 0b100_000_000);
        write(&mut memory, 0b101 << 6, 0xbeef);
        command(&mut memory, 0b100_100_000);
        assert_eq!(memory.read(0), 7);
    }
}
