//! What a device has now.

use crate::iova::Iova;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::sync::atomic::{AtomicUsize, Ordering, fence};

/// Memory that a device can be told to use.
pub trait Reachable {
    /// Where devices find its first byte; `None` if they cannot reach it.
    fn iova(&self) -> Option<Iova>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ToDevice {}
    impl Sealed for super::FromDevice {}
}

/// What the device does with memory: [`ToDevice`] or [`FromDevice`], and there is no third.
///
/// ```compile_fail,E0277
/// struct Sideways;
/// impl hw::Direction for Sideways {}
/// ```
pub trait Direction: sealed::Sealed {}
/// The device reads it. The driver may read it as well, but not write.
pub enum ToDevice {}
/// The device writes it. The driver may do nothing with it.
pub enum FromDevice {}
impl Direction for ToDevice {}
impl Direction for FromDevice {}

/// The word of a device that it is done: what [`InFlight::done`] wants to see.
///
/// There are two ways to one, and both read what the device says: a descriptor that it has written
/// back ([`Report::shows`](crate::Report::shows)), and a register
/// ([`Mmio::shows`](crate::Mmio::shows)), such as one that says that a reset is over. Which buffers
/// the device means, the driver knows.
///
/// ```compile_fail,E0423
/// let done = hw::Done(());
/// ```
#[derive(Debug)]
pub struct Done(());

impl Done {
    /// Of what a device said: whether the bits of `mask` are those of `wanted`. What it wrote
    /// before it said so can be read from here on. To ask for no bit proves nothing.
    #[inline]
    pub(crate) fn shown(said: u64, mask: u64, wanted: u64) -> Option<Self> {
        (mask != 0 && said & mask == wanted).then_some(Self(()))
    }
}

/// Buffers that were dropped while a device had them.
static LEAKED: AtomicUsize = AtomicUsize::new(0);

/// How many buffers were dropped while a device had them, since the start. They are used no more,
/// for the device may still write them.
pub fn leaked() -> usize {
    LEAKED.load(Ordering::Relaxed)
}

/// Something that a device has: from telling it the address until it says that it is done. Drivers
/// keep these in memory of their own, by the index of the descriptor.
///
/// What the device may write, nobody can look at:
///
/// ```compile_fail,E0599
/// let buffer = hw::DmaBuf::plain(Box::leak(Box::new([0; 64])));
/// let (flight, _) = hw::InFlight::<_, hw::FromDevice>::lend(buffer).unwrap();
/// flight.buffer();
/// ```
///
/// What it reads, nobody can change:
///
/// ```compile_fail,E0596
/// let buffer = hw::DmaBuf::plain(Box::leak(Box::new([0; 64])));
/// let (flight, _) = hw::InFlight::<_, hw::ToDevice>::lend(buffer).unwrap();
/// flight.buffer().bytes_mut();
/// ```
///
/// And nobody can take either back on a promise:
///
/// ```compile_fail,E0061
/// let buffer = hw::DmaBuf::plain(Box::leak(Box::new([0; 64])));
/// let (flight, _) = hw::InFlight::<_, hw::FromDevice>::lend(buffer).unwrap();
/// flight.done();
/// ```
///
/// One that is dropped is leaked and counted ([`leaked`]): its memory is nobody else's while the
/// device may use it.
#[derive(Debug)]
pub struct InFlight<B, D: Direction> {
    buffer: ManuallyDrop<B>,
    direction: PhantomData<D>,
}

impl<B: Reachable, D: Direction> InFlight<B, D> {
    /// Gives `buffer` away; the address is what the device is to be told.
    ///
    /// # Errors
    /// The buffer, if devices cannot reach it.
    #[inline]
    pub fn lend(buffer: B) -> Result<(Self, Iova), B> {
        match buffer.iova() {
            Some(iova) => {
                let (buffer, direction) = (ManuallyDrop::new(buffer), PhantomData);
                Ok((Self { buffer, direction }, iova))
            }
            None => Err(buffer),
        }
    }

    /// Where the device finds it.
    #[inline]
    pub fn iova(&self) -> Option<Iova> {
        self.buffer.iova()
    }

    /// Takes it back from a device that said that it is done. What it wrote before it said so can
    /// be read now.
    #[inline]
    pub fn done(mut self, _said: &Done) -> B {
        fence(Ordering::Acquire);
        // SAFETY: the buffer is taken once, for `self` is gone behind the next line.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        mem::forget(self);
        buffer
    }
}

impl<B> InFlight<B, ToDevice> {
    /// What the device reads, to be read.
    pub fn buffer(&self) -> &B {
        &self.buffer
    }
}

impl<B, D: Direction> Drop for InFlight<B, D> {
    #[cold]
    fn drop(&mut self) {
        LEAKED.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim;

    #[test]
    fn a_buffer_comes_back_on_the_word_of_the_device_alone() {
        let (mut arena, view) = sim::arena(4096 * 2, 0);
        let ring = arena.ring::<2, 4>().unwrap();
        let buffer = arena.buf(64, 64).unwrap();
        let (flight, at) = InFlight::<_, FromDevice>::lend(buffer).unwrap();
        for (said, shows) in [(0, false), (2, false), (3, true), (7, true)] {
            view.store(ring.iova().raw() + 8, said).unwrap();
            assert_eq!(ring.report(0, 1).shows(3, 3).is_some(), shows, "{said}");
        }
        view.write(at.raw(), b"abcd").unwrap();
        let report = ring.report(0, 1);
        // What was read counts, not what is there by now.
        view.store(ring.iova().raw() + 8, 0).unwrap();
        let done = report.shows(1, 1).expect("it was there when it was read");
        assert_eq!(&flight.done(&done).bytes()[..4], b"abcd");
    }

    #[test]
    fn what_is_dropped_in_flight_is_counted_and_never_freed() {
        struct Buffer;
        impl Reachable for Buffer {
            fn iova(&self) -> Option<Iova> {
                Some(Iova(0))
            }
        }
        impl Drop for Buffer {
            fn drop(&mut self) {
                panic!("the device may still write it");
            }
        }
        let before = leaked();
        drop(InFlight::<_, FromDevice>::lend(Buffer));
        assert!(leaked() > before);
    }

    #[test]
    fn what_the_device_reads_the_driver_can_read() {
        let (mut arena, _) = sim::arena(4096, 0);
        let mut buffer = arena.buf(4, 4).unwrap();
        buffer.bytes_mut().fill(7);
        let (flight, _) = InFlight::<_, ToDevice>::lend(buffer).unwrap();
        assert_eq!(flight.buffer().bytes(), [7; 4]);
        drop(flight);
    }
}
