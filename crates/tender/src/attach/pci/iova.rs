//! Where the DMA memory lies for devices, decided on what the IOMMU can use.

use abi::pci::DMA_GRANULE;
use std::ops::RangeInclusive;

/// An I/O address: what a device puts on the bus for a byte of the DMA memory. An IOMMU translates
/// it, or the process that is the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Iova(u64);

impl Iova {
    /// The I/O address with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, for those who program a device or an IOMMU.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// The I/O address for `bytes` of DMA memory, not 0 bytes, among `usable` addresses: `wanted` if it
/// is all there, otherwise the lowest one, for devices that count few bits. The first large page
/// stays free, so that a device that was given no address, which is 0, finds nothing.
pub fn place(usable: &[RangeInclusive<u64>], bytes: u64, wanted: Iova) -> Option<Iova> {
    let fits = |start: u64, range: &RangeInclusive<u64>| {
        let last = start.checked_add(bytes - 1);
        start >= *range.start() && last.is_some_and(|last| last <= *range.end())
    };
    if usable.iter().any(|range| fits(wanted.number(), range)) {
        return Some(wanted);
    }
    let lowest = |range: &RangeInclusive<u64>| {
        let start = (*range.start()).max(DMA_GRANULE);
        let start = start.checked_next_multiple_of(DMA_GRANULE)?;
        fits(start, range).then_some(start)
    };
    usable.iter().filter_map(lowest).min().map(Iova)
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::pci::{DMA_BASE, DMA_BYTES_MAX};
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    /// What VT-d with 39 bits has, around the window of message-signalled interrupts.
    fn narrow() -> Vec<RangeInclusive<u64>> {
        vec![0..=0xfedf_ffff, 0xfef0_0000..=0x7f_ffff_ffff]
    }

    #[test]
    fn the_wanted_address_is_taken_where_there_are_bits_for_it() {
        let wide = [0..=0xfedf_ffff, 0xfef0_0000..=0xffff_ffff_ffff];
        assert_eq!(
            place(&wide, 16 * MIB, Iova::new(DMA_BASE)),
            Some(Iova::new(DMA_BASE))
        );
        assert_eq!(
            place(&wide, DMA_BYTES_MAX, Iova::new(DMA_BASE)),
            Some(Iova::new(DMA_BASE))
        );
    }

    #[test]
    fn a_narrow_iommu_gives_the_lowest() {
        assert_eq!(
            place(&narrow(), 16 * MIB, Iova::new(DMA_BASE)),
            Some(Iova::new(2 * MIB))
        );
        // Too large for what is below the window.
        let above = 0xff00_0000;
        assert_eq!(
            place(&narrow(), DMA_BYTES_MAX, Iova::new(DMA_BASE)),
            Some(Iova::new(above))
        );
    }

    #[test]
    fn the_window_of_interrupts_is_left_out() {
        let below = 0xfee0_0000 - 2 * MIB;
        assert_eq!(
            place(&narrow(), below, Iova::new(DMA_BASE)),
            Some(Iova::new(2 * MIB))
        );
        assert_eq!(
            place(&narrow(), below + 1, Iova::new(DMA_BASE)),
            Some(Iova::new(0xff00_0000))
        );
    }

    #[test]
    fn no_room_is_none() {
        assert_eq!(place(&[], 2 * MIB, Iova::new(DMA_BASE)), None);
        assert_eq!(place(&[0..=2 * MIB], 2 * MIB, Iova::new(DMA_BASE)), None);
        let end = [u64::MAX - MIB..=u64::MAX];
        assert_eq!(place(&end, 2 * MIB, Iova::new(DMA_BASE)), None);
    }

    proptest! {
        #[test]
        fn a_place_is_whole_aligned_and_usable(
            ranges in proptest::collection::vec((any::<u64>(), any::<u64>()), 0..6),
            granules in 1..=DMA_BYTES_MAX / DMA_GRANULE,
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, end)| start..=end).collect();
            let bytes = granules * DMA_GRANULE;
            if let Some(Iova(start)) = place(&ranges, bytes, Iova::new(DMA_BASE)) {
                prop_assert!(start.is_multiple_of(DMA_GRANULE) && start > 0);
                let last = start + (bytes - 1);
                prop_assert!(ranges.iter().any(|r| r.contains(&start) && r.contains(&last)));
            }
        }
    }
}
