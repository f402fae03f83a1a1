//! The driver against a puppet that answers commands while the driver looks at its clock.

use super::*;
use crate::block::watch::{SLOW_NANOSECONDS, TRANSFER_NANOSECONDS};
use crate::net::recovery::RESETS_MAX;
use alloc::rc::Rc;
use alloc::vec;
use core::cell::{Cell, RefCell};
use core::mem;
use device::BlockDevice;
use device::block::Blocking;
use device::block::Buffers;
use hw::{DmaBuf, Reachable};
use puppet::{CAP, CI, CMD, GHC, IS, Puppet, SACT, SSTS, Taken};

const BLOCK: usize = 512;
const BLOCKS: u64 = 4096;
const BYTES: usize = BLOCKS as usize * BLOCK;
const BUFFER: usize = 64 << 10;
const ARENA_BYTES: usize = DMA_BYTES + 4 * BUFFER + 256 * 4096;
/// What passes between two looks at the clock.
const TICK: u64 = 1_000_000;

/// The device's end, which keeps blocks.
struct Disk {
    puppet: Rc<Puppet>,
    bytes: RefCell<Vec<u8>>,
    /// A block whose reads fail.
    bad: Cell<Option<u64>>,
    silent: Cell<bool>,
    commands: RefCell<Vec<Taken>>,
}

impl Disk {
    fn serve(&self) {
        while !self.silent.get()
            && let Some(taken) = self.puppet.take().unwrap()
        {
            if taken.opcode == 0xec {
                return;
            }
            let blocks = taken.block..taken.block + u64::from(taken.blocks);
            self.commands.borrow_mut().push(taken.clone());
            if self.bad.get().is_some_and(|bad| blocks.contains(&bad)) {
                self.puppet.fail(0x40);
                self.silent.set(true);
                return;
            }
            self.carry_out(&taken);
            self.puppet.answer(taken.slot);
        }
    }

    fn carry_out(&self, taken: &Taken) {
        let view = self.puppet.view();
        let mut all = self.bytes.borrow_mut();
        let mut at = taken.block as usize * BLOCK;
        let length: usize = taken.regions.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(taken.is_write, matches!(taken.opcode, 0x35 | 0x61 | 0x06));
        match taken.opcode {
            0x25 | 0x60 | 0x35 | 0x61 => {
                assert_eq!(length, taken.blocks as usize * BLOCK);
                for &(place, bytes) in &taken.regions {
                    let range = at..at + bytes;
                    match taken.is_write {
                        true => view.read(place, &mut all[range]).unwrap(),
                        false => view.write(place, &all[range]).unwrap(),
                    }
                    at += bytes;
                }
            }
            0xea => assert!(taken.regions.is_empty()),
            0x06 => {
                assert_eq!((taken.blocks, length), (1, 512));
                let range = view.load(taken.regions[0].0).unwrap();
                let at = (range & 0xffff_ffff_ffff) as usize * BLOCK;
                all[at..at + (range >> 48) as usize * BLOCK].fill(0);
            }
            other => panic!("opcode {other:#x}"),
        }
    }
}

struct Bench {
    disk: Rc<Disk>,
    driver: Driver,
    arena: DmaArena,
    todo: VecDeque<Box<Request>>,
    done: Requests,
}

/// What a driver says that has to use such a device.
fn started(change: impl FnOnce(&Puppet)) -> Result<Bench, Error> {
    let (puppet, bar, mut arena) = Puppet::new(ARENA_BYTES, BLOCKS);
    change(&puppet);
    let bytes = (0..BYTES).map(|at| (at / 512 + at) as u8).collect();
    let disk = Rc::new(Disk {
        puppet: puppet.clone(),
        bytes: RefCell::new(bytes),
        bad: Cell::new(None),
        silent: Cell::new(false),
        commands: RefCell::default(),
    });
    let (clock, serving) = (puppet.clock(TICK), disk.clone());
    let clock = move || {
        let now = clock();
        serving.serve();
        now
    };
    let driver = Driver::new(bar, &mut arena, clock)?;
    Ok(Bench {
        disk,
        driver,
        arena,
        todo: VecDeque::new(),
        done: Vec::new(),
    })
}

