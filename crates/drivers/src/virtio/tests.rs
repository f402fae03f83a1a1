//! Bring-up and queues against a puppet, over either transport.

use super::mmio::Mmio;
use super::pci::Pci;
use super::puppet::{FEATURES, Puppet};
use super::queue::{Buffer, Queue};
use super::*;
use alloc::string::ToString;
use alloc::vec::Vec;
use hw::DmaArena;
use proptest::prelude::*;
use std::collections::BTreeSet;

const KIND: u16 = 4;
const N: usize = 16;
const DMA_BYTES: usize = 16 * 4096;

/// A queue that is set up, and the transport by which its device is told.
struct Bench<T> {
    puppet: Puppet,
    transport: T,
    queue: Queue<N>,
}

/// Brings a device up that has one queue.
fn bring_up<T: Transport>(
    transport: &T,
    puppet: &Puppet,
    queue: &mut Queue<N>,
) -> Result<u64, Error> {
    reset(transport, puppet.clock())?;
    let features = negotiate(transport, 0, |_| 0)?;
    queue.set_up(transport, 1, features, true)?;
    run(transport);
    Ok(features)
}

impl<T: Transport> Bench<T> {
    fn with((puppet, transport, mut arena): (Puppet, T, DmaArena)) -> Self {
        let mut queue = Queue::new(&mut arena).unwrap();
        bring_up(&transport, &puppet, &mut queue).unwrap();
        Self {
            puppet,
            transport,
            queue,
        }
    }

    /// Makes the next `count` buffers available.
    fn offer(&mut self, count: usize) {
        let next = self.queue.next() + count;
        self.queue.publish(&self.transport, next);
    }

    /// All that the device has.
    fn fetch_all(&self) -> Vec<u16> {
        let next = || self.puppet.fetch(1).unwrap();
        std::iter::from_fn(next).map(|(head, _)| head).collect()
    }

    /// Takes back what the device says to have used: descriptors and lengths.
    fn take_all(&mut self) -> Result<Vec<(usize, usize)>, Lie> {
        let Some((_, count)) = self.queue.used()? else {
            return Ok(Vec::new());
        };
        let first = self.queue.seen();
        let mut taken = Vec::new();
        for position in first..first + count {
            let (descriptor, length) = self.queue.reports().element(position);
            taken.push((self.queue.overtake(position, descriptor)?, length));
        }
        self.queue.saw(first + count);
        Ok(taken)
    }
}

fn pci() -> Bench<Pci> {
    Bench::with(Puppet::pci(KIND, &[], DMA_BYTES))
}

fn mmio() -> Bench<Mmio> {
    let (puppet, registers, arena) = Puppet::mmio(KIND, &[], DMA_BYTES);
    let transport = Mmio::new(registers);
    Bench::with((puppet, transport, arena))
}

#[test]
fn devices_are_brought_up_in_order_over_either_transport() {
    fn check<T: Transport>(bench: &Bench<T>) {
        let device = bench.puppet.device();
        // Reset, ACKNOWLEDGE, DRIVER, FEATURES_OK, DRIVER_OK.
        assert_eq!(*device.statuses.borrow(), [0, 1, 3, 11, 15]);
        assert_eq!(device.accepted.get(), FEATURES);
        let queue = device.queues.borrow()[1];
        assert!(queue.enabled && queue.size == N as u16);
        let [table, available, used] = queue.places;
        assert!(table % 16 == 0 && available % 2 == 0 && used % 4 == 0);
        assert!(is_alive(&bench.transport));
        device.status.set(15 | 64);
        assert!(!is_alive(&bench.transport), "it needs a reset");
        device.status.set(0);
        assert!(!is_alive(&bench.transport), "it was reset");
        device.gone.set(true);
        assert!(!is_alive(&bench.transport), "it is gone");
    }
    check(&pci());
    check(&mmio());
}

