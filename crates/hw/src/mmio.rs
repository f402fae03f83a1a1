//! Registers of a device.

use crate::flight::Done;
use crate::register::{Register, Width};
use alloc::rc::Rc;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering, fence};

/// What a read finds where no register is (PCI Local Bus 3.0, 3.3.3.3: master abort).
const NOTHING: u32 = u32::MAX;

/// Registers that are reached by asking somebody: a device behind a socket, or a model.
pub trait Registers {
    /// Size in bytes.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The 32-bit register at this offset, a multiple of 4 below [`Self::len`].
    fn read32(&self, offset: usize) -> u32;
    /// Writes it.
    fn write32(&self, offset: usize, value: u32);
    /// A register of 1 or 2 bytes, at a multiple of them, in the low bits; no neighbour is read.
    fn read_narrow(&self, offset: usize, bytes: usize) -> u32;
    /// Writes it, and no neighbour.
    fn write_narrow(&self, offset: usize, bytes: usize, value: u32);
}

/// The registers of a BAR.
///
/// As on a bus, a read where nothing is finds all ones, and a write there is lost: a BAR that is
/// smaller than a driver expects is no danger. Drivers say so at the start, by [`Self::len`].
#[derive(Clone)]
pub struct Mmio(Access);

#[derive(Clone)]
enum Access {
    /// Mapped registers of a device: volatile.
    Mapped { start: NonNull<u8>, len: usize },
    /// Memory that a model in another thread reads and writes.
    Shared(&'static [AtomicU32]),
    /// By message.
    Asked(Rc<dyn Registers>),
}

impl Mmio {
    /// # Safety
    /// The `len` bytes from `start` on, which is aligned to 4, are registers of a device, mapped
    /// for ever, that can be read and written as words of 8, 16 and 32 bits in any order without
    /// harm to memory.
    pub unsafe fn mapped(start: NonNull<u8>, len: usize) -> Self {
        Self(Access::Mapped { start, len })
    }

    /// Registers in memory that a model shares.
    pub fn shared(words: &'static [AtomicU32]) -> Self {
        Self(Access::Shared(words))
    }

    /// Registers that `registers` is asked for.
    pub fn asked(registers: Rc<dyn Registers>) -> Self {
        Self(Access::Asked(registers))
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Access::Mapped { len, .. } => *len,
            Access::Shared(words) => size_of_val(*words),
            Access::Asked(registers) => registers.len(),
        }
    }

    /// Whether there is no register.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads a register, as wide as it is.
    #[inline]
    pub fn read<T: Width>(&self, register: Register<T>) -> T {
        let offset = register.offset();
        match &self.0 {
            Access::Mapped { start, len } if inside::<T>(offset, *len) => {
                // SAFETY: inside of the BAR (checked).
                let place = unsafe { start.add(offset) }.cast::<T>();
                // SAFETY: aligned (checked) registers, mapped for ever (caller of `mapped`); a
                // `Width` is a number of 8, 16 or 32 bits, and nothing else is one.
                let value = unsafe { place.read_volatile() };
                fence(Ordering::Acquire);
                value
            }
            _ => self.read_elsewhere(offset),
        }
    }

    /// Registers that are not mapped; not inlined, for drivers have many accesses.
    #[inline(never)]
    fn read_elsewhere<T: Width>(&self, offset: usize) -> T {
        T::of_word(match &self.0 {
            Access::Shared(words) if inside::<T>(offset, size_of_val(*words)) => {
                words[offset / 4].load(Ordering::Acquire) >> (offset % 4 * 8)
            }
            Access::Asked(registers) if inside::<T>(offset, registers.len()) => match T::BYTES {
                4 => registers.read32(offset),
                bytes => registers.read_narrow(offset, bytes),
            },
            _ => NOTHING,
        })
    }

    /// Writes a register, as wide as it is, after all that was written to memory before.
    ///
    /// In memory that a model shares, the word is read, and written with the rest of it unchanged:
    /// what the model writes into the rest meanwhile is lost.
    #[inline]
    pub fn write<T: Width>(&self, register: Register<T>, value: T) {
        let offset = register.offset();
        match &self.0 {
            Access::Mapped { start, len } if inside::<T>(offset, *len) => {
                fence(Ordering::Release);
                // SAFETY: inside of the BAR (checked).
                let place = unsafe { start.add(offset) }.cast::<T>();
                // SAFETY: as for `read`.
                unsafe { place.write_volatile(value) };
            }
            _ => self.write_elsewhere(offset, value),
        }
    }

