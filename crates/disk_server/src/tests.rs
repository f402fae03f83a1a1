//! Conversations over a stream in memory, with a disk in memory.

use crate::disk::{BUFFER_BYTES, BUFFERS, Disk};
use crate::export::Export;
use crate::server::converse;
use crate::wire::{
    ANSWER_MAGIC, CHUNK_MAGIC, OPTION_MAGIC, PAYLOAD_MAX, REQUEST_MAGIC, SIMPLE_MAGIC, answer,
    chunk, command, command_flag, error, flag, option,
};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use core::time::Duration;
use device::block::{Durability, Immediate, MemoryDisk};
use hw::DmaBuf;
use net::socket::{Error, Stream};
use net::task::{Clock, Executor};
use net::tcp::queues::Payload;
use ports::Instant;

const BYTES: usize = 4 << 20;

/// What a client has sent, and what it has got.
#[derive(Clone, Default)]
struct Wire {
    sent: Rc<RefCell<Vec<u8>>>,
    read: Rc<Cell<usize>>,
    got: Rc<RefCell<Vec<u8>>>,
    /// How many bytes the client takes, if not all.
    takes: Rc<Cell<Option<usize>>>,
    /// Whether the client may send more.
    is_open: Rc<Cell<bool>>,
}

impl Stream for Wire {
    async fn read(&mut self, place: &mut [u8]) -> Result<usize, Error> {
        let is_all_read = self.sent.borrow().len() == self.read.get();
        if is_all_read && self.is_open.get() {
            return core::future::pending().await;
        }
        let sent = self.sent.borrow();
        let rest = &sent[self.read.get()..];
        let count = rest.len().min(place.len());
        place[..count].copy_from_slice(&rest[..count]);
        self.read.set(self.read.get() + count);
        Ok(count)
    }

    async fn take(&mut self) -> Result<Option<Payload>, Error> {
        unreachable!("nobody takes")
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let after = self.got.borrow().len() + bytes.len();
        if self.takes.get().is_some_and(|takes| after > takes) {
            core::future::pending::<()>().await;
        }
        self.got.borrow_mut().extend_from_slice(bytes);
        Ok(())
    }

    fn shutdown(&mut self) {}