#[test]
fn what_a_device_must_have_is_named() {
    let refused = |change: fn(&Puppet)| {
        let (puppet, transport, mut arena) = Puppet::pci(KIND, &[], DMA_BYTES);
        change(&puppet);
        let mut queue = Queue::new(&mut arena).unwrap();
        bring_up(&transport, &puppet, &mut queue).unwrap_err()
    };
    let error = refused(|puppet| puppet.device().offered.set(1 << 32));
    assert_eq!(error, Error::Features(1 << 33));
    assert!(error.to_string().ends_with("set iommu_platform=on"));
    let error = refused(|puppet| puppet.device().offered.set(1 << 33));
    assert_eq!(error, Error::Features(1 << 32));
    assert!(error.to_string().ends_with("set disable-legacy=on"));
    assert_eq!(
        refused(|puppet| puppet.device().refuses.set(true)),
        Error::Refused
    );
    assert_eq!(
        refused(|puppet| puppet.device().gone.set(true)),
        Error::Timeout
    );
    let found = N as u16 / 2;
    assert_eq!(
        refused(|puppet| puppet.device().size_max.set(8)),
        Error::Queue { number: 1, found }
    );
    let hangs = refused(|puppet| {
        puppet.device().status.set(15);
        puppet.device().hangs.set(true);
    });
    assert_eq!(hangs, Error::Timeout);
}

#[test]
fn memory_mapped_registers_need_no_platform_and_are_of_one_kind() {
    let (puppet, registers, mut arena) = Puppet::mmio(KIND, &[], DMA_BYTES);
    puppet.device().offered.set(1 << 32);
    let transport = Either::Mmio(Mmio::new(registers));
    assert_eq!(transport.check(KIND, 0), Ok(()));
    assert_eq!(transport.check(KIND + 1, 0), Err(Error::Kind));
    let short = transport.check(KIND, 0x101);
    assert!(matches!(short, Err(Error::Registers { .. })));
    let nothing = Mmio::new(hw::Mmio::shared(&[])).check(KIND, 0);
    assert!(matches!(nothing, Err(Error::Registers { .. })));
    let mut queue = Queue::new(&mut arena).unwrap();
    let features = bring_up(&transport, &puppet, &mut queue).unwrap();
    assert_eq!(features, feature::VERSION_1);
    // A queue that is in use is not to be had a second time.
    let found = 0;
    let again = queue.set_up(&transport, 1, features, true);
    assert_eq!(again, Err(Error::Queue { number: 1, found }));
}

#[test]
fn structures_that_are_too_small_or_not_mapped_are_named() {
    let (_, good, _) = Puppet::pci(KIND, &[], DMA_BYTES);
    let empty = || Window::new(hw::Mmio::shared(&[]), 4, 0, 0x1000);
    let pci = Pci {
        common: empty(),
        ..good.clone()
    };
    let error = pci.check(KIND, 0).unwrap_err();
    let text = "its common configuration has 0 bytes instead of 56: set map_bar4 in manifest.json";
    assert_eq!(error.to_string(), text);
    let pci = Pci {
        notify: empty(),
        ..good.clone()
    };
    assert!(pci.check(KIND, 0).is_err());
    assert!(good.check(KIND, 0x1000).is_ok() && good.check(KIND, 0x1001).is_err());
}

#[test]
fn a_doorbell_outside_of_its_structure_is_refused() {
    let (puppet, mut transport, mut arena) = Puppet::pci(KIND, &[], DMA_BYTES);
    transport.notify_multiplier = usize::MAX;
    let mut queue = Queue::new(&mut arena).unwrap();
    let error = bring_up(&transport, &puppet, &mut queue).unwrap_err();
    assert!(matches!(error, Error::Registers { .. }));
}

#[test]
fn configuration_that_changes_is_read_again() {
    let (puppet, transport, _) = Puppet::pci(KIND, &[1, 2], DMA_BYTES);
    let field = hw::Register::<u8>::new("", 1, "");
    let mut reads = 0;
    let found = std::cell::RefCell::new(&mut reads);
    let value = transport::stable(&transport, |transport| {
        let reads = &mut **found.borrow_mut();
        *reads += 1;
        if *reads == 1 {
            puppet.device().generation.set(1);
            puppet.device().config.borrow_mut()[1] = 7;
            return 2;
        }
        transport.config(field)
    });
    assert_eq!((value, reads), (7, 2));
    // One that never stops is not waited for.
    let mut reads = 0u8;
    let found = std::cell::RefCell::new(&mut reads);
    transport::stable(&transport, |_| {
        **found.borrow_mut() += 1;
        puppet.device().generation.set(10 + **found.borrow());
    });
    assert_eq!(reads, 5);
}