    /// [`Self::write`] for a register that is written with each batch: inlined for memory that a
    /// model shares as well, so that what is counted there is what a mapped register costs.
    #[inline]
    pub fn doorbell(&self, register: Register, value: u32) {
        let offset = register.offset();
        match &self.0 {
            Access::Shared(words) if inside::<u32>(offset, size_of_val(*words)) => {
                words[offset / 4].store(value, Ordering::Release);
            }
            _ => self.write(register, value),
        }
    }

    /// As [`Self::read_elsewhere`].
    #[inline(never)]
    fn write_elsewhere<T: Width>(&self, offset: usize, value: T) {
        let (value, shift) = (value.word(), offset % 4 * 8);
        match &self.0 {
            Access::Shared(words) if inside::<T>(offset, size_of_val(*words)) => {
                let word = &words[offset / 4];
                let rest = (T::BYTES < 4).then(|| word.load(Ordering::Acquire));
                let rest = rest.unwrap_or(0) & !(T::MASK << shift);
                word.store(rest | value << shift, Ordering::Release);
            }
            Access::Asked(registers) if inside::<T>(offset, registers.len()) => match T::BYTES {
                4 => registers.write32(offset, value),
                bytes => registers.write_narrow(offset, bytes, value),
            },
            _ => {}
        }
    }

    /// Reads a register, and returns the device's word that it is done, if the bits of `mask` are
    /// those of `wanted`. A device that is gone, whose registers read all ones, says nothing.
    pub fn shows<T: Width>(&self, register: Register<T>, mask: T, wanted: T) -> Option<Done> {
        let said = self.read(register).word();
        let said = (said != T::MASK).then_some(said)?;
        Done::shown(said.into(), mask.word().into(), wanted.word().into())
    }

    /// Sets and clears bits of a register.
    pub fn change(&self, register: Register, set: u32, clear: u32) {
        self.write(register, self.read(register) & !clear | set);
    }
}

