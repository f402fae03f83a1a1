//! Counters in the shared file, where the monitor reads them; see [`abi::share`].

use abi::pci::INDICES_MAX;
use abi::share::appliance_counters;
use core::sync::atomic::{AtomicU64, Ordering};

/// Counters of all devices that an image can have.
const DEVICES: usize = appliance_counters(INDICES_MAX);
/// Counters that nobody reads, for hosts without a shared file.
static PRIVATE: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
/// The counter for all numbers for which there is no other.
static SPARE: AtomicU64 = AtomicU64::new(0);

/// A number that the guest alone writes, so that an addition needs no locked instruction.
///
/// Outside, `outboard stats NAME` shows it, and `outboard run --metrics` serves it to Prometheus. A
/// port's own have names there, such as `outboard_port_receive_frames_total`; the others, which an
/// appliance counts for itself, appear as events of that port by their number, as `counter_32`.
#[derive(Clone, Copy, Debug)]
pub struct Counter(&'static AtomicU64);

impl Counter {
    /// The counter of this number among those of the shared file, or of the image's own if the
    /// file has none.
    pub(crate) fn of(shared: &'static [AtomicU64], number: usize) -> Self {
        let counters = if shared.is_empty() { &PRIVATE } else { shared };
        Self(counters.get(number).unwrap_or(&SPARE))
    }

    /// Adds.
    #[inline]
    pub fn add(self, amount: u64) {
        let value = self.0.load(Ordering::Relaxed).wrapping_add(amount);
        self.0.store(value, Ordering::Relaxed);
    }

    /// Takes this value.
    #[inline]
    pub fn set(self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
