//! MSI-X vectors as events that the client has given.

use crate::client::Refused;
use crate::client::event::{check, signal};
use ::vfio_user::{IrqSet, irq, irq_set_flag as flag};
use std::os::fd::OwnedFd;

/// Most vectors: as many as a device raises by one number.
const VECTORS_MAX: u16 = 64;

/// The events, by vector.
pub struct Interrupts {
    events: Vec<Option<OwnedFd>>,
}

impl Interrupts {
    /// No event yet for any of so many vectors.
    pub(super) fn new(vectors: u16) -> Self {
        let vectors = vectors.min(VECTORS_MAX);
        Self {
            events: (0..vectors).map(|_| None).collect(),
        }
    }

    /// How many vectors there are.
    pub(super) fn count(&self) -> u16 {
        self.events.len() as u16
    }

    /// Does what `SET_IRQS` says. Masks belong to the table of vectors, which is the client's.
    pub(super) fn set(
        &mut self,
        set: &IrqSet,
        data: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Refused> {
        let end = set.start.checked_add(set.count).ok_or(Refused::Range)? as usize;
        if set.index != irq::MSIX {
            return Err(Refused::Index(set.index));
        }
        if end > self.events.len() {
            return Err(Refused::Range);
        }
        if !data.is_empty() {
            return Err(Refused::Size(data.len()));
        }
        let range = set.start as usize..end;
        const OFF: u32 = flag::NONE | flag::TRIGGER;
        const EVENTS: u32 = flag::EVENTFD | flag::TRIGGER;
        match (set.flags, descriptors.len()) {
            (OFF, 0) if set.count == 0 => self.events.fill_with(|| None),
            (OFF, 0) => range.for_each(|vector| self.signal(1 << vector)),
            (EVENTS, 0) => self.events[range].fill_with(|| None),
            (EVENTS, count) if count == range.len() => {
                for event in &descriptors {
                    check(event)?;
                }
                for (place, event) in self.events[range].iter_mut().zip(descriptors) {
                    *place = Some(event);
                }
            }
            (OFF | EVENTS, count) => return Err(Refused::Descriptors(count)),
            (flags, _) => return Err(Refused::Flags(flags)),
        }
        Ok(())
    }

    /// Signals the events of the vectors in `raised`, one bit each.
    pub(super) fn signal(&self, mut raised: u64) {
        while raised != 0 {
            let vector = raised.trailing_zeros() as usize;
            raised &= raised - 1;
            if let Some(Some(event)) = self.events.get(vector) {
                signal(event);
            }
        }
    }
}
