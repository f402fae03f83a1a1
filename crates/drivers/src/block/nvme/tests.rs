//! The driver against a puppet that answers commands while the driver looks at its clock.

use super::watch::{ABORT_NANOSECONDS, COMMAND_NANOSECONDS, LONG_NANOSECONDS};
use super::*;
use crate::net::recovery::RESETS_MAX;
use alloc::rc::Rc;
use alloc::vec;
use core::cell::{Cell, RefCell};
use device::BlockDevice;
use device::block::Blocking;
use device::block::Buffers;
use hw::{DmaBuf, Reachable, leaked};
use puppet::{CAPABILITIES, Puppet};

const BLOCK: usize = 512;
const BLOCKS: u64 = 4096;
const BYTES: usize = BLOCKS as usize * BLOCK;
const BUFFER: usize = 64 << 10;
const BUFFERS: usize = 4;
const ARENA_BYTES: usize = DMA_BYTES + BUFFERS * BUFFER + 512 * 4096;
/// The token of a request that is waited for.
const LAST: u64 = 77;
/// What passes between two looks at the clock.
const TICK: u64 = 1_000_000;

/// The device's end, which keeps blocks.
struct Disk {
    puppet: Rc<Puppet>,
    bytes: RefCell<Vec<u8>>,
    /// The status by which commands are answered.
    status: Cell<u16>,
    silent: Cell<bool>,
    /// Opcode, block and dword 12 of each command.
    commands: RefCell<Vec<(u8, u64, u32)>>,
}

impl Disk {
    fn serve(&self) {
        while !self.silent.get()
            && let Some(words) = self.puppet.fetch(1).unwrap()
        {
            self.carry_out(&words);
            self.puppet.post(1, id(&words), self.status.get()).unwrap();
        }
    }

    fn carry_out(&self, words: &[u64; 8]) {
        let (opcode, block, last) = (words[0] as u8, words[5], words[6] as u32);
        self.commands.borrow_mut().push((opcode, block, last));
        assert_eq!(words[0] >> 32, 1, "the namespace");
        let bytes = ((last & 0xffff) as usize + 1) * BLOCK;
        let mut at = block as usize * BLOCK;
        let view = self.puppet.view();
        let mut all = self.bytes.borrow_mut();
        match opcode {
            0 => assert_eq!(words[3..], [0; 5]),
            1 | 2 => {
                for (place, len) in self.puppet.pieces(words, bytes).unwrap() {
                    let range = at..at + len;
                    match opcode {
                        1 => view.read(place, &mut all[range]).unwrap(),
                        _ => view.write(place, &all[range]).unwrap(),
                    }
                    at += len;
                }
            }
            8 => all[at..at + bytes].fill(0),
            9 => {
                assert_eq!(words[5], 4 << 32, "one range, to be deallocated");
                let [lengths, block] = [0, 8].map(|at| view.load(words[3] + at).unwrap());
                let at = block as usize * BLOCK;
                all[at..at + (lengths >> 32) as usize * BLOCK].fill(0);
            }
            other => panic!("opcode {other}"),
        }
    }
}

fn id(words: &[u64; 8]) -> u16 {
    (words[0] >> 16) as u16
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
        status: Cell::new(0),
        silent: Cell::new(false),
        commands: RefCell::default(),
    });
    let (clock, serving) = (puppet.clock(TICK), disk.clone());
    let clock = move || {
        let now = clock();
        if serving.puppet.asked.borrow().len() >= 6 {
            serving.serve();
        }
        now
    };
    let driver = Driver::new(bar, &mut arena, None, clock)?;
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
    fn request(&mut self, operation: Operation, offset: u64, bytes: usize) -> Box<Request> {
        let buffer = self.arena.buf(bytes.max(4), 4096).unwrap();
        let mut request = Request::new(Buffers(vec![buffer]));
        request.operation = operation;
        request.offset = offset;
        request.length = bytes as u64;
        request
    }

    fn submit(&mut self, request: Box<Request>) {
        self.todo.push_back(request);
        self.driver.submit(&mut self.todo);
    }

    /// Reads a block, without waiting for it: the command that the device sees.
    fn read(&mut self, block: u64) -> [u64; 8] {
        let request = self.request(Operation::Read, block * 512, 512);
        self.submit(request);
        self.disk.puppet.fetch(1).unwrap().expect("a command")
    }

    /// Looks until a request is over.
    fn wait(&mut self) -> Box<Request> {
        for _ in 0..1_000_000 {
            if let Some(request) = self.done.pop() {
                return request;
            }
            self.driver.submit(&mut self.todo);
            self.driver.complete(&mut self.done);
        }
        panic!("it never comes back");
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

    /// A block is read as it is on the disk.
    fn works(&mut self) {
        self.disk.silent.set(false);
        let mut request = self.request(Operation::Read, 5 * 512, 512);
        request.token = LAST;
        self.submit(request);
        let request = loop {
            let request = self.wait();
            if request.token == LAST {
                break request;
            }
        };
        assert_eq!(request.result, Ok(()));
        let wanted = &self.disk.bytes.borrow()[5 * 512..6 * 512];
        assert_eq!(request.buffers.0[0].bytes(), wanted);
    }
}

