//! Registers as data: where, how wide, what they are called and where the datasheet has them.

use core::fmt;
use core::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u8 {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
}

/// How wide a register is: `u8`, `u16` or `u32`, and nothing else.
pub trait Width: sealed::Sealed + Copy {
    /// Bytes of it.
    const BYTES: usize = size_of::<Self>();
    /// All ones, in a word of 32 bits.
    const MASK: u32;
    /// The low bits of a word.
    fn of_word(word: u32) -> Self;
    /// The value, in a word's low bits.
    fn word(self) -> u32;
}

macro_rules! widths {
    ($($width:ty),*) => {
        $(impl Width for $width {
            const MASK: u32 = <$width>::MAX as u32;

            #[inline]
            fn of_word(word: u32) -> Self {
                word as $width
            }

            #[inline]
            fn word(self) -> u32 {
                self.into()
            }
        })*
    };
}

widths!(u8, u16, u32);

/// A register of a BAR.
///
/// ```
/// use hw::Register;
/// /// 8.2.3.1.1 Device Control.
/// const CTRL: Register = Register::new("CTRL", 0x00000, "8.2.3.1.1");
/// assert_eq!(CTRL.to_string(), "CTRL (0x0, section 8.2.3.1.1)");
/// assert_eq!(CTRL.nth(2, 4).to_string(), "CTRL (0x8, section 8.2.3.1.1)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register<T = u32> {
    offset: usize,
    name: &'static str,
    section: &'static str,
    width: PhantomData<T>,
}

impl Register {
    /// A register of 32 bits of which nothing else but the offset is known.
    pub const fn at(offset: usize) -> Self {
        Self::new("", offset, "")
    }
}

impl<T: Width> Register<T> {
    /// The register with the datasheet's `name` at an offset in bytes, a multiple of its width, and
    /// the datasheet's `section` about it.
    pub const fn new(name: &'static str, offset: usize, section: &'static str) -> Self {
        Self {
            offset,
            name,
            section,
            width: PhantomData,
        }
    }

    /// The `n`-th of an array of registers that lie `stride` bytes apart.
    #[inline]
    pub const fn nth(self, n: usize, stride: usize) -> Self {
        Self {
            offset: self.offset + n * stride,
            ..self
        }
    }

    /// Where it is, in bytes.
    #[inline]
    pub const fn offset(self) -> usize {
        self.offset
    }
}

impl<T> fmt::Display for Register<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            "" => write!(f, "the register at {:#x}", self.offset),
            name => write!(f, "{name} ({:#x}, section {})", self.offset, self.section),
        }
    }
}
