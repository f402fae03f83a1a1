//! A device that does what a test, a fuzzer or a benchmark says, be it true or not. It is no model
//! of any: its registers are memory, and it knows of rings just enough to fill and drain them.
//!
//! What a driver's puppet has to know of its device is a [`Part`].

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering};
use hw::sim::{self, Outside, View};
use hw::{DmaArena, Mmio, Register};

/// Where its DMA memory lies.
const IOVA: u64 = 0x1_0000_0000;
/// What a register reads where there is no device.
const ALL_ONES: u32 = u32::MAX;

// Descriptors have two words. The second one is the same in all devices here.
const DESCRIPTOR_BYTES: usize = 16;
/// Received: descriptor done.
const RX_DD: u64 = 1 << 0;
/// Received: end of packet.
const RX_EOP: u64 = 1 << 1;
/// Received: where the length begins.
const RX_LENGTH_SHIFT: u32 = 32;
/// To be sent: data rather than context.
const TX_DATA: u64 = 1 << 20;
/// To be sent: end of packet.
const TX_EOP: u64 = 1 << 24;
/// To be sent: report status.
const TX_RS: u64 = 1 << 27;
/// Sent: descriptor done.
const TX_DD: u64 = 1 << 32;
/// To be sent: bytes of the buffer.
const TX_LENGTH: u64 = 0xffff;

/// Registers of a ring.
#[derive(Clone, Copy)]
pub struct Ring {
    /// Address, low.
    pub low: Register,
    /// Address, high.
    pub high: Register,
    /// Bytes.
    pub len: Register,
    /// The driver's index.
    pub tail: Register,
}

/// What a puppet knows of the device that it plays.
pub trait Part {
    /// Bytes of BAR 0.
    const BAR_BYTES: usize;
    /// The receive ring.
    const RECEIVE: Ring;
    /// The transmit ring.
    const TRANSMIT: Ring;
    /// Where a driver asks for a reset, and by which bits.
    const RESET: (Register, u32);
    /// What says that the link is up, if it is not zero.
    const LINK: (Register, u32);
    /// What else a device says that is ready.
    const READY: &'static [(Register, u32)];
}

/// The device's end.
pub struct Puppet<P> {
    words: &'static [AtomicU32],
    view: View,
    receive_head: usize,
    transmit_head: usize,
    part: PhantomData<P>,
}

impl<P: Part> Puppet<P> {
    /// A device with the link up, and what its driver needs; `dma_bytes` of DMA memory.
    pub fn new(dma_bytes: usize) -> (Self, Mmio, DmaArena) {
        let words: Vec<_> = (0..P::BAR_BYTES / 4).map(|_| AtomicU32::new(0)).collect();
        let words: &'static [AtomicU32] = Box::leak(words.into_boxed_slice());
        let (arena, view) = sim::arena(dma_bytes, IOVA);
        let puppet = Self {
            words,
            view,
            receive_head: 0,
            transmit_head: 0,
            part: PhantomData,
        };
        puppet.power_on();
        (puppet, Mmio::shared(words), arena)
    }

    /// All registers as at first; the clock of the driver that is to find it so.
    pub fn power_cycle(&mut self) -> impl Fn() -> u64 + use<P> {
        for word in self.words {
            word.store(0, Ordering::Relaxed);
        }
        (self.receive_head, self.transmit_head) = (0, 0);
        self.power_on();
        self.clock()
    }

    /// What a device says that is ready, with the link up.
    pub fn power_on(&self) {
        P::READY
            .iter()
            .for_each(|(register, value)| self.set(*register, *value));
        self.set_link(true);
    }

    /// The clock of a driver that waits: at each look at it a microsecond has passed, in which the
    /// device has done what it was asked to.
    pub fn clock(&self) -> impl Fn() -> u64 + use<P> {
        let (register, bits) = P::RESET;
        let control = &self.words[register.offset() / 4];
        let now = Cell::new(0);
        move || {
            control.fetch_and(!bits, Ordering::Relaxed);
            now.set(now.get() + 1_000);
            now.get()
        }
    }

    /// Ends a reset that the driver has begun; whether it had.
    pub fn end_reset(&mut self) -> bool {
        let (register, bits) = P::RESET;
        let begun = self.get(register) & bits != 0;
        if begun {
            (self.receive_head, self.transmit_head) = (0, 0);
            self.clock()();
        }
        begun
    }

    /// A register.
    pub fn get(&self, register: Register) -> u32 {
        self.words[register.offset() / 4].load(Ordering::Relaxed)
    }

