//! Owned packet buffers and the pool that they return to.

use crate::offload::Offload;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;
use core::mem::ManuallyDrop;
use hw::{DmaArena, DmaBuf, Iova, Lease, OutOfDma, Reachable, Recycle};

/// Bytes that a pool keeps free in front of a frame, for headers that lower layers add
/// (virtio-net's has 12). A multiple of 4, plus 2, so that the IP header is 4-byte aligned.
pub const HEADROOM: usize = 34;

/// Buffers of DMA memory begin at multiples of this, in bytes.
const CACHE_LINE: usize = 64;

/// Largest frame that crosses an interface: 64 KiB of unsegmented TCP with Ethernet header and
/// VLAN tag.
pub const FRAME_BYTES_MAX: usize = 65_535 + 14 + 4;

/// Buffers of one size.
///
/// They are reused last-in first-out, so that the ones in use are the ones in cache. The pool never
/// grows: whoever keeps frames starves only itself. A pool lives for ever.
#[derive(Clone, Copy)]
pub struct Pool(&'static Shared);

/// Whether they are the same buffers.
impl PartialEq for Pool {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl Eq for Pool {}

struct Shared {
    /// The buffer that was given back last; each knows the one before it.
    free: Cell<Link>,
    free_count: Cell<usize>,
    /// Bytes of a buffer behind the headroom.
    frame_bytes_max: usize,
    count: usize,
}

/// A free buffer, whoever takes it out makes it a lease again.
type Link = Option<ManuallyDrop<Lease<Slot>>>;

/// A buffer and what is known of the packet in it. It lies in memory that no device can reach.
struct Slot {
    buffer: DmaBuf,
    /// Its place in the pool's memory.
    index: u32,
    start: usize,
    len: usize,
    /// Whether `offload` says anything: a frame without is made faster.
    has_offload: bool,
    offload: Offload,
    home: &'static Shared,
    /// While this one is free.
    next: Link,
}

impl Recycle for Slot {
    #[inline]
    fn recycle(mut lease: ManuallyDrop<Lease<Self>>) {
        let home = lease.home;
        lease.next = home.free.take();
        home.free.set(Some(lease));
        home.free_count.set(home.free_count.get() + 1);
    }
}

impl Pool {
    /// Cuts `arena` into buffers of `buffer_size` bytes, [`HEADROOM`] included. No device can reach
    /// them.
    ///
    /// # Panics
    /// If `buffer_size` leaves no room behind the headroom.
    pub fn new(arena: &'static mut [u8], buffer_size: usize) -> Self {
        let buffers = arena.chunks_exact_mut(buffer_size).map(DmaBuf::plain);
        Self::of(buffers.collect(), buffer_size)
    }

    /// Takes `count` buffers of `buffer_size` bytes, [`HEADROOM`] included, from the DMA memory;
    /// each begins at a cache line.
    ///
    /// # Errors
    /// If less is left.
    ///
    /// # Panics
    /// If `buffer_size` leaves no room behind the headroom.
    pub fn dma(arena: &mut DmaArena, count: usize, buffer_size: usize) -> Result<Self, OutOfDma> {
        let buffers = (0..count).map(|_| arena.buf(buffer_size, CACHE_LINE));
        Ok(Self::of(buffers.collect::<Result<_, _>>()?, buffer_size))
    }

    fn of(buffers: Vec<DmaBuf>, buffer_size: usize) -> Self {
        assert!(buffer_size > HEADROOM);
        let home: &'static Shared = Box::leak(Box::new(Shared {
            free: Cell::new(None),
            free_count: Cell::new(0),
            frame_bytes_max: buffer_size - HEADROOM,
            count: buffers.len(),
        }));
        let slots = (0..).zip(buffers).map(|(index, buffer)| Slot {
            buffer,
            index,
            start: 0,
            len: 0,
            has_offload: false,
            offload: Offload::NONE,
            home,
            next: None,
        });
        // The first buffer is the first to be handed out.
        let slots = slots.collect::<Vec<_>>().leak();
        slots.iter_mut().rev().map(Lease::new).for_each(drop);
        Self(home)
    }

    /// A frame of `len` bytes with unspecified content; `None` if all buffers are in use or `len`
    /// exceeds [`Self::frame_bytes_max`].
    #[inline]
    pub fn alloc(&self, len: usize) -> Option<Frame> {
        if len > self.frame_bytes_max() {
            return None;
        }
        let mut frame = self.alloc_max()?;
        frame.0.len = len;
        Some(frame)
    }

    /// A frame of [`Self::frame_bytes_max`] bytes with unspecified content; `None` if all buffers
    /// are in use.
    #[inline]
    pub fn alloc_max(&self) -> Option<Frame> {
        let mut slot = ManuallyDrop::into_inner(self.0.free.take()?);
        self.0.free.set(slot.next.take());
        self.0.free_count.set(self.0.free_count.get() - 1);
        slot.start = HEADROOM;
        slot.len = self.0.frame_bytes_max;
        slot.has_offload = false;
        Some(Frame(slot))
    }

    /// Largest frame that fits a buffer, in bytes.
    #[inline]
    pub fn frame_bytes_max(&self) -> usize {
        self.0.frame_bytes_max
    }

    /// Buffers in the pool, free or not.
    pub fn count(&self) -> usize {
        self.0.count
    }

    /// Buffers that nobody holds.
    pub fn free(&self) -> usize {
        self.0.free_count.get()
    }
}