#[inline]
fn inside<T: Width>(offset: usize, len: usize) -> bool {
    offset.is_multiple_of(T::BYTES) && offset < len && len - offset >= T::BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::cell::RefCell;

    /// Registers that say by which accesses they were reached: where, how wide, what was written.
    #[derive(Default)]
    struct Asked(RefCell<Vec<(usize, usize, Option<u32>)>>);

    impl Registers for Asked {
        fn len(&self) -> usize {
            8
        }

        fn read32(&self, offset: usize) -> u32 {
            self.0.borrow_mut().push((offset, 4, None));
            0x4433_2211
        }

        fn write32(&self, offset: usize, value: u32) {
            self.0.borrow_mut().push((offset, 4, Some(value)));
        }

        fn read_narrow(&self, offset: usize, bytes: usize) -> u32 {
            self.0.borrow_mut().push((offset, bytes, None));
            0x5555_5555
        }

        fn write_narrow(&self, offset: usize, bytes: usize, value: u32) {
            self.0.borrow_mut().push((offset, bytes, Some(value)));
        }
    }

    #[test]
    fn registers_that_are_asked_for_are_reached_in_their_own_width() {
        let asked = Rc::new(Asked::default());
        let mmio = Mmio::asked(asked.clone());
        assert_eq!(mmio.read(Register::<u8>::new("", 3, "")), 0x55);
        assert_eq!(mmio.read(Register::<u16>::new("", 6, "")), 0x5555);
        assert_eq!(mmio.read(Register::at(4)), 0x4433_2211);
        mmio.write(Register::<u8>::new("", 1, ""), 0xaa);
        mmio.write(Register::<u16>::new("", 2, ""), 0xbbcc);
        mmio.write(Register::at(0), 7);
        // What is not aligned, or not there, is not asked for.
        mmio.write(Register::<u16>::new("", 1, ""), 0);
        mmio.write(Register::<u8>::new("", 8, ""), 0);
        assert_eq!(mmio.read(Register::<u16>::new("", 5, "")), u16::MAX);
        assert_eq!(mmio.read(Register::<u8>::new("", 8, "")), u8::MAX);
        let expected = [
            (3, 1, None),
            (6, 2, None),
            (4, 4, None),
            (1, 1, Some(0xaa)),
            (2, 2, Some(0xbbcc)),
            (0, 4, Some(7)),
        ];
        assert_eq!(*asked.0.borrow(), expected);
    }

    #[test]
    fn narrow_registers_are_read_and_written_alone() {
        let words: &'static [AtomicU32] =
            Box::leak(Box::new([AtomicU32::new(0x4433_2211), AtomicU32::new(0)]));
        let memory = vec![0x4433_2211u32, 0].leak();
        let start = NonNull::from(&mut *memory).cast();
        // SAFETY: leaked words that nobody else uses from here on.
        let mapped = unsafe { Mmio::mapped(start, 8) };
        for mmio in [Mmio::shared(words), mapped] {
            assert_eq!(mmio.read(Register::<u8>::new("", 3, "")), 0x44);
            assert_eq!(mmio.read(Register::<u16>::new("", 2, "")), 0x4433);
            mmio.write(Register::<u8>::new("", 1, ""), 0xaa);
            mmio.write(Register::<u16>::new("", 2, ""), 0xbbcc);
            assert_eq!(mmio.read(Register::at(0)), 0xbbcc_aa11);
            assert_eq!(mmio.read(Register::at(4)), 0);
            // What is not aligned, or not there.
            mmio.write(Register::<u16>::new("", 1, ""), 0);
            mmio.write(Register::<u8>::new("", 8, ""), 0);
            assert_eq!(mmio.read(Register::<u16>::new("", 1, "")), u16::MAX);
            assert_eq!(mmio.read(Register::<u8>::new("", 8, "")), u8::MAX);
            assert_eq!(mmio.read(Register::<u8>::new("", usize::MAX, "")), u8::MAX);
            assert_eq!(mmio.read(Register::at(0)), 0xbbcc_aa11);
        }
    }

    #[test]
    fn a_register_that_is_gone_says_nothing() {
        let words: &'static [AtomicU32] =
            Box::leak(Box::new([AtomicU32::new(5), AtomicU32::new(NOTHING)]));
        let mmio = Mmio::shared(words);
        assert!(mmio.shows(Register::at(0), 3, 1).is_some());
        assert!(mmio.shows(Register::at(0), 2, 2).is_none());
        // As wide as the register is: bytes 1 to 3 are zero.
        let narrow = |offset| mmio.shows(Register::<u8>::new("", offset, ""), u8::MAX, 0);
        assert!(narrow(0).is_none() && narrow(1).is_some() && narrow(4).is_none());
        assert!(
            mmio.shows(Register::at(4), 1, 1).is_none()
                && mmio.shows(Register::at(8), 0, 0).is_none()
        );
    }

    #[test]
    fn what_is_not_there_reads_all_ones_and_loses_writes() {
        let words: &'static [AtomicU32] =
            Box::leak(Box::new([AtomicU32::new(7), AtomicU32::new(8)]));
        let memory = vec![0u32; 2].leak();
        memory[1] = 8;
        let start = NonNull::from(&mut *memory).cast();
        // SAFETY: leaked words that nobody else uses from here on.
        let mapped = unsafe { Mmio::mapped(start, 8) };
        for mmio in [Mmio::shared(words), mapped] {
            assert_eq!((mmio.len(), mmio.read(Register::at(4))), (8, 8));
            for outside in [2, 6, 8, usize::MAX - 3] {
                mmio.write(Register::at(outside), 0);
                mmio.doorbell(Register::at(outside), 0);
                assert_eq!(mmio.read(Register::at(outside)), NOTHING);
            }
            mmio.doorbell(Register::at(0), 5);
            mmio.change(Register::at(0), 2, 1);
            assert_eq!(
                (mmio.read(Register::at(0)), mmio.read(Register::at(4))),
                (6, 8)
            );
        }
    }
}
