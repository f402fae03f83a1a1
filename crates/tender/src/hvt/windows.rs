//! Where BARs, DMA memory, links and states lie in guest-physical addresses.
//!
//! Virtual addresses are those of the ABI. Guest-physical ones are the same numbers where the
//! processor has as many bits, which leaves nothing to remember when one looks for a mistake; and
//! lower ones where it has not: many have 39.

use crate::attach::pci::Pci;
use crate::attach::region::Region;
use crate::memory::Gpa;
use crate::sys::window::Window;
use abi::hvt::MEMORY_BYTES_MAX;
use abi::pci::{BAR_BYTES_MAX, BARS, DEVICES_MAX, DMA_BYTES_MAX};
use abi::region::{REGION_BYTES_MAX, REGIONS_MAX};
use std::fmt;
use std::ops::Range;

/// Lower addresses, if they are needed: behind the most memory that a guest can have, and below the
/// shared file. There is room for everything, with two windows to a BAR; KVM would refuse more.
const LOW: Range<u64> = 2 * MEMORY_BYTES_MAX..abi::share::BASE;
const _: () = {
    let bars = (DEVICES_MAX * BARS) as u64;
    let regions = 2 * REGIONS_MAX as u64 * (REGION_BYTES_MAX + ALIGN);
    let all = bars * (BAR_BYTES_MAX + 4 * ALIGN) + DMA_BYTES_MAX + regions;
    assert!(all <= LOW.end - LOW.start);
};
/// Large pages, in which windows lie alike in both kinds of addresses.
const ALIGN: u64 = super::paging::LARGE_PAGE;

/// A window and its guest-physical address.
#[derive(Debug)]
pub struct Placed<'a> {
    /// The name of its PCIe device in the manifest; `None` for other memory.
    pub device: Option<&'a str>,
    /// What is mapped, at the address that is also its virtual one.
    pub window: &'a Window,
    /// Where it lies.
    pub physical: Gpa,
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
        if let Some(device) = self.device {
            write!(f, "{device}: ")?;
        }
        write!(f, "{what} at {address:#x}, guest-physical {physical:#x}")
    }
}

/// The processor's physical addresses have too few bits for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// For what.
    pub what: &'static str,
    /// How many they have.
    pub bits: u32,
    /// How many it takes.
    pub needed: u32,
}

impl fmt::Display for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, bits, needed } = self;
        write!(
            f,
            "the processor's physical addresses have {bits} bits, and {what} would take {needed}; \
             start the image with --host=spt"
        )
    }
}

/// Whether something that ends below `end` can lie where it does.
///
/// # Errors
/// If `bits` bits do not reach there.
pub fn reach(what: &'static str, end: Gpa, bits: u32) -> Result<(), Narrow> {
    let needed = u64::BITS - end.number().saturating_sub(1).leading_zeros();
    let narrow = Narrow { what, bits, needed };
    (needed <= bits).then_some(()).ok_or(narrow)
}

/// Places all that devices and other images share with the guest, on a processor whose physical
/// addresses have `bits` bits.
///
/// # Errors
/// They are too few.
pub fn place<'a>(
    pci: &'a Pci,
    regions: &'a [Region],
    bits: u32,
) -> Result<Vec<Placed<'a>>, Narrow> {
    let bars = pci.devices.iter().flat_map(|device| {
        let windows = device.windows.iter();
        windows.map(|window| (Some(&*device.name), window, true))
    });
    let pages = pci.devices.iter().flat_map(|device| {
        let doorbells = device.doorbells.iter();
        doorbells.map(|window| (Some(&*device.name), window, false))
    });
    let memory = pci.dma.iter().map(|arena| (None, &arena.window, false));
    let regions = regions.iter().flat_map(|region| {
        let peer = region.link.as_ref().map(|link| &link.peer);
        std::iter::once(&region.own).chain(peer)
    });
    let regions = regions.map(|window| (None, window, false));
    let mut low = LOW.start;
    bars.chain(pages)
        .chain(memory)
        .chain(regions)
        .map(|(device, window, registers)| {
            Ok(Placed {
                device,
                window,
                physical: physical(window.address(), window.bytes(), bits, &mut low)?,
                registers,
            })
        })
        .collect()
}

