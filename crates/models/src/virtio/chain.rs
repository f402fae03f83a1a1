//! A chain of descriptors: one request of the driver's, as buffers that the device may read and
//! buffers that it may write (2.7.4).

use crate::dma::{Dma, DmaFault};
use crate::scatter::Fragment;

/// What a driver made available, checked: each list is in order, and none is longer than the queue.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    pub(super) head: u16,
    pub(super) readable: Vec<Fragment>,
    pub(super) writable: Vec<Fragment>,
}

impl Chain {
    /// Forgets what is there.
    pub(super) fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
    }

    /// Bytes that the device may read.
    pub fn readable_bytes(&self) -> u64 {
        bytes(&self.readable)
    }

    /// Bytes that the device may write.
    pub fn writable_bytes(&self) -> u64 {
        bytes(&self.writable)
    }

    /// Copies what can be read from the byte `skip` on, as much as both have: how many bytes.
    ///
    /// # Errors
    /// If some of it is not in the memory.
    pub fn read(&self, skip: u64, to: &mut [u8], dma: &dyn Dma) -> Result<usize, DmaFault> {
        let mut done = 0;
        for part in parts(&self.readable, skip, to.len() as u64) {
            dma.read(part.iova, &mut to[done..done + part.bytes])?;
            done += part.bytes;
        }
        Ok(done)
    }

    /// Copies `from` to what can be written from the byte `skip` on, as much as both have: how many
    /// bytes.
    ///
    /// # Errors
    /// If some of it is not in the memory.
    pub fn write(&self, skip: u64, from: &[u8], dma: &dyn Dma) -> Result<usize, DmaFault> {
        let mut done = 0;
        for part in parts(&self.writable, skip, from.len() as u64) {
            dma.write(part.iova, &from[done..done + part.bytes])?;
            done += part.bytes;
        }
        Ok(done)
    }

    /// Where the `most` bytes lie that can be read from the byte `skip` on.
    pub(super) fn to_read(&self, skip: u64, most: u64) -> impl Iterator<Item = Fragment> {
        parts(&self.readable, skip, most)
    }

    /// Where the `most` bytes lie that can be written from the byte `skip` on.
    pub(super) fn to_write(&self, skip: u64, most: u64) -> impl Iterator<Item = Fragment> {
        parts(&self.writable, skip, most)
    }
}

fn bytes(fragments: &[Fragment]) -> u64 {
    let lengths = fragments.iter().map(|fragment| fragment.bytes as u64);
    lengths.sum()
}

/// The `most` bytes behind the first `skip` of `fragments`, piece by piece; none is empty.
fn parts(
    fragments: &[Fragment],
    mut skip: u64,
    mut most: u64,
) -> impl Iterator<Item = Fragment> + '_ {
    fragments.iter().filter_map(move |fragment| {
        let bytes = fragment.bytes as u64;
        let skipped = skip.min(bytes);
        skip -= skipped;
        let taken = most.min(bytes - skipped);
        most -= taken;
        (taken > 0).then(|| Fragment {
            // An address that wraps is in no memory, and is found there.
            iova: fragment.iova.wrapping_add(skipped),
            bytes: taken as usize,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::sim::arena;

    const IOVA: u64 = 0x1000;

    fn chain() -> Chain {
        let fragment = |at, bytes| Fragment {
            iova: IOVA + at,
            bytes,
        };
        Chain {
            head: 0,
            readable: vec![fragment(0, 3), fragment(100, 0), fragment(10, 4)],
            writable: vec![fragment(200, 2), fragment(300, 2)],
        }
    }

    #[test]
    fn bytes_are_found_across_descriptors() {
        let (_arena, memory) = arena(4096, IOVA);
        memory.write(IOVA, b"abc").unwrap();
        memory.write(IOVA + 10, b"defg").unwrap();
        let chain = chain();
        assert_eq!((chain.readable_bytes(), chain.writable_bytes()), (7, 4));
        let mut bytes = [0; 9];
        assert_eq!(chain.read(2, &mut bytes, &memory).unwrap(), 5);
        assert_eq!(&bytes[..5], b"cdefg");
        assert_eq!(chain.read(7, &mut bytes, &memory).unwrap(), 0);
        assert_eq!(chain.write(1, b"xyzw", &memory).unwrap(), 3);
        memory.read(IOVA + 201, &mut bytes[..1]).unwrap();
        memory.read(IOVA + 300, &mut bytes[1..3]).unwrap();
        assert_eq!(&bytes[..3], b"xyz");
        let ranges: Vec<_> = chain.to_read(1, 3).map(|part| part.bytes).collect();
        assert_eq!(ranges, [2, 1]);
    }
}
