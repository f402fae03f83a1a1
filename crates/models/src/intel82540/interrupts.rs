//! Interrupts: causes that reading clears, a mask, and a pin that is not asserted too often
//! (manual, 13.4.17 to 13.4.21).

use crate::gigabit::Happened;
use crate::moderation::Moderation;
use std::time::Duration;

/// Causes (13.4.17).
pub(super) mod cause {
    /// A transmit descriptor was written back.
    pub(in super::super) const TRANSMITTED: u32 = 1 << 0;
    /// All transmit descriptors were used.
    pub(in super::super) const TRANSMIT_EMPTY: u32 = 1 << 1;
    /// The link went up or down.
    pub(in super::super) const LINK: u32 = 1 << 2;
    /// The receive timer, which this model's is at once.
    pub(in super::super) const RECEIVED: u32 = 1 << 7;
    /// An access of MDIC is done.
    pub(in super::super) const MDIC: u32 = 1 << 9;
}

/// Unit of ITR's interval (13.4.18).
const INTERVAL: Duration = Duration::from_nanos(256);

/// What happened, and what the pin says of it.
#[derive(Debug)]
pub(super) struct Interrupts {
    causes: u32,
    enabled: u32,
    /// Causes that became active, of which the pin does not tell: the device misbehaves.
    lost: u32,
    /// Causes that are active and were told of by the pin.
    told: u32,
    moderation: Moderation<1>,
}

impl Interrupts {
    pub(super) fn new() -> Self {
        Self {
            causes: 0,
            enabled: 0,
            lost: 0,
            told: 0,
            moderation: Moderation::new(),
        }
    }

    /// ICR is read: all causes are cleared.
    pub(super) fn read_causes(&mut self) -> u32 {
        let causes = self.causes;
        self.clear_causes(u32::MAX);
        causes
    }

    /// ICR is written: ones clear causes.
    pub(super) fn clear_causes(&mut self, causes: u32) {
        self.causes &= !causes;
        self.lost &= self.causes;
        self.told &= self.causes;
    }

    /// ICS is written, or something happened; `lose` says of news whether they get lost.
    pub(super) fn set_causes(&mut self, causes: u32, lose: impl FnOnce() -> bool) {
        let new = causes & !self.causes;
        if new != 0 {
            self.causes |= new;
            match lose() {
                true => self.lost |= new,
                // Whoever looks sees all.
                false => self.lost = 0,
            }
        }
    }

    /// The causes of what happened.
    pub(super) fn causes_of(happened: Happened) -> u32 {
        let when = |is: bool, cause: u32| if is { cause } else { 0 };
        when(happened.link, cause::LINK)
            | when(happened.phy, cause::MDIC)
            | when(happened.received != 0, cause::RECEIVED)
            | when(happened.transmitted != 0, cause::TRANSMITTED)
            | when(happened.empty != 0, cause::TRANSMIT_EMPTY)
    }

    /// What IMS reads.
    pub(super) fn enabled(&self) -> u32 {
        self.enabled
    }

    /// IMS is written.
    pub(super) fn enable(&mut self, causes: u32) {
        self.enabled |= causes;
    }

    /// IMC is written.
    pub(super) fn disable(&mut self, causes: u32) {
        self.enabled &= !causes;
    }

    fn active(&self) -> u32 {
        self.causes & self.enabled & !self.lost
    }

    /// Asserts the pin if there is a cause, and ITR allows it now.
    pub(super) fn raise(&mut self, now: Duration, interval: u32) {
        self.moderation.begin();
        let active = self.active();
        if active != 0 && !self.asserts_pin() && self.moderation.admits(0, now, INTERVAL * interval)
        {
            self.told = active;
        }
    }

    /// Whether the pin is asserted: until what it told of is cleared or masked.
    pub(super) fn asserts_pin(&self) -> bool {
        self.told & self.active() != 0
    }

    /// When the pin may be asserted, if it waits for that.
    pub(super) fn due(&self) -> Option<Duration> {
        self.moderation.due().filter(|_| self.active() != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(interrupts: &mut Interrupts, micros: u64) -> bool {
        interrupts.raise(Duration::from_micros(micros), 1000);
        interrupts.asserts_pin()
    }

    #[test]
    fn the_pin_tells_of_enabled_causes_until_they_are_read() {
        let mut interrupts = Interrupts::new();
        interrupts.set_causes(cause::RECEIVED | cause::LINK, || false);
        assert!(!told(&mut interrupts, 0));
        interrupts.enable(cause::RECEIVED);
        assert!(told(&mut interrupts, 0));
        interrupts.disable(u32::MAX);
        assert!(!interrupts.asserts_pin());
        interrupts.enable(cause::RECEIVED);
        assert_eq!(interrupts.read_causes(), cause::RECEIVED | cause::LINK);
        assert!(interrupts.read_causes() == 0 && !interrupts.asserts_pin());
    }

    #[test]
    fn the_pin_is_moderated() {
        let mut interrupts = Interrupts::new();
        interrupts.enable(u32::MAX);
        for (micros, expected) in [(0, true), (5, false), (255, false), (256, true)] {
            interrupts.set_causes(cause::RECEIVED, || false);
            assert_eq!(told(&mut interrupts, micros), expected, "{micros}");
            let due = interrupts.due();
            assert_eq!(due, (!expected).then_some(Duration::from_micros(256)));
            if expected {
                interrupts.read_causes();
            }
        }
    }

    #[test]
    fn a_lost_interrupt_is_made_up_for_by_the_next() {
        let mut interrupts = Interrupts::new();
        interrupts.enable(u32::MAX);
        interrupts.set_causes(cause::RECEIVED, || true);
        assert!(!told(&mut interrupts, 0));
        interrupts.set_causes(cause::TRANSMITTED, || false);
        assert!(told(&mut interrupts, 0));
        assert_eq!(
            interrupts.read_causes(),
            cause::RECEIVED | cause::TRANSMITTED
        );
    }
}