/// The guest-physical address for `bytes` at a virtual address; lower ones are taken from `low` on.
/// They lie in their large pages as the virtual ones do, so that large pages can be mapped.
fn physical(address: u64, bytes: u64, bits: u32, low: &mut u64) -> Result<Gpa, Narrow> {
    const WHAT: &str = "the memory that it shares";
    let end = Gpa::new(address.saturating_add(bytes));
    if reach(WHAT, end, bits).is_ok() {
        return Ok(Gpa::new(address));
    }
    let start = *low + address % ALIGN;
    let next = start.saturating_add(bytes);
    *low = next.checked_next_multiple_of(ALIGN).unwrap_or(next);
    reach(WHAT, Gpa::new(next), bits).map(|()| Gpa::new(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hvt::paging::{Builder, Rights};
    use abi::pci::{DMA_BASE, bar_address};
    use proptest::prelude::*;

    #[test]
    fn enough_bits_leave_addresses_as_they_are() {
        let mut low = LOW.start;
        for address in [bar_address(0, 0), bar_address(31, 5), DMA_BASE] {
            let found = physical(address, BAR_BYTES_MAX, 48, &mut low);
            assert_eq!(found, Ok(Gpa::new(address)));
        }
        assert_eq!(low, LOW.start);
    }

    /// 40 bits hold the BARs, but not the DMA memory; 39 none of them.
    #[test]
    fn what_does_not_fit_lies_lower() {
        let mut low = LOW.start;
        let bar = bar_address(0, 0);
        assert_eq!(physical(bar, 4096, 40, &mut low), Ok(Gpa::new(bar)));
        assert_eq!(
            physical(DMA_BASE, 4096, 40, &mut low),
            Ok(Gpa::new(LOW.start))
        );
        assert_eq!(
            physical(bar, 4096, 39, &mut low),
            Ok(Gpa::new(LOW.start + ALIGN))
        );
    }

    /// A BAR around a table of interrupts that stays the host's, on 39 bits.
    #[test]
    fn the_parts_of_a_large_bar_are_of_large_pages() {
        let (mut low, bar) = (LOW.start, bar_address(0, 0));
        let mut tables = Builder::new(crate::hvt::setup::TABLES).unwrap();
        for part in [0..0x2000, 0x3000..BAR_BYTES_MAX] {
            let bytes = part.end - part.start;
            let start = bar + part.start;
            let place = physical(start, bytes, 39, &mut low).unwrap();
            tables
                .map(start..start + bytes, place, Rights::default())
                .unwrap();
        }
        // Root, two below it, and one for the small pages around the table.
        assert_eq!(tables.tables().count(), 4);
    }

    #[test]
    fn too_few_bits_are_noticed() {
        let mut low = LOW.start;
        let narrow = physical(DMA_BASE, DMA_BYTES_MAX, 33, &mut low).unwrap_err();
        assert_eq!(
            narrow.to_string(),
            "the processor's physical addresses have 33 bits, and the memory that it shares would \
             take 34; start the image with --host=spt"
        );
        let shared = abi::share::BASE;
        assert!(
            reach("it", Gpa::new(shared), 38).is_ok()
                && reach("it", Gpa::new(shared + 1), 39).is_ok()
        );
        let narrow = reach("it", Gpa::new(shared + 1), 38).unwrap_err();
        assert_eq!((narrow.bits, narrow.needed), (38, 39));
        assert!(reach("it", Gpa::new(u64::MAX), 64).is_ok() && reach("it", Gpa::new(0), 0).is_ok());
    }

    proptest! {
        #[test]
        fn lower_addresses_never_overlap(
            windows in proptest::collection::vec((1..=BAR_BYTES_MAX, 0..ALIGN), 1..40),
        ) {
            let mut low = LOW.start;
            let mut end = LOW.start;
            for (bytes, offset) in windows {
                let start = physical(DMA_BASE + offset, bytes, 39, &mut low).unwrap().number();
                prop_assert!(start >= end && start % ALIGN == offset);
                end = start + bytes;
            }
            prop_assert!(end <= LOW.end);
        }
    }
}
