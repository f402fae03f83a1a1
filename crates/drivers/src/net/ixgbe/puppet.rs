//! A device that does what a test, a fuzzer or a benchmark says, be it true or not. It is no model
//! of an 82599: its registers are memory, and it knows of rings just enough to fill and drain them.

use super::config::Error;
use super::registers::*;
use super::{Driver, NicCounts, Recovery, State, init, wait};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
use hw::sim::{self, Outside, View};
use hw::{DmaArena, Mmio, Register};

pub use super::registers::{RX_DD, RX_EOP, RX_IPE, RX_L4E, RX_RXE, TX_DD};

/// The address in its EEPROM.
pub const MAC: [u8; 6] = [0x02, 0x00, 0x00, 0x82, 0x59, 0x99];
/// Where its DMA memory lies.
const IOVA: u64 = 0x1_0000_0000;

/// The device's end.
pub struct Puppet {
    words: &'static [AtomicU32],
    view: View,
    receive_head: usize,
    transmit_head: usize,
}

impl Puppet {
    /// A device with the link up, and what its driver needs; `dma_bytes` of DMA memory.
    pub fn new(dma_bytes: usize) -> (Self, Mmio, DmaArena) {
        let words: Vec<_> = (0..BAR_BYTES / 4).map(|_| AtomicU32::new(0)).collect();
        let words: &'static [AtomicU32] = Box::leak(words.into_boxed_slice());
        let (arena, view) = sim::arena(dma_bytes, IOVA);
        let puppet = Self {
            words,
            view,
            receive_head: 0,
            transmit_head: 0,
        };
        puppet.power_on();
        (puppet, Mmio::shared(words), arena)
    }

    /// All registers as at first; the clock of the driver that is to find it so.
    pub fn power_cycle(&mut self) -> impl Fn() -> u64 + use<> {
        for word in self.words {
            word.store(0, Ordering::Relaxed);
        }
        (self.receive_head, self.transmit_head) = (0, 0);
        self.power_on();
        self.clock()
    }

    /// What a device says that is ready, with the link up.
    pub fn power_on(&self) {
        let [a, b, c, d, e, f] = MAC;
        self.set(RAL, u32::from_le_bytes([a, b, c, d]));
        self.set(RAH, u32::from_le_bytes([e, f, 0, 0]) | RAH_AV);
        self.set(EEC, EEC_AUTO_RD);
        self.set(RDRXCTL, RDRXCTL_DMA_DONE);
        self.set(SECRXSTAT, SECRXSTAT_READY);
        self.set(LINKS, LINKS_UP | 3 << LINKS_SPEED_SHIFT);
    }

    /// The clock of a driver that waits: at each look at it a microsecond has passed, in which the
    /// device has done what it was asked to.
    pub fn clock(&self) -> impl Fn() -> u64 + use<> {
        let ctrl = &self.words[CTRL.0 / 4];
        let now = Cell::new(0);
        move || {
            ctrl.fetch_and(!(CTRL_RST | CTRL_LRST), Ordering::Relaxed);
            now.set(now.get() + 1_000);
            now.get()
        }
    }

    /// Ends a reset that the driver has begun; whether it had.
    pub fn end_reset(&mut self) -> bool {
        let begun = self.get(CTRL) & CTRL_RST != 0;
        if begun {
            (self.receive_head, self.transmit_head) = (0, 0);
            self.clock()();
        }
        begun
    }

    /// A register.
    pub fn get(&self, Register(offset): Register) -> u32 {
        self.words[offset / 4].load(Ordering::Relaxed)
    }

    /// Changes a register behind the driver's back; outside of the BAR, nothing.
    pub fn set(&self, Register(offset): Register, value: u32) {
        if let Some(word) = self.words.get(offset / 4) {
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
        let links = if up {
            LINKS_UP | 3 << LINKS_SPEED_SHIFT
        } else {
            0
        };
        self.set(LINKS, links);
    }

    /// The DMA memory.
    pub fn view(&self) -> &View {
        &self.view
    }

    fn ring(&self, low: Register, high: Register, len: Register) -> (u64, usize) {
        let base = u64::from(self.get(high)) << 32 | u64::from(self.get(low));
        let count = self.get(len) as usize / DESCRIPTOR_BYTES;
        (base, count.max(1))
    }

    fn receive_descriptor(&self, index: usize) -> u64 {
        let (base, count) = self.ring(RDBAL, RDBAH, RDLEN);
        base + (index % count * DESCRIPTOR_BYTES) as u64
    }

    fn transmit_descriptor(&self, index: usize) -> u64 {
        let (base, count) = self.ring(TDBAL, TDBAH, TDLEN);
        base + (index % count * DESCRIPTOR_BYTES) as u64
    }

    /// Descriptors that the device has buffers of.
    pub fn receive_room(&self) -> usize {
        let (_, count) = self.ring(RDBAL, RDBAH, RDLEN);
        (self.get(RDT) as usize + count - self.receive_head % count) % count
    }

    /// Where the next frame would be written to.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn receive_address(&self) -> Result<u64, Outside> {
        self.view.load(self.receive_descriptor(self.receive_head))
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
        let descriptor = self.receive_descriptor(self.receive_head);
        self.view.store(descriptor, 0)?;
        self.view.store(descriptor + 8, status)?;
        self.receive_head += 1;
        Ok(())
    }

    /// Writes a receive descriptor, `ahead` of the next one, whatever it is;
    /// `usize::MAX` is the one before.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn scribble_receive(&self, ahead: usize, words: [u64; 2]) -> Result<(), Outside> {
        let descriptor = self.receive_descriptor(self.receive_head.wrapping_add(ahead));
        self.view.store(descriptor, words[0])?;
        self.view.store(descriptor + 8, words[1])
    }

    /// Writes a transmit descriptor, likewise.
    ///
    /// # Errors
    /// If the ring is not in DMA memory.
    pub fn scribble_transmit(&self, ahead: usize, words: [u64; 2]) -> Result<(), Outside> {
        let descriptor = self.transmit_descriptor(self.transmit_head.wrapping_add(ahead));
        self.view.store(descriptor, words[0])?;
        self.view.store(descriptor + 8, words[1])
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
        let (_, count) = self.ring(TDBAL, TDBAH, TDLEN);
        let tail = self.get(TDT) as usize % count;
        while self.transmit_head % count != tail {
            let descriptor = self.transmit_descriptor(self.transmit_head);
            let words = [self.view.load(descriptor)?, self.view.load(descriptor + 8)?];
            each(words);
            if words[1] & TX_RS != 0 {
                self.view.store(descriptor + 8, TX_DD)?;
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
        let data = descriptors
            .iter()
            .filter(|[_, command]| command & TX_EOP != 0);
        data.map(|[address, command]| {
            let mut bytes = vec![0; (command & 0xffff) as usize];
            self.view.read(*address, &mut bytes)?;
            Ok(bytes)
        })
        .collect()
    }
}

impl<const RX: usize, const TX: usize> Driver<RX, TX> {
    /// Makes the driver as new: a fuzzer has no memory for one per input.
    ///
    /// # Errors
    /// As for [`Driver::new`].
    pub fn renew(&mut self, clock: impl Fn() -> u64) -> Result<(), Error> {
        let wait = &mut wait::by(clock);
        init::reset(&self.bar, wait);
        wait(init::RESET_NANOSECONDS);
        self.state = State::Running;
        self.counts = NicCounts::default();
        self.recovery = Recovery::default();
        self.bring_up(wait)
    }
}
