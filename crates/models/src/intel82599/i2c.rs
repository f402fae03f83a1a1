//! The bus between the card and the module in its cage: I2C, which software clocks bit by bit
//! through I2CCTL (datasheet, 8.2.3.1; NXP UM10204).
//!
//! Behind it are memories of 256 bytes each. A memory has a place that reads and writes go on from:
//! the first byte that is written sets it (SFF-8472, appendix B).

/// Bytes of a memory.
pub(crate) const MEMORY_BYTES: usize = 256;
/// A memory and the address that it answers to, of seven bits.
pub(crate) type Memory = (u8, [u8; MEMORY_BYTES]);

/// Clocks of a byte, without that of its acknowledgement.
const BITS: u8 = 8;
/// The last bit of an address: bytes go to whoever clocks.
const READ: u8 = 1;

/// What is on the bus between a start and a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing for a memory here.
    Idle,
    /// An address comes, and the direction.
    Address,
    /// The place in a memory comes.
    Place(usize),
    /// Bytes for a memory come.
    Write(usize),
    /// Bytes of a memory go.
    Read(usize),
}

/// The bus with what answers at it.
#[derive(Debug)]
pub(crate) struct Bus {
    memories: [Memory; 2],
    places: [u8; 2],
    /// What the card drives: `true` is released, and the resistors pull it up.
    clock: bool,
    data: bool,
    /// The same of the memories.
    answer: bool,
    phase: Phase,
    /// Clocks since the byte began.
    bits: u8,
    byte: u8,
    acknowledged: bool,
}

impl Bus {
    /// A bus at which nothing goes on.
    pub(crate) fn new(memories: [Memory; 2]) -> Self {
        Self {
            memories,
            places: [0; 2],
            clock: true,
            data: true,
            answer: true,
            phase: Phase::Idle,
            bits: 0,
            byte: 0,
            acknowledged: false,
        }
    }

    /// The lines as they are: clock and data.
    pub(crate) fn lines(&self) -> (bool, bool) {
        (self.clock, self.data && self.answer)
    }

    /// The card drives both lines.
    pub(crate) fn drive(&mut self, clock: bool, data: bool) {
        let (clock_was, data_was) = self.lines();
        (self.clock, self.data) = (clock, data);
        let data_is = data && self.answer;
        match (clock_was, clock) {
            // While the clock is high, data moves at starts and stops alone.
            (true, true) if data_was != data_is => self.mark(!data_is),
            (false, true) => self.rise(data_is),
            (true, false) => self.fall(),
            _ => {}
        }
    }

    /// A start, or a stop.
    fn mark(&mut self, start: bool) {
        self.phase = if start { Phase::Address } else { Phase::Idle };
        self.bits = 0;
        self.answer = true;
    }

    /// The clock rises: a bit is read.
    fn rise(&mut self, data: bool) {
        if self.phase == Phase::Idle {
            return;
        }
        self.bits += 1;
        if self.bits > BITS {
            self.acknowledged = !data;
        } else if !matches!(self.phase, Phase::Read(_)) {
            self.byte = self.byte << 1 | u8::from(data);
        }
    }

    /// The clock falls: data may change.
    fn fall(&mut self) {
        match (self.phase, self.bits) {
            (Phase::Idle, _) => {}
            (Phase::Read(memory), bits) if bits > BITS => match self.acknowledged {
                true => self.load(memory),
                false => self.phase = Phase::Idle,
            },
            (Phase::Read(_), bits) => self.answer = bits == BITS || self.byte << bits & 0x80 != 0,
            (_, BITS) => self.answer = !self.take(),
            (Phase::Address, bits) if bits > BITS => match self.addressed() {
                Some(memory) if self.byte & READ != 0 => {
                    self.phase = Phase::Read(memory);
                    self.load(memory);
                }
                Some(memory) => self.listen(Phase::Place(memory)),
                None => self.phase = Phase::Idle,
            },
            (Phase::Place(memory) | Phase::Write(memory), bits) if bits > BITS => {
                self.listen(Phase::Write(memory));
            }
            _ => {}
        }
    }

    /// The memory whose address came.
    fn addressed(&self) -> Option<usize> {
        let address = self.byte >> 1;
        self.memories.iter().position(|(is, _)| *is == address)
    }

