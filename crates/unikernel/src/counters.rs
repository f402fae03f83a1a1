//! Counters in the shared file, where the monitor can read them; see [`abi::share`].

use crate::boot::boot;
use abi::pci::INDICES_MAX;
use abi::share::appliance_counters;
use core::sync::atomic::{AtomicU64, Ordering};

/// Counters of all devices that an image can have.
const DEVICES: usize = appliance_counters(INDICES_MAX);
/// Counters that nobody reads, for hosts without a shared file.
static PRIVATE: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];
static SPARE: AtomicU64 = AtomicU64::new(0);

/// A number that only grows. Written by the guest alone, so an addition needs no locked
/// instruction.
#[derive(Clone, Copy)]
pub struct Counter(&'static AtomicU64);

impl Counter {
    /// Adds.
    #[inline]
    pub fn add(self, amount: u64) {
        let value = self.0.load(Ordering::Relaxed).wrapping_add(amount);
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counter of this number; numbers that the shared file does not hold share one counter that
/// nobody reads. For an appliance's own, add [`abi::share::appliance_counters`] of
/// [`crate::device_count`].
pub fn counter(number: usize) -> Counter {
    let shared = boot().share.counters();
    let counters = if shared.is_empty() { &PRIVATE } else { shared };
    Counter(counters.get(number).unwrap_or(&SPARE))
}
