//! Owned packet buffers and the pool that they return to.

use crate::offload::Offload;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::mem;

/// Bytes that a pool keeps free in front of a frame, for headers that lower layers add
/// (virtio-net's has 12). A multiple of 4, plus 2, so that the IP header is 4-byte aligned.
pub const HEADROOM: usize = 34;

/// Largest frame that crosses an interface: 64 KiB of unsegmented TCP with Ethernet header and
/// VLAN tag.
pub const FRAME_BYTES_MAX: usize = 65_535 + 14 + 4;

/// An arena cut into buffers of one size.
///
/// Buffers are reused last-in first-out, so that the ones in use are the ones in cache. The pool
/// never grows: whoever keeps frames starves only itself.
#[derive(Clone)]
pub struct Pool(Rc<Shared>);

struct Shared {
    free: RefCell<Vec<&'static mut [u8]>>,
    buffer_size: usize,
    count: usize,
}

impl Pool {
    /// Cuts `arena` into buffers of `buffer_size` bytes, [`HEADROOM`] included.
    ///
    /// # Panics
    /// If `buffer_size` leaves no room behind the headroom.
    pub fn new(arena: &'static mut [u8], buffer_size: usize) -> Self {
        assert!(buffer_size > HEADROOM);
        let mut free: Vec<_> = arena.chunks_exact_mut(buffer_size).collect();
        free.reverse();
        let count = free.len();
        Self(Rc::new(Shared {
            free: RefCell::new(free),
            buffer_size,
            count,
        }))
    }

    /// A frame of `len` bytes with unspecified content; `None` if all buffers are in use or `len`
    /// exceeds [`Self::frame_bytes_max`].
    #[inline]
    pub fn alloc(&self, len: usize) -> Option<Frame> {
        if len > self.frame_bytes_max() {
            return None;
        }
        let buffer = self.0.free.borrow_mut().pop()?;
        Some(Frame {
            buffer,
            start: HEADROOM as u32,
            end: (HEADROOM + len) as u32,
            offload: Offload::NONE,
            pool: Rc::clone(&self.0),
        })
    }

    /// Largest frame that fits a buffer, in bytes.
    pub fn frame_bytes_max(&self) -> usize {
        self.0.buffer_size - HEADROOM
    }

    /// Buffers in the pool, free or not.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Buffers that nobody holds.
    pub fn free(&self) -> usize {
        self.0.free.borrow().len()
    }
}

/// An owned packet, from the Ethernet header on, in a buffer of a [`Pool`].
///
/// Whoever holds it may read and write it; dropping it gives the buffer back.
pub struct Frame {
    buffer: &'static mut [u8],
    start: u32,
    end: u32,
    /// What was left to the next device: checksum, segmentation.
    pub offload: Offload,
    pool: Rc<Shared>,
}

impl Frame {
    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start as usize..self.end as usize]
    }

    /// The packet, to be edited in place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start as usize..self.end as usize]
    }

    /// Length of the packet in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether the packet has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Cuts the packet to its first `len` bytes; longer leaves it as it is.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.end = self.start + len as u32;
        }
    }

    /// Puts `count` bytes of the headroom in front of the packet and returns them to be filled;
    /// `None` if there is less headroom.
    #[inline]
    pub fn push_front(&mut self, count: usize) -> Option<&mut [u8]> {
        let start = (self.start as usize).checked_sub(count)?;
        self.start = start as u32;
        Some(&mut self.buffer[start..start + count])
    }

    /// Takes the first `count` bytes off the packet, making them headroom; `false`, and nothing
    /// done, if it is shorter.
    #[inline]
    #[must_use]
    pub fn pop_front(&mut self, count: usize) -> bool {
        let fits = count <= self.len();
        if fits {
            self.start += count as u32;
        }
        fits
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        let buffer = mem::take(&mut self.buffer);
        self.pool.free.borrow_mut().push(buffer);
    }
}

impl core::fmt::Debug for Frame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Frame")
            .field("len", &self.len())
            .field("offload", &self.offload)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;

    fn pool(buffers: usize, size: usize) -> Pool {
        Pool::new(Box::leak(alloc::vec![0; buffers * size].into()), size)
    }

    #[test]
    fn a_dropped_frame_returns_and_the_hottest_buffer_comes_first() {
        let pool = pool(2, 256);
        let first = pool.alloc(100).unwrap();
        let address = first.bytes().as_ptr();
        let second = pool.alloc(100).unwrap();
        assert!(pool.alloc(1).is_none(), "the pool is bounded");
        drop(first);
        assert_eq!(pool.alloc(9).unwrap().bytes().as_ptr(), address);
        drop(second);
        assert_eq!((pool.free(), pool.count()), (2, 2));
    }

    #[test]
    fn headers_go_in_front_and_come_off() {
        let pool = pool(1, 256);
        assert!(pool.alloc(256 - HEADROOM + 1).is_none());
        let mut frame = pool.alloc(3).unwrap();
        frame.bytes_mut().copy_from_slice(b"abc");
        frame.push_front(2).unwrap().copy_from_slice(b"xy");
        assert_eq!(frame.bytes(), b"xyabc");
        assert!(frame.push_front(HEADROOM).is_none());
        assert!(!frame.pop_front(6) && frame.pop_front(3));
        frame.truncate(9);
        frame.truncate(1);
        assert_eq!(frame.bytes(), b"b");
    }
}
