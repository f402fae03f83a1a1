//! Interrupts (datasheet, 7.4).

use super::registers::{RegisterFile, at, bit};
use crate::moderation::Moderation;
use std::time::Duration;

/// Causes (10.2.4.1).
pub(crate) mod cause {
    /// A transmit descriptor was written back.
    pub(crate) const TRANSMITTED: u32 = 1 << 0;
    /// All transmit descriptors were used.
    pub(crate) const TRANSMIT_EMPTY: u32 = 1 << 1;
    /// The link went up or down.
    pub(crate) const LINK: u32 = 1 << 2;
    /// The receive timer, which this model's is at once.
    pub(crate) const RECEIVED: u32 = 1 << 7;
    /// An access of MDIC is done.
    pub(crate) const MDIC: u32 = 1 << 9;
    /// Frames in queue 0 and 1, and descriptors that were written back of either.
    pub(crate) const RX_QUEUE_0: u32 = 1 << 20;
    pub(crate) const TX_QUEUE_0: u32 = 1 << 22;
    /// With MSI-X: a cause that is none of a queue.
    pub(crate) const OTHER: u32 = 1 << 24;
    /// Some cause that is enabled is active: the interrupt is asserted.
    pub(crate) const ASSERTED: u32 = 1 << 31;
}

/// Vectors of MSI-X (7.4.2).
pub(crate) const VECTORS: usize = 5;
/// Causes of queues, in the order of their fields in IVAR (10.2.4.9).
const QUEUES: [u32; 4] = [
    cause::RX_QUEUE_0,
    cause::RX_QUEUE_0 << 1,
    cause::TX_QUEUE_0,
    cause::TX_QUEUE_0 << 1,
];
const ALL_QUEUES: u32 = QUEUES[0] | QUEUES[1] | QUEUES[2] | QUEUES[3];
/// Causes that IVAR leads to vectors.
const WITH_VECTORS: u32 = ALL_QUEUES | cause::OTHER;
/// Causes that OTHER stands for, whether they are enabled or not.
const OTHERS: u32 = !(WITH_VECTORS | cause::ASSERTED)
    & !(cause::TRANSMITTED | cause::TRANSMIT_EMPTY | cause::RECEIVED);
/// Bits of a field of IVAR, and the one that says that it is valid (10.2.4.9).
const FIELD: u32 = 4;
const VECTOR: u32 = 7;
const VALID: u32 = 8;
/// Unit of EITR's intervals (10.2.4.3).
const INTERVAL: Duration = Duration::from_nanos(256);