    /// Changes a register behind the driver's back; outside of the BAR, nothing.
    pub fn set(&self, register: Register, value: u32) {
        if let Some(word) = self.words.get(register.offset() / 4) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Unplugs the device.
    pub fn all_ones(&self) {
        for word in self.words {
            word.store(ALL_ONES, Ordering::Relaxed);
        }
    }

    /// The link goes down or comes up.
    pub fn set_link(&self, up: bool) {
        let (register, value) = P::LINK;
        self.set(register, if up { value } else { 0 });
    }

    /// The DMA memory.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Descriptors of a ring.
    fn count(&self, ring: Ring) -> usize {
        (self.get(ring.len) as usize / DESCRIPTOR_BYTES).max(1)
    }

    /// The address of a descriptor.
    fn place(&self, ring: Ring, index: usize) -> u64 {
        let base = u64::from(self.get(ring.high)) << 32 | u64::from(self.get(ring.low));
        base.wrapping_add((index % self.count(ring) * DESCRIPTOR_BYTES) as u64)
    }

    /// Descriptors that the device has buffers of.
    pub fn receive_room(&self) -> usize {
        let count = self.count(P::RECEIVE);
        let tail = self.get(P::RECEIVE.tail) as usize;
        (tail + count - self.receive_head % count) % count
    }

    /// Where the next frame would be written to.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn receive_address(&self) -> Result<u64, Outside> {
        self.view.load(self.place(P::RECEIVE, self.receive_head))
    }

    /// Receives a frame; `false` if there is no buffer for it.
    ///
    /// # Errors
    /// If ring or buffer are not in DMA memory.
    pub fn deliver(&mut self, frame: &[u8]) -> Result<bool, Outside> {
        if self.receive_room() == 0 {
            return Ok(false);
        }
        self.view.write(self.receive_address()?, frame)?;
        self.write_back(frame.len() as u64)?;
        Ok(true)
    }

    /// Says that the next descriptor is done, with a frame of `length` bytes, and touches no byte.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn write_back(&mut self, length: u64) -> Result<(), Outside> {
        let status = RX_DD | RX_EOP | length << RX_LENGTH_SHIFT;
        self.scribble_receive(0, [0, status])?;
        self.receive_head += 1;
        Ok(())
    }

    /// Writes a receive descriptor, `ahead` of the next one, whatever it is;
    /// `usize::MAX` is the one before.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn scribble_receive(&self, ahead: usize, words: [u64; 2]) -> Result<(), Outside> {
        let index = self.receive_head.wrapping_add(ahead);
        self.scribble(self.place(P::RECEIVE, index), words)
    }

    /// Writes a transmit descriptor, likewise.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn scribble_transmit(&self, ahead: usize, words: [u64; 2]) -> Result<(), Outside> {
        let index = self.transmit_head.wrapping_add(ahead);
        self.scribble(self.place(P::TRANSMIT, index), words)
    }

    fn scribble(&self, place: u64, words: [u64; 2]) -> Result<(), Outside> {
        self.view.store(place, words[0])?;
        self.view.store(place.wrapping_add(8), words[1])
    }

    /// Says that descriptors up to the tail are done, and returns what was in them.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn drain(&mut self) -> Result<Vec<[u64; 2]>, Outside> {
        let mut descriptors = vec![];
        self.report(|words| descriptors.push(words))?;
        Ok(descriptors)
    }

    /// Says that descriptors up to the tail are done.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn report(&mut self, mut each: impl FnMut([u64; 2])) -> Result<(), Outside> {
        let count = self.count(P::TRANSMIT);
        let tail = self.get(P::TRANSMIT.tail) as usize % count;
        while self.transmit_head % count != tail {
            let descriptor = self.place(P::TRANSMIT, self.transmit_head);
            let second = descriptor.wrapping_add(8);
            let words = [self.view.load(descriptor)?, self.view.load(second)?];
            each(words);
            if words[1] & TX_RS != 0 {
                self.view.store(second, TX_DD)?;
            }
            self.transmit_head += 1;
        }
        Ok(())
    }

    /// The bytes of the frames among `descriptors` that are one buffer each.
    ///
    /// # Errors
    /// If a buffer is not in DMA memory.
    pub fn frames(&self, descriptors: &[[u64; 2]]) -> Result<Vec<Vec<u8>>, Outside> {
        let is_frame = |word: u64| word & TX_DATA != 0 && word & TX_EOP != 0;
        let data = descriptors.iter().filter(|[_, word]| is_frame(*word));
        data.map(|[address, word]| {
            let mut bytes = vec![0; (word & TX_LENGTH) as usize];
            self.view.read(*address, &mut bytes)?;
            Ok(bytes)
        })
        .collect()
    }
}