fn buffers(arena: &mut DmaArena) -> Vec<DmaBuf> {
    let buffer = |_| arena.buf(BUFFER, 4096).unwrap();
    (0..BUFFERS).map(buffer).collect()
}

#[test]
fn blocks_are_read_changed_and_read_again() {
    let Bench {
        disk,
        driver,
        mut arena,
        ..
    } = bench();
    let mut device = Blocking::new(driver, buffers(&mut arena));
    assert_eq!(
        (device.capacity(), device.block_size()),
        (BYTES as u64, BLOCK)
    );
    let mut bytes = vec![0; BYTES];
    device.read(0, &mut bytes).unwrap();
    assert!(bytes == *disk.bytes.borrow());
    bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
    let (left, right) = bytes.split_at(BYTES / 2 - 512);
    device.write(0, left).unwrap();
    device.write(left.len() as u64, right).unwrap();
    assert!(bytes == *disk.bytes.borrow());
    device.flush().unwrap();
    assert_eq!(disk.commands.borrow().last(), Some(&(0, 0, 0)));
    device.write_zeroes(512, 1024).unwrap();
    assert_eq!(disk.commands.borrow().last(), Some(&(8, 1, 1 << 25 | 1)));
    device.discard(8192, 4096).unwrap();
    bytes[512..1536].fill(0);
    bytes[8192..12288].fill(0);
    assert!(bytes == *disk.bytes.borrow());
    let beyond = device.read(BYTES as u64, &mut bytes[..512]);
    assert_eq!(beyond, Err(BlockError::OutOfRange));
}

#[test]
fn as_many_are_in_flight_as_there_is_room_for() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    for block in 0..DEPTH as u64 + 8 {
        let request = bench.request(Operation::Read, block * 512, 512);
        bench.todo.push_back(request);
    }
    bench.driver.submit(&mut bench.todo);
    assert_eq!(bench.todo.len(), 8);
    let mut commands = Vec::new();
    while let Some(words) = bench.disk.puppet.fetch(1).unwrap() {
        commands.push(words);
    }
    assert_eq!(commands.len(), DEPTH);
    // In any order; what is over makes room.
    for words in commands.iter().rev() {
        bench.disk.carry_out(words);
        bench.disk.puppet.post(1, id(words), 0).unwrap();
    }
    bench.driver.complete(&mut bench.done);
    assert_eq!(bench.done.len(), DEPTH);
    for request in &bench.done {
        let at = request.offset as usize;
        let wanted = &bench.disk.bytes.borrow()[at..at + 512];
        assert_eq!(
            (request.result, request.buffers.0[0].bytes()),
            (Ok(()), wanted)
        );
    }
    bench.driver.submit(&mut bench.todo);
    assert!(bench.todo.is_empty());
    // Both queues have wrapped several times by then.
    for _ in 0..300 {
        bench.works();
        bench.done.clear();
    }
    assert_eq!(bench.driver.trouble(), &Trouble::default());
}

#[test]
fn a_request_that_fails_fails_alone() {
    let mut bench = bench();
    for (status, error) in [
        (0x281, BlockError::Device(0x281)),
        (0x4006, BlockError::Device(6)),
        (0x020, BlockError::ReadOnly),
        (0x007, BlockError::Device(7)),
    ] {
        bench.disk.status.set(status);
        let request = bench.request(Operation::Write, 0, 512);
        bench.submit(request);
        let request = bench.wait();
        assert_eq!(request.result, Err(error));
        assert_eq!(request.buffers.bytes(), 512, "its buffer is back");
        bench.disk.status.set(0);
        bench.works();
    }
    assert_eq!(bench.driver.trouble(), &Trouble::default());
}