    async fn acknowledged(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn abort(self) {}

    fn set_no_delay(&mut self, _: bool) {}

    fn set_keep_alive(&mut self, _: Option<Duration>) {}

    fn split(self) -> (Self, Self) {
        (self.clone(), self)
    }

    fn peer(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    fn local(&self) -> SocketAddr {
        ([127, 0, 0, 1], 2).into()
    }
}

/// A disk in memory, served.
struct World {
    ram: MemoryDisk,
    disk: Disk,
}

impl World {
    fn new() -> Self {
        let ram = MemoryDisk::new(BYTES);
        ram.content_mut().bytes = (0..BYTES).map(|at| (at / 512 + at) as u8).collect();
        Self::of(ram)
    }

    fn of(ram: MemoryDisk) -> Self {
        let buffer = || DmaBuf::plain(vec![0; BUFFER_BYTES].leak());
        let buffers = (0..BUFFERS).map(|_| buffer()).collect();
        let disk = Disk::new(Box::new(Immediate::new(ram.clone())), vec![buffers]);
        Self { ram, disk }
    }

    fn export(&self) -> Export {
        Export {
            name: "disk".into(),
            capacity: self.disk.capacity(),
            limits: self.disk.limits(),
        }
    }

    /// Has a client send this, and then no more; what it gets. The place at the disk is free then.
    fn talk(&self, sent: &[u8]) -> Vec<u8> {
        let wire = Wire::default();
        wire.sent.borrow_mut().extend_from_slice(sent);
        assert!(self.run(&wire, Duration::ZERO), "it ends");
        assert!(self.disk.seat().is_some(), "its place is free");
        wire.got.take()
    }

    /// Whether a conversation ends, with its clock going on by so much.
    fn run(&self, wire: &Wire, passes: Duration) -> bool {
        let (mut executor, clock) = (Executor::new(), Clock::default());
        let (export, disk) = (self.export(), self.disk.clone());
        let (stream, its) = (wire.clone(), clock.clone());
        let has_ended = Rc::new(Cell::new(false));
        let ends = has_ended.clone();
        executor.spawner().spawn(async move {
            let seat = disk.seat().expect("a place");
            let _ = converse(stream, &export, &seat, &its).await;
            ends.set(true);
        });
        clock.set(Instant(0));
        for turn in 0..10_000u64 {
            while executor.run(64) {}
            let any = self.disk.turn();
            if !any && turn > 100 {
                clock.set(Instant(0) + passes);
                while executor.run(64) {}
                break;
            }
        }
        has_ended.get()
    }
}

/// A client that knows all flags, and chooses the disk.
fn hello(structured: bool) -> Vec<u8> {
    let mut sent = 3u32.to_be_bytes().to_vec();
    if structured {
        sent.extend(option_with(option::STRUCTURED_REPLY, &[]));
    }
    sent.extend(option_with(option::GO, &[0; 6]));
    sent
}

/// Bytes of the answers to that, the greeting included.
fn hello_bytes(structured: bool) -> usize {
    let answer = 20;
    18 + answer * usize::from(structured) + (answer + 12) + (answer + 14) + answer
}

fn option_with(option: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

fn number<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    take(bytes, N).try_into().unwrap()
}

/// The next simple reply: cookie and error.
fn simple(bytes: &mut &[u8]) -> (u64, u32) {
    assert_eq!(u32::from_be_bytes(number(bytes)), SIMPLE_MAGIC);
    let error = u32::from_be_bytes(number(bytes));
    (u64::from_be_bytes(number(bytes)), error)
}

/// What a client gets for its requests, without what came before.
fn replies(world: &World, structured: bool, requests: &[Vec<u8>]) -> Vec<u8> {
    let sent = [hello(structured), requests.concat()].concat();
    let got = world.talk(&sent);
    got[hello_bytes(structured)..].to_vec()
}

#[test]
fn a_client_learns_of_the_disk_and_reads_it() {
    let world = World::new();
    for length in [512, 4096, BUFFER_BYTES, 3 * BUFFER_BYTES + 512, BYTES] {
        let offset = (BYTES - length) as u64;
        let read = request(0, command::READ, 7, offset, length as u32);
        let got = replies(&world, false, &[read]);
        let mut rest = &got[..];
        assert_eq!(simple(&mut rest), (7, 0));
        assert_eq!(rest, &world.ram.content().bytes[offset as usize..]);
    }
    let most = world.ram.content().transfers.iter().map(|one| one.1).max();
    assert_eq!(most, Some(BUFFER_BYTES));
}

#[test]
fn structured_replies_carry_the_same_bytes_in_parts() {
    let world = World::new();
    let length = 5 * BUFFER_BYTES / 2;
    let read = request(0, command::READ, 9, 512, length as u32);
    let got = replies(&world, true, &[read, request(0, command::FLUSH, 1, 0, 0)]);
    let (mut rest, mut bytes, mut is_done) = (&got[..], vec![0; length], false);
    let mut flushed = false;
    while !rest.is_empty() {
        if rest.starts_with(&SIMPLE_MAGIC.to_be_bytes()) {
            assert_eq!(simple(&mut rest), (1, 0));
            flushed = true;
            continue;
        }
        assert_eq!(u32::from_be_bytes(number(&mut rest)), CHUNK_MAGIC);
        assert!(!is_done, "nothing comes behind the last part");
        is_done = u16::from_be_bytes(number(&mut rest)) == chunk::DONE;
        assert_eq!(u16::from_be_bytes(number(&mut rest)), chunk::OFFSET_DATA);
        assert_eq!(u64::from_be_bytes(number(&mut rest)), 9);
        let part = u32::from_be_bytes(number(&mut rest)) as usize - 8;
        let at = u64::from_be_bytes(number(&mut rest)) as usize - 512;
        bytes[at..at + part].copy_from_slice(take(&mut rest, part));
    }
    assert!(is_done && flushed);
    assert_eq!(bytes, world.ram.content().bytes[512..512 + length]);
}

#[test]
fn what_is_written_is_there_and_flushed_where_that_is_asked_for() {
    let world = World::new();
    let data: Vec<u8> = (0..3 * BUFFER_BYTES).map(|at| (at * 7) as u8).collect();
    let write = |flags, cookie, offset| {
        let mut bytes = request(flags, command::WRITE, cookie, offset, data.len() as u32);
        bytes.extend(&data);
        bytes
    };
    let zeroes = |flags, offset| request(flags, command::WRITE_ZEROES, 3, offset, 200 << 10);
    let got = replies(
        &world,
        false,
        &[
            write(0, 1, 0),
            write(command_flag::FUA, 2, 1 << 20),
            zeroes(0, 2 << 20),
            zeroes(command_flag::NO_HOLE, 3 << 20),
            request(0, command::TRIM, 4, 512, 512),
            request(0, command::READ, 5, 0, 0),
            request(0, command::DISCONNECT, 6, 0, 0),
        ],
    );
    let (mut rest, mut cookies) = (&got[..], Vec::new());
    while !rest.is_empty() {
        let (cookie, error) = simple(&mut rest);
        assert_eq!(error, 0, "{cookie}");
        cookies.push(cookie);
    }
    cookies.sort_unstable();
    assert_eq!(cookies, [1, 2, 3, 3, 4, 5]);
    let content = world.ram.content();
    assert_eq!(content.bytes[1024..data.len()], data[1024..]);
    assert_eq!(content.bytes[512..1024], [0; 512]);
    assert_eq!(content.bytes[1 << 20..][..data.len()], data);
    for start in [2 << 20, 3 << 20] {
        assert!(
            content.bytes[start..start + (200 << 10)]
                .iter()
                .all(|byte| *byte == 0)
        );
    }
    assert_eq!(
        (content.flushes, &content.discards[..]),
        (1, &[(512, 512)][..])
    );
    let zeroes_moved = content.transfers.iter().filter(|(at, _)| *at >= 3 << 20);
    assert_eq!(zeroes_moved.count(), 4, "no holes were wanted");
}

#[test]
fn what_cannot_be_done_is_said_and_ends_nothing() {
    let world = World::new();
    let end = BYTES as u64;
    let mut beyond = request(0, command::WRITE, 2, end - 512, 1024);
    beyond.extend([1; 1024]);
    let requests = [
        (request(0, command::READ, 1, end, 512), error::INVALID),
        (beyond, error::NO_SPACE),
        (request(0, command::READ, 3, 1, 512), error::INVALID),
        (
            request(0, command::READ, 4, 0, PAYLOAD_MAX + 1),
            error::OVERFLOW,
        ),
        (request(0, 5, 5, 0, 512), error::INVALID),
        (request(0, 999, 6, 0, 0), error::INVALID),
        (request(1 << 15, command::READ, 7, 0, 512), error::INVALID),
        (
            request(0, command::TRIM, 8, u64::MAX - 511, 512),
            error::NO_SPACE,
        ),
        (request(0, command::FLUSH, 9, 1, 0), error::INVALID),
        (
            request(0, command::WRITE_ZEROES, 10, 0, 100),
            error::INVALID,
        ),
        (request(0, command::READ, 11, 0, 512), 0),
    ];
    let sent: Vec<_> = requests.iter().map(|(bytes, _)| bytes.clone()).collect();
    let got = replies(&world, false, &sent);
    let mut rest = &got[..];
    let mut errors: Vec<_> = (0..requests.len())
        .map(|_| {
            let (cookie, error) = simple(&mut rest);
            if cookie == 11 {
                take(&mut rest, 512);
            }
            (cookie, error)
        })
        .collect();
    errors.sort_unstable();
    let expected: Vec<_> = (1..)
        .zip(requests.iter().map(|(_, error)| *error))
        .collect();
    assert_eq!(errors, expected);
    assert!(rest.is_empty());
}

#[test]
fn a_bad_sector_is_an_error_and_no_more() {
    let world = World::new();
    let (bad, part) = (5 * BUFFER_BYTES as u64, BUFFER_BYTES as u32);
    world.ram.content_mut().bad = Some(bad);
    let read = |cookie, offset, length| request(0, command::READ, cookie, offset, length);
    let got = replies(&world, false, &[read(1, bad, 512), read(2, 0, 512)]);
    let mut rest = &got[..];
    assert_eq!(simple(&mut rest), (1, error::IO));
    assert_eq!(simple(&mut rest), (2, 0));
    assert_eq!(rest.len(), 512);
    // In the first of several parts there is still time to say so; in a later one there is not,
    // and the connection ends.
    let got = replies(&world, false, &[read(1, bad, 3 * part), read(2, 0, 512)]);
    let mut rest = &got[..];
    assert_eq!(simple(&mut rest), (1, error::IO));
    assert_eq!(simple(&mut rest), (2, 0));
    let got = replies(&world, false, &[read(1, bad - u64::from(part), 2 * part)]);
    assert_eq!(got.len(), 16 + BUFFER_BYTES);
    // A structured reply says it where it is.
    let got = replies(&world, true, &[read(1, bad - u64::from(part), 3 * part)]);
    let last = &got[got.len() - 26..];
    assert_eq!(last[..4], CHUNK_MAGIC.to_be_bytes());
    assert_eq!(last[4..6], chunk::DONE.to_be_bytes());
    assert_eq!(last[6..8], chunk::ERROR.to_be_bytes());
    assert_eq!(last[20..24], error::IO.to_be_bytes());
    assert_eq!(got.len(), 2 * (28 + BUFFER_BYTES) + 26);
}

#[test]
fn a_disk_says_what_it_can_and_refuses_the_rest() {
    let flags = |change: fn(&mut device::block::Limits)| {
        let ram = MemoryDisk::new(BYTES);
        change(&mut ram.content_mut().limits);
        let world = World::of(ram);
        let got = world.talk(&hello(false));
        let at = 18 + 20 + 10;
        (u16::from_be_bytes([got[at], got[at + 1]]), world)
    };
    let (all, _) = flags(|_| {});
    let expected = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_TRIM;
    let expected = expected | flag::SEND_WRITE_ZEROES | flag::CAN_MULTI_CONN;
    assert_eq!(all, expected);
    let (read_only, world) = flags(|limits| limits.read_only = true);
    assert_ne!(read_only & flag::READ_ONLY, 0);
    assert_eq!(read_only & (flag::SEND_TRIM | flag::SEND_WRITE_ZEROES), 0);
    let mut write = request(0, command::WRITE, 1, 0, 512);
    write.extend([1; 512]);
    let got = replies(&world, false, &[write]);
    assert_eq!(simple(&mut &got[..]), (1, error::PERMISSION));
    let (unknown, world) = flags(|limits| limits.durability = Durability::Unknown);
    assert_eq!(unknown & (flag::SEND_FLUSH | flag::SEND_FUA), 0);
    let got = replies(&world, false, &[request(0, command::FLUSH, 1, 0, 0)]);
    assert_eq!(simple(&mut &got[..]), (1, error::NOT_SUPPORTED));
    // Where each write is durable, a flush has nothing to do.
    let (_, world) = flags(|limits| limits.durability = Durability::Written);
    let got = replies(&world, false, &[request(0, command::FLUSH, 1, 0, 0)]);
    assert_eq!(simple(&mut &got[..]), (1, 0));
    assert_eq!(world.ram.content().flushes, 0);
}

#[test]
fn options_are_answered_and_bounded() {
    let world = World::new();
    let kinds = |options: &[Vec<u8>]| {
        let got = world.talk(&[3u32.to_be_bytes().to_vec(), options.concat()].concat());
        let (mut rest, mut kinds) = (&got[18..], Vec::new());
        while !rest.is_empty() {
            assert_eq!(u64::from_be_bytes(number(&mut rest)), ANSWER_MAGIC);
            let _option: [u8; 4] = number(&mut rest);
            kinds.push(u32::from_be_bytes(number(&mut rest)));
            let length = u32::from_be_bytes(number(&mut rest));
            take(&mut rest, length as usize);
        }
        kinds
    };
    let named = |name: &[u8]| {
        let length = name.len() as u32;
        [&length.to_be_bytes(), name, &[0, 0]].concat()
    };
    assert_eq!(
        kinds(&[
            option_with(option::LIST, &[]),
            option_with(option::LIST, &[1]),
            option_with(5, &[]),
            option_with(0xffff_ffff, &[7; 100]),
            option_with(option::INFO, &named(b"disk")),
            option_with(option::INFO, &named(b"disc")),
            option_with(option::INFO, &[0, 0, 0, 9, 1]),
            option_with(option::GO, &[0xff; 64]),
            option_with(option::LIST, &[0; 9000]),
            option_with(option::ABORT, &[]),
            option_with(option::LIST, &[]),
        ]),
        [
            answer::SERVER,
            answer::ACK,
            answer::INVALID,
            answer::UNSUPPORTED,
            answer::UNSUPPORTED,
            answer::INFO,
            answer::INFO,
            answer::ACK,
            answer::UNKNOWN,
            answer::INVALID,
            answer::INVALID,
            answer::TOO_BIG,
            answer::ACK,
        ]
    );
    let flood = vec![option_with(5, &[]); 1000];
    assert_eq!(kinds(&flood).len(), crate::negotiation::OPTIONS_MAX);
    // A length that nobody waits for, and what is no option.
    assert!(kinds(&[OPTION_MAGIC.to_be_bytes().to_vec(), vec![0xff; 8]]).is_empty());
    assert!(kinds(&[vec![0; 16]]).is_empty());
    // Flags that mean nothing.
    assert_eq!(world.talk(&0u32.to_be_bytes()).len(), 18);
    assert_eq!(world.talk(&7u32.to_be_bytes()).len(), 18);
}

#[test]
fn the_old_way_to_choose_a_disk_works_with_and_without_zeroes() {
    let world = World::new();
    let choose = option_with(option::EXPORT_NAME, b"disk");
    for (flags, bytes) in [(1u32, 18 + 10 + 124), (3, 18 + 10)] {
        let sent = [flags.to_be_bytes().to_vec(), choose.clone()].concat();
        assert_eq!(world.talk(&sent).len(), bytes);
    }
    let other = option_with(option::EXPORT_NAME, b"disc");
    let got = world.talk(&[3u32.to_be_bytes().to_vec(), other].concat());
    assert_eq!(got.len(), 18);
}

#[test]
fn a_client_that_is_silent_or_takes_nothing_ends() {
    let world = World::new();
    let silent = Wire::default();
    silent.is_open.set(true);
    assert!(!world.run(&silent, Duration::from_secs(9)));
    let silent = Wire::default();
    silent.is_open.set(true);
    assert!(world.run(&silent, Duration::from_secs(11)));
    // More than it could have under way; all of its buffers hold what it does not take.
    let stuck = |passes| {
        let stuck = Wire::default();
        let reads = vec![request(0, command::READ, 1, 0, 65536); 1000].concat();
        *stuck.sent.borrow_mut() = [hello(false), reads].concat();
        stuck.is_open.set(true);
        stuck.takes.set(Some(1000));
        (world.run(&stuck, passes), stuck.read.get())
    };
    let (has_ended, read) = stuck(Duration::from_secs(59));
    assert!(!has_ended);
    assert!(read < 100 * 28, "so much was taken in: {read}");
    let (has_ended, _) = stuck(Duration::from_secs(61));
    assert!(has_ended);
    assert!(world.disk.seat().is_some(), "its place is free again");
}

#[test]
fn a_client_that_goes_in_the_middle_ends_at_once() {
    let world = World::new();
    let write = |offset| request(0, command::WRITE, 1, offset, 3 * BUFFER_BYTES as u32);
    for (offset, sent) in [
        (0, 0),
        (0, 1),
        (0, 2 * BUFFER_BYTES),
        (1, BUFFER_BYTES),
        (BYTES as u64, 5),
    ] {
        let got = replies(&world, false, &[write(offset), vec![7; sent]]);
        assert!(got.is_empty(), "{offset} {sent}");
    }
}
