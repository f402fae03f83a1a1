//! Transports, states and queues, with a device that does little: it writes what it reads.

use super::testing::{BYTES, Buffer, Driver, INDIRECT, IOVA, NEXT, WRITE};
use super::*;
use crate::device::{Device, Progress};
use crate::violation::{Queue, Severity};
use proptest::prelude::*;
use std::time::Duration;

/// Copies what it can read of each chain to what it can write.
#[derive(Debug, Default)]
struct Echo {
    changed: bool,
    started: Option<u64>,
    resets: u32,
}

const OWN: u64 = 1 << 5;

impl VirtioDevice for Echo {
    fn id(&self) -> u16 {
        42
    }

    fn features(&self) -> u64 {
        OWN
    }

    fn queues(&self) -> Vec<QueueKind> {
        let queue = |number| QueueKind {
            name: Queue::Request(number),
            size_max: 128,
        };
        (0..3).map(queue).collect()
    }

    fn read_config(&mut self, offset: usize, bytes: &mut [u8]) {
        device::copy_config(&[1, 2, 3, 4, 5, 6, 7, 8], offset, bytes);
    }

    fn start(&mut self, features: u64) {
        self.started = Some(features);
    }

    fn reset(&mut self) {
        self.started = None;
        self.resets += 1;
    }

    fn poll(&mut self, queues: &mut [Virtqueue], work: &mut Work<'_>) -> Progress {
        let mut chain = Chain::default();
        let mut done = 0;
        for queue in queues.iter_mut().filter(|queue| queue.is_notified()) {
            queue.silence(work);
            loop {
                while done < 1000 && queue.take(&mut chain, work) {
                    let mut bytes = vec![0; chain.readable_bytes().min(1 << 16) as usize];
                    let moved = chain.read(0, &mut bytes, work.dma);
                    let moved = moved.and_then(|_| chain.write(0, &bytes, work.dma));
                    queue.give_back(chain.head, moved.unwrap_or(0) as u32, work);
                    done += 1;
                }
                queue.publish(work);
                if done == 1000 || !queue.listen(work) {
                    break;
                }
            }
        }
        Progress {
            received: 0,
            transmitted: done,
        }
    }

