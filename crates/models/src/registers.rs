//! Registers as data: a device has tables of them, and every access is taken apart here.
//!
//! A table says of each register where it lies, how wide it is, what it holds after a reset and
//! which bits software may write. A [`RegisterFile`] is what they hold. [`read`] and [`write`]
//! turn an access of any size at any offset into accesses of whole registers, which is all that a
//! device of [`Registers`] sees:
//!
//! - A read of a part of a register reads all of it, once, and returns the part.
//! - A write of a part writes all of it: bytes that are not written are those that it holds.
//! - An access that covers several registers reads or writes one after the other, upwards.
//! - Where no register is, zeros are read and writes are lost; the device is told.
//! - An [`Alias`] is a second place of registers: an access there is one of the first place.
//!
//! A device whose registers are accessed only in one size says so when it makes its file; every
//! other access is then a violation and does nothing.

use crate::violation::Violation;

/// One register, or an array of registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Register<I> {
    /// What it is to the device.
    pub(crate) id: I,
    /// As the specification calls it.
    pub(crate) name: &'static str,
    /// Where the first one lies, in bytes: a multiple of the width.
    pub(crate) offset: usize,
    /// How many there are, and how far apart they lie, in bytes.
    pub(crate) count: usize,
    pub(crate) stride: usize,
    /// Bytes of one: 1, 2 or 4.
    pub(crate) width: usize,
    /// What it holds after a reset.
    pub(crate) reset: u32,
    /// Bits that hold what software writes.
    pub(crate) writable: u32,
    /// Bits that software may only read; writes to them do nothing.
    pub(crate) readable: u32,
    /// Where it is described: at least the chapter.
    pub(crate) section: &'static str,
}

impl<I> Register<I> {
    /// Bits of `value` that are neither writable nor readable, nor set by a reset.
    pub(crate) fn reserved(&self, value: u32) -> u32 {
        value & !(self.writable | self.readable | self.reset)
    }

    /// What it holds after `value` was written to it while it held `held`.
    pub(crate) fn written(&self, held: u32, value: u32) -> u32 {
        held & !self.writable | value & self.writable
    }

    /// The bits of one of its width.
    fn mask(&self) -> u32 {
        u32::MAX >> (32 - 8 * self.width)
    }
}

/// Where registers can be found a second time, of four bytes each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alias {
    /// Where the first one lies again, in bytes.
    pub(crate) offset: usize,
    /// How many there are, and how far apart they lie, in bytes.
    pub(crate) count: usize,
    pub(crate) stride: usize,
    /// Where the first one lies, and how far apart they lie there.
    pub(crate) of: usize,
    pub(crate) of_stride: usize,
}

impl Alias {
    /// The first place of the byte at an offset, if it lies in this one.
    fn resolve(&self, offset: usize) -> Option<usize> {
        let past = offset.checked_sub(self.offset)?;
        let (index, byte) = (past / self.stride, past % self.stride);
        (index < self.count && byte < ALIAS_WIDTH).then(|| self.of + index * self.of_stride + byte)
    }
}

/// What the register that has the byte at an offset is called, for those who count accesses.
pub(crate) fn name<I>(tables: &[&[Register<I>]], offset: u64) -> Option<&'static str> {
    let offset = usize::try_from(offset).ok()?;
    let has = |register: &&Register<I>| {
        let past = offset.checked_sub(register.offset);
        past.is_some_and(|past| {
            past / register.stride < register.count && past % register.stride < register.width
        })
    };
    let mut all = tables.iter().copied().flatten();
    all.find(has).map(|register| register.name)
}

/// Bytes of a register that has an alias.
const ALIAS_WIDTH: usize = 4;
/// What the map says of a byte of an alias.
const ALIASED: u16 = u16::MAX;

/// A register at its place.
#[derive(Debug)]
pub(crate) struct Place<I: 'static> {
    pub(crate) register: &'static Register<I>,
    /// Which one of its array it is.
    pub(crate) index: usize,
    /// Where it begins, in bytes.
    pub(crate) offset: usize,
}

impl<I> Clone for Place<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Place<I> {}

/// What registers hold, and what lies where.
#[derive(Debug)]
pub(crate) struct RegisterFile<I: 'static> {
    tables: &'static [&'static [Register<I>]],
    aliases: &'static [Alias],
    /// Four bytes each, whatever registers lie there.
    words: Box<[u32]>,
    /// For each byte, the number of its register in the tables, plus one; zero for none, and
    /// [`ALIASED`].
    map: Box<[u16]>,
    only: Option<usize>,
}