fn bench() -> Bench {
    started(|_| {}).unwrap()
}

impl Bench {
    fn request(&mut self, operation: Operation, block: u64, bytes: usize) -> Box<Request> {
        let buffer = self.arena.buf(bytes.max(4), 2).unwrap();
        let mut request = Request::new(Buffers(vec![buffer]));
        request.operation = operation;
        request.token = block;
        request.offset = block * 512;
        request.length = bytes as u64;
        request
    }

    /// Submits a request of one block, or none for a flush.
    fn submit(&mut self, operation: Operation, block: u64) {
        let bytes = match operation {
            Operation::Flush => 0,
            _ => 512,
        };
        let request = self.request(operation, block, bytes);
        self.todo.push_back(request);
        self.driver.submit(&mut self.todo);
    }

    /// Looks until so many requests are over, and has them in the order of their tokens.
    fn wait(&mut self, count: usize) -> Requests {
        for _ in 0..1_000_000 {
            if self.done.len() >= count {
                self.done.sort_by_key(|request| request.token);
                return mem::take(&mut self.done);
            }
            // A device that was reset carries out what it is given.
            let resets = self.disk.puppet.resets.get();
            self.driver.submit(&mut self.todo);
            self.driver.complete(&mut self.done);
            if self.disk.puppet.resets.get() != resets {
                self.disk.silent.set(false);
            }
        }
        panic!("they never come back");
    }

    /// Whether a request has the bytes of its block.
    fn is_right(&self, request: &Request) -> bool {
        let at = request.offset as usize;
        request.buffers.0[0].bytes()[..512] == self.disk.bytes.borrow()[at..at + 512]
    }

    /// A block is read as it is on the disk.
    fn works(&mut self) {
        self.disk.silent.set(false);
        self.submit(Operation::Read, 5);
        let request = self.wait(1).remove(0);
        assert_eq!(request.result, Ok(()));
        assert!(self.is_right(&request));
    }
}

fn buffers(arena: &mut DmaArena) -> Vec<DmaBuf> {
    let buffer = |_| arena.buf(BUFFER, 2).unwrap();
    (0..4).map(buffer).collect()
}

#[test]
fn blocks_are_read_changed_and_read_again() {
    let Bench {
        disk,
        driver,
        mut arena,
        ..
    } = bench();
    assert_eq!(driver.depth(), 32);
    let mut device = Blocking::new(driver, buffers(&mut arena));
    assert_eq!(device.capacity(), BYTES as u64);
    let mut all = vec![0; BYTES];
    device.read(0, &mut all).unwrap();
    assert_eq!(all, *disk.bytes.borrow());
    let news: Vec<_> = (0..300 * BLOCK).map(|at| (at / 3) as u8).collect();
    device.write(7 * 512, &news).unwrap();
    device.flush().unwrap();
    device.discard(9 * 512, 1024).unwrap();
    let mut found = vec![0; 300 * BLOCK];
    device.read(7 * 512, &mut found).unwrap();
    assert_eq!(found[..1024], news[..1024]);
    assert_eq!(found[1024..2048], [0; 1024]);
    assert_eq!(found[2048..], news[2048..]);
    let opcodes: Vec<_> = disk.commands.borrow().iter().map(|c| c.opcode).collect();
    assert!(
        [0x60, 0x61, 0xea, 0x06]
            .iter()
            .all(|opcode| opcodes.contains(opcode))
    );
    assert_eq!(
        device.read(BYTES as u64, &mut found),
        Err(BlockError::OutOfRange)
    );
}

