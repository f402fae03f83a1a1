//! The same types over plain memory: what a driver and a model of its device share.
//!
//! The driver has a [`DmaArena`], the model a [`View`] of the same memory, in the driver's thread,
//! in another one or in another process.
//!
//! # What the unsafe code here rests on
//!
//! 1. **A mapping of its own.** A view owns a mapping that nothing else in this process knows: the
//!    kernel chose its addresses, and a view lends no reference to it. The arena of a driver in the
//!    same process is a second mapping of the same file, at other addresses. So the bytes change
//!    behind a driver's back as they do when a card writes them, and never behind a reference that
//!    was made from a view. Miri maps no files: there both sides have one allocation, and Miri
//!    reports every access of a model to memory that its driver holds.
//! 2. **One thread.** [`View`] is neither `Clone` nor `Sync`: whoever has it is alone with it.
//! 3. **Bounds and rights.** Each access goes through `place` or `writable`, which check both.
//! 4. **Alignment.** `word` and `half` check the address of each word. Bytes have no alignment.
//! 5. **Any bytes will do.** Only integers are read. What another process or the driver writes
//!    meanwhile changes which ones are found.
//!
//! Bytes are ordered by words alone: what was written before a [`View::store`] is there for whoever
//! loads that word, and the other way round for [`View::load`].

use crate::arena::DmaArena;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

mod mapping;
mod sigbus;
pub mod vectored;

use mapping::Mapping;

/// Size of a page.
const PAGE: usize = 4096;

/// The DMA memory as a model sees it.
pub struct View {
    /// Used by nothing else in this process.
    mapping: Mapping,
    iova: u64,
    writable: bool,
}

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
/// a driver and a model. The driver's side of it is never freed.
///
/// # Panics
/// If `iova` is no such multiple, or there is no memory.
pub fn arena(bytes: usize, iova: u64) -> (DmaArena, View) {
    assert!(iova.is_multiple_of(PAGE as u64));
    let len = bytes.max(1).next_multiple_of(PAGE);
    let (start, mapping) = match mapping::shared(len) {
        Ok(both) => both,
        Err(error) => panic!("{bytes} bytes of DMA memory: {error}"),
    };
    // SAFETY: `shared` has mapped `len` bytes of zeros there for this call, which stay mapped; what
    // devices write, they write through the other mapping.
    let arena = unsafe { DmaArena::new(start, len, iova) };
    let view = View {
        mapping,
        iova,
        writable: true,
    };
    (arena, view)
}

impl View {
    /// The place of `bytes` bytes at `iova`.
    #[inline]
    fn place(&self, iova: u64, bytes: usize) -> Result<NonNull<u8>, Outside> {
        let offset = iova.wrapping_sub(self.iova);
        let len = self.mapping.len();
        if offset > len as u64 || len - (offset as usize) < bytes {
            return Err(Outside { iova, bytes });
        }
        // SAFETY: `offset` is not past the end of the mapping (checked).
        Ok(unsafe { self.mapping.start().add(offset as usize) })
    }

    /// The same, to be written.
    #[inline]
    fn writable(&self, iova: u64, bytes: usize) -> Result<NonNull<u8>, Outside> {
        if !self.writable {
            return Err(Outside { iova, bytes });
        }
        self.place(iova, bytes)
    }

    /// A word at its place, as long as the view is there.
    #[inline]
    fn word(&self, iova: u64) -> Result<&AtomicU64, Outside> {
        let bytes = size_of::<u64>();
        let word = self.place(iova, bytes)?.cast::<AtomicU64>();
        if !word.is_aligned() {
            return Err(Outside { iova, bytes });
        }
        // SAFETY: all of the word is in the mapping (`place`), which lives as long as `self`; it is
        // aligned (checked), and any bytes are an integer. Nobody else in this process has a
        // reference to it (1.), and others that write it do so between accesses of an atomic.
        Ok(unsafe { word.as_ref() })
    }

    /// 16 bits at their place, as [`word`](Self::word).
    #[inline]
    fn half(&self, iova: u64) -> Result<&AtomicU16, Outside> {
        let bytes = size_of::<u16>();
        let half = self.place(iova, bytes)?.cast::<AtomicU16>();
        if !half.is_aligned() {
            return Err(Outside { iova, bytes });
        }
        // SAFETY: both bytes are in the mapping (`place`), which lives as long as `self`; they are
        // aligned (checked), and any bytes are an integer. Nobody else in this process has a
        // reference to them (1.), and others write them between accesses of an atomic.
        Ok(unsafe { half.as_ref() })
    }

    /// 16 bits of a ring, such as its index; what was written before them can be read after.
    ///
    /// # Errors
    /// If they are not in the arena, or not aligned.
    #[inline]
    pub fn load16(&self, iova: u64) -> Result<u16, Outside> {
        Ok(self.half(iova)?.load(Ordering::Acquire))
    }

    /// Writes 16 bits of a ring, after all that was written before.
    ///
    /// # Errors
    /// If they are not in the arena, not aligned, or this is only to be read.
    #[inline]
    pub fn store16(&self, iova: u64, value: u16) -> Result<(), Outside> {
        self.writable(iova, size_of::<u16>())?;
        self.half(iova)?.store(value, Ordering::Release);
        Ok(())
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
    /// If it is not in the arena, not aligned, or this is only to be read.
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
        // SAFETY: as many bytes as `bytes` has lie in the mapping (`place`). `bytes` is no part of
        // it, for no reference to the mapping exists (1.), and no other thread of this process
        // writes it (2.).
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Errors
    /// If there is not room for all of them in the arena, or this is only to be read.
    #[inline]
    pub fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), Outside> {
        let to = self.writable(iova, bytes.len())?;
        // SAFETY: as many bytes as `bytes` has lie in the mapping, which was mapped to be written
        // (`writable`). `bytes` is no part of it, for no reference to the mapping exists (1.), and
        // no other thread of this process reads or writes it (2.).
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }
}

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
        let done = ring.report(1, 1).shows(1, 1).unwrap();
        let buffer = flight.done(&done);
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
            let done = loop {
                if let Some(done) = ring.report(n as usize, 1).shows(u64::MAX, 2 * n + 2) {
                    break done;
                }
                assert!(spins.next().is_some());
                std::thread::yield_now();
            };
            buffer = flight.done(&done);
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
        assert!(view.load16(end - 2).is_ok() && view.load16(IOVA + 1).is_err());
        assert!(view.store16(IOVA + 1, 1).is_err() && view.store16(end, 1).is_err());
        view.store16(end - 2, 0x0102).unwrap();
        assert_eq!(view.load(end - 8).unwrap().to_le_bytes()[6..], [2, 1]);
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
