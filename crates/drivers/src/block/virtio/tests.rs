//! The driver against a puppet that serves requests while the driver looks at its clock.

use super::*;
use crate::block::watch::{SLOW_NANOSECONDS, TRANSFER_NANOSECONDS};
use crate::net::recovery::RESETS_MAX;
use crate::virtio::mmio::Mmio;
use crate::virtio::pci::Pci;
use crate::virtio::puppet::{Buffer, FEATURES, Puppet};
use alloc::rc::Rc;
use alloc::vec;
use core::cell::{Cell, RefCell};
use device::BlockDevice;
use device::block::{Blocking, Buffers, Durability};
use hw::{DmaBuf, Reachable, leaked};
use slots::PARTS_MAX;

const SECTORS: u64 = 1024;
const BYTES: usize = (SECTORS * SECTOR_BYTES) as usize;
const BUFFER: usize = 64 << 10;
const ARENA_BYTES: usize = DMA_BYTES + 4 * BUFFER + 256 * 4096;
/// What passes between two looks at the clock.
const TICK: u64 = 1_000_000;
/// Features of a device that has all of them.
const ALL: u64 = KNOWN & !READ_ONLY;

/// What the device does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Good,
    /// It says so, with this status.
    Fails(u8),
    /// It says that it is done and has written no status.
    SaysNothing,
    Silent,
    /// It gives back what it does not have.
    Descriptor(u16),
    /// It says that it has used more than it had.
    IndexJumps,
}

/// The device's end.
struct Disk {
    puppet: Puppet,
    bytes: RefCell<Vec<u8>>,
    behaviour: Cell<Behaviour>,
    /// Type, sector and bytes of each request.
    requests: RefCell<Vec<(u32, u64, u64)>>,
    now: Cell<u64>,
}

impl Disk {
    fn new(puppet: Puppet) -> Rc<Self> {
        let bytes = (0..BYTES).map(|at| (at / 512 + at) as u8).collect();
        Rc::new(Self {
            puppet,
            bytes: RefCell::new(bytes),
            behaviour: Cell::new(Behaviour::Good),
            requests: RefCell::default(),
            now: Cell::new(0),
        })
    }

    fn clock(self: &Rc<Self>) -> impl Fn() -> u64 + use<> {
        let disk = Rc::clone(self);
        move || {
            disk.serve();
            disk.sleep(TICK);
            disk.now.get()
        }
    }

    fn sleep(&self, nanoseconds: u64) {
        self.now.set(self.now.get().saturating_add(nanoseconds));
    }

    /// Takes the next request out: its first descriptor and its buffers.
    fn fetch(&self) -> Option<(u16, Vec<Buffer>)> {
        let is_up = self.puppet.device().queues.borrow()[0].enabled;
        is_up.then(|| self.puppet.fetch(0).unwrap()).flatten()
    }

    /// Does what all requests say that there are.
    fn serve(&self) {
        while self.behaviour.get() != Behaviour::Silent
            && let Some((head, buffers)) = self.fetch()
        {
            self.carry_out(&buffers);
            self.answer(head);
        }
    }

    fn carry_out(&self, buffers: &[Buffer]) {
        let [(header, 16, false), parts @ .., (status_at, 1, true)] = buffers else {
            panic!("header, data, status: {buffers:?}");
        };
        let view = self.puppet.view();
        let kind = view.load(*header).unwrap();
        let mut sector = view.load(header + 8).unwrap();
        let mut length: u64 = parts.iter().map(|part| u64::from(part.1)).sum();
        if matches!(kind as u32, TYPE_DISCARD | TYPE_WRITE_ZEROES) {
            let [(range, 16, false)] = *parts else {
                panic!("one range: {parts:?}");
            };
            assert_eq!(sector, 0);
            sector = view.load(range).unwrap();
            let rest = view.load(range + 8).unwrap();
            assert_eq!(rest >> 32, u64::from(kind as u32 == TYPE_WRITE_ZEROES));
            length = (rest & 0xffff_ffff) * SECTOR_BYTES;
        }
        let request = (kind as u32, sector, length);
        self.requests.borrow_mut().push(request);
        let start = (sector * SECTOR_BYTES) as usize;
        let bytes = &mut self.bytes.borrow_mut()[start..start + length as usize];
        let mut at = 0;
        for &(place, part, fills) in parts {
            let part = part as usize;
            match kind as u32 {
                TYPE_IN => view.write(place, &bytes[at..at + part]).unwrap(),
                TYPE_OUT => view.read(place, &mut bytes[at..at + part]).unwrap(),
                TYPE_DISCARD | TYPE_WRITE_ZEROES => bytes.fill(0),
                other => panic!("type {other}"),
            }
            assert_eq!(fills, kind as u32 == TYPE_IN);
            at += part;
        }
        let status = match self.behaviour.get() {
            Behaviour::SaysNothing => return,
            Behaviour::Fails(status) => status,
            _ => STATUS_OK,
        };
        view.write(*status_at, &[status]).unwrap();
    }

