//! The same types over plain memory: what a driver and a model of its device share.
//!
//! The driver has a [`DmaArena`], the model a [`View`] of the same memory. Both may live in one
//! thread or in two. Words of descriptors are atomics on both sides. Bytes of buffers are not: a
//! model that behaves touches those that the driver gave it, between the descriptor that says so
//! and the one that says it is done. One that does not, on purpose, must run in the driver's
//! thread, where its writes are ordered with everything else.

use crate::arena::DmaArena;
use alloc::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

/// Size of a page.
const PAGE: usize = 4096;

/// The DMA memory as a model sees it.
#[derive(Clone)]
pub struct View {
    start: NonNull<u8>,
    len: usize,
    iova: u64,
    writable: bool,
    /// What gives the memory back after its last view; an arena's is never given back.
    #[cfg_attr(
        not(feature = "host"),
        expect(dead_code, reason = "there is never one")
    )]
    mapping: Option<Arc<Mapping>>,
}

/// Memory of a file that another process has as well.
#[cfg(feature = "host")]
use file::Mapping;

/// Memory of a file: none without the feature `host`.
#[cfg(not(feature = "host"))]
enum Mapping {}

// SAFETY: it is a range of memory that lives as long as it does; who may touch which byte when is
// between driver and model, as between a driver and a device (see the module's documentation).
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

/// An I/O address that is not in the arena: a driver's mistake, or a model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside {
    /// The address.
    pub iova: u64,
    /// How many bytes from there on.
    pub bytes: usize,
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes at {:#x} are not all in DMA memory",
            self.bytes, self.iova
        )
    }
}

impl core::error::Error for Outside {}

/// DMA memory of at least `bytes` bytes at the I/O address `iova`, a multiple of the page size, for
/// a driver and a model. It is never freed.
///
/// # Panics
/// If `iova` is no such multiple, or there is no memory.
pub fn arena(bytes: usize, iova: u64) -> (DmaArena, View) {
    assert!(iova.is_multiple_of(PAGE as u64));
    let len = bytes.max(1).next_multiple_of(PAGE);
    let Ok(layout) = Layout::from_size_align(len, PAGE) else {
        panic!("{bytes} bytes of DMA memory");
    };
    // SAFETY: the layout has a size.
    let start = unsafe { alloc_zeroed(layout) };
    let Some(start) = NonNull::new(start) else {
        handle_alloc_error(layout)
    };
    // SAFETY: freshly allocated, zeroed, never freed; the view is the devices'.
    let arena = unsafe { DmaArena::new(start, len, iova) };
    let view = View {
        start,
        len,
        iova,
        writable: true,
        mapping: None,
    };
    (arena, view)
}

impl View {
    /// The place of `bytes` bytes at `iova`.
    #[inline]
    fn place(&self, iova: u64, bytes: usize) -> Result<NonNull<u8>, Outside> {
        let offset = iova.wrapping_sub(self.iova);
        let outside = Outside { iova, bytes };
        if offset > self.len as u64 || self.len - (offset as usize) < bytes {
            return Err(outside);
        }
        // SAFETY: `offset` is not past the end (checked).
        Ok(unsafe { self.start.add(offset as usize) })
    }

    /// The same, to be written.
    #[inline]
    fn writable(&self, iova: u64, bytes: usize) -> Result<NonNull<u8>, Outside> {
        if !self.writable {
            return Err(Outside { iova, bytes });
        }
        self.place(iova, bytes)
    }

    #[inline]
    fn word(&self, iova: u64) -> Result<&AtomicU64, Outside> {
        let place = self.place(iova, size_of::<u64>())?;
        if !iova.is_multiple_of(size_of::<u64>() as u64) {
            let bytes = size_of::<u64>();
            return Err(Outside { iova, bytes });
        }
        // SAFETY: inside, initialised, and aligned, as the arena's I/O address is (checked); words
        // of descriptors are touched as atomics on both sides.
        Ok(unsafe { place.cast().as_ref() })
    }

    /// A word of a descriptor.
    ///
    /// # Errors
    /// If it is not in the arena, or not aligned.
    #[inline]
    pub fn load(&self, iova: u64) -> Result<u64, Outside> {
        Ok(self.word(iova)?.load(Ordering::Acquire))
    }

