//! Interrupts (datasheet, 7.3).

use super::registers::{RegisterFile, at};
use crate::moderation::Moderation;
use std::time::Duration;

/// Causes beyond the queues' (8.2.3.5.1).
pub(crate) mod cause {
    /// The flow director has no room for a filter.
    pub(crate) const FLOWS: u32 = 1 << 16;
    /// The device got an error on the bus.
    pub(crate) const PCI: u32 = 1 << 18;
    /// The link went up or down.
    pub(crate) const LINK: u32 = 1 << 20;
    /// All of these: they share a vector.
    pub(crate) const OTHER: u32 = 0x3fff_0000;
}

/// The causes of queues.
pub(crate) const QUEUES: u32 = 0xffff;
const GPIE_MSIX: u32 = 1 << 4;
const GPIE_OTHER_CLEAR_DISABLE: u32 = 1 << 5;
const GPIE_AUTO_MASK: u32 = 1 << 30;
/// An entry of IVAR is valid (8.2.3.5.16).
pub(crate) const VALID: u32 = 1 << 7;
/// Field of EITR: the interval, in units of 2 microseconds (8.2.3.5.12).
const INTERVAL_SHIFT: u32 = 3;
const INTERVAL_MASK: u32 = 0x1ff;
const INTERVAL: Duration = Duration::from_micros(2);
/// Vectors with a moderation of their own that this model raises.
const VECTORS: usize = 64;

/// Causes, masks and what was raised.
#[derive(Debug)]
pub(crate) struct Interrupts {
    causes: u32,
    enabled: u32,
    auto_clear: u32,
    auto_mask: u32,
    mode: u32,
    /// Causes that became active, for which nothing was raised yet.
    pending: u32,
    raised: u64,
    moderation: Moderation<VECTORS>,
}

impl Interrupts {
    pub(crate) fn new() -> Self {
        Self {
            causes: 0,
            enabled: 0,
            auto_clear: 0,
            auto_mask: 0,
            mode: 0,
            pending: 0,
            raised: 0,
            moderation: Moderation::new(),
        }
    }

    /// EICR is read: causes are cleared, all of them, or with GPIE.OCD the other ones (8.2.3.5.18).
    pub(crate) fn read_causes(&mut self) -> u32 {
        let causes = self.causes;
        let cleared = match self.mode & GPIE_OTHER_CLEAR_DISABLE {
            0 => u32::MAX,
            _ => cause::OTHER,
        };
        self.causes &= !cleared;
        self.pending &= self.causes;
        self.mask_automatically();
        causes
    }

    /// EICR is written: causes are cleared (8.2.3.5.1).
    pub(crate) fn clear_causes(&mut self, causes: u32) {
        self.causes &= !causes;
        self.pending &= self.causes;
        self.mask_automatically();
    }

    /// Without GPIE.EIAME, EIAM masks when EICR is read or written (8.2.3.5.18).
    fn mask_automatically(&mut self) {
        if self.mode & GPIE_AUTO_MASK == 0 {
            self.enabled &= !self.auto_mask;
        }
    }

    /// Something happened. Where the cause is active already, nothing new is raised.
    #[inline]
    pub(crate) fn set_causes(&mut self, causes: u32) {
        self.pending |= causes & !self.causes;
        self.causes |= causes;
    }

    /// What EICS reads.
    pub(crate) fn causes(&self) -> u32 {
        self.causes
    }

    /// What EIMS and EIMC read.
    pub(crate) fn enabled(&self) -> u32 {
        self.enabled
    }

    /// EIMS is written. What is active and was masked is raised.
    pub(crate) fn enable(&mut self, causes: u32) {
        self.pending |= self.causes & causes & !self.enabled;
        self.enabled |= causes;
    }

    /// EIMC is written.
    pub(crate) fn disable(&mut self, causes: u32) {
        self.enabled &= !causes;
    }

    pub(crate) fn set_auto_clear(&mut self, causes: u32) {
        self.auto_clear = causes;
    }

    /// What EIAM reads.
    pub(crate) fn auto_mask(&self) -> u32 {
        self.auto_mask
    }

    pub(crate) fn set_auto_mask(&mut self, causes: u32) {
        self.auto_mask = causes;
    }

    pub(crate) fn set_mode(&mut self, mode: u32) {
        self.mode = mode;
    }

    /// The cause of a queue (7.3.4): four entries to a register of IVAR.
    #[inline]
    pub(crate) fn queue_happened(&mut self, file: &RegisterFile, queue: usize, transmit: bool) {
        let ivar = file.get(at::IVAR + queue / 2 * 4);
        let entry = ivar >> (16 * (queue & 1) + 8 * usize::from(transmit));
        if entry & VALID != 0 {
            self.set_causes((1 << (entry & 0x3f).min(31)) & QUEUES);
        }
    }

