//! Addresses in guest memory.

use std::fmt;

/// An address in guest memory, as the guest says it: guest-physical on `hvt`. On `spt` and
/// `process`, guest memory lies at the same addresses in this process.
///
/// It is a number that nobody has checked. Only [`super::Memory`] and
/// [`crate::sys::guest::GuestMemory`] turn it into memory, and check it each time. An address of
/// this process or of a device (an I/O address) is another kind, and cannot be given for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpa(u64);

impl Gpa {
    /// The address with this number, whoever said it.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The address so many bytes behind this one; `None` if there is no such number.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// How many bytes this address lies behind `start`; `None` if it lies in front of it.
    pub const fn checked_offset_from(self, start: Self) -> Option<u64> {
        self.0.checked_sub(start.0)
    }

    /// Whether it is a multiple of so many bytes.
    pub const fn is_multiple_of(self, bytes: u64) -> bool {
        self.0.is_multiple_of(bytes)
    }
}

impl fmt::LowerHex for Gpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_never_wraps() {
        let address = Gpa::new(u64::MAX - 1);
        assert_eq!(address.checked_add(1), Some(Gpa::new(u64::MAX)));
        assert_eq!(address.checked_add(2), None);
        assert_eq!(address.checked_offset_from(Gpa::new(u64::MAX)), None);
        assert_eq!(address.checked_offset_from(Gpa::new(7)), Some(u64::MAX - 8));
    }

    #[test]
    fn it_is_shown_as_a_number() {
        assert_eq!(format!("{:#x}", Gpa::new(0x1f)), "0x1f");
    }
}