impl<I> RegisterFile<I> {
    /// The registers of these tables in `bytes` bytes, as after a reset. With `only`, each access
    /// must be of so many bytes, at a multiple of it.
    ///
    /// # Panics
    /// If a register lies outside, or there are more than 65,534 entries: the tables are constants.
    pub(crate) fn new(
        bytes: usize,
        tables: &'static [&'static [Register<I>]],
        aliases: &'static [Alias],
        only: Option<usize>,
    ) -> Self {
        let mut map = vec![0; bytes].into_boxed_slice();
        for alias in aliases {
            for index in 0..alias.count {
                map[alias.offset + index * alias.stride..][..ALIAS_WIDTH].fill(ALIASED);
            }
        }
        for (number, register) in tables.iter().copied().flatten().enumerate() {
            let number = u16::try_from(number + 1)
                .ok()
                .filter(|&number| number < ALIASED);
            let Some(number) = number else {
                panic!("more registers than the map can tell apart");
            };
            for index in 0..register.count {
                let start = register.offset + index * register.stride;
                map[start..start + register.width].fill(number);
            }
        }
        let words = vec![0; bytes.div_ceil(4)].into_boxed_slice();
        let mut file = Self {
            tables,
            aliases,
            words,
            map,
            only,
        };
        file.reset();
        file
    }

    /// Gives every register what it holds after a reset.
    pub(crate) fn reset(&mut self) {
        self.words.fill(0);
        for register in self.tables.iter().copied().flatten() {
            for index in 0..register.count {
                let offset = register.offset + index * register.stride;
                let place = Place {
                    register,
                    index,
                    offset,
                };
                self.hold(&place, register.reset);
            }
        }
    }

    /// The register that has the byte at an offset.
    #[inline]
    pub(crate) fn find(&self, offset: usize) -> Option<Place<I>> {
        let entry = *self.map.get(offset)?;
        if entry == ALIASED {
            return self.find_aliased(offset);
        }
        let mut number = usize::from(entry).checked_sub(1)?;
        for table in self.tables {
            if let Some(register) = table.get(number) {
                let index = (offset - register.offset) / register.stride;
                let offset = register.offset + index * register.stride;
                return Some(Place {
                    register,
                    index,
                    offset,
                });
            }
            number -= table.len();
        }
        None
    }

    /// The register that has the byte at the first place of an offset.
    #[cold]
    fn find_aliased(&self, offset: usize) -> Option<Place<I>> {
        let first = self
            .aliases
            .iter()
            .find_map(|alias| alias.resolve(offset))?;
        // An alias of an alias is no register.
        let is_register = self.map.get(first).is_some_and(|&entry| entry != ALIASED);
        is_register.then(|| self.find(first)).flatten()
    }

    /// The four bytes at an offset, a multiple of four; zero where no register is.
    #[inline]
    pub(crate) fn get(&self, offset: usize) -> u32 {
        self.words.get(offset / 4).copied().unwrap_or(0)
    }

    /// Changes the four bytes at an offset, a multiple of four.
    #[inline]
    pub(crate) fn set(&mut self, offset: usize, value: u32) {
        if let Some(place) = self.words.get_mut(offset / 4) {
            *place = value;
        }
    }

    /// Whether any of these bits of the four bytes at an offset is set.
    #[inline]
    pub(crate) fn has(&self, offset: usize, bits: u32) -> bool {
        self.get(offset) & bits != 0
    }

    /// What a register holds.
    #[inline]
    pub(crate) fn held(&self, place: &Place<I>) -> u32 {
        self.get(place.offset) >> (8 * (place.offset % 4)) & place.register.mask()
    }

    /// Changes what a register holds.
    #[inline]
    pub(crate) fn hold(&mut self, place: &Place<I>, value: u32) {
        let (shift, mask) = (8 * (place.offset % 4), place.register.mask());
        let others = self.get(place.offset) & !(mask << shift);
        self.set(place.offset, others | (value & mask) << shift);
    }

    /// Whether an access has the size and the alignment that all must have.
    fn admit(&self, offset: usize, bytes: usize) -> Result<(), Violation> {
        match self.only {
            Some(only) if bytes != only || !offset.is_multiple_of(only) => Err(Violation::Access {
                offset: offset as u64,
                bytes,
                bits: 8 * only,
            }),
            _ => Ok(()),
        }
    }
}

/// A device as its registers: each is read and written whole.
pub(crate) trait Registers {
    /// What tells its registers apart.
    type Id: 'static;

    /// What they hold.
    fn file(&self) -> &RegisterFile<Self::Id>;

    /// Reads a register, with all that this does.
    fn read_register(&mut self, place: &Place<Self::Id>) -> u32;

    /// Writes a register.
    fn write_register(&mut self, place: &Place<Self::Id>, value: u32);

