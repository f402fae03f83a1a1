//! The driver against a puppet that does what it is asked to while the driver looks at its clock.

use super::puppet::{Fault, Node, PORTSC, Puppet, USBSTS};
use super::transport::TRANSFER_NANOSECONDS;
use super::*;
use crate::net::recovery::RESETS_MAX;
use alloc::vec;
use device::BlockDevice;
use device::block::{Blocking, Buffers, Operation};
use hw::Reachable;

const BLOCK: usize = 512;
const BLOCKS: u64 = 2048;
const BUFFER: usize = 64 << 10;
const ARENA_BYTES: usize = DMA_BYTES + 4 * BUFFER + 64 * 4096;
/// What passes between two looks at the clock.
const TICK: u64 = 1_000_000;
/// A disk of USB 2, and one of USB 3.
const HIGH: Node = Node::Disk(3);
const SUPER: Node = Node::Disk(4);
const EMPTY: Node = Node::Empty;

struct Bench {
    puppet: Rc<Puppet>,
    driver: Driver,
    arena: DmaArena,
    todo: VecDeque<Box<Request>>,
    done: Requests,
}

fn started(ports: &[Node], change: impl FnOnce(&Puppet)) -> Result<Bench, Error> {
    let (puppet, bar, mut arena) = Puppet::new(ARENA_BYTES, BLOCKS, ports);
    change(&puppet);
    let driver = Driver::new(bar, &mut arena, puppet.clock(TICK))?;
    puppet.disk.borrow_mut().commands.clear();
    Ok(Bench {
        puppet,
        driver,
        arena,
        todo: VecDeque::new(),
        done: Vec::new(),
    })
}

fn bench() -> Bench {
    started(&[EMPTY, EMPTY, SUPER], |_| {}).unwrap()
}

impl Bench {
    fn submit(&mut self, operation: Operation, block: u64, bytes: usize) {
        let buffer = self.arena.buf(bytes.max(4), 4).unwrap();
        let mut request = Request::new(Buffers(vec![buffer]));
        request.operation = operation;
        request.token = block;
        request.offset = block * BLOCK as u64;
        request.length = bytes as u64;
        self.todo.push_back(request);
    }

    /// Until this many requests are over: what became of them.
    fn complete(&mut self, count: usize) -> Vec<Result<(), BlockError>> {
        for _ in 0..1_000_000 {
            self.driver.submit(&mut self.todo);
            self.driver.complete(&mut self.done);
            if self.done.len() >= count {
                return self.done.iter().map(|request| request.result).collect();
            }
        }
        panic!("{} of {count} came back", self.done.len());
    }

    /// What becomes of one request.
    fn one(&mut self, operation: Operation, block: u64) -> Result<(), BlockError> {
        self.done.clear();
        let bytes = if operation == Operation::Flush {
            0
        } else {
            BLOCK
        };
        self.submit(operation, block, bytes);
        self.complete(1)[0]
    }

    /// What becomes of a request to a disk that does this.
    fn with(&mut self, fault: Fault, operation: Operation) -> Result<(), BlockError> {
        self.puppet.disk.borrow_mut().faults.push_back(fault);
        self.one(operation, 3)
    }

    fn last(&self) -> Option<Error> {
        self.driver.trouble().last
    }

    fn opcodes(&self) -> Vec<u8> {
        let disk = self.puppet.disk.borrow();
        disk.commands.iter().map(|command| command[0]).collect()
    }
}

#[test]
fn blocks_are_written_flushed_and_read() {
    let Bench {
        puppet,
        driver,
        mut arena,
        ..
    } = bench();
    let buffers = (0..4).map(|_| arena.buf(BUFFER, 4).unwrap()).collect();
    let mut disk = Blocking::new(driver, buffers);
    assert_eq!(disk.capacity(), BLOCKS * BLOCK as u64);
    assert_eq!(disk.limits().durability, Durability::Flushed);
    let bytes: Vec<u8> = (0..300 << 10).map(|at| (at / 7) as u8).collect();
    disk.write(BLOCK as u64, &bytes).unwrap();
    disk.flush().unwrap();
    assert_eq!(puppet.disk.borrow().bytes[BLOCK..][..bytes.len()], bytes);
    let mut found = vec![0; bytes.len()];
    disk.read(BLOCK as u64, &mut found).unwrap();
    assert!(found == bytes);
    disk.discard(BLOCK as u64, 64 * BLOCK as u64).unwrap();
    disk.read(BLOCK as u64, &mut found[..BLOCK]).unwrap();
    assert!(found[..BLOCK].iter().all(|byte| *byte == 0));
}