#[test]
fn what_cannot_be_is_not_asked_for() {
    let mut bench = bench();
    let most = bench.driver.limits().transfer_bytes_max as u64;
    assert_eq!(most, 256 << 10);
    let end = BYTES as u64;
    for (operation, offset, length, error) in [
        (Operation::Read, 1, 512, BlockError::OutOfRange),
        (Operation::Read, 0, 511, BlockError::OutOfRange),
        (Operation::Write, end, 512, BlockError::OutOfRange),
        (
            Operation::Discard,
            u64::MAX - 511,
            512,
            BlockError::OutOfRange,
        ),
        (Operation::Read, 0, most + 512, BlockError::Unsupported),
        (Operation::Read, 0, 1024, BlockError::Unsupported),
    ] {
        let mut request = bench.request(operation, offset, 512);
        request.length = length;
        bench.submit(request);
        assert_eq!(
            bench.wait().result,
            Err(error),
            "{operation:?} {offset} {length}"
        );
    }
    let plain = DmaBuf::plain(Box::leak(Box::new([0; 512])));
    assert_eq!(plain.iova(), None);
    let mut request = Request::new(Buffers(vec![plain]));
    (request.operation, request.length) = (Operation::Read, 512);
    bench.submit(request);
    let request = bench.wait();
    assert_eq!(request.result, Err(BlockError::Unsupported));
    assert_eq!(request.buffers.bytes(), 512);
    assert!(bench.disk.commands.borrow().is_empty());
    let mut request = bench.request(Operation::Read, 0, 512);
    request.length = 0;
    bench.submit(request);
    assert_eq!(bench.wait().result, Ok(()));
}

#[test]
fn blocks_that_are_pages_are_gathered() {
    let started = started(|puppet| puppet.pages.borrow_mut()[2][130] = 12);
    let mut bench = started.unwrap();
    let limits = bench.driver.limits();
    assert_eq!((limits.block_size, limits.alignment), (4096, 4096));
    let buffer = |bench: &mut Bench, bytes| bench.arena.buf(bytes, 4096).unwrap();
    let parts = [4096, 8192, 4096].map(|bytes| buffer(&mut bench, bytes));
    let addresses = parts.each_ref().map(|part| part.iova().unwrap().raw());
    let mut request = Request::new(Buffers(Vec::from(parts)));
    (request.operation, request.length) = (Operation::Write, 12288);
    bench.submit(request);
    let words = bench.disk.puppet.fetch(1).unwrap().unwrap();
    let pieces = bench.disk.puppet.pieces(&words, 12288).unwrap();
    let [first, second, _] = addresses;
    let expected = [first, second, second + 4096].map(|at| (at, 4096));
    assert_eq!(pieces, expected, "the last part is not used");
}

#[test]
fn what_a_device_cannot_say_is_found_and_named() {
    type Say = fn(&Puppet, [u64; 8]);
    let lies: [(Say, Lie); 6] = [
        (
            |p, words| p.post(1, id(&words) ^ 1, 0).unwrap(),
            Lie::UnknownId(0x21),
        ),
        (
            |p, words| p.post(1, id(&words) + 32, 0).unwrap(),
            Lie::UnknownId(0x40),
        ),
        (
            |p, words| {
                p.post(1, id(&words), 0).unwrap();
                p.post(1, id(&words), 0).unwrap();
            },
            Lie::AnsweredTwice(0x20),
        ),
        (
            |p, words| p.post_as(1, 1, 0, id(&words), 0).unwrap(),
            Lie::OtherQueue(0),
        ),
        (
            |p, words| p.post_as(1, 0, 1, id(&words), 0).unwrap(),
            Lie::Head(0),
        ),
        (
            |p, words| p.post_as(1, 2, 1, id(&words), 0).unwrap(),
            Lie::Head(2),
        ),
    ];
    for (say, lie) in lies {
        let mut bench = bench();
        bench.disk.silent.set(true);
        // The first slot's second identifier would be that of another one's first.
        let words = bench.read(0);
        assert_eq!(id(&words), 0x20);
        say(&bench.disk.puppet, words);
        bench.driver.complete(&mut bench.done);
        assert_eq!(bench.driver.trouble().last, Some(Error::Lie(lie)));
        let request = bench.wait();
        assert!(matches!(request.result, Ok(()) | Err(BlockError::Reset)));
        assert_eq!(
            request.buffers.bytes(),
            512,
            "it has said that it has nothing"
        );
        bench.rise();
        bench.works();
        assert_eq!(bench.driver.trouble().resets, 1);
        assert_eq!(bench.disk.puppet.starts.get(), 2);
    }
}

