//! Statistics (8.2.3.23): registers that are cleared by being read, added up here.

use super::registers::*;
use device::NicCounts;
use hw::{Mmio, Register};

/// What the device has counted since the start, as of the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Good frames received.
    pub rx_frames: u64,
    /// Their bytes, checksums included.
    pub rx_bytes: u64,
    /// Good frames sent.
    pub tx_frames: u64,
    /// Their bytes, checksums included.
    pub tx_bytes: u64,
    /// Received frames that were passed on although the checksum of their IP header, or of their
    /// TCP or UDP packet, is wrong. Whoever they are for will see.
    pub rx_bad_checksum: u64,
}

/// Frames that the MAC found bad: symbols, bytes, checksum, length.
const RX_ERRORS: [Register; 8] = [CRCERRS, ILLERRC, ERRBC, RLEC, RUC, RFC, ROC, RJC];
/// Frames for which packet buffer or queue had no room.
const RX_MISSED: [Register; 2] = [RXMPC, QPRDC];

impl Statistics {
    /// Adds what the device has counted since the last look. The device is known to be there: a
    /// register that still reads all ones has counted nothing.
    pub fn collect(&mut self, bar: &Mmio, counts: &mut NicCounts) {
        self.rx_frames += read(bar, GPRC);
        self.rx_bytes += read_long(bar, GORCL, GORCH);
        self.tx_frames += read(bar, GPTC);
        self.tx_bytes += read_long(bar, GOTCL, GOTCH);
        counts.rx_error += RX_ERRORS.iter().map(|each| read(bar, *each)).sum::<u64>();
        counts.rx_missed += RX_MISSED.iter().map(|each| read(bar, *each)).sum::<u64>();
    }
}

/// 4.6.5: forgets what was counted before.
pub fn clear(bar: &Mmio) {
    Statistics::default().collect(bar, &mut NicCounts::default());
}

fn read(bar: &Mmio, register: Register) -> u64 {
    match bar.read(register) {
        ALL_ONES => 0,
        count => u64::from(count),
    }
}

/// A counter of 36 bits: low first, for reading the high half clears both.
fn read_long(bar: &Mmio, low: Register, high: Register) -> u64 {
    let low = read(bar, low);
    low | (read(bar, high) & 0xf) << 32
}
