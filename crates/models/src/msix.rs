//! The MSI-X structures in a BAR of a device (PCI 3.0, 6.8.2): software's notes to the hardware,
//! which a software device stores and returns. Messages go another way.

use crate::device::Msix;
use std::ops::Range;

/// Bytes of an entry of the table (6.8.2).
const ENTRY_BYTES: usize = 16;
/// Where its control word lies, of which the lowest bit masks the vector (6.8.2.9).
const CONTROL: usize = 12;
const MASKED: u8 = 1;

/// A BAR that has the table and the pending bits, and nothing else.
#[derive(Debug)]
pub(crate) struct MsixBar {
    bytes: Vec<u8>,
    table: Range<usize>,
}

impl MsixBar {
    /// A BAR of `bytes` bytes, as after a reset.
    pub(crate) fn new(bytes: usize, msix: Msix) -> Self {
        let start = msix.table as usize;
        let mut bar = Self {
            bytes: vec![0; bytes],
            table: start..start + ENTRY_BYTES * usize::from(msix.vectors),
        };
        bar.reset();
        bar
    }

    /// All vectors are masked, and nothing is pending (6.8.2.9).
    pub(crate) fn reset(&mut self) {
        self.bytes.fill(0);
        let table = self.bytes.get_mut(self.table.clone()).unwrap_or_default();
        for entry in table.chunks_exact_mut(ENTRY_BYTES) {
            entry[CONTROL] = MASKED;
        }
    }

    /// Reads bytes; outside of the BAR, none is changed.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        if let Some(from) = range(offset, bytes.len()).and_then(|range| self.bytes.get(range)) {
            bytes.copy_from_slice(from);
        }
    }

    /// Writes bytes of the table; of the rest none can be written (6.8.2.10).
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let inside =
            |range: &Range<usize>| self.table.start <= range.start && range.end <= self.table.end;
        let range = range(offset, bytes.len()).filter(inside);
        if let Some(place) = range.and_then(|range| self.bytes.get_mut(range)) {
            place.copy_from_slice(bytes);
        }
    }
}

fn range(offset: u64, len: usize) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_written_and_nothing_else() {
        let msix = Msix {
            capability: 0x40,
            vectors: 2,
            bar: 4,
            table: 16,
            pending: 64,
        };
        let mut bar = MsixBar::new(128, msix);
        let read = |bar: &MsixBar, offset| {
            let mut bytes = [0xff; 4];
            bar.read(offset, &mut bytes);
            bytes
        };
        assert_eq!([read(&bar, 28), read(&bar, 44)], [[1, 0, 0, 0]; 2]);
        for offset in [0, 14, 16, 44, 46, 64, 126, u64::MAX] {
            bar.write(offset, &[7; 4]);
        }
        assert_eq!([read(&bar, 16), read(&bar, 44)], [[7; 4]; 2]);
        assert_eq!(
            [read(&bar, 12), read(&bar, 48), read(&bar, 64)],
            [[0; 4]; 3]
        );
        assert_eq!([read(&bar, 125), read(&bar, u64::MAX)], [[0xff; 4]; 2]);
        bar.reset();
        assert_eq!([read(&bar, 16), read(&bar, 44)], [[0; 4], [1, 0, 0, 0]]);
    }
}