#[test]
fn an_entry_that_is_left_out_is_found_when_nothing_comes() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    let (_, words) = (bench.read(0), bench.read(1));
    bench.disk.puppet.skip(1);
    bench.disk.puppet.post(1, id(&words), 0).unwrap();
    let began = bench.disk.puppet.now();
    for _ in 0..2 {
        assert_eq!(bench.wait().result, Err(BlockError::Reset));
    }
    assert_eq!(bench.driver.trouble().last, Some(Error::Lie(Lie::Phase)));
    let took = bench.disk.puppet.now() - began;
    assert!(took < COMMAND_NANOSECONDS + 2 * ABORT_NANOSECONDS, "{took}");
    bench.rise();
    bench.works();
}

#[test]
fn a_command_that_takes_too_long_is_aborted() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    let words = bench.read(9);
    while bench.driver.trouble().aborts == 0 {
        bench.driver.complete(&mut bench.done);
        assert!(bench.done.is_empty());
    }
    bench.driver.complete(&mut bench.done);
    let asked = bench.disk.puppet.asked.borrow().last().copied().unwrap();
    assert_eq!(
        (asked[0] as u8, asked[5]),
        (8, u64::from(id(&words)) << 16 | 1)
    );
    // It is over as the device says, and nothing is reset.
    bench.disk.puppet.post(1, id(&words), 7).unwrap();
    assert_eq!(bench.wait().result, Err(BlockError::Device(7)));
    bench.works();
    let trouble = Trouble {
        aborts: 1,
        resets: 0,
        last: None,
    };
    assert_eq!(bench.driver.trouble(), &trouble);
}

#[test]
fn a_device_that_stays_silent_is_reset_and_given_up_at_last() {
    let mut bench = bench();
    for round in 0..=RESETS_MAX {
        bench.disk.silent.set(true);
        bench.read(0);
        let began = bench.disk.puppet.now();
        let request = bench.wait();
        let took = bench.disk.puppet.now() - began;
        assert!(took < COMMAND_NANOSECONDS + 2 * ABORT_NANOSECONDS, "{took}");
        match round {
            RESETS_MAX => {
                assert_eq!(request.result, Err(BlockError::Gone));
                assert_eq!(request.buffers.bytes(), 0, "it may still write them");
            }
            _ => {
                assert_eq!(request.result, Err(BlockError::Reset));
                bench.rise();
            }
        }
    }
    assert_eq!(bench.driver.state, State::GivenUp);
    let request = bench.request(Operation::Read, 0, 512);
    bench.submit(request);
    let request = bench.wait();
    assert_eq!(request.result, Err(BlockError::Gone));
    assert_eq!(request.buffers.bytes(), 512);
    assert_eq!(bench.disk.puppet.fetch(1), Ok(None), "it is left alone");
}

#[test]
fn a_device_that_fails_or_is_gone_is_noticed() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    bench.read(0);
    bench.disk.puppet.set_status(1 << 1 | 1);
    bench.disk.puppet.sleep(1 << 30);
    assert_eq!(bench.wait().result, Err(BlockError::Reset));
    assert_eq!(bench.driver.trouble().last, Some(Error::Fatal));
    bench.rise();
    bench.works();
    // Unplugged, it cannot say that it has nothing.
    let before = leaked();
    bench.disk.silent.set(true);
    bench.read(0);
    bench.disk.puppet.is_stuck.set(true);
    bench.disk.puppet.all_ones();
    bench.disk.puppet.sleep(1 << 30);
    let request = bench.wait();
    assert_eq!(request.result, Err(BlockError::Gone));
    assert_eq!(request.buffers.bytes(), 0);
    assert!(leaked() > before);
    assert_eq!(bench.driver.trouble().last, Some(Error::Gone));
}