/// An owned packet, from the Ethernet header on, in a buffer of a [`Pool`]; one pointer wide.
///
/// Whoever holds it may read and write it; dropping it gives the buffer back. A view of it ends
/// before that, or the program does not compile:
///
/// ```compile_fail,E0505
/// let memory = vec![0; 4096].leak();
/// let frame = device::Pool::new(memory, 2048).alloc(60).unwrap();
/// let view = frame.bytes();
/// drop(frame);
/// println!("{view:?}");
/// ```
///
/// And what a device has, nobody can look at:
///
/// ```compile_fail,E0599
/// let memory = vec![0; 4096].leak();
/// let frame = device::Pool::new(memory, 2048).alloc(60).unwrap();
/// let (flight, _) = hw::InFlight::<_, hw::FromDevice>::lend(frame).unwrap();
/// flight.bytes();
/// ```
pub struct Frame(Lease<Slot>);

impl Frame {
    /// The packet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.0.buffer.bytes()[self.0.start..][..self.0.len]
    }

    /// The packet, to be edited in place.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let slot = &mut *self.0;
        &mut slot.buffer.bytes_mut()[slot.start..][..slot.len]
    }

    /// Where its buffer returns to.
    #[inline]
    pub fn pool(&self) -> Pool {
        Pool(self.0.home)
    }

    /// Which of its pool's buffers it has: the first one of the memory has 0.
    #[inline]
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// Bytes of its buffer in front of the packet.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.0.start
    }

    /// Length of the packet in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the packet has no byte.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was left to the next device: checksum, segmentation.
    #[inline]
    pub fn offload(&self) -> Offload {
        if self.0.has_offload {
            self.0.offload
        } else {
            Offload::NONE
        }
    }

    /// Whether anything was left to the next device.
    #[inline]
    pub fn has_offload(&self) -> bool {
        self.0.has_offload
    }

    /// Leaves something to the next device.
    #[inline]
    pub fn set_offload(&mut self, offload: Offload) {
        self.0.has_offload = offload.checksum.is_some() || offload.gso.is_some();
        self.0.offload = offload;
    }

    /// Cuts the packet to its first `len` bytes; longer leaves it as it is.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.0.len = len;
        }
    }

    /// Puts `count` bytes of the headroom in front of the packet and returns them to be filled;
    /// `None` if there is less headroom.
    #[inline]
    pub fn push_front(&mut self, count: usize) -> Option<&mut [u8]> {
        let slot = &mut *self.0;
        let start = slot.start.checked_sub(count)?;
        slot.start = start;
        slot.len += count;
        Some(&mut slot.buffer.bytes_mut()[start..start + count])
    }

    /// Bytes of its buffer behind the packet.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.0.buffer.len() - self.0.start - self.0.len
    }

    /// Makes `count` bytes behind the packet a part of it, and returns them to be filled; `None` if
    /// its buffer has less.
    #[inline]
    pub fn push_back(&mut self, count: usize) -> Option<&mut [u8]> {
        let slot = &mut *self.0;
        let end = slot.start + slot.len;
        let place = slot.buffer.bytes_mut()[end..].get_mut(..count)?;
        slot.len += count;
        Some(place)
    }

    /// Takes the first `count` bytes off the packet, making them headroom; `false`, and nothing
    /// done, if it is shorter.
    #[inline]
    #[must_use]
    pub fn pop_front(&mut self, count: usize) -> bool {
        let fits = count <= self.len();
        if fits {
            self.0.start += count;
            self.0.len -= count;
        }
        fits
    }

    /// The last `N` bytes of the headroom, right in front of the packet, where some devices leave
    /// what they know of it; `None` if there is less headroom.
    #[inline]
    pub fn before<const N: usize>(&self) -> Option<[u8; N]> {
        let end = self.0.start;
        let bytes = self.0.buffer.bytes().get(end.checked_sub(N)?..end)?;
        bytes.first_chunk().copied()
    }

    /// Writes them; `false`, and nothing done, if there is less headroom.
    #[inline]
    #[must_use]
    pub fn set_before<const N: usize>(&mut self, bytes: [u8; N]) -> bool {
        let slot = &mut *self.0;
        let (end, buffer) = (slot.start, slot.buffer.bytes_mut());
        let fits = N <= end && end <= buffer.len();
        if fits {
            buffer[end - N..end].copy_from_slice(&bytes);
        }
        fits
    }
}

