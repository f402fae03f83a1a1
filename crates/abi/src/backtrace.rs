//! Where a program was, by its frame pointers (System V ABI for AMD64, 3.2.2): at `rbp` lies the
//! caller's `rbp`, and above it the address that a function returns to.
//!
//! A guest may have put anything there. So the walk takes numbers, asks for memory at each, and
//! ends: addresses of frames only grow, and there are at most [`DEPTH_MAX`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Most callers that are noted.
pub const DEPTH_MAX: usize = 32;

/// Registers, in the order in which [`Registers`] holds them.
pub const REGISTERS: [&str; 16] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// Values of [`REGISTERS`].
pub type Registers = [u64; REGISTERS.len()];

/// Number of the frame pointer among them.
pub const RBP: usize = 6;
/// Number of the stack pointer among them.
pub const RSP: usize = 7;
const WORD: u64 = 8;

/// Where functions return to, innermost first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Backtrace {
    /// How many there are; as written by a guest, it may be any number.
    pub depth: u64,
    /// The addresses.
    pub addresses: [u64; DEPTH_MAX],
}

impl Backtrace {
    /// Follows the frames from these registers on. `read` returns the two words at an address, or
    /// `None` where no memory is. With `called`, the instruction was the target of a call, which
    /// has left nothing but its return address.
    pub fn walk(
        registers: &Registers,
        called: bool,
        mut read: impl FnMut(u64) -> Option<[u64; 2]>,
    ) -> Self {
        let mut trace = Self::default();
        if called && let Some([address, _]) = read(registers[RSP]) {
            trace.push(address);
        }
        let mut frame = registers[RBP];
        while let Some([caller, address]) = frame
            .is_multiple_of(WORD)
            .then(|| read(frame))
            .flatten()
            .filter(|[_, address]| *address != 0)
        {
            let full = !trace.push(address);
            if full || caller <= frame {
                break;
            }
            frame = caller;
        }
        trace
    }

    /// Whether there was room.
    fn push(&mut self, address: u64) -> bool {
        let Some(place) = self.addresses.get_mut(self.depth as usize) else {
            return false;
        };
        *place = address;
        self.depth += 1;
        true
    }

    /// The addresses, as many as there are.
    pub fn addresses(&self) -> &[u64] {
        let depth = usize::try_from(self.depth).unwrap_or(DEPTH_MAX);
        &self.addresses[..depth.min(DEPTH_MAX)]
    }
}

/// An address inside of the call that returns to `address`, whose line is that of the call.
pub fn call_of(address: u64) -> u64 {
    address.wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Where the memory of these tests begins.
    const BASE: u64 = 0x1000;

    fn walk(words: &[u64], rsp: u64, rbp: u64, called: bool) -> Vec<u64> {
        let mut registers = Registers::default();
        (registers[RSP], registers[RBP]) = (rsp, rbp);
        let read = |address: u64| {
            let offset = address.checked_sub(BASE)?;
            let index = offset
                .is_multiple_of(WORD)
                .then_some((offset / WORD) as usize)?;
            Some([*words.get(index)?, *words.get(index.checked_add(1)?)?])
        };
        let trace = Backtrace::walk(&registers, called, read);
        trace.addresses().to_vec()
    }

    #[test]
    fn frames_are_followed_to_the_first_one() {
        let words = [BASE + 32, 0xa, 0, 0, BASE + 48, 0xb, 0, 0xc];
        assert_eq!(walk(&words, 0, BASE, false), [0xa, 0xb, 0xc]);
        assert_eq!(walk(&words, 0, 0, false), []);
    }

    #[test]
    fn a_call_to_nowhere_has_left_its_return_address() {
        let words = [0xf, BASE + 16, 0, 0xa];
        assert_eq!(walk(&words, BASE, BASE + 16, true), [0xf, 0xa]);
    }

    #[test]
    fn what_a_hostile_guest_leaves_ends_the_walk() {
        let own = [BASE, 0xa];
        assert_eq!(walk(&own, 0, BASE, false), [0xa], "a loop");
        let back = [0, 0, BASE, 0xa];
        assert_eq!(walk(&back, 0, BASE + 16, false), [0xa], "backwards");
        for nowhere in [1, BASE - 8, BASE + 1, BASE + 8, u64::MAX, u64::MAX - 7] {
            assert_eq!(walk(&own, nowhere, nowhere, true), [], "{nowhere:#x}");
        }
        let long: Vec<u64> = (0..1000)
            .map(|i| if i % 2 == 0 { BASE + 8 * (i + 2) } else { i })
            .collect();
        assert_eq!(walk(&long, 0, BASE, false).len(), DEPTH_MAX);
    }

    #[test]
    fn a_forged_depth_is_cut() {
        let forged = Backtrace {
            depth: u64::MAX,
            ..Backtrace::default()
        };
        assert_eq!(forged.addresses().len(), DEPTH_MAX);
    }
}