#[test]
fn buffers_go_round_and_round_in_order() {
    let mut bench = pci();
    let mut expected = 0;
    bench.offer(N);
    // Beyond the end of 16 bits.
    for _ in 0..(1 << 17) / N {
        let heads = bench.fetch_all();
        assert_eq!(heads.len(), N);
        for head in heads {
            assert_eq!(usize::from(head), expected % N);
            expected += 1;
            bench.puppet.give_back(1, head, 5).unwrap();
        }
        let taken = bench.take_all().unwrap();
        assert!(taken.iter().map(|(head, _)| *head).eq(0..N));
        assert!(!bench.queue.is_shuffled());
        bench.offer(N);
    }
}

#[test]
fn buffers_may_come_back_in_any_order() {
    let mut bench = pci();
    bench.offer(N);
    let mut heads = bench.fetch_all();
    for round in 0..50 {
        heads.rotate_left(round % N);
        heads.swap(round % N, (round * 7 + 3) % N);
        let (now, later) = heads.split_at(N / 2 + round % 5);
        for head in now {
            bench.puppet.give_back(1, *head, 9).unwrap();
        }
        let taken = bench.take_all().unwrap();
        let expected: Vec<_> = now.iter().map(|head| (usize::from(*head), 9)).collect();
        assert_eq!(taken, expected);
        bench.offer(now.len());
        let again: Vec<_> = bench.fetch_all();
        let (mut before, mut after) = (now.to_vec(), again.clone());
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!(before, after, "what came back is what goes out");
        heads = later.iter().copied().chain(again).collect();
    }
    assert!(bench.queue.is_shuffled());
}

#[test]
fn used_buffers_that_cannot_be_are_lies() {
    type Lying = fn(&Puppet);
    let lies: [(&str, Lying); 7] = [
        ("more than it had", |puppet| puppet.set_used(1, 9).unwrap()),
        ("an index that went back", |puppet| {
            puppet.set_used(1, u16::MAX).unwrap();
        }),
        ("a descriptor that does not exist", |puppet| {
            puppet.give_back(1, N as u16, 0).unwrap();
        }),
        ("a large number", |puppet| {
            puppet.scribble(1, 0, 1 << 31, 0).unwrap();
            puppet.set_used(1, 1).unwrap();
        }),
        ("one that it does not have", |puppet| {
            puppet.give_back(1, 8, 0).unwrap();
        }),
        ("the same one twice", |puppet| {
            puppet.give_back(1, 0, 0).unwrap();
            puppet.give_back(1, 0, 0).unwrap();
        }),
        ("the same one twice, later", |puppet| {
            puppet.give_back(1, 3, 0).unwrap();
            puppet.give_back(1, 0, 0).unwrap();
            puppet.give_back(1, 3, 0).unwrap();
        }),
    ];
    for (what, lie) in lies {
        let mut bench = pci();
        bench.offer(8);
        lie(&bench.puppet);
        assert_eq!(bench.take_all(), Err(Lie), "{what}");
    }
}

#[test]
fn the_bell_rings_when_the_device_wants_it() {
    let mut bench = pci();
    let rung = |bench: &Bench<Pci>| bench.puppet.device().has_rung(1);
    // With event indices: at the one that is named, and at no other.
    bench.offer(1);
    assert!(rung(&bench));
    bench.offer(1);
    assert!(!rung(&bench));
    bench.puppet.set_event(1, 4).unwrap();
    bench.offer(2);
    assert!(!rung(&bench));
    bench.offer(3);
    assert!(rung(&bench));
    bench.offer(0);
    assert!(!rung(&bench));

    let (puppet, transport, arena) = Puppet::pci(KIND, &[], DMA_BYTES);
    puppet.device().offered.set(FEATURES & !feature::EVENT_IDX);
    let mut bench = Bench::with((puppet, transport, arena));
    bench.offer(1);
    assert!(rung(&bench));
    bench.puppet.set_flags(1, 1).unwrap();
    bench.offer(1);
    assert!(!rung(&bench));
    bench.puppet.set_flags(1, 0).unwrap();
    bench.offer(1);
    assert!(rung(&bench));
}