#[test]
fn many_are_in_flight_and_over_in_any_order() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    (0..40).for_each(|block| bench.submit(Operation::Read, block));
    assert_eq!(bench.todo.len(), 8, "no more than the disk takes");
    assert_eq!(bench.disk.puppet.get(SACT), u32::MAX);
    let mut taken: Vec<_> = (0..32)
        .map(|_| bench.disk.puppet.take().unwrap().unwrap())
        .collect();
    taken.reverse();
    for command in taken {
        bench.disk.carry_out(&command);
        bench.disk.puppet.answer(command.slot);
        bench.driver.complete(&mut bench.done);
        let over = bench.done.last().unwrap();
        assert_eq!((over.token, over.result), (command.block, Ok(())));
    }
    assert!(bench.done.iter().all(|request| bench.is_right(request)));
    bench.disk.silent.set(false);
    let all = bench.wait(40);
    assert!(all.iter().all(|request| bench.is_right(request)));
}

#[test]
fn flush_and_discard_wait_for_what_is_in_flight_and_are_alone() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    bench.submit(Operation::Write, 1);
    bench.submit(Operation::Flush, 2);
    bench.submit(Operation::Write, 3);
    assert_eq!(bench.todo.len(), 2);
    let puppet = bench.disk.puppet.clone();
    let write = puppet.take().unwrap().unwrap();
    puppet.answer(write.slot);
    bench.driver.complete(&mut bench.done);
    bench.driver.submit(&mut bench.todo);
    assert_eq!(
        (bench.todo.len(), puppet.get(SACT), puppet.get(CI)),
        (1, 0, 1)
    );
    // It may take long.
    puppet.sleep(SLOW_NANOSECONDS / 2);
    bench.driver.complete(&mut bench.done);
    puppet.sleep(SLOW_NANOSECONDS / 3);
    bench.driver.complete(&mut bench.done);
    bench.disk.silent.set(false);
    let over = bench.wait(3);
    assert!(over.iter().all(|request| request.result == Ok(())));
    assert_eq!(bench.driver.trouble().resets, 0);
}

#[test]
fn a_command_that_fails_fails_alone() {
    let mut bench = bench();
    bench.disk.bad.set(Some(7));
    (0..20).for_each(|block| bench.submit(Operation::Read, block));
    let over = bench.wait(20);
    for request in &over {
        match request.token {
            7 => assert_eq!(request.result, Err(BlockError::Device(0x4041))),
            _ => assert!(request.result == Ok(()) && bench.is_right(request)),
        }
        assert_eq!(request.buffers.bytes(), 512, "no buffer is lost");
    }
    let trouble = *bench.driver.trouble();
    assert_eq!((trouble.resets, trouble.last), (0, None));
    // Once with all, once alone.
    assert_eq!(trouble.failures, 2);
    bench.disk.bad.set(None);
    bench.works();
}

#[test]
fn a_disk_with_many_bad_blocks_is_not_given_up() {
    let mut bench = bench();
    bench.disk.bad.set(Some(7));
    for _ in 0..3 * RESETS_MAX {
        bench.submit(Operation::Read, 7);
        assert!(matches!(
            bench.wait(1)[0].result,
            Err(BlockError::Device(_))
        ));
    }
    bench.disk.bad.set(None);
    bench.works();
}

#[test]
fn a_flush_that_fails_though_its_slot_is_free_again_has_failed() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    bench.submit(Operation::Flush, 0);
    let puppet = bench.disk.puppet.clone();
    let flush = puppet.take().unwrap().unwrap();
    puppet.fail(0x04);
    puppet.answer(flush.slot);
    assert_eq!(bench.wait(1)[0].result, Err(BlockError::Device(0x0441)));
    bench.works();
}