#[test]
fn one_that_is_gone_with_all_that_it_can_hold_refuses_what_comes() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    for block in 0..=DEPTH as u64 {
        let request = bench.request(Operation::Read, block * 512, 512);
        bench.todo.push_back(request);
    }
    bench.driver.submit(&mut bench.todo);
    assert_eq!(bench.todo.len(), 1);
    bench.disk.puppet.is_stuck.set(true);
    bench.disk.puppet.all_ones();
    bench.disk.puppet.sleep(1 << 30);
    for _ in 0..100 {
        bench.driver.submit(&mut bench.todo);
        bench.driver.complete(&mut bench.done);
        bench.disk.puppet.sleep(1 << 30);
    }
    assert_eq!(bench.done.len(), DEPTH + 1, "each comes back");
    let mut results = bench.done.iter().map(|request| request.result);
    assert!(results.all(|result| result == Err(BlockError::Gone)));
}

/// A disk of which a byte of what it says is another one behind a reset.
fn gets_nothing(page: usize, at: usize) {
    let mut bench = bench();
    bench.disk.silent.set(true);
    let words = bench.read(0);
    bench.disk.puppet.pages.borrow_mut()[page][at] = 7;
    bench.disk.puppet.post(1, !id(&words), 0).unwrap();
    assert_eq!(bench.wait().result, Err(BlockError::Reset));
    let commands = bench.disk.commands.borrow().len();
    bench.disk.silent.set(false);
    for operation in [Operation::Read, Operation::Write, Operation::Flush] {
        let request = bench.request(operation, 0, 512);
        bench.todo.push_back(request);
        let request = bench.wait();
        assert_eq!(request.result, Err(BlockError::Gone), "{page}, {at}");
    }
    assert_eq!(bench.disk.commands.borrow().len(), commands);
}

#[test]
fn a_disk_that_is_another_one_behind_a_reset_gets_nothing() {
    // Its size, its serial number, its model, its firmware, and the namespace's identifiers.
    for (page, at) in [
        (2, 0),
        (0, 4),
        (0, 23),
        (0, 24),
        (0, 71),
        (2, 104),
        (2, 127),
    ] {
        gets_nothing(page, at);
    }
}

#[test]
fn one_that_is_reset_behind_the_driver_is_noticed_and_its_next_flush_fails_once() {
    let mut bench = bench();
    for is_written in [true, false] {
        if is_written {
            let request = bench.request(Operation::Write, 0, 512);
            bench.submit(request);
            assert_eq!(bench.wait().result, Ok(()));
        }
        bench.disk.puppet.reset_behind();
        bench.disk.puppet.sleep(1 << 30);
        bench.driver.complete(&mut bench.done);
        assert_eq!(bench.driver.trouble().last, Some(Error::Stopped));
        bench.rise();
        let results = [(); 2].map(|()| {
            let request = bench.request(Operation::Flush, 0, 0);
            bench.submit(request);
            bench.wait().result
        });
        let first = if is_written {
            Err(BlockError::Reset)
        } else {
            Ok(())
        };
        assert_eq!(results, [first, Ok(())]);
    }
    // Enabled again by something else, it has not what the driver gave it.
    bench.disk.puppet.reset_behind();
    bench.disk.puppet.set(registers::CC, registers::CC_ENABLE);
    bench.disk.puppet.serve();
    bench.disk.puppet.sleep(1 << 30);
    let resets = bench.driver.trouble().resets;
    bench.driver.complete(&mut bench.done);
    assert_eq!(bench.driver.trouble().resets, resets + 1);
    bench.rise();
    bench.works();
}

#[test]
fn a_flush_may_take_longer_than_a_transfer() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    let request = bench.request(Operation::Flush, 0, 0);
    bench.submit(request);
    bench.driver.complete(&mut bench.done);
    bench.disk.puppet.sleep(LONG_NANOSECONDS - (1 << 30));
    bench.driver.complete(&mut bench.done);
    bench.disk.silent.set(false);
    assert_eq!(bench.wait().result, Ok(()));
    assert_eq!(
        (bench.driver.trouble().aborts, bench.driver.trouble().resets),
        (0, 0)
    );
}

#[test]
fn one_that_hangs_at_each_flush_is_given_up() {
    let mut bench = bench();
    bench.disk.silent.set(true);
    let results = [(); RESETS_MAX as usize + 1].map(|()| {
        let request = bench.request(Operation::Flush, 0, 0);
        bench.submit(request);
        bench.driver.complete(&mut bench.done);
        bench.disk.puppet.sleep(LONG_NANOSECONDS);
        bench.driver.complete(&mut bench.done);
        bench.disk.puppet.sleep(ABORT_NANOSECONDS);
        let result = bench.wait().result;
        bench.rise();
        result
    });
    assert!(results.iter().all(Result::is_err));
    assert_eq!(bench.driver.state, State::GivenUp);
}

