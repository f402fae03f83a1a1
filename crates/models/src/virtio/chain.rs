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
    readable_bytes: u64,
    writable_bytes: u64,
}

impl Chain {
    /// Forgets what is there.
    pub(super) fn clear(&mut self) {
        self.readable.clear();
        self.writable.clear();
        (self.readable_bytes, self.writable_bytes) = (0, 0);
    }

    /// Adds what the device may read.
    pub(super) fn push_readable(&mut self, fragment: Fragment) {
        self.readable_bytes += fragment.bytes as u64;
        self.readable.push(fragment);
    }

    /// Adds what it may write.
    pub(super) fn push_writable(&mut self, fragment: Fragment) {
        self.writable_bytes += fragment.bytes as u64;
        self.writable.push(fragment);
    }

    /// Bytes that the device may read.
    pub fn readable_bytes(&self) -> u64 {
        self.readable_bytes
    }

    /// Bytes that the device may write.
    pub fn writable_bytes(&self) -> u64 {
        self.writable_bytes
    }

    /// Copies what can be read from the byte `skip` on, as much as both have: how many bytes.
    ///
    /// # Errors
    /// If some of it is not in the memory.
    #[inline]
    pub fn read(&self, skip: u64, to: &mut [u8], dma: &impl Dma) -> Result<usize, DmaFault> {
        if let Some(iova) = alone(&self.readable, skip, to.len()) {
            return dma.read(iova, to).map(|()| to.len());
        }
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
    #[inline]
    pub fn write(&self, skip: u64, from: &[u8], dma: &impl Dma) -> Result<usize, DmaFault> {
        if let Some(iova) = alone(&self.writable, skip, from.len()) {
            return dma.write(iova, from).map(|()| from.len());
        }
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

/// Where `bytes` bytes begin behind the first `skip`, if there is one fragment, and they all lie
/// in it.
#[inline]
fn alone(fragments: &[Fragment], skip: u64, bytes: usize) -> Option<u64> {
    let [fragment] = fragments else {
        return None;
    };
    let behind = (fragment.bytes as u64).checked_sub(skip)?;
    // An address that wraps is in no memory, and is found there.
    (bytes > 0 && bytes as u64 <= behind).then(|| fragment.iova.wrapping_add(skip))
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
        let mut chain = Chain::default();
        let readable = [fragment(0, 3), fragment(100, 0), fragment(10, 4)];
        readable
            .into_iter()
            .for_each(|fragment| chain.push_readable(fragment));
        let writable = [fragment(200, 2), fragment(300, 2)];
        writable
            .into_iter()
            .for_each(|fragment| chain.push_writable(fragment));
        chain
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
        let mut one = Chain::default();
        one.push_readable(chain.readable[2]);
        for (skip, expected) in [(0, 4), (1, 3), (4, 0), (9, 0)] {
            let read = one.read(skip, &mut bytes, &memory).unwrap();
            assert_eq!((read, &bytes[..read]), (expected, &b"defg"[4 - read..]));
            assert_eq!(
                one.read(skip, &mut bytes[..expected], &memory),
                Ok(expected)
            );
        }
        let ranges: Vec<_> = chain.to_read(1, 3).map(|part| part.bytes).collect();
        assert_eq!(ranges, [2, 1]);
    }
}