#[test]
fn a_device_that_hangs_lies_or_fails_is_reset_and_works_again() {
    type Trick = fn(&Puppet);
    let tricks: [(Trick, &str); 5] = [
        (|_| {}, "in time"),
        (
            |puppet| puppet.set(SACT, puppet.get(SACT) | 1 << 9),
            "was not given",
        ),
        (
            |puppet| puppet.set(CI, puppet.get(CI) | 1 << 31),
            "was not given",
        ),
        (|puppet| puppet.set(IS, 1 << 29), "cannot go on"),
        (|puppet| puppet.set(SSTS, 0), "the link"),
    ];
    for (trick, why) in tricks {
        let mut bench = bench();
        bench.disk.silent.set(true);
        (0..3).for_each(|block| bench.submit(Operation::Write, block));
        // Times begin.
        bench.driver.complete(&mut bench.done);
        trick(&bench.disk.puppet);
        bench.disk.puppet.sleep(TRANSFER_NANOSECONDS);
        for request in bench.wait(3) {
            assert_eq!(request.result, Err(BlockError::Reset), "{why}");
            assert_eq!(request.buffers.bytes(), 512, "no buffer is lost");
        }
        let trouble = *bench.driver.trouble();
        let last = alloc::format!("{}", trouble.last.unwrap());
        assert!(trouble.resets == 1 && last.contains(why), "{last}");
        bench.works();
    }
}

#[test]
fn one_that_is_gone_or_stays_in_its_reset_is_given_up_and_keeps_the_buffers() {
    for is_gone in [true, false] {
        let mut bench = bench();
        bench.disk.silent.set(true);
        bench.submit(Operation::Read, 1);
        bench.driver.complete(&mut bench.done);
        match is_gone {
            true => bench.disk.puppet.all_ones(),
            false => bench.disk.puppet.is_stuck.set(true),
        }
        bench.disk.puppet.sleep(TRANSFER_NANOSECONDS);
        let request = bench.wait(1).remove(0);
        assert_eq!(request.result, Err(BlockError::Gone));
        assert_eq!(request.buffers.bytes(), 0, "it may still write there");
        bench.submit(Operation::Read, 2);
        assert_eq!(bench.wait(1)[0].result, Err(BlockError::Gone));
    }
}

#[test]
fn one_that_hangs_behind_each_reset_is_given_up() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    for _ in 0..=RESETS_MAX {
        bench.submit(Operation::Read, 1);
        for _ in 0..1_000_000 {
            if !bench.done.is_empty() {
                break;
            }
            bench.driver.submit(&mut bench.todo);
            bench.driver.complete(&mut bench.done);
            bench.disk.puppet.sleep(100 * TICK);
        }
        assert_eq!(bench.done.pop().map(|r| r.result.is_err()), Some(true));
    }
    assert_eq!(bench.driver.state, State::GivenUp);
}

#[test]
fn another_disk_behind_a_reset_gets_nothing() {
    // Its size, and its serial number and world wide name: a twin.
    for (word, value) in [(100, 9), (19, 0x3231), (111, 1)] {
        let mut bench = bench();
        bench.disk.silent.set(true);
        bench.submit(Operation::Write, 1);
        bench.driver.complete(&mut bench.done);
        bench.disk.puppet.identity.borrow_mut()[word] = value;
        bench.disk.puppet.sleep(TRANSFER_NANOSECONDS);
        assert_eq!(bench.wait(1)[0].result, Err(BlockError::Reset));
        for operation in [Operation::Write, Operation::Flush] {
            bench.submit(operation, 1);
            assert_eq!(bench.wait(1)[0].result, Err(BlockError::Gone), "{word}");
        }
        assert!(bench.disk.commands.borrow().is_empty());
    }
}

#[test]
fn a_disk_without_a_queue_has_one_command() {
    let mut bench = started(|puppet| puppet.identity.borrow_mut()[76] = 0).unwrap();
    assert_eq!(bench.driver.depth(), 1);
    bench.disk.silent.set(true);
    bench.submit(Operation::Read, 1);
    bench.submit(Operation::Read, 2);
    assert_eq!((bench.todo.len(), bench.disk.puppet.get(SACT)), (1, 0));
    bench.disk.silent.set(false);
    assert!(bench.wait(2).iter().all(|request| request.result == Ok(())));
    assert_eq!(bench.disk.commands.borrow()[0].opcode, 0x25);
    bench.works();
}