    /// A driver did what it must not.
    fn report(&mut self, violation: Violation);
}

/// Reads the bytes at an offset; all ones if they cannot be read like that.
#[inline]
pub(crate) fn read(device: &mut impl Registers, offset: usize, bytes: &mut [u8]) {
    bytes.fill(0xff);
    if let Err(violation) = device.file().admit(offset, bytes.len()) {
        device.report(violation);
        return;
    }
    let (mut done, mut missing) = (0, None);
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(done);
        let Some(place) = device.file().find(at) else {
            missing.get_or_insert(at);
            rest[0] = 0;
            done += 1;
            continue;
        };
        let value = device.read_register(&place).to_le_bytes();
        let first = at % place.register.width;
        let from = &value[first..place.register.width];
        let len = from.len().min(rest.len());
        rest[..len].copy_from_slice(&from[..len]);
        done += len;
    }
    if let Some(offset) = missing {
        let written = None;
        device.report(Violation::NoRegister { offset, written });
    }
}

/// Writes bytes at an offset.
#[inline]
pub(crate) fn write(device: &mut impl Registers, offset: usize, bytes: &[u8]) {
    if let Err(violation) = device.file().admit(offset, bytes.len()) {
        device.report(violation);
        return;
    }
    let (mut done, mut missing) = (0, None);
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let at = offset.saturating_add(done);
        let Some(place) = device.file().find(at) else {
            missing.get_or_insert((at, low(rest)));
            done += 1;
            continue;
        };
        let first = at % place.register.width;
        let len = rest.len().min(place.register.width - first);
        let mut value = device.file().held(&place).to_le_bytes();
        value[first..first + len].copy_from_slice(&rest[..len]);
        device.write_register(&place, u32::from_le_bytes(value));
        done += len;
    }
    if let Some((offset, value)) = missing {
        let written = Some(value);
        device.report(Violation::NoRegister { offset, written });
    }
}

