//! Where BARs and DMA memory lie in guest-physical addresses.
//!
//! Virtual addresses are those of the ABI. Guest-physical ones are the same numbers where the
//! processor has as many bits, which leaves nothing to remember when one looks for a mistake; and
//! lower ones where it has not: many have 39.

use crate::attach::pci::Pci;
use crate::sys::window::Window;
use abi::hvt::MEMORY_BYTES_MAX;
use abi::pci::{BAR_BYTES_MAX, BARS, DEVICES_MAX, DMA_BYTES_MAX};
use std::fmt;
use std::ops::Range;

/// Lower addresses, if they are needed: behind the most memory that a guest can have, and enough
/// for everything.
const LOW: Range<u64> = {
    let start = 2 * MEMORY_BYTES_MAX;
    start..start + (DEVICES_MAX * BARS) as u64 * BAR_BYTES_MAX + DMA_BYTES_MAX
};
const _: () = assert!(LOW.end <= abi::share::BASE);
/// They begin at multiples of a large page.
const ALIGN: u64 = super::paging::LARGE_PAGE;
/// Bits of an address if the processor does not say.
const BITS_DEFAULT: u32 = 36;

/// A window and its guest-physical address.
#[derive(Debug)]
pub struct Placed<'a> {
    /// What is mapped, at the address that is also its virtual one.
    pub window: &'a Window,
    /// Where it lies.
    pub physical: u64,
    /// Whether it holds registers.
    pub registers: bool,
}

impl fmt::Display for Placed<'_> {
    /// What `--verbose` says of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.registers {
            "registers"
        } else {
            "memory"
        };
        let (address, physical) = (self.window.address(), self.physical);
        write!(f, "{what} at {address:#x}, guest-physical {physical:#x}")
    }
}

/// Places all that devices share with the guest, on a processor whose physical addresses have
/// `bits` bits. `None` if they are too few.
pub fn place(pci: &Pci, bits: u32) -> Option<Vec<Placed<'_>>> {
    let bars = pci.devices.iter().flat_map(|device| &device.windows);
    let pages = pci.devices.iter().flat_map(|device| &device.doorbells);
    let pages = pages.map(|page| (page, false));
    let memory = pci.dma.iter().map(|arena| (&arena.window, false));
    let mut low = LOW.start;
    bars.map(|window| (window, true))
        .chain(pages)
        .chain(memory)
        .map(|(window, registers)| {
            Some(Placed {
                window,
                physical: physical(window.address(), window.bytes(), bits, &mut low)?,
                registers,
            })
        })
        .collect()
}

/// The guest-physical address for `bytes` at a virtual address; lower ones are taken from `low` on.
fn physical(address: u64, bytes: u64, bits: u32, low: &mut u64) -> Option<u64> {
    let end = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
    if address.checked_add(bytes)? <= end {
        return Some(address);
    }
    let start = *low;
    let next = start.checked_add(bytes)?.checked_next_multiple_of(ALIGN)?;
    *low = next;
    (next <= end.min(LOW.end)).then_some(start)
}

/// Bits of a guest-physical address by leaf 0x80000008 of CPUID (AMD APM volume 3, E.4.7), given
/// its EAX.
pub fn address_bits(eax: Option<u32>) -> u32 {
    match eax {
        Some(eax) if eax & 0xff != 0 => eax & 0xff,
        _ => BITS_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::pci::{DMA_BASE, bar_address};
    use proptest::prelude::*;

    #[test]
    fn enough_bits_leave_addresses_as_they_are() {
        let mut low = LOW.start;
        for address in [bar_address(0, 0), bar_address(31, 5), DMA_BASE] {
            let found = physical(address, BAR_BYTES_MAX, 48, &mut low);
            assert_eq!(found, Some(address));
        }
        assert_eq!(low, LOW.start);
    }

    /// 40 bits hold the BARs, but not the DMA memory; 39 none of them.
    #[test]
    fn what_does_not_fit_lies_lower() {
        let mut low = LOW.start;
        let bar = bar_address(0, 0);
        assert_eq!(physical(bar, 4096, 40, &mut low), Some(bar));
        assert_eq!(physical(DMA_BASE, 4096, 40, &mut low), Some(LOW.start));
        assert_eq!(physical(bar, 4096, 39, &mut low), Some(LOW.start + ALIGN));
    }

    #[test]
    fn too_few_bits_are_noticed() {
        let mut low = LOW.start;
        assert_eq!(physical(DMA_BASE, DMA_BYTES_MAX, 33, &mut low), None);
        assert_eq!(address_bits(None), 36);
        assert_eq!(address_bits(Some(0x0000_3027)), 39);
    }

    proptest! {
        #[test]
        fn lower_addresses_never_overlap(
            sizes in proptest::collection::vec(1..=BAR_BYTES_MAX, 1..40),
        ) {
            let mut low = LOW.start;
            let mut end = LOW.start;
            for bytes in sizes {
                let start = physical(DMA_BASE, bytes, 39, &mut low).unwrap();
                prop_assert!(start >= end && start.is_multiple_of(ALIGN));
                end = start + bytes;
            }
            prop_assert!(end <= LOW.end);
        }
    }
}