#[test]
fn what_it_says_of_itself_is_what_its_limits_are() {
    let bench = started(|puppet| {
        let mut pages = puppet.pages.borrow_mut();
        pages[0][77] = 2;
        pages[0][520] = 0;
        pages[0][525] = 0;
        pages[2][99] = 1;
    });
    let mut bench = bench.unwrap();
    let expected = Limits {
        block_size: 512,
        transfer_bytes_max: 16 << 10,
        buffers_max: 1,
        alignment: 4,
        range_bytes_max: 32 << 20,
        read_only: true,
        durability: Durability::Written,
        discard: false,
        write_zeroes: false,
    };
    assert_eq!(bench.driver.limits(), expected);
    let request = bench.request(Operation::Write, 0, 512);
    bench.submit(request);
    assert_eq!(bench.wait().result, Err(BlockError::ReadOnly));
}

#[test]
fn a_device_that_the_driver_cannot_use_says_why() {
    let says = |change: fn(&Puppet)| started(change).err().expect("an error");
    let lacks = |change| match says(change) {
        Error::Lacks(what) => what,
        other => panic!("{other}"),
    };
    assert_eq!(
        lacks(|p| p.set_capabilities(CAPABILITIES - 1000)),
        "queues that are too short"
    );
    assert!(lacks(|p| p.set_capabilities(CAPABILITIES & !(1 << 37))).contains("command set"));
    assert!(lacks(|p| p.set_capabilities(CAPABILITIES | 1 << 48)).contains("pages"));
    assert!(lacks(|p| p.pages.borrow_mut()[2][128] = 8).contains("metadata"));
    assert!(lacks(|p| p.pages.borrow_mut()[2][130] = 10).contains("blocks of neither"));
    let wanted = 0x1000 + 4 * (4 << 15);
    let bar = says(|p| p.set_capabilities(CAPABILITIES | 15 << 32));
    assert_eq!(
        bar,
        Error::Bar {
            wanted,
            found: 0x2000
        }
    );
    assert_eq!(says(Puppet::all_ones), Error::Gone);
    assert_eq!(
        says(|p| p.is_stuck.set(true)),
        Error::Timeout("CSTS.RDY, it is ready")
    );
    assert_eq!(
        says(|p| p.is_silent.set(true)),
        Error::Timeout("Identify Controller")
    );
    assert_eq!(
        says(|p| p.pages.borrow_mut()[1][0] = 0),
        Error::Namespace(None)
    );
    assert!(matches!(
        says(|p| p.pages.borrow_mut()[0][512] = 0),
        Error::Config(_)
    ));
    assert!(matches!(
        says(|p| p.pages.borrow_mut()[2][26] = 1),
        Error::Config(_)
    ));
    assert!(matches!(
        says(|p| p.pages.borrow_mut()[2][7] = 0xff),
        Error::Config(_)
    ));
    let refused = says(|p| p.refuses.set(Some((1, 0x102))));
    let status = Status(0x102);
    let command = "a submission queue";
    assert_eq!(refused, Error::Refused { command, status });
}

#[test]
fn a_namespace_can_be_named() {
    for (wanted, found) in [(None, Ok(3)), (Some(3), Ok(3)), (Some(2), Err(()))] {
        let (puppet, bar, mut arena) = Puppet::new(ARENA_BYTES, BLOCKS);
        puppet.pages.borrow_mut()[1][0] = 3;
        let driver = Driver::new(bar, &mut arena, wanted, puppet.clock(TICK));
        let asked = puppet.asked.borrow();
        assert_eq!(asked[1][0] >> 32, u64::from(wanted.unwrap_or(1) - 1));
        match found {
            Ok(number) => assert_eq!(driver.unwrap().namespace(), number),
            Err(()) => assert_eq!(driver.err(), Some(Error::Namespace(wanted))),
        }
    }
}

#[test]
fn the_memory_that_it_takes_is_what_it_says() {
    let (puppet, bar, mut arena) = Puppet::new(DMA_BYTES, BLOCKS);
    let driver = Driver::new(bar, &mut arena, None, puppet.clock(TICK)).unwrap();
    assert_eq!(arena.left(), 0);
    drop(driver);
    assert_eq!(puppet.get(registers::CC) >> 14 & 3, 1, "a normal shutdown");
}
