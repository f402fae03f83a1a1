//! What a driver asks of a transport: the registers that every device has, wherever they lie.

use super::Error;
use hw::{Done, Mmio, Register, Width};

/// Where the parts of a virtqueue lie (2.7), as the device is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Its descriptors, a power of two.
    pub size: u16,
    /// I/O address of the descriptor table.
    pub descriptors: u64,
    /// I/O address of the ring that the driver writes.
    pub available: u64,
    /// I/O address of the ring that the device writes.
    pub used: u64,
}

/// By which register, and by which value, a device is told of buffers in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bell {
    pub(super) offset: usize,
    pub(super) queue: u16,
}

/// How a driver reaches a device.
pub trait Transport {
    /// Whether there is a device of this `kind` (5), and what a driver needs that reads so many
    /// bytes of its own configuration.
    ///
    /// # Errors
    /// What is missing.
    fn check(&self, kind: u16, config_bytes: usize) -> Result<(), Error>;

    /// Features without which a device is none that can be used here.
    fn needed(&self) -> u64;

    /// The device status (2.1); all ones if the device is gone.
    fn status(&self) -> u8;

    /// Writes it.
    fn set_status(&self, status: u8);

    /// The device's word that a reset is over: it has no buffer any more.
    fn reset_done(&self) -> Option<Done>;

    /// The features that the device offers (2.2).
    fn features(&self) -> u64;

    /// Accepts some of them.
    fn accept(&self, features: u64);

    /// Most descriptors of a queue; 0 if there is no such queue.
    fn queue_size_max(&self, queue: u16) -> u16;

    /// Gives the device a queue, and returns how it is told of buffers there. Used buffers
    /// interrupt only if that is asked for.
    ///
    /// # Errors
    /// If the device cannot be told.
    fn set_up(&self, queue: u16, rings: Rings, interrupts: bool) -> Result<Bell, Error>;

    /// Tells the device that there are buffers (2.9).
    fn notify(&self, bell: Bell);

    /// A field of the device's own configuration (2.5).
    fn config<F: Width>(&self, field: Register<F>) -> F;

    /// A number that is another one once that configuration has changed (2.5.1).
    fn generation(&self) -> u32;
}

/// Looks of [`stable`] at a configuration that changes.
const GENERATIONS_MAX: usize = 4;

/// What `read` finds in the device's configuration, read while it did not change (2.5.1); the last
/// look at one that does not stop changing.
pub fn stable<T: Transport, R>(transport: &T, read: impl Fn(&T) -> R) -> R {
    let mut before = transport.generation();
    let mut found = read(transport);
    for _ in 0..GENERATIONS_MAX {
        let after = transport.generation();
        if after == before {
            break;
        }
        before = after;
        found = read(transport);
    }
    found
}

/// Some of the registers of a BAR: one structure of a device.
///
/// As in a BAR, a read where nothing is finds all ones, and a write there is lost.
#[derive(Clone)]
pub struct Window {
    bar: Mmio,
    number: usize,
    offset: usize,
    len: usize,
}

impl Window {
    /// The `len` bytes from `offset` on of `bar`, whose number is given; fewer if it ends before.
    pub fn new(bar: Mmio, number: usize, offset: usize, len: usize) -> Self {
        let len = len.min(bar.len().saturating_sub(offset));
        Self {
            bar,
            number,
            offset,
            len,
        }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no register.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fails unless it has so many bytes.
    pub(super) fn check(&self, what: &'static str, wanted: usize) -> Result<(), Error> {
        if self.len >= wanted {
            return Ok(());
        }
        Err(Error::Registers {
            what,
            bar: self.number,
            wanted,
            found: self.len,
        })
    }

    /// Where a register lies in the BAR.
    #[inline]
    fn place<W: Width>(&self, register: Register<W>) -> Option<Register<W>> {
        let inside = self.len.checked_sub(W::BYTES)? >= register.offset();
        inside.then(|| register.nth(1, self.offset))
    }

    /// Reads a register.
    #[inline]
    pub(super) fn read<W: Width>(&self, register: Register<W>) -> W {
        match self.place(register) {
            Some(register) => self.bar.read(register),
            None => W::of_word(u32::MAX),
        }
    }

    /// Writes a register.
    #[inline]
    pub(super) fn write<W: Width>(&self, register: Register<W>, value: W) {
        if let Some(register) = self.place(register) {
            self.bar.write(register, value);
        }
    }

    /// The device's word that it is done, as [`Mmio::shows`].
    pub(super) fn shows<W: Width>(
        &self,
        register: Register<W>,
        mask: W,
        wanted: W,
    ) -> Option<Done> {
        self.bar.shows(self.place(register)?, mask, wanted)
    }
}
