//! Interrupts: causes that software clears by ones, and a mask (datasheet, chapter 6, IMR and ISR).

/// Causes.
pub(super) mod cause {
    /// A frame was received.
    pub(in super::super) const RX_OK: u16 = 1 << 0;
    /// One could not be.
    pub(in super::super) const RX_ERROR: u16 = 1 << 1;
    /// A frame was sent.
    pub(in super::super) const TX_OK: u16 = 1 << 2;
    /// One could not be.
    pub(in super::super) const TX_ERROR: u16 = 1 << 3;
    /// There is no descriptor for a frame that came in.
    pub(in super::super) const RX_UNAVAILABLE: u16 = 1 << 4;
    /// The link went up or down.
    pub(in super::super) const LINK: u16 = 1 << 5;
    /// There is no more to send.
    pub(in super::super) const TX_UNAVAILABLE: u16 = 1 << 7;
    /// The device got an error on the bus.
    pub(in super::super) const BUS: u16 = 1 << 15;
}

/// What happened, and what the pin says of it.
#[derive(Debug, Default)]
pub(super) struct Interrupts {
    causes: u16,
    mask: u16,
    /// Causes that the pin does not tell of: the device misbehaves.
    lost: u16,
}

impl Interrupts {
    /// What ISR reads.
    pub(super) fn causes(&self) -> u16 {
        self.causes
    }

    /// What IMR reads.
    pub(super) fn mask(&self) -> u16 {
        self.mask
    }

    pub(super) fn set_mask(&mut self, mask: u16) {
        self.mask = mask;
    }

    /// ISR is written: ones clear causes.
    pub(super) fn clear_causes(&mut self, causes: u16) {
        self.causes &= !causes;
        self.lost &= self.causes;
    }

    /// Something happened; `lose` says of news whether they get lost.
    pub(super) fn set_causes(&mut self, causes: u16, lose: impl FnOnce() -> bool) {
        let new = causes & !self.causes;
        if new == 0 {
            return;
        }
        self.causes |= new;
        match lose() {
            true => self.lost |= new,
            // Whoever looks sees all.
            false => self.lost = 0,
        }
    }

    /// Whether the pin is asserted.
    pub(super) fn asserts_pin(&self) -> bool {
        self.causes & self.mask & !self.lost != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pin_tells_what_is_not_masked_until_it_is_cleared() {
        let mut interrupts = Interrupts::default();
        interrupts.set_causes(cause::RX_OK | cause::LINK, || false);
        assert!(!interrupts.asserts_pin());
        interrupts.set_mask(cause::RX_OK);
        assert!(interrupts.asserts_pin());
        interrupts.clear_causes(cause::RX_OK);
        assert_eq!(
            (interrupts.asserts_pin(), interrupts.causes()),
            (false, cause::LINK)
        );
    }

    #[test]
    fn a_lost_interrupt_is_made_up_for_by_the_next() {
        let mut interrupts = Interrupts::default();
        interrupts.set_mask(u16::MAX);
        interrupts.set_causes(cause::RX_OK, || true);
        assert!(!interrupts.asserts_pin() && interrupts.causes() == cause::RX_OK);
        interrupts.set_causes(cause::RX_OK, || panic!("it is no news"));
        interrupts.set_causes(cause::TX_OK, || false);
        assert!(interrupts.asserts_pin());
    }
}
