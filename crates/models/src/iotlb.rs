//! The mapping that was used last, in front of all of a device's memory.

use crate::dma::{Dma, DmaFault};
use hw::sim::vectored::{Span, SpanMut};
use hw::sim::{Outside, View};
use std::cell::Cell;

/// Memory as a device reaches it while it works: rings and buffers mostly lie in one mapping, which
/// is not looked for with each access. Nothing is known beyond one turn of the device.
pub struct Iotlb<'a> {
    all: &'a dyn Dma,
    last: Cell<Option<&'a View>>,
}

impl<'a> Iotlb<'a> {
    /// In front of this memory.
    pub fn new(all: &'a dyn Dma) -> Self {
        let last = Cell::new(None);
        Self { all, last }
    }

    /// Accesses what lies at an address. An access that fails has done nothing.
    #[inline]
    fn access<T>(
        &self,
        iova: u64,
        bytes: usize,
        mut access: impl FnMut(&'a View) -> Result<T, Outside>,
    ) -> Result<T, DmaFault> {
        if let Some(view) = self.last.get()
            && let Ok(done) = access(view)
        {
            return Ok(done);
        }
        let view = self.look(iova, bytes)?;
        Ok(access(view)?)
    }

    #[cold]
    fn look(&self, iova: u64, bytes: usize) -> Result<&'a View, DmaFault> {
        let view = self.all.view(iova, bytes)?;
        self.last.set(Some(view));
        Ok(view)
    }
}

impl Dma for Iotlb<'_> {
    fn view(&self, iova: u64, bytes: usize) -> Result<&View, DmaFault> {
        self.look(iova, bytes)
    }

    #[inline]
    fn load(&self, iova: u64) -> Result<u64, DmaFault> {
        self.access(iova, 8, |view| view.load(iova))
    }

    #[inline]
    fn store(&self, iova: u64, value: u64) -> Result<(), DmaFault> {
        self.access(iova, 8, |view| view.store(iova, value))
    }

    #[inline]
    fn load16(&self, iova: u64) -> Result<u16, DmaFault> {
        self.access(iova, 2, |view| view.load16(iova))
    }

    #[inline]
    fn store16(&self, iova: u64, value: u16) -> Result<(), DmaFault> {
        self.access(iova, 2, |view| view.store16(iova, value))
    }

    #[inline]
    fn read(&self, iova: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        self.access(iova, bytes.len(), |view| view.read(iova, bytes))
    }

    #[inline]
    fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.access(iova, bytes.len(), |view| view.write(iova, bytes))
    }

    fn span(&self, iova: u64, bytes: usize) -> Result<Span<'_>, DmaFault> {
        self.access(iova, bytes, |view| view.span(iova, bytes))
    }

    fn span_mut(&self, iova: u64, bytes: usize) -> Result<SpanMut<'_>, DmaFault> {
        self.access(iova, bytes, |view| view.span_mut(iova, bytes))
    }

    fn check(&self, iova: u64, bytes: usize) -> Result<(), DmaFault> {
        self.all.check(iova, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::memory::{Memory, Range};
    use std::os::fd::AsFd;

    const PAGE: u64 = 4096;

    /// Each access finds its own mapping, whichever was used last, and none leaves it.
    #[test]
    fn it_says_what_all_of_the_memory_says() {
        let mut memory = Memory::default();
        memory.bus_master = true;
        for (number, writable) in [(1, true), (2, false), (4, true)] {
            let file = linux::memory::sealed("test", PAGE).unwrap();
            let range = Range {
                offset: 0,
                iova: number * PAGE,
                bytes: PAGE,
                writable,
            };
            memory.map(file.as_fd(), range).unwrap();
        }
        let places = [0, 1, 2, 3, 4, 5].map(|page| page * PAGE);
        for first in places {
            for second in places {
                let iotlb = Iotlb::new(&memory);
                let _seen = iotlb.load(first);
                for iova in [second, second + 8, second + PAGE - 4] {
                    assert_eq!(iotlb.load(iova), memory.load(iova));
                    assert_eq!(iotlb.load16(iova), memory.load16(iova));
                    let (mut here, mut there) = ([1; 9], [2; 9]);
                    let read = iotlb.read(iova, &mut here);
                    assert_eq!(read, memory.read(iova, &mut there));
                    assert!(read.is_err() || here == there);
                    let bytes = second.to_le_bytes();
                    assert_eq!(iotlb.write(iova, &bytes), memory.write(iova, &bytes));
                    assert_eq!(iotlb.store(iova, 3), memory.store(iova, 3));
                    assert_eq!(iotlb.store16(iova, 3), memory.store16(iova, 3));
                    assert_eq!(iotlb.check(iova, 9), memory.check(iova, 9));
                    let spans = (iotlb.span(iova, 9).is_ok(), iotlb.span_mut(iova, 9).is_ok());
                    let all = (
                        memory.span(iova, 9).is_ok(),
                        memory.span_mut(iova, 9).is_ok(),
                    );
                    assert_eq!(spans, all);
                }
            }
        }
    }
}