#[test]
fn a_controller_finds_nothing_in_a_ring_before_its_time() {
    let mut bench = bench();
    bench.puppet.is_eager.set(true);
    for block in 0..100 {
        let operation = match block % 3 {
            0 => Operation::Write,
            _ => Operation::Read,
        };
        bench.submit(operation, block, 4096);
    }
    assert!(bench.complete(100).iter().all(Result::is_ok));
    assert_eq!(bench.driver.trouble(), Trouble::default());
}

#[test]
fn a_disk_is_found_behind_hubs_of_every_speed_and_beside_what_is_none() {
    let two = |speed, disk| {
        let inner = Node::Hub(speed, vec![EMPTY, EMPTY, disk]);
        Node::Hub(speed, vec![Node::Keyboard, Node::Hub(speed, vec![]), inner])
    };
    for ports in [
        vec![HIGH],
        vec![Node::Keyboard, HIGH],
        vec![two(3, HIGH)],
        vec![two(1, Node::Disk(1))],
        // A hub that translates for what is slower behind it.
        vec![two(3, Node::Disk(1))],
        vec![EMPTY, EMPTY, EMPTY, two(4, SUPER)],
    ] {
        let mut bench = started(&ports, |_| {}).unwrap_or_else(|why| panic!("{ports:?}: {why}"));
        assert_eq!(bench.one(Operation::Write, 1), Ok(()), "{ports:?}");
        assert_eq!(bench.one(Operation::Read, 1), Ok(()));
    }
}

#[test]
fn hubs_one_behind_the_other_have_an_end() {
    let mut deep = HIGH;
    for _ in 0..5 {
        deep = Node::Hub(3, vec![deep]);
    }
    assert!(started(core::slice::from_ref(&deep), |_| {}).is_ok());
    let deeper = Node::Hub(3, vec![deep]);
    assert_eq!(started(&[deeper], |_| {}).err(), Some(Error::NoDisk));
}

#[test]
fn what_cannot_be_used_is_refused_with_its_reason() {
    assert_eq!(started(&[], |_| {}).err(), Some(Error::NoDisk));
    let refused = |change: fn(&Puppet)| started(&[HIGH], change).err();
    assert_eq!(refused(Puppet::all_ones), Some(Error::Gone));
    let stuck = refused(|puppet| puppet.is_stuck.set(true));
    assert_eq!(stuck, Some(Error::Timeout("USBCMD.HCRST, it is reset")));
    let narrow = refused(|puppet| puppet.set(0x10, 0x1c0 << 16));
    assert!(matches!(narrow, Some(Error::Lacks(_))));
    let far = refused(|puppet| puppet.set(0x14, 0xffff_fff0));
    assert!(matches!(far, Some(Error::Bar { .. })));
    let none = refused(|puppet| puppet.set(0x04, 0));
    assert!(matches!(none, Some(Error::Config(_))));
    let pages = refused(|puppet| puppet.set(0x08, 0x1f << 21));
    assert!(matches!(pages, Some(Error::Lacks(_))));
    let silent = refused(|puppet| puppet.is_silent.set(true));
    assert_eq!(silent, Some(Error::Timeout("a command, it is done")));
}