    /// Whether something may be raised, now or later.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending & self.enabled != 0
    }

    /// Raises what is pending, enabled and not moderated. `lose` says of a vector whether its
    /// message gets lost.
    pub(crate) fn raise(
        &mut self,
        file: &RegisterFile,
        now: Duration,
        mut lose: impl FnMut() -> bool,
    ) {
        let active = self.pending & self.enabled;
        self.moderation.begin();
        if self.mode & GPIE_MSIX == 0 {
            // One vector for all (7.3.1).
            if active != 0 && self.is_due(file, 0, now) {
                self.pending &= !active;
                self.raised |= u64::from(!lose());
            }
            return;
        }
        let other = file.get(at::IVAR_MISC) >> 8;
        let mut left = active;
        while left != 0 {
            let number = left.trailing_zeros();
            let causes = if 1 << number & QUEUES != 0 {
                1 << number
            } else {
                active & !QUEUES
            };
            left &= !causes;
            let vector = match causes & QUEUES {
                0 if other & VALID == 0 => continue,
                0 => (other & 0x3f) as usize,
                _ => number as usize,
            };
            if self.is_due(file, vector, now) {
                self.send(vector, causes, lose());
            }
        }
    }

    /// The message of a vector: EIAC clears causes, and EIAM masks them (7.3.1).
    fn send(&mut self, vector: usize, causes: u32, lost: bool) {
        self.pending &= !causes;
        self.causes &= !(causes & self.auto_clear);
        if self.mode & GPIE_AUTO_MASK != 0 {
            self.enabled &= !(causes & self.auto_mask);
        }
        if !lost {
            self.raised |= 1 << vector;
        }
    }

    /// Whether the interval since the last message has passed (7.3.2.1); if so, it begins anew.
    fn is_due(&mut self, file: &RegisterFile, vector: usize, now: Duration) -> bool {
        let interval = INTERVAL * interval(file, vector);
        self.moderation.admits(vector, now, interval)
    }

    /// When something may be raised that is held back.
    pub(crate) fn due(&self) -> Option<Duration> {
        self.moderation.due().filter(|_| self.is_pending())
    }

    /// Vectors that were raised since the last call.
    pub(crate) fn take_raised(&mut self) -> u64 {
        std::mem::take(&mut self.raised)
    }
}

/// The interval of a vector, in units of 2 microseconds: the registers lie in two places.
pub(crate) fn interval(file: &RegisterFile, vector: usize) -> u32 {
    let register = match vector {
        0..24 => at::EITR + 4 * vector,
        _ => at::EITR_HIGH + 4 * (vector - 24),
    };
    file.get(register) >> INTERVAL_SHIFT & INTERVAL_MASK
}

#[cfg(test)]
mod tests {
    use super::super::registers;
    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn raised(interrupts: &mut Interrupts, file: &RegisterFile, now: Duration) -> u64 {
        interrupts.raise(file, now, || false);
        interrupts.take_raised()
    }

    /// Queue 0: receive to vector 0, transmit to vector 1; others to vector 2.
    fn msix() -> (Interrupts, RegisterFile) {
        let mut file = registers::file();
        file.set(at::IVAR, 0x8180);
        file.set(at::IVAR_MISC, 0x8200);
        let mut interrupts = Interrupts::new();
        interrupts.set_mode(GPIE_MSIX);
        (interrupts, file)
    }

    #[test]
    fn a_cause_is_raised_once_it_is_enabled_and_again_once_it_was_cleared() {
        let (mut interrupts, file) = msix();
        interrupts.queue_happened(&file, 0, false);
        assert_eq!(raised(&mut interrupts, &file, NOW), 0);
        interrupts.enable(1);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
        interrupts.queue_happened(&file, 0, false);
        assert_eq!(
            raised(&mut interrupts, &file, NOW),
            0,
            "nobody cleared the cause"
        );
        interrupts.clear_causes(1);
        interrupts.queue_happened(&file, 0, false);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
    }

    #[test]
    fn causes_are_cleared_and_masked_automatically() {
        let (mut interrupts, file) = msix();
        interrupts.set_mode(GPIE_MSIX | GPIE_AUTO_MASK);
        interrupts.set_auto_clear(3);
        interrupts.set_auto_mask(1);
        interrupts.enable(3);
        for _ in 0..2 {
            interrupts.queue_happened(&file, 0, true);
            assert_eq!(raised(&mut interrupts, &file, NOW), 2);
        }
        interrupts.queue_happened(&file, 0, false);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
        assert_eq!(interrupts.enabled(), 2);
        interrupts.queue_happened(&file, 0, false);
        assert_eq!(raised(&mut interrupts, &file, NOW), 0);
        interrupts.enable(1);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
    }

    #[test]
    fn other_causes_share_a_vector_and_are_cleared_by_reading() {
        let (mut interrupts, file) = msix();
        interrupts.set_mode(GPIE_MSIX | GPIE_OTHER_CLEAR_DISABLE);
        interrupts.enable(cause::LINK | 1);
        interrupts.set_causes(cause::LINK | cause::PCI | 1);
        assert_eq!(raised(&mut interrupts, &file, NOW), 0b101);
        assert_eq!(interrupts.read_causes(), cause::LINK | cause::PCI | 1);
        assert_eq!(interrupts.read_causes(), 1);
    }

    #[test]
    fn one_vector_serves_all_without_msix() {
        let (mut interrupts, file) = msix();
        interrupts.set_mode(0);
        interrupts.enable(u32::MAX);
        interrupts.queue_happened(&file, 0, true);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
        assert_eq!(interrupts.read_causes(), 2);
        assert_eq!(interrupts.read_causes(), 0);
    }

    #[test]
    fn a_vector_is_moderated() {
        let (mut interrupts, mut file) = msix();
        file.set(at::EITR, 10 << INTERVAL_SHIFT);
        interrupts.set_auto_clear(1);
        interrupts.enable(1);
        let at = |micros| Duration::from_micros(micros);
        for (micros, expected) in [(0, 1), (5, 0), (19, 0), (20, 1), (21, 0)] {
            interrupts.queue_happened(&file, 0, false);
            assert_eq!(
                raised(&mut interrupts, &file, at(micros)),
                expected,
                "{micros}"
            );
        }
        // It is raised when the time has come, without another cause.
        assert_eq!(interrupts.due(), Some(at(40)));
        assert_eq!(raised(&mut interrupts, &file, at(40)), 1);
        assert_eq!(interrupts.due(), None);
    }
}