impl Reachable for Frame {
    /// The packet's first byte.
    #[inline]
    fn iova(&self) -> Option<Iova> {
        self.0.buffer.iova_at(self.0.start)
    }
}

impl core::fmt::Debug for Frame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Frame")
            .field("len", &self.len())
            .field("offload", &self.offload())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(pool == pool.alloc(9).unwrap().pool() && pool != self::pool(2, 256));
    }

    /// What was written stays, and another pool over the same memory finds it by number.
    #[test]
    fn buffers_have_numbers() {
        let pool = pool(3, 256);
        let mut frames = [0; 3].map(|_| pool.alloc(9).unwrap());
        assert_eq!(frames.each_ref().map(Frame::index), [0, 1, 2]);
        frames[1].bytes_mut().fill(7);
        assert!(frames[1].pop_front(4));
        assert_eq!(frames[1].headroom(), HEADROOM + 4);
        drop(frames);
        let again = [0; 3].map(|_| pool.alloc(9).unwrap());
        let second = again.iter().find(|frame| frame.index() == 1).unwrap();
        assert_eq!(second.bytes(), [7; 9]);
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
        assert!(frame.set_before(*b"123") && !frame.set_before([0; HEADROOM + 2]));
        assert_eq!((frame.before(), frame.bytes()), (Some(*b"23"), &b"b"[..]));
        assert!(frame.before::<HEADROOM>().is_some());
        assert!(frame.before::<{ HEADROOM + 2 }>().is_none());
        let room = frame.tailroom();
        assert!(frame.push_back(room + 1).is_none());
        frame.push_back(2).unwrap().copy_from_slice(b"yz");
        assert_eq!((frame.bytes(), frame.tailroom()), (&b"byz"[..], room - 2));
    }
}
