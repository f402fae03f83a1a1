//! The network device that the [`Puppet`](crate::virtio::puppet::Puppet) plays.

use super::registers::*;
use super::{Driver, KIND, NicCounts};
use crate::net::Error;
use crate::net::recovery::Recovery;
use crate::virtio::Transport;
use crate::virtio::pci::Pci;
use crate::virtio::puppet::{self, FEATURES};
use alloc::vec;
use alloc::vec::Vec;
use device::virtio::HEADER_SIZE as VIRTIO_BYTES;
use hw::sim::Outside;
use hw::{DmaArena, Mmio};

/// The address in its configuration.
pub const MAC: [u8; 6] = [0x02, 0x00, 0x00, 0x01, 0x10, 0x41];

/// The header of a frame that is complete and lies in one buffer.
pub const PLAIN: [u8; VIRTIO_BYTES] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// What it offers.
const OFFERED: u64 = FEATURES
    | CSUM
    | GUEST_CSUM
    | HAS_MAC
    | GUEST_TSO4
    | GUEST_TSO6
    | GUEST_ECN
    | HOST_TSO4
    | HOST_TSO6
    | HOST_ECN
    | MRG_RXBUF
    | HAS_STATUS
    | SPEED_DUPLEX;

/// The device's end.
pub struct Puppet(puppet::Puppet);

impl Puppet {
    /// A device behind PCI with the link up; `dma_bytes` of DMA memory.
    pub fn new(dma_bytes: usize) -> (Self, Pci, DmaArena) {
        let (puppet, transport, arena) = puppet::Puppet::pci(KIND, &config(), dma_bytes);
        puppet.device().offered.set(OFFERED);
        (Self(puppet), transport, arena)
    }

    /// The same with memory-mapped registers.
    pub fn mmio(dma_bytes: usize) -> (Self, Mmio, DmaArena) {
        let (puppet, registers, arena) = puppet::Puppet::mmio(KIND, &config(), dma_bytes);
        puppet.device().offered.set(OFFERED);
        (Self(puppet), registers, arena)
    }

    /// Changes a field of 16 bits of its configuration.
    pub fn set_config(&self, offset: usize, value: u16) {
        let config = &mut self.device().config.borrow_mut();
        config[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
    }

    /// The link goes down or comes up.
    pub fn set_link(&self, up: bool) {
        self.set_config(STATUS.offset(), if up { STATUS_LINK_UP } else { 0 });
    }

    /// Receives a frame behind this header into one buffer; `false` if there is none.
    ///
    /// # Errors
    /// If ring or buffer are not in DMA memory.
    pub fn deliver(&self, header: [u8; VIRTIO_BYTES], frame: &[u8]) -> Result<bool, Outside> {
        self.deliver_in(header, frame, usize::MAX)
    }

    /// Receives a frame behind this header into buffers of which it fills no more than `most` bytes
    /// each, and shows all of them at once; `false` if there are too few.
    ///
    /// # Errors
    /// If ring or buffers are not in DMA memory.
    pub fn deliver_in(
        &self,
        header: [u8; VIRTIO_BYTES],
        frame: &[u8],
        most: usize,
    ) -> Result<bool, Outside> {
        let bytes = [&header, frame].concat();
        let mut given = 0;
        for part in bytes.chunks(most.min(bytes.len())) {
            let Some((head, buffers)) = self.fetch(0)? else {
                return Ok(false);
            };
            self.view().write(buffers[0].0, part)?;
            self.scribble(0, given, head.into(), part.len() as u32)?;
            given += 1;
        }
        self.set_used(0, self.used(0).wrapping_add(given))?;
        Ok(true)
    }

    /// Says that the next buffer has a plain frame of `length` bytes, and touches none of them.
    ///
    /// # Errors
    /// If ring or buffer are not in DMA memory.
    pub fn write_back(&self, length: u64) -> Result<(), Outside> {
        if let Some((head, buffers)) = self.fetch(0)? {
            self.view().write(buffers[0].0, &PLAIN)?;
            self.give_back(0, head, length as u32 + VIRTIO_BYTES as u32)?;
        }
        Ok(())
    }

    /// Says that all frames are sent, and returns them, each with its header.
    ///
    /// # Errors
    /// If ring or buffers are not in DMA memory.
    pub fn drain(&self) -> Result<Vec<Vec<u8>>, Outside> {
        let mut frames = vec![];
        while let Some((head, buffers)) = self.fetch(1)? {
            let mut frame = vec![];
            for (address, bytes, _) in buffers {
                let at = frame.len();
                frame.resize(at + bytes as usize, 0);
                self.view().read(address, &mut frame[at..])?;
            }
            frames.push(frame);
            self.give_back(1, head, 0)?;
        }
        Ok(frames)
    }
}

impl core::ops::Deref for Puppet {
    type Target = puppet::Puppet;

    fn deref(&self) -> &puppet::Puppet {
        &self.0
    }
}

/// The link is up at 10 Gb/s.
fn config() -> Vec<u8> {
    let mut config = vec![0; 24];
    config[..6].copy_from_slice(&MAC);
    config[STATUS.offset()] = STATUS_LINK_UP as u8;
    config[SPEED.offset()..][..4].copy_from_slice(&10_000u32.to_le_bytes());
    config
}

impl<T: Transport, const N: usize> Driver<T, N> {
    /// Makes the driver as new: a fuzzer has no memory for one per input.
    ///
    /// # Errors
    /// As for [`Driver::new`].
    pub fn renew(&mut self, clock: impl Fn() -> u64) -> Result<(), Error> {
        self.counts = NicCounts::default();
        self.recovery = Recovery::default();
        self.start(clock)
    }
}