/// Writes blocks that the disk does not carry out, and one that it does: what they come to where
/// something happens then.
fn written(happens: impl FnOnce(&Puppet)) -> (Bench, Requests) {
    let mut bench = bench();
    bench.disk.silent.set(true);
    (0..3).for_each(|block| bench.submit(Operation::Write, block));
    bench.driver.complete(&mut bench.done);
    assert!(bench.done.is_empty());
    happens(&bench.disk.puppet);
    let over = bench.wait(3);
    (bench, over)
}

#[test]
fn a_port_that_is_reset_behind_the_driver_has_done_nothing() {
    type Happens = fn(&Puppet);
    let resets: [(Happens, Error); 5] = [
        (|puppet| puppet.reset_port(false), Error::Stopped),
        (|puppet| puppet.reset_port(true), Error::Stopped),
        (|puppet| puppet.bounce(), Error::Link),
        (
            |puppet| {
                puppet.set(GHC, 1);
                puppet.serve();
            },
            Error::Stopped,
        ),
        (
            |puppet| {
                puppet.reset_port(false);
                puppet.set(SSTS, 0);
            },
            Error::Stopped,
        ),
    ];
    for (happens, why) in resets {
        let (mut bench, over) = written(happens);
        assert!(
            over.iter()
                .all(|write| write.result == Err(BlockError::Reset)),
            "{why}"
        );
        assert_eq!(bench.driver.trouble().last, Some(why));
        assert!(bench.disk.commands.borrow().is_empty());
        bench.works();
    }
}

#[test]
fn a_port_that_is_reset_while_nobody_looks_is_noticed() {
    for happens in [|puppet: &Puppet| puppet.reset_port(true), Puppet::bounce] {
        let mut bench = bench();
        happens(&bench.disk.puppet);
        bench.disk.puppet.sleep(1 << 30);
        bench.driver.complete(&mut bench.done);
        assert_eq!(bench.driver.trouble().resets, 1);
        bench.works();
    }
}

#[test]
fn a_flush_behind_a_link_that_went_and_came_fails_once() {
    for is_noticed in [true, false] {
        let mut bench = bench();
        bench.submit(Operation::Write, 1);
        assert_eq!(bench.wait(1)[0].result, Ok(()));
        bench.disk.puppet.bounce();
        if is_noticed {
            bench.disk.puppet.sleep(1 << 30);
            bench.driver.complete(&mut bench.done);
            bench.works();
        }
        let results = [(); 2].map(|()| {
            bench.submit(Operation::Flush, 0);
            bench.wait(1)[0].result
        });
        assert_eq!(results, [Err(BlockError::Reset), Ok(())], "{is_noticed}");
    }
}

#[test]
fn a_disk_with_a_fault_has_done_nothing_until_it_says_so_alone() {
    let (mut bench, over) = {
        let mut bench = bench();
        bench.disk.silent.set(true);
        (0..3).for_each(|block| bench.submit(Operation::Write, block));
        let puppet = bench.disk.puppet.clone();
        puppet.take().unwrap().unwrap();
        puppet.fault();
        puppet.answer(0);
        let over = bench.wait(3);
        (bench, over)
    };
    assert!(over.iter().all(|write| write.result == Ok(())));
    let trouble = *bench.driver.trouble();
    assert_eq!((trouble.failures, trouble.resets), (1, 0));
    let mut blocks: Vec<_> = bench
        .disk
        .commands
        .borrow()
        .iter()
        .map(|c| c.block)
        .collect();
    blocks.sort_unstable();
    assert_eq!(blocks, [0, 1, 2], "each was tried again");
    // And a flush is not.
    bench.disk.silent.set(true);
    bench.submit(Operation::Flush, 0);
    let puppet = bench.disk.puppet.clone();
    let flush = puppet.take().unwrap().unwrap();
    puppet.fault();
    puppet.answer(flush.slot);
    assert_eq!(bench.wait(1)[0].result, Err(BlockError::Device(0x70)));
}

