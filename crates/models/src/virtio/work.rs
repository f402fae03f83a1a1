//! What a device works with while it is polled.

use crate::iotlb::Iotlb;
use crate::misbehaviour::Faults;
use crate::violation::{Violation, Violations};
use std::time::Duration;

/// The driver's memory and the time, where to report what the driver does, and what goes wrong.
pub struct Work<'a> {
    /// The driver's memory.
    pub dma: &'a Iotlb<'a>,
    /// The time since some start, which never goes backwards.
    pub now: Duration,
    /// Features that the driver has accepted.
    pub features: u64,
    pub(crate) violations: &'a mut Violations,
    pub(crate) faults: &'a mut Faults,
}

impl Work<'_> {
    /// Whether the driver has accepted any of these features.
    #[inline]
    pub fn has(&self, features: u64) -> bool {
        self.features & features != 0
    }

    /// The driver did what it must not.
    pub fn report(&mut self, violation: Violation) {
        self.violations.add(violation);
    }

    /// The same, which the driver did so many times: none if 0.
    pub fn report_often(&mut self, violation: Violation, times: u64) {
        if times > 0 {
            self.violations.add_often(violation, times);
        }
    }
}