    fn listen(&mut self, phase: Phase) {
        self.phase = phase;
        self.bits = 0;
        self.answer = true;
    }

    /// The next byte of a memory goes.
    fn load(&mut self, memory: usize) {
        let place = &mut self.places[memory];
        self.byte = self.memories[memory].1[usize::from(*place)];
        *place = place.wrapping_add(1);
        self.bits = 0;
        self.answer = self.byte & 0x80 != 0;
    }

    /// A byte has come: whether it is acknowledged. A module's memory is written by its maker
    /// alone: bytes for it are acknowledged, and lost.
    fn take(&mut self) -> bool {
        match self.phase {
            Phase::Address => return self.addressed().is_some(),
            Phase::Place(memory) => self.places[memory] = self.byte,
            Phase::Write(memory) => self.places[memory] = self.places[memory].wrapping_add(1),
            Phase::Idle | Phase::Read(_) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clocks a bus as UM10204, 3.1, has it.
    struct Master(Bus);

    impl Master {
        fn new() -> Self {
            let counts = |from: u8| std::array::from_fn(|at| from.wrapping_add(at as u8));
            Self(Bus::new([(0x50, counts(0)), (0x51, counts(0x80))]))
        }

        fn start(&mut self) {
            self.0.drive(false, true);
            self.0.drive(true, true);
            self.0.drive(true, false);
            self.0.drive(false, false);
        }

        fn stop(&mut self) {
            self.0.drive(false, false);
            self.0.drive(true, false);
            self.0.drive(true, true);
        }

        fn bit(&mut self, out: bool) -> bool {
            self.0.drive(false, out);
            self.0.drive(true, out);
            let (clock, data) = self.0.lines();
            assert!(clock);
            self.0.drive(false, out);
            data
        }

        /// Whether it was acknowledged.
        fn write(&mut self, byte: u8) -> bool {
            for bit in (0..8).rev() {
                let out = byte >> bit & 1 != 0;
                assert_eq!(self.bit(out), out, "nobody else drives");
            }
            !self.bit(true)
        }

        fn read(&mut self, more: bool) -> u8 {
            let byte = (0..8).fold(0, |byte, _| byte << 1 | u8::from(self.bit(true)));
            self.bit(!more);
            byte
        }
    }

    #[test]
    fn any_place_of_any_memory_is_read() {
        let mut master = Master::new();
        for (address, from) in [(0xa0, 0u8), (0xa2, 0x80)] {
            for place in [0u8, 1, 0x5c, 0xff] {
                master.start();
                assert!(master.write(address) && master.write(place));
                master.start();
                assert!(master.write(address | 1));
                let bytes = [master.read(true), master.read(true), master.read(false)];
                master.stop();
                let first = from.wrapping_add(place);
                let second = from.wrapping_add(place.wrapping_add(1));
                let third = from.wrapping_add(place.wrapping_add(2));
                assert_eq!(bytes, [first, second, third], "{address:#x} {place:#x}");
            }
        }
        // Without a place, it goes on where it was.
        master.start();
        assert!(master.write(0xa1));
        assert_eq!(master.read(false), 2);
        master.stop();
    }

    #[test]
    fn other_addresses_are_not_answered_and_writes_change_nothing() {
        let mut master = Master::new();
        master.start();
        assert!(!master.write(0xa4) && !master.write(0));
        master.stop();
        master.start();
        assert!(master.write(0xa0) && master.write(7) && master.write(0xee));
        master.start();
        assert!(master.write(0xa1));
        assert_eq!(master.read(false), 8);
        master.stop();
        master.start();
        assert!(master.write(0xa0) && master.write(7));
        master.start();
        assert!(master.write(0xa1));
        assert_eq!(master.read(false), 7);
    }

    #[test]
    fn a_bus_in_the_middle_of_something_is_freed_by_clocks_and_a_stop() {
        let mut master = Master::new();
        master.start();
        assert!(master.write(0xa0) && master.write(0));
        master.start();
        assert!(master.write(0xa1));
        // The memory holds data low: its bits are zeros.
        assert_eq!(master.0.lines(), (false, false));
        (0..9).for_each(|_| {
            master.bit(true);
        });
        master.stop();
        assert_eq!(master.0.lines(), (true, true));
        master.start();
        assert!(master.write(0xa0));
    }
}