/// Causes, masks and what was raised.
#[derive(Debug)]
pub(crate) struct Interrupts {
    causes: u32,
    enabled: u32,
    auto_clear: u32,
    auto_mask: u32,
    /// Causes that became active, for which no message was sent yet.
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
            pending: 0,
            raised: 0,
            moderation: Moderation::new(),
        }
    }

    /// ICR is read (10.2.4.1): it is cleared if the interrupt is asserted, or no cause is enabled.
    /// CTRL_EXT says whether IAM masks causes then.
    pub(crate) fn read_causes(&mut self, file: &RegisterFile) -> u32 {
        let asserts = self.is_asserted();
        let causes = self.causes | if asserts { cause::ASSERTED } else { 0 };
        if asserts || self.enabled == 0 {
            self.clear_causes(u32::MAX, file);
        }
        causes
    }

    /// ICR is written: causes are cleared (10.2.4.1).
    pub(crate) fn clear_causes(&mut self, causes: u32, file: &RegisterFile) {
        self.causes &= !causes;
        self.pending &= self.causes;
        if file.has(at::CTRL_EXT, bit::CTRL_EXT_AUTO_MASK) {
            self.enabled &= !self.auto_mask;
        }
    }

    /// Something happened. Where the cause is active already, nothing new is raised.
    #[inline]
    pub(crate) fn set_causes(&mut self, causes: u32) {
        let other = match causes & OTHERS {
            0 => 0,
            _ => cause::OTHER,
        };
        let causes = (causes | other) & !cause::ASSERTED;
        self.pending |= causes & !self.causes & WITH_VECTORS;
        self.causes |= causes;
    }

    /// What IMS reads.
    pub(crate) fn enabled(&self) -> u32 {
        self.enabled
    }

    /// IMS is written. What is active and was masked is raised.
    pub(crate) fn enable(&mut self, causes: u32) {
        self.pending |= self.causes & causes & !self.enabled & WITH_VECTORS;
        self.enabled |= causes;
    }

    /// IMC is written.
    pub(crate) fn disable(&mut self, causes: u32) {
        self.enabled &= !causes;
    }

    /// EIAC is written, or read.
    pub(crate) fn auto_clear(&mut self) -> &mut u32 {
        &mut self.auto_clear
    }

    /// IAM is written, or read.
    pub(crate) fn auto_mask(&mut self) -> &mut u32 {
        &mut self.auto_mask
    }

    /// A frame was received in a queue.
    #[inline]
    pub(crate) fn received(&mut self, queue: usize) {
        self.set_causes(cause::RECEIVED | cause::RX_QUEUE_0 << queue);
    }

    /// Descriptors of a transmit queue were used: written back, perhaps, and perhaps the last ones.
    #[inline]
    pub(crate) fn transmitted(&mut self, queue: usize, done: bool, is_empty: bool) {
        let empty = if is_empty { cause::TRANSMIT_EMPTY } else { 0 };
        let done = match done {
            true => cause::TRANSMITTED | cause::TX_QUEUE_0 << queue,
            false => 0,
        };
        self.set_causes(empty | done);
    }

    /// Whether a cause is active that is enabled: so says the interrupt pin, with MSI-X or without.
    pub(crate) fn is_asserted(&self) -> bool {
        self.causes & self.enabled != 0
    }

    /// Whether something may be raised, now or later.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending & self.enabled != 0
    }

    /// Sends the messages of MSI-X for what is pending, enabled and not moderated: IVAR leads
    /// causes to vectors (7.4.2). `lose` says of a vector whether its message gets lost.
    pub(crate) fn raise(
        &mut self,
        file: &RegisterFile,
        now: Duration,
        mut lose: impl FnMut() -> bool,
    ) {
        let vectors = file.get(at::IVAR);
        self.moderation.begin();
        let causes = QUEUES.into_iter().chain([cause::OTHER]);
        for (number, cause) in (0..).zip(causes) {
            let field = vectors >> (FIELD * number);
            let vector = (field & VECTOR) as usize;
            let active = self.pending & self.enabled & cause != 0;
            if !active || field & VALID == 0 || vector >= VECTORS {
                continue;
            }
            let interval = file.get(at::EITR + 4 * vector) & 0xffff;
            if self.moderation.admits(vector, now, INTERVAL * interval) {
                self.send(file, vector, self.vectors_causes(vectors, vector), lose());
            }
        }
    }

    /// The causes that a vector has.
    fn vectors_causes(&self, vectors: u32, vector: usize) -> u32 {
        let causes = QUEUES.into_iter().chain([cause::OTHER]);
        let fields = (0..).zip(causes);
        let of = fields.filter(|(number, _)| {
            let field = vectors >> (FIELD * number);
            field & VALID != 0 && (field & VECTOR) as usize == vector
        });
        of.fold(0, |all, (_, cause)| all | cause)
    }

    /// The message of a vector: EIAC clears causes, and with CTRL_EXT.EIAME they are masked (7.4.3,
    /// 7.4.4).
    fn send(&mut self, file: &RegisterFile, vector: usize, causes: u32, lost: bool) {
        let sent = self.pending & self.enabled & causes;
        self.pending &= !sent;
        let cleared = sent & self.auto_clear;
        self.causes &= !cleared;
        if file.has(at::CTRL_EXT, bit::CTRL_EXT_AUTO_MASK_MSIX) {
            self.enabled &= !cleared;
        }
        if !lost {
            self.raised |= 1 << vector;
        }
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
        file.set(at::IVAR, 0xa_0908);
        (Interrupts::new(), file)
    }

    #[test]
    fn a_cause_is_raised_once_it_is_enabled_and_again_once_it_was_cleared() {
        let (mut interrupts, file) = msix();
        interrupts.received(0);
        assert_eq!(raised(&mut interrupts, &file, NOW), 0);
        interrupts.enable(cause::RX_QUEUE_0);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
        interrupts.received(0);
        assert_eq!(raised(&mut interrupts, &file, NOW), 0, "nobody cleared it");
        interrupts.clear_causes(cause::RX_QUEUE_0, &file);
        interrupts.received(0);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
        interrupts.transmitted(0, true, true);
        interrupts.enable(cause::TX_QUEUE_0);
        assert_eq!(raised(&mut interrupts, &file, NOW), 2);
        interrupts.received(1);
        interrupts.enable(u32::MAX);
        assert_eq!(raised(&mut interrupts, &file, NOW), 0, "it has no vector");
    }

    #[test]
    fn causes_are_cleared_and_masked_automatically() {
        let (mut interrupts, mut file) = msix();
        *interrupts.auto_clear() = cause::RX_QUEUE_0 | cause::TX_QUEUE_0;
        interrupts.enable(cause::RX_QUEUE_0 | cause::OTHER);
        for _ in 0..2 {
            interrupts.received(0);
            assert_eq!(raised(&mut interrupts, &file, NOW), 1);
        }
        file.set(at::CTRL_EXT, bit::CTRL_EXT_AUTO_MASK_MSIX);
        interrupts.received(0);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
        interrupts.received(0);
        assert_eq!(raised(&mut interrupts, &file, NOW), 0, "it is masked");
        interrupts.enable(cause::RX_QUEUE_0);
        assert_eq!(raised(&mut interrupts, &file, NOW), 1);
    }

    #[test]
    fn other_causes_share_a_vector_and_reading_clears_them() {
        let (mut interrupts, mut file) = msix();
        interrupts.enable(cause::OTHER | cause::LINK);
        interrupts.set_causes(cause::LINK);
        assert_eq!(raised(&mut interrupts, &file, NOW), 4);
        let causes = cause::ASSERTED | cause::OTHER | cause::LINK;
        assert_eq!(interrupts.read_causes(&file), causes);
        assert_eq!(interrupts.read_causes(&file), 0);
        // What is not enabled stays, unless nothing is.
        interrupts.received(0);
        let received = cause::RECEIVED | cause::RX_QUEUE_0;
        for _ in 0..2 {
            assert_eq!(interrupts.read_causes(&file), received);
        }
        // IAM masks with CTRL_EXT.IAME.
        *interrupts.auto_mask() = u32::MAX;
        file.set(at::CTRL_EXT, bit::CTRL_EXT_AUTO_MASK);
        interrupts.set_causes(cause::LINK);
        interrupts.read_causes(&file);
        assert_eq!(interrupts.enabled(), 0);
        interrupts.received(0);
        assert_eq!(
            [0; 2].map(|_: u32| interrupts.read_causes(&file)),
            [received, 0]
        );
    }

    #[test]
    fn the_pin_says_whether_an_enabled_cause_is_active() {
        let (mut interrupts, file) = msix();
        interrupts.enable(cause::RECEIVED);
        interrupts.transmitted(0, true, false);
        assert!(!interrupts.is_asserted());
        interrupts.received(0);
        assert!(interrupts.is_asserted());
        interrupts.read_causes(&file);
        assert!(!interrupts.is_asserted());
    }

    #[test]
    fn a_vector_is_moderated() {
        let (mut interrupts, mut file) = msix();
        file.set(at::EITR, 1000);
        *interrupts.auto_clear() = cause::RX_QUEUE_0;
        interrupts.enable(cause::RX_QUEUE_0);
        let at = |micros| Duration::from_micros(micros);
        for (micros, expected) in [(0, 1), (5, 0), (255, 0), (256, 1), (257, 0)] {
            interrupts.received(0);
            let found = raised(&mut interrupts, &file, at(micros));
            assert_eq!(found, expected, "{micros}");
        }
        // It is raised when the time has come, without another cause.
        assert_eq!(interrupts.due(), Some(at(512)));
        assert_eq!(raised(&mut interrupts, &file, at(512)), 1);
        assert_eq!(interrupts.due(), None);
    }
}