#[test]
fn an_interrupt_is_asked_for_once() {
    let mut bench = pci();
    bench.offer(4);
    assert!(!bench.queue.arm());
    assert_eq!(bench.puppet.wants(1).unwrap(), (0, 0));
    bench.puppet.give_back(1, 0, 0).unwrap();
    assert!(bench.queue.is_ready() && bench.queue.arm());
    bench.take_all().unwrap();
    bench.offer(1);
    assert_eq!(bench.puppet.wants(1).unwrap(), (0, 0), "not by itself");
    assert!(!bench.queue.arm());
    assert_eq!(bench.puppet.wants(1).unwrap(), (0, 1));

    let (puppet, transport, arena) = Puppet::pci(KIND, &[], DMA_BYTES);
    puppet.device().offered.set(FEATURES & !feature::EVENT_IDX);
    let mut bench = Bench::with((puppet, transport, arena));
    bench.offer(4);
    assert_eq!(bench.puppet.wants(1).unwrap().0, 1);
    assert!(!bench.queue.arm());
    assert_eq!(bench.puppet.wants(1).unwrap().0, 0);
    bench.offer(1);
    assert_eq!(bench.puppet.wants(1).unwrap().0, 1);
}

#[test]
fn a_queue_that_is_silent_wants_no_interrupt() {
    let (puppet, transport, mut arena) = Puppet::pci(KIND, &[], DMA_BYTES);
    let mut queue = Queue::<N>::new(&mut arena).unwrap();
    reset(&transport, puppet.clock()).unwrap();
    let features = negotiate(&transport, 0, |_| 0).unwrap();
    queue.set_up(&transport, 1, features, false).unwrap();
    assert_eq!(puppet.device().queues.borrow()[1].vector, 0xffff);
    assert_eq!(puppet.wants(1).unwrap(), (0, u16::MAX));
    queue.publish(&transport, 3);
    for head in 0..3 {
        puppet.give_back(1, head, 0).unwrap();
    }
    queue.saw(3);
    queue.silence();
    assert_eq!(puppet.wants(1).unwrap(), (0, 2));
}

#[test]
fn chains_are_as_they_were_described() {
    let mut bench = pci();
    let part = |address, bytes, write| Buffer {
        address,
        bytes,
        write,
    };
    let parts = [
        part(0x1000, 16, false),
        part(0x2000, 512, true),
        part(0x3000, 1, true),
    ];
    bench.queue.table().chain(5, &parts);
    bench.queue.put(0, 5);
    bench.offer(1);
    let (head, buffers) = bench.puppet.fetch(1).unwrap().unwrap();
    let expected: Vec<_> = parts
        .iter()
        .map(|part| (part.address, part.bytes, part.write))
        .collect();
    assert_eq!((head, buffers), (5, expected));
}

proptest! {
    /// Whatever the device says, no buffer comes back that it does not have, and none twice.
    #[test]
    fn no_used_ring_makes_it_panic(
        steps in prop::collection::vec((0..6u8, 0..20u32, any::<u16>()), 1..60),
    ) {
        let mut bench = pci();
        let mut out = BTreeSet::new();
        let free = |bench: &Bench<Pci>| N - (bench.queue.next() - bench.queue.seen());
        for (what, id, index) in steps {
            match what {
                0 | 1 => {
                    let count = free(&bench).min(usize::from(index % 8));
                    bench.offer(count);
                    for head in bench.fetch_all() {
                        prop_assert!(out.insert(head), "{} is out already", head);
                    }
                }
                2 | 3 => bench.puppet.give_back(1, id as u16, u32::from(index)).unwrap(),
                4 => bench.puppet.scribble(1, index % 4, id, 7).unwrap(),
                _ => bench.puppet.set_used(1, index % 32).unwrap(),
            }
            match bench.take_all() {
                Ok(taken) => for (head, _) in taken {
                    prop_assert!(out.remove(&(head as u16)), "{} was not out", head);
                },
                Err(Lie) => {
                    let Bench { puppet, transport, queue } = &mut bench;
                    bring_up(transport, puppet, queue).unwrap();
                    out.clear();
                }
            }
        }
    }
}