    fn answer(&self, head: u16) {
        match self.behaviour.get() {
            Behaviour::Descriptor(other) => self.puppet.give_back(0, other, 1).unwrap(),
            Behaviour::IndexJumps => {
                let used = self.puppet.used(0);
                self.puppet.set_used(0, used.wrapping_add(7)).unwrap();
            }
            // What it says that it wrote is not believed.
            _ => self.puppet.give_back(0, head, u32::MAX).unwrap(),
        }
    }
}

/// A configuration with so many sectors, most bytes of a buffer, and bytes of a block.
fn config(sectors: u64, most: u32, block: u32) -> Vec<u8> {
    let mut config = vec![0; 60];
    config[..8].copy_from_slice(&sectors.to_le_bytes());
    for (at, value) in [
        (8, most),
        (12, 9),
        (20, block),
        (36, 100),
        (40, 1),
        (48, 50),
        (52, 1),
    ] {
        config[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
    }
    config
}

struct Bench<T: Transport = Pci> {
    disk: Rc<Disk>,
    driver: Driver<T>,
    arena: DmaArena,
    todo: VecDeque<Box<Request>>,
    done: Requests,
}

/// A disk with these features besides.
fn bench_with(features: u64, config: &[u8]) -> Result<Bench, Error> {
    let (puppet, transport, mut arena) = Puppet::pci(KIND, config, ARENA_BYTES);
    puppet.device().offered.set(FEATURES | features);
    let disk = Disk::new(puppet);
    let driver = Driver::new(transport, &mut arena, disk.clock())?;
    Ok(Bench {
        disk,
        driver,
        arena,
        todo: VecDeque::new(),
        done: Vec::new(),
    })
}

fn bench() -> Bench {
    bench_with(ALL, &config(SECTORS, u32::MAX, 512)).unwrap()
}

impl Bench {
    /// Submits a request of one block, or none for a flush.
    fn submit(&mut self, operation: Operation, block: u64) {
        let buffer = self.arena.buf(512, 2).unwrap();
        let mut request = Request::new(Buffers(vec![buffer]));
        request.operation = operation;
        request.token = block;
        request.offset = block * 512;
        request.length = if operation == Operation::Flush {
            0
        } else {
            512
        };
        self.todo.push_back(request);
        self.driver.submit(&mut self.todo);
    }

    /// Looks until so many requests are over, and has them in the order of their tokens.
    fn wait(&mut self, count: usize) -> Requests {
        for _ in 0..1_000_000 {
            if self.done.len() >= count {
                self.done.sort_by_key(|request| request.token);
                return core::mem::take(&mut self.done);
            }
            self.driver.submit(&mut self.todo);
            self.driver.complete(&mut self.done);
        }
        panic!("they never come back");
    }

    /// What one request comes to.
    fn asks(&mut self, operation: Operation, block: u64) -> Result<(), BlockError> {
        self.submit(operation, block);
        self.wait(1)[0].result
    }

    /// Looks until the device runs again, or was given up.
    fn rise(&mut self) {
        for _ in 0..1_000_000 {
            if self.driver.state != State::Rising {
                return;
            }
            self.driver.complete(&mut self.done);
        }
        panic!("it is never over");
    }

    fn is_right(&self, request: &Request) -> bool {
        let at = request.offset as usize;
        request.buffers.0[0].bytes()[..512] == self.disk.bytes.borrow()[at..at + 512]
    }

    /// A block is read as it is on the disk.
    fn works(&mut self) {
        self.disk.behaviour.set(Behaviour::Good);
        self.submit(Operation::Read, 5);
        let request = self.wait(1).remove(0);
        assert!(request.result == Ok(()) && self.is_right(&request));
    }
}

fn buffers(arena: &mut DmaArena) -> Vec<DmaBuf> {
    let buffer = |_| arena.buf(BUFFER, 2).unwrap();
    (0..4).map(buffer).collect()
}

/// All of it is read, changed, and read again.
fn reads_and_writes<T: Transport>(disk: &Disk, driver: Driver<T>, arena: &mut DmaArena) {
    let mut device = Blocking::new(driver, buffers(arena));
    assert_eq!(
        (device.capacity(), device.block_size()),
        (BYTES as u64, 512)
    );
    let mut bytes = vec![0; BYTES];
    device.read(0, &mut bytes).unwrap();
    assert!(bytes == *disk.bytes.borrow());
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    let (left, right) = bytes.split_at(BYTES / 2);
    device.write(0, left).unwrap();
    device.write(BYTES as u64 / 2, right).unwrap();
    device.flush().unwrap();
    assert_eq!(disk.requests.borrow().last(), Some(&(TYPE_FLUSH, 0, 0)));
    assert!(bytes == *disk.bytes.borrow());
    device.discard(8 * 512, 60 * 512).unwrap();
    device.write_zeroes(100 * 512, 3 * 512).unwrap();
    // The least of what both take at once.
    let expected = [
        (TYPE_DISCARD, 8, 50 * 512),
        (TYPE_DISCARD, 58, 10 * 512),
        (TYPE_WRITE_ZEROES, 100, 3 * 512),
    ];
    let requests = disk.requests.borrow();
    assert_eq!(requests[requests.len() - 3..], expected);
}

#[test]
fn blocks_are_read_and_written_over_either_transport() {
    let Bench {
        disk,
        driver,
        mut arena,
        ..
    } = bench();
    reads_and_writes(&disk, driver, &mut arena);
    let (puppet, registers, mut arena) =
        Puppet::mmio(KIND, &config(SECTORS, u32::MAX, 512), ARENA_BYTES);
    puppet.device().offered.set(FEATURES | ALL);
    let disk = Disk::new(puppet);
    let driver = Driver::new(Mmio::new(registers), &mut arena, disk.clock()).unwrap();
    reads_and_writes(&disk, driver, &mut arena);
}

#[test]
fn many_are_in_flight_and_over_in_any_order() {
    let mut bench = bench();
    bench.disk.behaviour.set(Behaviour::Silent);
    // Places in the queue are used again and again.
    for _ in 0..10 {
        (0..40).for_each(|block| bench.submit(Operation::Read, block));
        assert_eq!(bench.todo.len(), 8, "no more than there is room for");
        let mut taken: Vec<_> = (0..DEPTH).map(|_| bench.disk.fetch().unwrap()).collect();
        taken.reverse();
        taken.swap(3, 20);
        for (head, buffers) in taken {
            bench.disk.carry_out(&buffers);
            bench.disk.answer(head);
            bench.driver.complete(&mut bench.done);
            let over = bench.done.last().unwrap();
            assert!(over.result == Ok(()) && bench.is_right(over));
        }
        bench.disk.behaviour.set(Behaviour::Good);
        assert_eq!(bench.wait(40).len(), 40);
        bench.disk.behaviour.set(Behaviour::Silent);
        bench.disk.requests.borrow_mut().clear();
    }
    assert_eq!(bench.driver.trouble().resets, 0);
}

#[test]
fn a_request_of_several_buffers_is_one() {
    let mut bench = bench();
    assert_eq!(bench.driver.limits().buffers_max, PARTS_MAX);
    let parts = [1024, 512].map(|bytes| bench.arena.buf(bytes, 2).unwrap());
    let mut request = Request::new(Buffers(parts.into()));
    (request.operation, request.offset, request.length) = (Operation::Read, 512, 1536);
    bench.todo.push_back(request);
    let over = bench.wait(1).remove(0);
    assert_eq!(over.result, Ok(()));
    let found: Vec<u8> = over.buffers.parts(1536).flatten().copied().collect();
    assert_eq!(found, bench.disk.bytes.borrow()[512..2048]);
    assert_eq!(*bench.disk.requests.borrow(), [(TYPE_IN, 1, 1536)]);
}

#[test]
fn what_a_device_does_not_have_is_not_offered() {
    let bench = bench_with(HAS_SIZE_MAX | HAS_BLK_SIZE, &config(SECTORS, 10_000, 4096)).unwrap();
    let expected = Limits {
        block_size: 4096,
        transfer_bytes_max: 8192,
        buffers_max: 1,
        alignment: 1,
        range_bytes_max: 0,
        read_only: false,
        durability: Durability::Written,
        discard: false,
        write_zeroes: false,
    };
    assert_eq!(bench.driver.limits(), expected);
    let mut none = config(SECTORS, u32::MAX, 512);
    none[40] = 0;
    none[48..52].fill(0);
    let limits = bench_with(ALL, &none).unwrap().driver.limits();
    assert!(!limits.discard && !limits.write_zeroes);
    let mut bench = bench_with(READ_ONLY, &config(SECTORS, 0, 0)).unwrap();
    assert_eq!(bench.asks(Operation::Write, 0), Err(BlockError::ReadOnly));
    assert_eq!(bench.asks(Operation::Flush, 0), Ok(()));
    assert!(bench.disk.requests.borrow().is_empty());
    bench.works();
}

#[test]
fn what_is_not_on_the_disk_is_not_asked_for() {
    let mut bench = bench();
    for operation in [Operation::Read, Operation::Write, Operation::Discard] {
        let outside = bench.asks(operation, SECTORS);
        assert_eq!(outside, Err(BlockError::OutOfRange));
    }
    let mut request = Request::new(Buffers(vec![DmaBuf::plain(vec![0; 512].leak())]));
    (request.operation, request.length) = (Operation::Read, 512);
    assert!(request.buffers.0[0].iova().is_none());
    bench.todo.push_back(request);
    assert_eq!(bench.wait(1)[0].result, Err(BlockError::Unsupported));
    assert!(bench.disk.requests.borrow().is_empty());
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    let both = HAS_SIZE_MAX | HAS_BLK_SIZE;
    let refused = |config: Vec<u8>| bench_with(both, &config).err().unwrap();
    for block in [0, 256, 513, 128 << 10, u32::MAX] {
        let error = refused(config(SECTORS, u32::MAX, block));
        assert_eq!(error, Error::Config("its size of a block"), "{block}");
    }
    let error = refused(config(SECTORS, 4095, 4096));
    assert_eq!(error, Error::Config("its most bytes of a transfer"));
    let error = refused(config(u64::MAX, 4096, 512));
    assert_eq!(error, Error::Config("its capacity"));
    // What is no whole block is left out.
    let bench = bench_with(both, &config(9, 4096, 4096)).unwrap();
    assert_eq!(bench.driver.capacity(), 4096);
}

#[test]
fn a_request_that_fails_fails_alone() {
    let mut bench = bench();
    for (behaviour, status) in [
        (Behaviour::Fails(1), 1),
        (Behaviour::Fails(2), 2),
        (Behaviour::SaysNothing, 0xff),
    ] {
        bench.disk.behaviour.set(behaviour);
        for operation in [Operation::Read, Operation::Write, Operation::Flush] {
            let result = bench.asks(operation, 0);
            assert_eq!(result, Err(BlockError::Device(status)));
        }
        bench.works();
    }
    assert_eq!(bench.driver.trouble().resets, 0);
}

#[test]
fn a_device_that_lies_is_silent_or_dead_is_reset_and_works_again() {
    // A descriptor in the middle of one that it has, the first of one that it has not, and none.
    for (behaviour, why) in [
        (Behaviour::Descriptor(1), Failure::Lie),
        (Behaviour::Descriptor(3 * 4), Failure::Lie),
        (Behaviour::Descriptor(32 * 4), Failure::Lie),
        (Behaviour::IndexJumps, Failure::Lie),
        (Behaviour::Silent, Failure::Late),
        (Behaviour::Silent, Failure::Dead),
    ] {
        let mut bench = bench();
        bench.disk.behaviour.set(behaviour);
        (0..3).for_each(|block| bench.submit(Operation::Write, block));
        // Times begin.
        bench.driver.complete(&mut bench.done);
        match why {
            Failure::Late => bench.disk.sleep(TRANSFER_NANOSECONDS),
            Failure::Dead => {
                bench.disk.puppet.device().status.set(1 << 6 | 0xf);
                bench.disk.sleep(1 << 30);
            }
            _ => {}
        }
        let over = bench.wait(3);
        // A lie may follow an answer that was none.
        let resets = over.iter().filter(|r| r.result == Err(BlockError::Reset));
        assert!(resets.count() >= 2, "{behaviour:?}");
        assert!(over.iter().all(|request| request.buffers.bytes() == 512));
        let trouble = *bench.driver.trouble();
        assert_eq!((trouble.resets, trouble.last), (1, Some(why)));
        bench.works();
    }
}

#[test]
fn one_that_is_silent_at_each_flush_or_never_reset_is_given_up() {
    let mut bench = bench();
    for _ in 0..=RESETS_MAX {
        bench.disk.behaviour.set(Behaviour::Silent);
        bench.submit(Operation::Flush, 0);
        bench.driver.complete(&mut bench.done);
        bench.disk.sleep(SLOW_NANOSECONDS - (1 << 30));
        bench.driver.complete(&mut bench.done);
        assert!(bench.done.is_empty(), "it may take long");
        bench.disk.sleep(1 << 30);
        assert!(bench.wait(1)[0].result.is_err());
        bench.rise();
    }
    assert_eq!(bench.driver.state, State::GivenUp);
    let mut bench = self::bench();
    bench.disk.behaviour.set(Behaviour::Silent);
    bench.submit(Operation::Read, 0);
    bench.driver.complete(&mut bench.done);
    bench.disk.puppet.device().hangs.set(true);
    bench.disk.sleep(TRANSFER_NANOSECONDS);
    let before = leaked();
    let request = bench.wait(1).remove(0);
    assert_eq!(request.result, Err(BlockError::Gone));
    assert!(request.buffers.bytes() == 0 && leaked() > before);
    assert_eq!(bench.asks(Operation::Write, 0), Err(BlockError::Gone));
}

#[test]
fn a_disk_that_is_another_one_behind_a_reset_gets_nothing() {
    let mut bench = bench();
    bench.disk.puppet.device().config.borrow_mut()[..8].copy_from_slice(&7u64.to_le_bytes());
    bench.disk.behaviour.set(Behaviour::IndexJumps);
    assert_eq!(bench.asks(Operation::Read, 0), Err(BlockError::Reset));
    bench.disk.behaviour.set(Behaviour::Good);
    let requests = bench.disk.requests.borrow().len();
    for operation in [Operation::Write, Operation::Flush] {
        assert_eq!(bench.asks(operation, 0), Err(BlockError::Gone));
    }
    assert_eq!(bench.disk.requests.borrow().len(), requests);
    assert_eq!(bench.driver.trouble().last, Some(Failure::Other));
}

#[test]
fn a_flush_behind_a_reset_fails_once() {
    let mut bench = bench();
    assert_eq!(bench.asks(Operation::Write, 0), Ok(()));
    bench.disk.puppet.device().status.set(0);
    bench.disk.sleep(1 << 30);
    bench.driver.complete(&mut bench.done);
    bench.rise();
    let results = [(); 2].map(|()| bench.asks(Operation::Flush, 0));
    assert_eq!(results, [Err(BlockError::Reset), Ok(())]);
}

#[test]
fn a_driver_that_is_dropped_resets_its_device() {
    let Bench { disk, driver, .. } = bench();
    drop(driver);
    assert_eq!(disk.puppet.device().status.get(), 0);
}

#[test]
fn the_memory_that_it_takes_is_what_it_says() {
    let (puppet, transport, mut arena) = Puppet::pci(KIND, &config(8, 0, 0), DMA_BYTES);
    let disk = Disk::new(puppet);
    assert!(Driver::new(transport, &mut arena, disk.clock()).is_ok());
    assert!(arena.buf(4096, 4096).is_err());
}