/// The first four bytes as a number, or as many as there are.
fn low(bytes: &[u8]) -> u32 {
    let bytes = bytes.iter().take(4).rev();
    bytes.fold(0, |value, byte| value << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A byte, a byte, two bytes, a word that counts its reads, and an array of two halves.
    static TABLE: [Register<Id>; 5] = [
        register(Id::Holds, "A", (0, 1, 1), 1, [0x11, 0xff, 0]),
        register(Id::Holds, "B", (1, 1, 1), 1, [0x22, 0x0f, 0xf0]),
        register(Id::Holds, "C", (2, 1, 2), 2, [0x4433, 0xffff, 0]),
        register(Id::Counts, "D", (4, 1, 4), 4, [0x8877_6655, u32::MAX, 0]),
        register(Id::Holds, "E", (12, 2, 4), 2, [0, 0xffff, 0]),
    ];
    static TABLES: [&[Register<Id>]; 2] = {
        let (first, second) = TABLE.split_at(2);
        [first, second]
    };

    /// D once more, and nothing that exists.
    static ALIASES: [Alias; 2] = [alias(28, 4), alias(32, 28)];

    const fn alias(offset: usize, of: usize) -> Alias {
        Alias {
            offset,
            count: 1,
            stride: 4,
            of,
            of_stride: 4,
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Id {
        Holds,
        Counts,
    }

    const fn register(
        id: Id,
        name: &'static str,
        (offset, count, stride): (usize, usize, usize),
        width: usize,
        [reset, writable, readable]: [u32; 3],
    ) -> Register<Id> {
        Register {
            id,
            name,
            offset,
            count,
            stride,
            width,
            reset,
            writable,
            readable,
            section: "",
        }
    }

    struct Card {
        file: RegisterFile<Id>,
        reads: u32,
        written: Vec<(&'static str, usize, u32)>,
        violations: Vec<Violation>,
    }

    impl Card {
        fn new(only: Option<usize>) -> Self {
            Self {
                file: RegisterFile::new(40, &TABLES, &ALIASES, only),
                reads: 0,
                written: vec![],
                violations: vec![],
            }
        }

        fn read<const N: usize>(&mut self, offset: usize) -> [u8; N] {
            let mut bytes = [0xee; N];
            read(self, offset, &mut bytes);
            bytes
        }
    }

    impl Registers for Card {
        type Id = Id;

        fn file(&self) -> &RegisterFile<Id> {
            &self.file
        }

        fn read_register(&mut self, place: &Place<Id>) -> u32 {
            self.reads += u32::from(place.register.id == Id::Counts);
            self.file.held(place)
        }

        fn write_register(&mut self, place: &Place<Id>, value: u32) {
            self.written.push((place.register.name, place.index, value));
            let value = place.register.written(self.file.held(place), value);
            self.file.hold(place, value);
        }

        fn report(&mut self, violation: Violation) {
            self.violations.push(violation);
        }
    }

    #[test]
    fn a_part_is_a_part_of_one_whole_read() {
        let mut card = Card::new(None);
        assert_eq!([card.read(0), card.read(1)], [[0x11], [0x22]]);
        assert_eq!([card.read(2), card.read(5)], [[0x33, 0x44], [0x66, 0x77]]);
        assert_eq!(card.reads, 1);
        assert_eq!(card.read(7), [0x88]);
        // Over four registers at once, and over the last bytes of one.
        assert_eq!(card.read(0), [0x11, 0x22, 0x33, 0x44, 0x55, 0x66]);
        assert_eq!((card.reads, &card.violations[..]), (3, &[][..]));
    }

    #[test]
    fn a_part_that_is_written_leaves_the_rest_as_it_is() {
        let mut card = Card::new(None);
        write(&mut card, 6, &[0xaa]);
        write(&mut card, 1, &[0x35, 1, 2, 3]);
        write(&mut card, 16, &[9, 8]);
        let expected = [
            ("D", 0, 0x88aa_6655),
            ("B", 0, 0x35),
            ("C", 0, 0x0201),
            ("D", 0, 0x88aa_6603),
            ("E", 1, 0x0809),
        ];
        assert_eq!(card.written, expected);
        // Only writable bits are held, and neighbours stay.
        let bytes = [0x11, 0x25, 1, 2, 3, 0x66, 0xaa, 0x88];
        assert_eq!(card.read(0), bytes);
        assert_eq!((card.read(12), card.read(16)), ([0, 0], [9, 8]));
        card.file.reset();
        assert_eq!(card.read(0), [0x11, 0x22, 0x33, 0x44]);
    }

    #[test]
    fn where_no_register_is_zeros_are_read_and_it_is_told_once() {
        let mut card = Card::new(None);
        assert_eq!(card.read(7), [0x88, 0, 0, 0, 0, 0, 0]);
        write(&mut card, 18, &[1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(card.read(usize::MAX), [0, 0]);
        let missing = |offset, written| Violation::NoRegister { offset, written };
        let expected = [
            missing(8, None),
            missing(18, Some(0x0403_0201)),
            missing(usize::MAX, None),
        ];
        assert_eq!(card.violations, expected);
        assert_eq!(card.written, []);
    }

    #[test]
    fn an_access_of_an_alias_is_one_of_the_register() {
        let mut card = Card::new(None);
        assert_eq!((card.read(29), card.reads), ([0x66, 0x77], 1));
        write(&mut card, 31, &[0xaa]);
        assert_eq!(card.written, [("D", 0, 0xaa77_6655)]);
        assert_eq!(
            (card.read(4), card.read(28)),
            ([0x55], [0x55, 0x66, 0x77, 0xaa])
        );
        assert_eq!(card.violations, []);
        assert_eq!(card.read(32), [0; 4]);
        let offset = 32;
        let written = None;
        assert_eq!(card.violations, [Violation::NoRegister { offset, written }]);
    }

    #[test]
    fn a_device_of_words_takes_nothing_but_words() {
        let mut card = Card::new(Some(4));
        assert_eq!(card.read(4), [0x55, 0x66, 0x77, 0x88]);
        assert_eq!((card.read(4), card.read(5)), ([0xff; 2], [0xff; 4]));
        assert_eq!(card.read(0), [0xff; 8]);
        write(&mut card, 4, &[0]);
        let access = |offset, bytes| Violation::Access {
            offset,
            bytes,
            bits: 32,
        };
        let expected = [access(4, 2), access(5, 4), access(0, 8), access(4, 1)];
        assert_eq!(card.violations, expected);
        assert_eq!((card.reads, card.written.len()), (1, 0));
    }

    proptest! {
        /// However an access is cut, the bytes are the same: registers are memory here.
        #[test]
        fn cuts_of_an_access_do_not_matter(
            bytes in proptest::collection::vec(any::<u8>(), 1..20),
            offset in 0usize..20,
            cut in 0usize..20,
        ) {
            let (mut whole, mut parts) = (Card::new(None), Card::new(None));
            let cut = cut.min(bytes.len());
            write(&mut whole, offset, &bytes);
            write(&mut parts, offset, &bytes[..cut]);
            write(&mut parts, offset + cut, &bytes[cut..]);
            let all: [u8; 20] = whole.read(0);
            prop_assert_eq!(all, parts.read(0));
            let first: [u8; 7] = parts.read(0);
            prop_assert_eq!(&all[..7], &first);
        }
    }
}
