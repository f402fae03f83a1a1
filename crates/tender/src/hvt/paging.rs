//! Page tables of a guest, with exactly the rights that it has (Intel SDM volume 3, 4.5).
//!
//! The tables lie in guest memory that they do not map, so that a guest cannot reach them by
//! accident. What is mapped is said in ranges, of which large pages are made where both ends allow.

use crate::memory::Gpa;
use abi::PAGE_SIZE;
use std::collections::BTreeMap;
use std::ops::Range;

/// Size of a large page.
pub const LARGE_PAGE: u64 = 2 << 20;
/// Entries of a table.
const ENTRIES: usize = 512;
/// One past the highest virtual address, of the lower half.
const VIRTUAL_END: u64 = 1 << 47;

/// Bits of an entry.
mod bit {
    pub const PRESENT: u64 = 1 << 0;
    pub const WRITE: u64 = 1 << 1;
    pub const WRITE_THROUGH: u64 = 1 << 3;
    pub const CACHE_DISABLE: u64 = 1 << 4;
    pub const LARGE: u64 = 1 << 7;
    pub const NO_EXECUTE: u64 = 1 << 63;
    /// The address that an entry holds.
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
}

/// What a guest may do with a page, beside reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Write.
    pub write: bool,
    /// Execute.
    pub execute: bool,
    /// Reach past the caches: registers of a device.
    pub uncached: bool,
}

impl Rights {
    fn bits(self) -> u64 {
        let mut bits = bit::PRESENT;
        if self.write {
            bits |= bit::WRITE;
        }
        if !self.execute {
            bits |= bit::NO_EXECUTE;
        }
        if self.uncached {
            bits |= bit::CACHE_DISABLE | bit::WRITE_THROUGH;
        }
        bits
    }
}

/// Why something cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An address is no multiple of the page size, or beyond what can be addressed.
    Address(u64),
    /// There is a mapping at this address already.
    Taken(u64),
    /// There is no place for another table.
    Full,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address:#x} cannot be mapped"),
            Self::Taken(address) => write!(f, "{address:#x} is mapped already"),
            Self::Full => write!(f, "there is no room for more page tables"),
        }
    }
}

impl std::error::Error for Error {}

type Table = [u64; ENTRIES];

/// Page tables while they are built.
#[derive(Debug)]
pub struct Builder {
    /// Where tables may lie.
    place: Range<Gpa>,
    tables: BTreeMap<Gpa, Box<Table>>,
    root: Gpa,
}

impl Builder {
    /// Tables that map nothing yet and lie in `place`, whole pages of guest-physical memory.
    ///
    /// # Errors
    /// If `place` does not hold one table.
    pub fn new(place: Range<Gpa>) -> Result<Self, Error> {
        let mut builder = Self {
            root: place.start,
            place,
            tables: BTreeMap::new(),
        };
        builder.root = builder.table()?;
        Ok(builder)
    }

    fn table(&mut self) -> Result<Gpa, Error> {
        let offset = self.tables.len() as u64 * PAGE_SIZE;
        let address = self.place.start.checked_add(offset).ok_or(Error::Full)?;
        let end = address.checked_add(PAGE_SIZE).ok_or(Error::Full)?;
        if end > self.place.end {
            return Err(Error::Full);
        }
        self.tables.insert(address, Box::new([0; ENTRIES]));
        Ok(address)
    }

    /// Maps `virtual_range` to the guest-physical addresses from `physical` on.
    ///
    /// # Errors
    /// If an address is odd or taken, or there is no place for tables.
    pub fn map(
        &mut self,
        virtual_range: Range<u64>,
        physical: Gpa,
        rights: Rights,
    ) -> Result<(), Error> {
        for address in [virtual_range.start, virtual_range.end, physical.number()] {
            if !address.is_multiple_of(PAGE_SIZE) || address > VIRTUAL_END {
                return Err(Error::Address(address));
            }
        }
        let mut address = virtual_range.start;
        while address < virtual_range.end {
            let target = physical.checked_add(address - virtual_range.start);
            let target = target.ok_or(Error::Address(address))?;
            let large = address.is_multiple_of(LARGE_PAGE)
                && target.is_multiple_of(LARGE_PAGE)
                && virtual_range.end - address >= LARGE_PAGE;
            let (level, size) = if large {
                (1, LARGE_PAGE)
            } else {
                (0, PAGE_SIZE)
            };
            self.put(address, target, level, rights)?;
            address += size;
        }
        Ok(())
    }

    /// Writes the entry for `address` in the table of `level`: 0 maps pages, 1 large pages.
    fn put(&mut self, address: u64, target: Gpa, level: u32, rights: Rights) -> Result<(), Error> {
        let mut table = self.root;
        for upper in (level + 1..4).rev() {
            table = self.next(table, index(address, upper), address)?;
        }
        let entry = self.entry(table, index(address, level));
        if *entry != 0 {
            return Err(Error::Taken(address));
        }
        let large = if level == 1 { bit::LARGE } else { 0 };
        *entry = target.number() | large | rights.bits();
        Ok(())
    }

    /// The table that an entry points to, made if there is none.
    fn next(&mut self, table: Gpa, index: usize, address: u64) -> Result<Gpa, Error> {
        let entry = *self.entry(table, index);
        if entry & bit::LARGE != 0 {
            return Err(Error::Taken(address));
        }
        if entry != 0 {
            return Ok(Gpa::new(entry & bit::ADDRESS));
        }
        let new = self.table()?;
        // Rights are those of the last level; these stand in nobody's way.
        *self.entry(table, index) = new.number() | bit::PRESENT | bit::WRITE;
        Ok(new)
    }