#[test]
fn a_command_that_failed_alone_is_tried_again_once() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    bench.submit(Operation::Read, 7);
    bench.disk.puppet.fail(0x40);
    let over = bench.wait(1);
    assert!(over[0].result == Ok(()) && bench.is_right(&over[0]));
    assert_eq!(bench.driver.trouble().failures, 1);
}

#[test]
fn one_that_hangs_at_each_flush_is_given_up() {
    let mut bench = bench();
    for _ in 0..=RESETS_MAX {
        bench.disk.silent.set(true);
        bench.submit(Operation::Flush, 0);
        bench.driver.complete(&mut bench.done);
        bench.disk.puppet.sleep(SLOW_NANOSECONDS);
        assert!(bench.wait(1)[0].result.is_err());
    }
    assert_eq!(bench.driver.state, State::GivenUp);
}

#[test]
fn a_disk_in_standby_may_spin_up() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    bench.submit(Operation::Read, 5);
    bench.driver.complete(&mut bench.done);
    bench.disk.puppet.sleep(TRANSFER_NANOSECONDS - (1 << 30));
    bench.driver.complete(&mut bench.done);
    bench.disk.silent.set(false);
    assert_eq!(bench.wait(1)[0].result, Ok(()));
    assert_eq!(bench.driver.trouble().resets, 0);
}

#[test]
fn a_short_queue_and_few_slots_bound_what_is_in_flight() {
    let disk = started(|puppet| puppet.identity.borrow_mut()[75] = 4).unwrap();
    assert_eq!(disk.driver.depth(), 5);
    let adapter = started(|puppet| puppet.set(CAP, puppet.get(CAP) & !(0x1f << 8) | 2 << 8));
    assert_eq!(adapter.unwrap().driver.depth(), 3);
}

#[test]
fn a_device_that_cannot_be_used_says_why() {
    type Change = fn(&Puppet);
    let changes: [(Change, &str); 9] = [
        (|puppet| puppet.all_ones(), "all ones"),
        (|puppet| puppet.set(0x0c, 0), "no ports"),
        (|puppet| puppet.is_stuck.set(true), "GHC.HR"),
        (|puppet| puppet.is_unplugged.set(true), "has a disk"),
        (|puppet| puppet.is_busy.set(true), "has a disk"),
        (|puppet| puppet.is_silent.set(true), "IDENTIFY DEVICE"),
        (|puppet| puppet.set(CAP, 0), "64 bits"),
        (
            |puppet| puppet.identity.borrow_mut()[255] = 0xa5,
            "checksum",
        ),
        (|puppet| puppet.identity.borrow_mut()[83] = 0, "48 bits"),
    ];
    for (change, why) in changes {
        let error = started(change).err().expect(why);
        let error = alloc::format!("{error}");
        assert!(error.contains(why), "{error} instead of {why}");
    }
    let (_puppet, _, mut arena) = Puppet::new(ARENA_BYTES, BLOCKS);
    let error = Driver::new(Mmio::shared(&[]), &mut arena, || 0).err();
    assert!(matches!(error, Some(Error::Bar { found: 0, .. })));
}

#[test]
fn a_driver_that_is_no_more_leaves_the_device_with_nothing() {
    let Bench { disk, driver, .. } = bench();
    assert_eq!(disk.puppet.get(CMD) & 1, 1);
    drop(driver);
    assert_eq!(disk.puppet.get(GHC) & 1, 1);
}

#[test]
fn buffers_that_the_device_does_not_reach_are_refused() {
    let mut bench = bench();
    let memory = vec![0; 512].leak();
    let mut request = Request::new(Buffers(vec![DmaBuf::plain(memory)]));
    (request.operation, request.length) = (Operation::Read, 512);
    assert!(request.buffers.0[0].iova().is_none());
    bench.todo.push_back(request);
    bench.driver.submit(&mut bench.todo);
    assert_eq!(bench.wait(1)[0].result, Err(BlockError::Unsupported));
}
