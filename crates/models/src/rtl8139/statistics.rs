//! Counters, which are written to memory when software asks for it (datasheet, chapter 6, DTCCR).

use super::Nic;
use super::registers::{at, bit};
use crate::dma::Dma;
use crate::violation::Violation;

/// Where the block of them must begin: a multiple of so many bytes.
const ALIGN: u64 = 64;
/// Bytes of the block.
const BYTES: usize = 64;
/// Most frames that MPC counts.
const MISSED_MAX: u32 = 0xff_ffff;

/// What was counted since the last reset.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    pub(super) transmitted: u64,
    pub(super) transmit_errors: u64,
    pub(super) received: u64,
    pub(super) receive_errors: u32,
    pub(super) matched: u64,
    pub(super) broadcast: u64,
    pub(super) multicast: u32,
    pub(super) missed: u32,
}

impl Statistics {
    /// A frame was missed.
    pub(super) fn miss(&mut self) {
        self.missed = (self.missed + 1).min(MISSED_MAX);
    }

    /// The block of them: this model has no collisions, and none of the errors of a cable.
    fn block(&self) -> [u8; BYTES] {
        let mut block = [0; BYTES];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.transmitted.to_le_bytes());
        put(8, &self.received.to_le_bytes());
        put(16, &self.transmit_errors.to_le_bytes());
        put(24, &self.receive_errors.to_le_bytes());
        put(28, &(self.missed.min(0xffff) as u16).to_le_bytes());
        put(40, &self.matched.to_le_bytes());
        put(48, &self.broadcast.to_le_bytes());
        put(56, &self.multicast.to_le_bytes());
        block
    }
}

impl Nic {
    /// Writes the block if DTCCR.Cmd asks for it, and clears that.
    pub(super) fn dump_statistics(&mut self, dma: &dyn Dma) {
        let low = self.file.get(at::DTCCR);
        if low & bit::DUMP == 0 {
            return;
        }
        let high = u64::from(self.file.get(at::DTCCR + 4));
        let iova = (high << 32 | u64::from(low)) & !(ALIGN - 1);
        if let Err(fault) = dma.write(iova, &self.statistics.block()) {
            self.violations.add(Violation::Dma {
                queue: crate::violation::Queue::Rx(0),
                fault,
            });
        }
        self.file.set(at::DTCCR, low & !bit::DUMP);
    }
}
