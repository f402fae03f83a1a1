//! The driver against a puppet that serves requests while the driver looks at its clock.

use super::*;
use crate::net::recovery::RESETS_MAX;
use crate::virtio::mmio::Mmio;
use crate::virtio::pci::Pci;
use crate::virtio::puppet::Puppet;
use alloc::rc::Rc;
use alloc::vec;
use core::cell::Cell;

/// The device's end: how many bytes it gives at most, and how many it says.
struct Source {
    puppet: Puppet,
    gives: Cell<usize>,
    says: Cell<Option<u32>>,
    given: Cell<u8>,
    now: Cell<u64>,
}

impl Source {
    fn new(puppet: Puppet) -> Rc<Self> {
        // QEMU's has no more.
        puppet.device().size_max.set(8);
        Rc::new(Self {
            puppet,
            gives: Cell::new(REQUEST_BYTES),
            says: Cell::new(None),
            given: Cell::new(0),
            now: Cell::new(0),
        })
    }

    fn clock(self: &Rc<Self>) -> impl Fn() -> u64 + use<> {
        let source = Rc::clone(self);
        move || {
            source.serve();
            source.now.set(source.now.get() + 1_000_000);
            source.now.get()
        }
    }

    fn serve(&self) {
        let is_up = self.puppet.device().queues.borrow()[0].enabled;
        if self.gives.get() == 0 || !is_up {
            return;
        }
        let Some((head, buffers)) = self.puppet.fetch(0).unwrap() else {
            return;
        };
        let [(address, bytes, true)] = buffers[..] else {
            panic!("one buffer to be written: {buffers:?}");
        };
        let count = self.gives.get().min(bytes as usize);
        for n in 0..count {
            self.given.set(self.given.get().wrapping_add(1));
            let byte = [self.given.get()];
            self.puppet.view().write(address + n as u64, &byte).unwrap();
        }
        let says = self.says.get().unwrap_or(count as u32);
        self.puppet.give_back(0, head, says).unwrap();
    }
}

fn source() -> (Rc<Source>, Driver<Pci>) {
    let (puppet, transport, mut arena) = Puppet::pci(KIND, &[], DMA_BYTES);
    let source = Source::new(puppet);
    let driver = Driver::new(transport, &mut arena, source.clock()).unwrap();
    (source, driver)
}

#[test]
fn bytes_are_those_of_the_device_however_few_it_gives() {
    fn check<T: Transport>(source: &Source, mut driver: Driver<T>) {
        let mut expected = 1u8;
        for gives in [1, 7, 64, 1000] {
            source.gives.set(gives);
            for length in [0, 1, 63, 64, 65, 500] {
                let mut bytes = vec![0; length];
                driver.fill(&mut bytes).unwrap();
                for byte in bytes {
                    assert_eq!(byte, expected);
                    expected = expected.wrapping_add(1);
                }
            }
        }
    }
    let (source, driver) = self::source();
    check(&source, driver);
    let (puppet, registers, mut arena) = Puppet::mmio(KIND, &[], DMA_BYTES);
    let source = Source::new(puppet);
    let transport = Mmio::new(registers);
    let driver = Driver::new(transport, &mut arena, source.clock()).unwrap();
    check(&source, driver);
}

#[test]
fn a_device_that_gives_none_or_too_many_fails() {
    let (source, mut driver) = source();
    for says in [0, 33, REQUEST_BYTES as u32 + 1, u32::MAX] {
        source.says.set(Some(says));
        let mut bytes = [7; 32];
        assert_eq!(driver.fill(&mut bytes), Err(NoEntropy), "{says}");
        assert_eq!(bytes, [7; 32]);
    }
    source.says.set(None);
    assert!(driver.fill(&mut [0; 32]).is_ok());
}

#[test]
fn a_device_that_is_silent_is_reset_and_given_up_at_last() {
    let (source, mut driver) = source();
    for _ in 0..RESETS_MAX {
        source.gives.set(0);
        assert_eq!(driver.fill(&mut [0; 32]), Err(NoEntropy));
        source.gives.set(8);
        assert!(driver.fill(&mut [0; 32]).is_ok());
    }
    source.gives.set(0);
    assert_eq!(driver.fill(&mut [0; 32]), Err(NoEntropy));
    source.gives.set(8);
    assert_eq!(driver.fill(&mut [0; 32]), Err(NoEntropy));
}