    /// Writes a word of a descriptor, after all that was written before.
    ///
    /// # Errors
    /// If it is not in the arena, or not aligned.
    #[inline]
    pub fn store(&self, iova: u64, value: u64) -> Result<(), Outside> {
        self.writable(iova, size_of::<u64>())?;
        self.word(iova)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Copies bytes out.
    ///
    /// # Errors
    /// If they are not all in the memory.
    #[inline]
    pub fn read(&self, iova: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        let from = self.place(iova, bytes.len())?;
        // SAFETY: inside (checked), and `bytes` is no part of it: no buffer that the driver can
        // look at is the model's as well. A peer in another process that writes meanwhile changes
        // which bytes are found, and any bytes will do.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// If there is not room for all of them in the arena.
    #[inline]
    pub fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), Outside> {
        let to = self.writable(iova, bytes.len())?;
        // SAFETY: as for `read`.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }
}

#[cfg(feature = "host")]
mod file;
#[cfg(feature = "host")]
mod lost;
#[cfg(feature = "host")]
pub mod vectored;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DmaBuf, FromDevice, InFlight, Reachable};

    const IOVA: u64 = 0x10_0000;

    #[test]
    fn driver_and_model_see_the_same_bytes() {
        let (mut arena, view) = arena(3 * PAGE, IOVA);
        let ring = arena.ring::<2, 4>().unwrap();
        let buffer = arena.buf(64, 64).unwrap();
        let (flight, at) = InFlight::<DmaBuf, FromDevice>::lend(buffer).unwrap();
        ring.publish(5, 0, at.raw());
        let told = view.load(ring.iova().raw() + 16).unwrap();
        view.write(told + 60, b"abcd").unwrap();
        view.store(ring.iova().raw() + 24, 1).unwrap();
        assert_eq!(ring.load(1, 1), 1);
        let buffer = flight.done();
        assert_eq!(&buffer.bytes()[60..], b"abcd");
        let mut read = [0; 4];
        view.read(told + 60, &mut read).unwrap();
        assert_eq!(&read, b"abcd");
    }

    /// A driver and a model in threads of their own: Miri sees a data race if an order is missing.
    #[test]
    fn bytes_follow_the_word_that_hands_them_over() {
        const FRAMES: u64 = 8;
        const SPINS: usize = 1_000_000;
        let (mut arena, view) = arena(2 * PAGE, IOVA);
        let ring = arena.ring::<2, 2>().unwrap();
        let ring_at = ring.iova().raw();
        let model = std::thread::spawn(move || {
            for n in 0..FRAMES {
                let descriptor = ring_at + n % 2 * 16;
                let mut spins = 0..SPINS;
                while view.load(descriptor + 8).unwrap() != 2 * n + 1 {
                    assert!(spins.next().is_some());
                    std::thread::yield_now();
                }
                let buffer = view.load(descriptor).unwrap();
                view.write(buffer, &n.to_le_bytes()).unwrap();
                view.store(descriptor + 8, 2 * n + 2).unwrap();
            }
        });
        let mut buffer = arena.buf(8, 8).unwrap();
        for n in 0..FRAMES {
            buffer.bytes_mut().fill(0xff);
            let (flight, at) = InFlight::<_, FromDevice>::lend(buffer).unwrap();
            ring.store(n as usize, 0, at.raw());
            ring.publish(n as usize, 1, 2 * n + 1);
            let mut spins = 0..SPINS;
            while ring.load(n as usize, 1) != 2 * n + 2 {
                assert!(spins.next().is_some());
                std::thread::yield_now();
            }
            buffer = flight.done();
            assert_eq!(buffer.bytes(), n.to_le_bytes());
        }
        model.join().unwrap();
    }

    #[test]
    fn no_access_leaves_the_arena() {
        let (mut arena, view) = arena(PAGE, IOVA);
        let end = IOVA + PAGE as u64;
        for (iova, bytes) in [(IOVA - 1, 1), (end, 1), (end - 1, 2), (0, 0), (u64::MAX, 9)] {
            let outside = Err(Outside { iova, bytes });
            assert_eq!(view.write(iova, &std::vec![0; bytes]), outside);
            assert_eq!(view.read(iova, &mut std::vec![0; bytes]), outside);
        }
        assert!(view.load(end - 8).is_ok() && view.load(IOVA + 4).is_err());
        assert!(arena.ring::<2, 512>().is_err());
        assert_eq!(arena.buf(8, 8).unwrap().iova().unwrap().raw(), IOVA);
        let left = arena.buf(PAGE, 8).unwrap_err().left;
        assert_eq!(left, PAGE - 8);
    }

    #[test]
    fn plain_memory_is_no_devices() {
        let plain = DmaBuf::plain(std::vec![1, 2].leak());
        assert!(InFlight::<_, FromDevice>::lend(plain).is_err());
    }
}