    fn take_config_change(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

fn up(features: u64) -> Driver<Echo> {
    Driver::up(Echo::default(), features)
}

/// Offers bytes to be echoed: the head, and where they come back.
fn offer(driver: &mut Driver<Echo>, bytes: &[u8]) -> (u16, Buffer) {
    let from = driver.filled(bytes);
    let to = driver.buffer(bytes.len(), true);
    (driver.offer(0, &[from, to]), to)
}

#[test]
fn chains_come_back_in_order_round_the_ring() {
    for features in [0, feature::EVENT_IDX, feature::INDIRECT_DESC] {
        let mut driver = up(features);
        for turn in 0..200u16 {
            let bytes = turn.to_le_bytes();
            let (head, to) = offer(&mut driver, &bytes);
            driver.poll();
            assert_eq!(driver.used(0), Some((head.into(), 2)));
            assert_eq!(driver.bytes(to), bytes);
        }
        driver.assert_good();
    }
}

/// A machine's firmware moves memory while a device has queues there: nothing is looked at.
#[test]
fn a_queue_is_left_alone_until_its_driver_notifies_it() {
    let mut driver = up(0);
    let elsewhere = hw::sim::arena(4096, 0).1;
    driver.pci.poll(&elsewhere, Duration::ZERO);
    let (head, _) = offer(&mut driver, b"x");
    driver.poll();
    assert_eq!(driver.used(0), Some((head.into(), 1)));
    driver.pci.poll(&elsewhere, Duration::ZERO);
    driver.assert_good();
    driver.notify(0);
    driver.pci.poll(&elsewhere, Duration::ZERO);
    driver.assert_report("outside of DMA memory");
}

#[test]
fn indices_wrap() {
    let mut driver = up(0);
    let (head, _) = offer(&mut driver, b"x");
    driver.poll();
    for _ in 0..0x1_0000 + 10 {
        driver.rings[0].offer_head(&driver.memory, head);
        driver.notify(0);
        driver.poll();
        driver.pci.take_interrupts();
        assert_eq!(driver.used(0).map(|(head, _)| head), Some(0));
    }
    driver.assert_good();
}

#[test]
fn tables_of_descriptors_are_followed() {
    let mut driver = up(feature::INDIRECT_DESC);
    let (first, second) = (driver.filled(b"ab"), driver.filled(b"cd"));
    let to = driver.buffer(4, true);
    let table = driver.buffer(48, false);
    let mut ring = driver.rings[0].clone();
    // A table may lie anywhere, even where no descriptor may.
    ring.at = table.iova;
    ring.describe(&driver.memory, 0, second, NEXT, 2);
    ring.describe(&driver.memory, 2, to, 0, 0);
    let ring = &mut driver.rings[0];
    ring.describe(&driver.memory, 0, first, NEXT, 9);
    ring.describe(&driver.memory, 9, table, INDIRECT, 0);
    ring.offer_head(&driver.memory, 0);
    driver.notify(0);
    driver.poll();
    assert_eq!(driver.used(0), Some((0, 4)));
    assert_eq!(driver.bytes(to), b"abcd");
    driver.assert_good();
}

/// What a driver does to its queue, and what is reported of it.
type Case = (&'static str, fn(&mut Driver<Echo>));

fn describe(driver: &mut Driver<Echo>, index: u16, buffer: Buffer, flags: u16, next: u16) {
    driver.rings[0].describe(&driver.memory, index, buffer, flags, next);
}

const CASES: [Case; 15] = [
    ("not be longer than its queue, nor loop", |driver| {
        let buffer = driver.buffer(1, false);
        describe(driver, 0, buffer, NEXT, 1);
        describe(driver, 1, buffer, NEXT, 0);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("not be longer than its queue, nor loop", |driver| {
        let table = driver.buffer(16, false);
        let mut inner = driver.rings[0].clone();
        inner.at = table.iova;
        inner.describe(&driver.memory, 0, table, NEXT, 0);
        describe(driver, 0, table, INDIRECT, 0);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("NEXT must be in the table", |driver| {
        let buffer = driver.buffer(1, false);
        describe(driver, 0, buffer, NEXT, 64);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("tail 64 of request queue 0 in a ring of 64", |driver| {
        driver.rings[0].offer_head(&driver.memory, 64);
    }),
    ("tail 65 of request queue 0 moved beyond head 0", |driver| {
        let at = driver.rings[0].driver_area() + 2;
        driver.memory.store16(at, 65).unwrap();
    }),
    ("tail 65535 of request queue 0 moved beyond", |driver| {
        let at = driver.rings[0].driver_area() + 2;
        driver.memory.store16(at, 0xffff).unwrap();
    }),
    ("must come before what can be written", |driver| {
        let (from, to) = (driver.buffer(1, false), driver.buffer(1, true));
        driver.offer(0, &[to, from]);
    }),
    ("more than 2^32 bytes", |driver| {
        let all = Buffer {
            bytes: u32::MAX,
            ..driver.buffer(1, true)
        };
        driver.offer(0, &[all, all]);
    }),
    ("a table must not refer to a table", |driver| {
        let table = driver.buffer(16, false);
        let mut inner = driver.rings[0].clone();
        inner.at = table.iova;
        inner.describe(&driver.memory, 0, table, INDIRECT, 0);
        describe(driver, 0, table, INDIRECT, 0);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("INDIRECT and NEXT must not both be set", |driver| {
        let table = driver.buffer(16, false);
        describe(driver, 0, table, INDIRECT | NEXT, 1);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("whole descriptors", |driver| {
        let table = driver.buffer(17, false);
        describe(driver, 0, table, INDIRECT, 0);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("whole descriptors", |driver| {
        let table = driver.buffer(0, false);
        describe(driver, 0, table, INDIRECT, 0);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("a table must not be longer than the queue", |driver| {
        let table = driver.buffer(16 * 65, false);
        describe(driver, 0, table, INDIRECT, 0);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("are outside of DMA memory", |driver| {
        let table = Buffer {
            iova: u64::MAX - 20,
            bytes: 32,
            writable: false,
        };
        describe(driver, 0, table, INDIRECT, 0);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
    ("are outside of DMA memory", |driver| {
        let table = Buffer {
            iova: IOVA + BYTES as u64 - 16,
            bytes: 32,
            writable: false,
        };
        let mut inner = driver.rings[0].clone();
        inner.at = table.iova;
        let buffer = driver.buffer(1, false);
        inner.describe(&driver.memory, 0, buffer, NEXT, 1);
        describe(driver, 0, table, INDIRECT, 0);
        driver.rings[0].offer_head(&driver.memory, 0);
    }),
];

#[test]
fn a_queue_whose_driver_breaks_it_is_left_alone_and_the_others_go_on() {
    for (part, break_it) in CASES {
        let mut driver = up(feature::INDIRECT_DESC);
        break_it(&mut driver);
        driver.notify(0);
        driver.poll();
        driver.assert_report(part);
        assert_eq!(driver.reports().len(), 1, "{part}");
        assert_eq!((driver.used(0), driver.status()), (None, 15 | 64), "{part}");
        // The driver is told that there must be a reset, once.
        assert_eq!(driver.pci.take_interrupts(), 1, "{part}");
        driver.poll();
        assert_eq!(
            (driver.reports().len(), driver.pci.take_interrupts()),
            (1, 0)
        );
        let buffer = driver.buffer(1, false);
        driver.offer(1, &[buffer]);
        driver.poll();
        assert!(driver.used(1).is_some(), "{part}");
        driver.write(0x14, 1, 0);
        assert_eq!(driver.status(), 0);
    }
    let mut driver = up(0);
    let table = driver.buffer(16, false);
    describe(&mut driver, 0, table, INDIRECT, 0);
    driver.rings[0].offer_head(&driver.memory, 0);
    driver.notify(0);
    driver.poll();
    driver.assert_report("takes VIRTIO_F_INDIRECT_DESC");
}

#[test]
fn buffers_outside_of_the_memory_are_reported_and_nothing_is_written() {
    let mut driver = up(0);
    let from = driver.filled(b"abc");
    let to = Buffer {
        iova: IOVA + BYTES as u64 - 1,
        bytes: 3,
        writable: true,
    };
    let head = driver.offer(0, &[from, to]);
    driver.poll();
    assert_eq!(driver.used(0), Some((head.into(), 0)));
}

#[test]
fn who_wants_no_interrupt_gets_none() {
    let mut driver = up(0);
    let flags = driver.rings[0].driver_area();
    driver.memory.store16(flags, 1).unwrap();
    offer(&mut driver, b"x");
    driver.poll();
    assert_eq!(driver.pci.take_interrupts(), 0);
    driver.memory.store16(flags, 0).unwrap();
    offer(&mut driver, b"x");
    driver.poll();
    assert_eq!(driver.pci.take_interrupts(), 2);
    // The device says that it wants to be told, whenever it has nothing left to do.
    let device_flags = driver.rings[0].device_area();
    assert_eq!(driver.memory.load16(device_flags).unwrap(), 0);
    let mut driver = up(feature::EVENT_IDX);
    let avail_event = driver.rings[0].device_area() + 4 + 8 * u64::from(driver.rings[0].size);
    for turn in 1..4 {
        offer(&mut driver, b"x");
        driver.poll();
        assert_eq!(driver.memory.load16(avail_event).unwrap(), turn);
    }
}

#[test]
fn a_driver_follows_the_order_of_initialisation() {
    let mut driver = Driver::new(Echo::default(), "");
    driver.write(0x14, 1, 2);
    driver.assert_report("ACKNOWLEDGE comes before DRIVER");
    driver.write(0x14, 1, 0);
    driver.write(0x14, 1, 1);
    driver.write(0x14, 1, 2);
    driver.assert_report("no bit may be cleared");
    driver.write(0x14, 1, 3 | 16);
    driver.assert_report("reserved bits 0x10 of device_status");
    driver.write(0x14, 1, 7);
    driver.assert_report("FEATURES_OK must read 1 before DRIVER_OK");
    assert_eq!(driver.status(), 3);
    driver.write(0x14, 1, 11);
    driver.assert_report("must accept VIRTIO_F_VERSION_1");
    assert_eq!(driver.status(), 3);
    driver.notify(0);
    driver.assert_report("DRIVER_OK must be set before a notification");
    driver.write(0x16, 2, 0);
    driver.write(0x18, 2, 64);
    driver.assert_report("queue_size was written: FEATURES_OK must read 1");
    assert_eq!(driver.negotiate(OWN), 11);
    driver.write(0x0c, 4, 0);
    driver.assert_report("features must not change behind FEATURES_OK");
    assert_eq!(driver.negotiate(1), 3);
    driver.assert_report("must not accept what is not offered");
    driver.write(0x08, 4, 2);
    driver.write(0x0c, 4, 1);
    driver.assert_report("there are 64 features");
    assert_eq!(driver.negotiate(OWN), 11);
    driver.write(0x14, 1, 15);
    assert_eq!(driver.pci.device().started, Some(OWN | 1 << 32));
    driver.notify(0);
    driver.assert_report("queue_notify was written: the queue must be enabled");
    driver.write(0x14, 1, 15 | 128);
    assert_eq!(driver.status(), 15 | 128);
    let resets = driver.pci.device().resets;
    driver.write(0x14, 1, 0);
    assert_eq!(
        (driver.status(), driver.pci.device().resets),
        (0, resets + 1)
    );
}

#[test]
fn queues_are_what_they_can_be() {
    let mut driver = Driver::new(Echo::default(), "");
    driver.negotiate(0);
    driver.write(0x16, 2, 3);
    assert_eq!((driver.read(0x18, 2), driver.read(0x1a, 2)), (0, 0xffff));
    driver.write(0x1c, 2, 1);
    driver.assert_report("there is no such queue");
    driver.write(0x16, 2, 0);
    assert_eq!(driver.read(0x18, 2), 128);
    driver.write(0x18, 2, 256);
    driver.assert_report("not be over what the device offers");
    for (number, size, at, rule) in [
        (0, 100, 0, "its size must be one that it can have"),
        (
            1,
            64,
            0x28,
            "queue_driver was set to 0x1: it must be a multiple of 2",
        ),
        (
            2,
            64,
            0x20,
            "queue_desc was set to 0x1: it must be a multiple of 16",
        ),
    ] {
        driver.write(0x16, 2, number);
        driver.write(0x18, 2, size);
        if at > 0 {
            driver.write(at, 4, 1);
        }
        driver.write(0x1c, 2, 1);
        driver.assert_report(rule);
        driver.write(0x18, 2, 64);
        driver.assert_report("a queue that is enabled must be left alone");
        assert_eq!((driver.read(0x18, 2), driver.read(0x1c, 2)), (size, 1));
    }
    driver.write(0x1c, 2, 0);
    driver.assert_report("queue_enable was set to 0x0");
    driver.write(0x14, 1, 15);
    driver.poll();
    assert_eq!(driver.status(), 15 | 64);
}

#[test]
fn a_queue_can_be_reset_alone() {
    let mut driver = up(feature::RING_RESET);
    offer(&mut driver, b"x");
    driver.write(0x16, 2, 0);
    driver.write(0x3a, 2, 1);
    assert_eq!((driver.read(0x3a, 2), driver.read(0x1c, 2)), (0, 0));
    driver.poll();
    assert_eq!(driver.used(0), None);
    driver.set_up(0, 32);
    let (head, _) = offer(&mut driver, b"y");
    driver.poll();
    assert_eq!(driver.used(0), Some((head.into(), 1)));
    driver.assert_good();
    let mut driver = up(0);
    driver.write(0x3a, 2, 1);
    driver.assert_report("takes VIRTIO_F_RING_RESET");
}

#[test]
fn a_field_is_accessed_in_its_own_size() {
    let mut driver = up(0);
    let mut bytes = [0; 8];
    driver.pci.read(0, 0x20, &mut bytes);
    assert_eq!(bytes, [0xff; 8]);
    driver.assert_report("8 bytes at 0x20 were accessed: registers are 32-bit");
    assert_eq!(driver.read(0x14, 4), u32::MAX);
    driver.assert_report("4 bytes at 0x14 were accessed: registers are 8-bit");
    assert_eq!(driver.read(0x15, 2), 0xffff);
    driver.assert_report("2 bytes at 0x15 were accessed: registers are 8-bit");
    driver.write(0x10, 1, 0);
    driver.assert_report("1 bytes at 0x10 were accessed: registers are 16-bit");
    for (offset, bytes) in [(0x38, 2), (0x3c, 4), (0x1001, 1), (0x3ffc, 4)] {
        driver.write(offset, bytes, 0);
        driver.assert_report(&format!("0x0 was written to {offset:#x}, no register"));
    }
    for (offset, bytes, name) in [
        (0x04, 4, "device_feature"),
        (0x12, 2, "num_queues"),
        (0x15, 1, "config_generation"),
        (0x1e, 2, "queue_notify_off"),
    ] {
        driver.write(offset, bytes, 7);
        driver.assert_report(&format!("0x7 was written to {name}, which is read-only"));
    }
    driver.write(0x3000, 4, 0);
    driver.assert_report("4 bytes at 0x3000 were accessed: registers are 16-bit");
    driver.write(0x3004, 2, 2);
    driver.assert_report("it must be the number of the queue");
    let severities = driver.pci.violations().severities();
    assert!(severities.contains_key(&Severity::Ignored));
}

#[test]
fn notifications_may_say_more() {
    let mut driver = up(feature::NOTIFICATION_DATA);
    driver.write(0x3004, 4, 0x0005_0001);
    driver.assert_good();
    // What lies in shared memory must read as it was written.
    assert_eq!(driver.read(0x3004, 4), 0x0005_0001);
    assert_eq!(driver.pci.doorbells(), [0x3000, 0x3004]);
    driver.write(0x3004, 2, 1);
    driver.assert_report("2 bytes at 0x3004 were accessed: registers are 32-bit");
}

#[test]
fn a_change_of_the_configuration_is_told_and_counted() {
    let mut driver = up(0);
    assert_eq!(
        (driver.read(0x2000, 4), driver.read(0x2006, 4)),
        (0x0403_0201, 0x0807)
    );
    driver.pci.device().changed = true;
    driver.poll();
    assert_eq!((driver.read(0x15, 1), driver.pci.take_interrupts()), (1, 1));
    assert!(driver.pci.asserts_pin());
    assert_eq!((driver.read(0x1000, 1), driver.read(0x1000, 1)), (2, 0));
    assert!(!driver.pci.asserts_pin());
    offer(&mut driver, b"x");
    driver.poll();
    assert_eq!(driver.read(0x1000, 1), 1);
    // No vector, no interrupt; one that is not there is none.
    driver.write(0x16, 2, 0);
    driver.write(0x1a, 2, 4);
    assert_eq!(driver.read(0x1a, 2), 0xffff);
    driver.pci.take_interrupts();
    offer(&mut driver, b"x");
    driver.poll();
    assert_eq!(driver.pci.take_interrupts(), 0);
}

#[test]
fn a_device_that_is_gone_asserts_no_pin() {
    let mut driver = Driver::new(Echo::default(), "gone=50,seed=1");
    driver.bring_up(0, 64);
    driver.pci.device().changed = true;
    driver.poll();
    assert!(driver.pci.asserts_pin());
    (0..1000).for_each(|_| _ = driver.poll());
    assert_eq!(driver.read(0x1000, 1), 0xff);
    assert!(!driver.pci.asserts_pin());
}

#[test]
fn a_bus_that_is_reset_finds_a_new_device() {
    let mut driver = up(0);
    driver.pci.write(2, 0, &[7; 4]);
    driver.pci.reset();
    assert_eq!((driver.status(), driver.read(0x10, 2)), (0, 0xffff));
    assert_eq!(driver.read(0x18, 2), 128);
    let identity = driver.pci.identity();
    assert_eq!((identity.vendor, identity.device), (0x1af4, 0x106a));
    assert_eq!(identity.msix.vectors, 4);
    driver.bring_up(0, 64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever lies in a ring, the device neither panics nor goes on for ever, and what it reports
    /// has a reason.
    #[test]
    fn no_ring_makes_a_device_panic(
        ring in proptest::collection::vec(any::<u8>(), 2048),
        available in any::<u16>(),
        tame in any::<bool>(),
    ) {
        let mut driver = up(feature::INDIRECT_DESC | feature::EVENT_IDX);
        let at = driver.rings[0].at;
        driver.memory.write(at, &ring).unwrap();
        if tame {
            // Descriptors that lie in the memory at least.
            for index in 0..64u64 {
                let place = at + 16 * index;
                let word = driver.memory.load(place).unwrap();
                driver.memory.store(place, IOVA + word % BYTES as u64).unwrap();
                let word = driver.memory.load(place + 8).unwrap();
                let flags = u64::from(NEXT | WRITE | INDIRECT) << 32;
                driver.memory.store(place + 8, word & (0x3f_0000_0000_03ff | flags)).unwrap();
            }
        }
        let index = if tame { available % 65 } else { available };
        driver.memory.store16(driver.rings[0].driver_area() + 2, index).unwrap();
        driver.notify(0);
        for turn in 0..8 {
            driver.pci.poll(&driver.memory, Duration::from_millis(turn));
        }
        let reports = driver.reports();
        prop_assert!(reports.len() < 20);
        prop_assert_eq!(driver.status() & 64 != 0, !reports.is_empty());
    }

    /// Whatever is written to registers, in whatever order and width, the device goes on.
    #[test]
    fn no_access_makes_a_device_panic(
        accesses in proptest::collection::vec(
            (0u8..3, 0u64..0x3100, 1usize..9, any::<u64>(), any::<bool>()),
            1..200,
        ),
    ) {
        let mut driver = up(feature::RING_RESET);
        for (bar, offset, bytes, value, near) in accesses {
            // Half of them are where registers are.
            let offset = if near { offset % 0x40 } else { offset };
            let mut word = value.to_le_bytes();
            driver.pci.write(bar, offset, &word[..bytes]);
            driver.pci.read(bar, offset, &mut word[..bytes]);
            driver.pci.poll(&driver.memory, Duration::ZERO);
        }
        driver.pci.reset();
        driver.bring_up_again();
    }
}

#[test]
fn registers_behind_pci_have_names() {
    let found = [0x14, 0x24, 0x38, 0x1000, 0x2005, 0x3004].map(|offset| pci::name(0, offset));
    let wanted = [
        Some("device_status"),
        Some("queue_desc"),
        None,
        Some("ISR"),
        Some("configuration"),
        Some("notifications"),
    ];
    assert_eq!(found, wanted);
    assert_eq!(pci::name(2, 0), None);
}
