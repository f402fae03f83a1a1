//! What a device has now.

use crate::iova::Iova;
use core::marker::PhantomData;
use core::sync::atomic::{Ordering, fence};

/// Memory that a device can be told to use.
pub trait Reachable {
    /// Where devices find its first byte; `None` if they cannot reach it.
    fn iova(&self) -> Option<Iova>;
}

/// What the device does with it.
pub trait Direction {}
/// The device reads it.
pub enum ToDevice {}
/// The device writes it.
pub enum FromDevice {}
impl Direction for ToDevice {}
impl Direction for FromDevice {}

/// Something that a device has: from telling it the address until it says that it is done. Nobody
/// can look at the bytes meanwhile, for there is no method that shows them.
///
/// Drivers keep these in memory of their own, by the index of the descriptor. Dropping one while
/// the device still has it would make its memory another's: drivers stop the device first.
#[derive(Debug)]
pub struct InFlight<B, D: Direction> {
    buffer: B,
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
                let direction = PhantomData;
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

    /// Takes it back. To be called once the device has said that it is done, or was stopped: what
    /// it wrote before it said so can be read now.
    #[inline]
    pub fn done(self) -> B {
        fence(Ordering::Acquire);
        self.buffer
    }
}