    fn entry(&mut self, table: Gpa, index: usize) -> &mut u64 {
        let table = self
            .tables
            .entry(table)
            .or_insert_with(|| Box::new([0; ENTRIES]));
        &mut table[index]
    }

    /// What CR3 holds.
    pub fn root(&self) -> Gpa {
        self.root
    }

    /// The tables and where they lie.
    pub fn tables(&self) -> impl Iterator<Item = (Gpa, &Table)> {
        self.tables
            .iter()
            .map(|(address, table)| (*address, &**table))
    }
}

/// The index of `address` in a table of `level`, counted from the one that maps pages.
fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize % ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: Range<Gpa> = Gpa::new(0x2_0000)..Gpa::new(0x10_0000);
    const WRITE: Rights = Rights {
        write: true,
        execute: false,
        uncached: false,
    };
    const EXECUTE: Rights = Rights {
        write: false,
        execute: true,
        uncached: false,
    };

    /// Walks the tables as the processor does: physical address and the rights of all levels.
    fn walk(builder: &Builder, address: u64) -> Option<(u64, Rights)> {
        let tables: BTreeMap<Gpa, &Table> = builder.tables().collect();
        let mut table = builder.root();
        let (mut write, mut execute) = (true, true);
        for level in (0..4).rev() {
            let entry = tables[&table][index(address, level)];
            if entry & bit::PRESENT == 0 {
                return None;
            }
            write &= entry & bit::WRITE != 0;
            execute &= entry & bit::NO_EXECUTE == 0;
            let uncached = entry & bit::CACHE_DISABLE != 0;
            let size = 1 << (12 + 9 * level);
            if level == 0 || entry & bit::LARGE != 0 {
                let physical = (entry & bit::ADDRESS) + address % size;
                let rights = Rights {
                    write,
                    execute,
                    uncached,
                };
                return Some((physical, rights));
            }
            table = Gpa::new(entry & bit::ADDRESS);
        }
        None
    }

    #[test]
    fn pages_have_their_rights_and_neighbours_none() {
        let mut builder = Builder::new(PLACE).unwrap();
        builder
            .map(0x10_0000..0x10_3000, Gpa::new(0x10_0000), EXECUTE)
            .unwrap();
        builder
            .map(0x10_4000..0x10_5000, Gpa::new(0x10_4000), WRITE)
            .unwrap();
        assert_eq!(walk(&builder, 0x10_2fff), Some((0x10_2fff, EXECUTE)));
        assert_eq!(walk(&builder, 0x10_4008), Some((0x10_4008, WRITE)));
        for unmapped in [0, 0xf_ffff, 0x10_3000, 0x10_5000, 1 << 40, VIRTUAL_END - 1] {
            assert_eq!(walk(&builder, unmapped), None, "{unmapped:#x}");
        }
    }

    #[test]
    fn large_pages_are_used_where_both_ends_allow() {
        let mut builder = Builder::new(PLACE).unwrap();
        let end = 1 << 30;
        builder
            .map(0x12_3000..end, Gpa::new(0x12_3000), WRITE)
            .unwrap();
        assert_eq!(walk(&builder, end - 1), Some((end - 1, WRITE)));
        assert_eq!(walk(&builder, 0x1f_f000), Some((0x1f_f000, WRITE)));
        // Root, two below it, and one of small pages in front of the first large one.
        assert_eq!(builder.tables().count(), 4);
    }

    #[test]
    fn a_window_of_a_device_is_uncached_and_anywhere() {
        let mut builder = Builder::new(PLACE).unwrap();
        let uncached = Rights {
            uncached: true,
            ..WRITE
        };
        builder
            .map(1 << 39..(1 << 39) + 0x2_0000, Gpa::new(3 << 30), uncached)
            .unwrap();
        assert_eq!(
            walk(&builder, (1 << 39) + 0x1_0004),
            Some(((3 << 30) + 0x1_0004, uncached))
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut builder = Builder::new(PLACE).unwrap();
        assert_eq!(
            builder.map(1..0x1000, Gpa::new(0), WRITE),
            Err(Error::Address(1))
        );
        let beyond = VIRTUAL_END + PAGE_SIZE;
        assert_eq!(
            builder.map(0..beyond, Gpa::new(0), WRITE),
            Err(Error::Address(beyond))
        );
        builder.map(0..LARGE_PAGE, Gpa::new(0), WRITE).unwrap();
        assert_eq!(
            builder.map(0x1000..0x2000, Gpa::new(0), WRITE),
            Err(Error::Taken(0x1000))
        );
        let mut small = Builder::new(Gpa::new(0)..Gpa::new(0x1000)).unwrap();
        assert_eq!(small.map(0..0x1000, Gpa::new(0), WRITE), Err(Error::Full));
        assert!(Builder::new(Gpa::new(0)..Gpa::new(0xfff)).is_err());
    }

    proptest! {
        #[test]
        fn every_page_of_a_range_is_where_it_should_be(
            start in 0u64..2048, pages in 1u64..2048, shift in 0u64..2048, probe in 0u64..4096,
        ) {
            let mut builder = Builder::new(PLACE).unwrap();
            let range = start * PAGE_SIZE..(start + pages) * PAGE_SIZE;
            builder.map(range.clone(), Gpa::new(shift * PAGE_SIZE), WRITE).unwrap();
            let address = probe * PAGE_SIZE + 7;
            let expected = range
                .contains(&address)
                .then(|| (address - range.start + shift * PAGE_SIZE, WRITE));
            prop_assert_eq!(walk(&builder, address), expected);
        }
    }
}