#[test]
fn modes_say_whether_it_is_written_and_has_a_cache() {
    let with = |modes: &[u8]| {
        let modes = modes.to_vec();
        let started = started(&[HIGH], |puppet| puppet.disk.borrow_mut().modes = modes);
        started.unwrap()
    };
    let mut protected = with(&[15, 0, 0x80, 0, 0x08, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(protected.driver.limits().read_only);
    let refused = Err(BlockError::ReadOnly);
    assert_eq!(protected.one(Operation::Write, 0), refused);
    let mut plain = with(&[15, 0, 0, 0, 0x08, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(plain.driver.limits().durability, Durability::Written);
    assert_eq!(plain.one(Operation::Flush, 0), Ok(()));
    assert!(!plain.opcodes().contains(&0x35));
    // One that does not say may have one.
    let silent = with(&[3, 0, 0, 0]);
    assert_eq!(silent.driver.limits().durability, Durability::Flushed);
}

#[test]
fn a_command_that_fails_fails_alone_with_its_reason() {
    let mut bench = bench();
    let failed = bench.with(Fault::Sense(3, 0x11), Operation::Read);
    assert_eq!(failed, Err(BlockError::Device(0x311)));
    let failed = bench.with(Fault::StalledSense(3, 0x11), Operation::Read);
    assert_eq!(failed, Err(BlockError::Device(0x311)));
    let failed = bench.with(Fault::Sense(7, 0x27), Operation::Write);
    assert_eq!(failed, Err(BlockError::ReadOnly));
    let again = bench.with(Fault::Sense(6, 0x2a), Operation::Read);
    assert_eq!(again, Ok(()));
    let later = bench.with(Fault::Sense(2, 0x04), Operation::Read);
    assert_eq!(later, Ok(()));
    assert_eq!(
        bench.with(Fault::StalledStatus(1), Operation::Write),
        Ok(())
    );
    let short = bench.with(Fault::Short, Operation::Read);
    assert_eq!(short, Err(BlockError::Device(0xffff)));
    assert_eq!(bench.driver.trouble(), Trouble::default());
    assert!(bench.done[0].buffers.iova().is_some());
}

#[test]
fn lies_of_the_disk_reset_it_and_fail_their_request() {
    let mut bench = bench();
    for (fault, lie) in [
        (Fault::Signature, Lie::Status),
        (Fault::Tag, Lie::Status),
        (Fault::Residue(513), Lie::Residue),
        (Fault::Status(2), Lie::Phase),
        (Fault::Status(3), Lie::Status),
        (Fault::StalledStatus(2), Lie::Status),
        (Fault::StalledCommand, Lie::Phase),
    ] {
        bench.puppet.sleep(20_000_000_000);
        assert_eq!(bench.one(Operation::Read, 3), Ok(()));
        let before = bench.puppet.resets.get();
        let failed = bench.with(fault, Operation::Read);
        assert_eq!(failed, Err(BlockError::Reset), "{fault:?}");
        assert!(bench.done[0].buffers.iova().is_some());
        assert_eq!(bench.last(), Some(Error::Lie(lie)));
        assert_eq!(bench.one(Operation::Read, 3), Ok(()));
        assert_eq!(bench.puppet.resets.get(), before + 1);
    }
}

#[test]
fn a_silent_disk_is_reset_and_one_that_stays_silent_is_given_up() {
    let mut bench = bench();
    assert_eq!(
        bench.with(Fault::Silence, Operation::Read),
        Err(BlockError::Reset)
    );
    assert_eq!(bench.one(Operation::Read, 3), Ok(()));
    let mut failures = 0;
    let gone = loop {
        match bench.with(Fault::Silence, Operation::Read) {
            Err(BlockError::Reset) => failures += 1,
            other => break other,
        }
    };
    assert!(failures <= RESETS_MAX, "{failures}");
    assert_eq!(gone, Err(BlockError::Gone));
    assert_eq!(bench.one(Operation::Write, 3), Err(BlockError::Gone));
    assert!(bench.done[0].buffers.iova().is_some(), "it was never lent");
}

#[test]
fn a_controller_that_stops_answering_keeps_what_it_has() {
    let mut bench = bench();
    bench.puppet.is_silent.set(true);
    bench.puppet.is_stuck.set(true);
    assert_eq!(bench.one(Operation::Read, 3), Err(BlockError::Gone));
    assert!(
        bench.done[0].buffers.iova().is_none(),
        "it may still write there"
    );
    assert_eq!(bench.one(Operation::Read, 3), Err(BlockError::Gone));
}

#[test]
fn a_controller_that_fails_is_reset() {
    let mut bench = bench();
    bench.puppet.sleep(TRANSFER_NANOSECONDS);
    bench.puppet.is_silent.set(true);
    bench.submit(Operation::Read, 3, BLOCK);
    bench.driver.submit(&mut bench.todo);
    bench.driver.complete(&mut bench.done);
    bench.puppet.set(USBSTS, 1 << 12);
    for _ in 0..200 {
        bench.driver.complete(&mut bench.done);
    }
    bench.puppet.is_silent.set(false);
    assert_eq!(bench.complete(1), [Err(BlockError::Reset)]);
    assert_eq!(bench.last(), Some(Error::Failed(1 << 12)));
    assert_eq!(bench.one(Operation::Read, 3), Ok(()));
}

#[test]
fn a_disk_that_is_taken_out_is_gone_whatever_comes_in_its_place() {
    for (ports, empty) in [
        (vec![EMPTY, EMPTY, SUPER], vec![]),
        (vec![EMPTY, EMPTY, SUPER], vec![EMPTY, EMPTY, SUPER]),
        (vec![HIGH], vec![HIGH]),
    ] {
        let mut bench = started(&ports, |_| {}).unwrap();
        assert_eq!(bench.one(Operation::Write, 1), Ok(()));
        let before = bench.puppet.disk.borrow().bytes.clone();
        bench.puppet.plug(&empty);
        bench.puppet.report(0, 1, 0, 34 << 42).unwrap();
        bench.puppet.disk.borrow_mut().commands.clear();
        assert_eq!(bench.one(Operation::Write, 9), Err(BlockError::Gone));
        assert_eq!(bench.last(), Some(Error::Unplugged));
        assert_eq!(bench.one(Operation::Read, 1), Err(BlockError::Gone));
        assert!(bench.opcodes().is_empty(), "{:x?}", bench.opcodes());
        assert_eq!(bench.puppet.disk.borrow().bytes, before);
    }
}

#[test]
fn a_disk_that_is_taken_out_behind_a_hub_is_gone() {
    for stays in [true, false] {
        let hub = Node::Hub(3, vec![EMPTY, HIGH]);
        let mut bench = started(&[EMPTY, hub], |_| {}).unwrap();
        bench.puppet.disturb(1, 0, stays);
        bench
            .puppet
            .disk
            .borrow_mut()
            .faults
            .push_back(Fault::Silence);
        assert_eq!(bench.one(Operation::Read, 9), Err(BlockError::Gone));
        assert_eq!(bench.last(), Some(Error::Unplugged));
    }
}

#[test]
fn another_disk_behind_a_reset_gets_nothing() {
    let mut bench = bench();
    bench.puppet.disk.borrow_mut().serial[2] = b'z';
    assert_eq!(
        bench.with(Fault::Signature, Operation::Read),
        Err(BlockError::Reset)
    );
    bench.puppet.disk.borrow_mut().commands.clear();
    assert_eq!(bench.one(Operation::Write, 1), Err(BlockError::Gone));
    assert_eq!(bench.last(), Some(Error::Another));
    assert!(!bench.opcodes().contains(&0x2a));
}

#[test]
fn a_flush_behind_a_reset_says_that_something_may_be_lost() {
    let mut bench = bench();
    assert_eq!(
        bench.with(Fault::Signature, Operation::Read),
        Err(BlockError::Reset)
    );
    assert_eq!(
        bench.one(Operation::Flush, 0),
        Ok(()),
        "nothing was written"
    );
    assert_eq!(bench.one(Operation::Write, 1), Ok(()));
    assert_eq!(
        bench.with(Fault::Signature, Operation::Read),
        Err(BlockError::Reset)
    );
    assert_eq!(bench.one(Operation::Flush, 0), Err(BlockError::Reset));
    assert_eq!(bench.one(Operation::Flush, 0), Ok(()));
    // It says itself that it was without power.
    assert_eq!(bench.one(Operation::Write, 1), Ok(()));
    assert_eq!(bench.with(Fault::Sense(6, 0x29), Operation::Read), Ok(()));
    assert_eq!(bench.one(Operation::Flush, 0), Err(BlockError::Reset));
}

#[test]
fn events_that_cannot_be_reset_the_controller() {
    for (rest, code) in [(63 << 42, 1), (37 << 42, 21), (33 << 42, 1)] {
        let mut bench = bench();
        bench.puppet.report(0x1234, code, 0, rest).unwrap();
        let first = bench.one(Operation::Read, 3);
        assert!(matches!(first, Ok(()) | Err(BlockError::Reset)));
        assert_eq!(bench.one(Operation::Read, 3), Ok(()));
    }
}

#[test]
fn what_is_asked_for_and_cannot_be_is_refused() {
    let mut bench = bench();
    let far = bench.one(Operation::Read, BLOCKS);
    assert_eq!(far, Err(BlockError::OutOfRange));
    assert_eq!(
        bench.one(Operation::WriteZeroes, 0),
        Err(BlockError::Unsupported)
    );
    bench.done.clear();
    bench.submit(Operation::Read, 0, 256 << 10);
    assert_eq!(bench.complete(1), [Err(BlockError::Unsupported)]);
    assert!(bench.opcodes().is_empty());
    assert_eq!(bench.puppet.get(PORTSC + 0x20) & 3, 3);
}

#[test]
fn as_many_requests_as_there_is_room_for_are_taken() {
    let mut bench = bench();
    for block in 0..40 {
        bench.submit(Operation::Read, block, BLOCK);
    }
    let results = bench.complete(40);
    assert!(results.iter().all(Result::is_ok));
    let order = bench.done.iter().map(|request| request.token);
    assert!(order.eq(0..40));
}
