//! A PCI device behind [`Window`].

use crate::ranges::{CONFIG, Doorbells, Place};
use crate::window::Window;
use models::config::ConfigSpace;
use models::{Device, Dma, Identity, Progress, Violations};
use std::time::Duration;

/// A PCI device of any kind, with what its driver wrote to its command register.
pub struct Function<D> {
    device: D,
    /// Of what is written there, the monitor tells what changes the command register.
    config: ConfigSpace,
    doorbells: Option<Doorbells>,
    /// Whether the interrupt is asserted as far as the guest's interrupt controller knows.
    line: bool,
}

impl<D: Device> Function<D> {
    /// A device whose configuration space says this, and how its queues are notified.
    pub fn new(device: D, identity: &Identity, doorbells: Option<Doorbells>) -> Self {
        Self {
            device,
            config: ConfigSpace::new(identity),
            doorbells,
            line: false,
        }
    }
}

impl<D: Device + Send> Window for Function<D> {
    fn read(&mut self, place: Place, bytes: &mut [u8]) {
        match place.bar {
            CONFIG => bytes.fill(0xff),
            bar => self.device.read(bar, place.offset, bytes),
        }
    }

    fn write(&mut self, place: Place, bytes: &[u8]) {
        match place.bar {
            CONFIG => self.config.write(place.offset as usize, bytes),
            bar => self.device.write(bar, place.offset, bytes),
        }
    }

    fn notify(&mut self, queue: u16) {
        if let Some(doorbells) = self.doorbells {
            let Place { bar, offset } = doorbells.place(queue);
            self.device.write(bar, offset, &queue.to_le_bytes());
        }
    }

    /// A device that is no bus master reaches no memory (PCI 3.0, 6.2.2), and so has no work.
    fn poll(&mut self, dma: &dyn Dma, now: Duration) -> Progress {
        match self.config.bus_master() {
            true => self.device.poll(dma, now),
            false => Progress::default(),
        }
    }

    /// The line stays asserted until the guest says that it has served the interrupt. If the device
    /// still asserts it then, that is the next one (PCI 3.0, 2.2.6).
    fn take_raised(&mut self) -> bool {
        let asserted = self.config.pin_enabled() && self.device.asserts_pin();
        let raised = asserted && !self.line;
        self.line |= raised;
        raised
    }

    fn end_of_interrupt(&mut self) {
        self.line = false;
    }

    fn due(&self) -> Option<Duration> {
        self.device.due()
    }

    fn violations(&self) -> &Violations {
        self.device.violations()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hw::sim::View;
    use linux::memory;
    use models::Misbehaviour;
    use models::wire::Loop;
    use std::os::fd::AsFd;

    /// Registers of the 82540EM: interrupt causes, those that are set, and their mask.
    const ICR: u64 = 0xc0;
    const ICS: u64 = 0xc8;
    const IMS: u64 = 0xd0;

    struct Card(Function<models::Intel82540<Loop>>, View);

    impl Card {
        fn new() -> Self {
            let file = memory::sealed("guest", 4096).unwrap();
            let memory = View::of_file(file.as_fd(), 0, 4096, 0, true).unwrap();
            let wire = Loop::new();
            let card = models::Intel82540::new([2; 6], wire, &Misbehaviour::default());
            let identity = card.identity();
            Self(Function::new(card, &identity, None), memory)
        }

        fn write(&mut self, bar: u8, offset: u64, bytes: &[u8]) {
            self.0.write(Place { bar, offset }, bytes);
        }

        fn raises(&mut self) -> bool {
            self.0.poll(&self.1, Duration::from_secs(1));
            self.0.take_raised()
        }
    }

    #[test]
    fn a_line_is_asserted_until_the_guest_has_served_it() {
        let mut card = Card::new();
        card.write(0, IMS, &[4, 0, 0, 0]);
        card.write(0, ICS, &[4, 0, 0, 0]);
        assert!(!card.raises(), "it is no bus master");
        card.write(CONFIG, 4, &[4, 4]);
        assert!(!card.raises(), "its pin is disabled");
        card.write(CONFIG, 4, &[4, 0]);
        assert!(card.raises());
        assert!(!card.raises(), "it has been raised");
        card.0.end_of_interrupt();
        assert!(card.raises(), "the cause is still there");
        let mut cause = [0; 4];
        let place = Place {
            bar: 0,
            offset: ICR,
        };
        card.0.read(place, &mut cause);
        assert_eq!(cause[0] & 4, 4);
        card.0.end_of_interrupt();
        assert!(!card.raises());
    }
}
