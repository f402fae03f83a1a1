//! Statistics (10.2.7): registers that are cleared by being read, added up here.

use super::registers::*;
use device::NicCounts;
use hw::{Mmio, Register};

/// Frames that the MAC found bad: checksum, alignment, symbols, length.
const RX_ERRORS: [Register; 5] = [CRCERRS, ALGNERRC, RXERRC, RLEC, ROC];

/// Adds what the device has counted since the last look. A register that reads all ones has counted
/// nothing: the device went away after it was seen last.
pub fn collect(bar: &Mmio, counts: &mut NicCounts) {
    counts.rx_error += RX_ERRORS.iter().map(|each| read(bar, *each)).sum::<u64>();
    counts.rx_missed += read(bar, MPC);
}

/// Forgets what was counted before.
pub fn clear(bar: &Mmio) {
    collect(bar, &mut NicCounts::default());
}

/// Not inlined, for they are read seldom.
#[inline(never)]
fn read(bar: &Mmio, register: Register) -> u64 {
    match bar.read(register) {
        ALL_ONES => 0,
        count => u64::from(count),
    }
}
