//! The interrupt pin as an event that the client has given.
//!
//! A pin is asserted until the driver has done what the device asks for, and an event can only
//! happen. So it is as with every device of VFIO whose interrupt is `AUTOMASKED`: the pin is masked
//! when it is signalled, and signalled again when the client unmasks it while it is asserted.

use crate::client::Refused;
use crate::client::event::{check, signal};
use ::vfio_user::{IrqSet, irq_set_flag as flag};
use std::os::fd::OwnedFd;

/// The pin of a device that has one, or nothing.
pub(super) struct Pin {
    exists: bool,
    event: Option<OwnedFd>,
    masked: bool,
}

impl Pin {
    /// No event yet.
    pub(super) fn new(exists: bool) -> Self {
        Self {
            exists,
            event: None,
            masked: false,
        }
    }

    /// How many pins there are.
    pub(super) fn count(&self) -> u32 {
        u32::from(self.exists)
    }

    /// Does what `SET_IRQS` says of it.
    pub(super) fn set(
        &mut self,
        set: &IrqSet,
        data: &[u8],
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refused> {
        const OFF: u32 = flag::NONE | flag::TRIGGER;
        const EVENT: u32 = flag::EVENTFD | flag::TRIGGER;
        const MASK: u32 = flag::NONE | flag::MASK;
        const UNMASK: u32 = flag::NONE | flag::UNMASK;
        if set.start != 0 || set.count > self.count() || set.count == 0 && set.flags != OFF {
            return Err(Refused::Range);
        }
        if !data.is_empty() {
            return Err(Refused::Size(data.len()));
        }
        match (set.flags, descriptors.pop()) {
            (OFF, None) if set.count == 1 => self.event.iter().for_each(signal),
            (OFF | EVENT, None) => *self = Self::new(self.exists),
            (EVENT, Some(event)) if descriptors.is_empty() => {
                check(&event)?;
                self.event = Some(event);
                self.masked = false;
            }
            (MASK, None) => self.masked = true,
            (UNMASK, None) => self.masked = false,
            (OFF | EVENT | MASK | UNMASK, _) => {
                return Err(Refused::Descriptors(descriptors.len() + 1));
            }
            (flags, _) => return Err(Refused::Flags(flags)),
        }
        Ok(())
    }

    /// The device asserts its pin, or does not.
    pub(super) fn follow(&mut self, asserted: bool) {
        if let Some(event) = self.event.as_ref().filter(|_| asserted && !self.masked) {
            signal(event);
            self.masked = true;
        }
    }

    /// The bus was reset.
    pub(super) fn reset(&mut self) {
        self.masked = false;
    }
}
