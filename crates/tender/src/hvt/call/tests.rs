use super::*;
use proptest::prelude::*;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags};
use rustix::fs::MemfdFlags;
use rustix::time::{TimerfdClockId, TimerfdFlags};
use std::os::unix::net::UnixDatagram;

const NET: usize = 1;
const DISK: usize = 2;
const CAPACITY: u64 = 4096;
const MEMORY: usize = 64 << 10;

/// Calls on a network, whose other end is returned, and a disk of [`CAPACITY`] bytes.
fn calls() -> (Calls, UnixDatagram) {
    let (ours, other) = UnixDatagram::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let disk = rustix::fs::memfd_create("disk", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&disk, CAPACITY).unwrap();
    let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK);
    let timer = timer.unwrap();
    epoll::add(
        &epoll,
        &timer,
        EventData::new_u64(EPOLL_TIMER),
        EventFlags::IN,
    )
    .unwrap();
    epoll::add(
        &epoll,
        &ours,
        EventData::new_u64(NET as u64),
        EventFlags::IN,
    )
    .unwrap();
    let device = |index, device, fd| Attached {
        index,
        device,
        fd,
        flags: 0,
    };
    let net = Device::Net {
        mac: [2; 6],
        mtu: 1500,
    };
    let block = Device::Block {
        capacity: CAPACITY,
        block_size: 512,
    };
    let devices = vec![device(NET, net, ours.into()), device(DISK, block, disk)];
    let calls = Calls {
        queues: vec![],
        sockets: Vec::new(),
        devices,
        epoll,
        timer,
    };
    (calls, other)
}

const ARGUMENT: u32 = 0x1000;
const DATA: u64 = 0x2000;

/// Makes one call with `argument` and returns what became of it.
fn call<T>(calls: &Calls, memory: &GuestMemory, number: u16, argument: T) -> Result<T, Cause>
where
    T: FromBytes + IntoBytes + Immutable + KnownLayout,
{
    put(memory, ARGUMENT.into(), argument.as_bytes());
    calls.handle(memory, CALL_PORT + number, ARGUMENT)?;
    let bytes = get(memory, ARGUMENT.into(), size_of::<T>());
    Ok(T::read_from_bytes(&bytes).unwrap())
}

fn memory() -> GuestMemory {
    GuestMemory::anonymous(MEMORY).unwrap()
}

fn put(memory: &GuestMemory, address: u64, bytes: &[u8]) {
    memory.copy_in(Gpa::new(address), bytes).unwrap();
}

fn get(memory: &GuestMemory, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory.copy_out(Gpa::new(address), &mut bytes).unwrap();
    bytes
}

#[test]
fn frames_go_both_ways() {
    let (calls, other) = calls();
    let memory = memory();
    put(&memory, DATA, b"out");
    let net = hvt::Net {
        handle: NET as u64,
        data: DATA,
        len: 3,
        ..hvt::Net::default()
    };
    assert_eq!(
        call(&calls, &memory, call::NET_WRITE, net).unwrap().ret,
        result::OK
    );
    let mut frame = [0; 10];
    assert_eq!(other.recv(&mut frame).unwrap(), 3);
    assert_eq!(&frame[..3], b"out");

    let room = hvt::Net { len: 100, ..net };
    let empty = call(&calls, &memory, call::NET_READ, room).unwrap();
    assert_eq!(empty.ret, result::AGAIN);
    other.send(b"back").unwrap();
    let poll = call(&calls, &memory, call::POLL, hvt::Poll::default()).unwrap();
    assert_eq!((poll.ready, poll.ret), (1 << NET, 1));
    let read = call(&calls, &memory, call::NET_READ, room).unwrap();
    assert_eq!((read.ret, read.len), (result::OK, 4));
    assert_eq!(get(&memory, DATA, 4), b"back");
}

#[test]
fn a_disk_is_read_and_written_within_its_bounds() {
    let (calls, _other) = calls();
    let memory = memory();
    put(&memory, DATA, &[7; 512]);
    let block = hvt::Block {
        handle: DISK as u64,
        offset: CAPACITY - 512,
        data: DATA,
        len: 512,
        ..hvt::Block::default()
    };
    assert_eq!(
        call(&calls, &memory, call::BLOCK_WRITE, block).unwrap().ret,
        result::OK
    );
    let back = hvt::Block {
        data: 2 * DATA,
        ..block
    };
    assert_eq!(
        call(&calls, &memory, call::BLOCK_READ, back).unwrap().ret,
        result::OK
    );
    assert_eq!(get(&memory, 2 * DATA, 1), [7]);
    for (offset, len) in [
        (CAPACITY, 512),
        (CAPACITY - 1, 2),
        (u64::MAX, 512),
        (512, u64::MAX),
    ] {
        let outside = hvt::Block {
            offset,
            len,
            ..block
        };
        let answer = call(&calls, &memory, call::BLOCK_WRITE, outside).unwrap();
        assert_eq!(answer.ret, result::INVALID, "{offset} {len}");
    }
}

#[test]
fn a_disk_is_flushed_and_discarded_where_its_image_knows_of_it() {
    let (mut calls, _other) = calls();
    let memory = memory();
    let disk = calls
        .devices
        .iter()
        .position(|one| one.index == DISK)
        .unwrap();
    rustix::io::pwrite(&calls.devices[disk].fd, &[7; CAPACITY as usize], 0).unwrap();
    let block = |handle: usize, offset, len| hvt::Block {
        handle: handle as u64,
        offset,
        len,
        ..hvt::Block::default()
    };
    let ask =
        |calls: &Calls, number, block: hvt::Block| call(calls, &memory, number, block).unwrap().ret;
    let first = block(DISK, 0, 512);
    for number in [call::BLOCK_FLUSH, call::BLOCK_DISCARD] {
        assert_eq!(
            ask(&calls, number, first),
            result::INVALID,
            "one of Solo5's"
        );
    }
    calls.devices[disk].flags = device_flag::DISK;
    assert_eq!(ask(&calls, call::BLOCK_FLUSH, first), result::OK);
    assert_eq!(ask(&calls, call::BLOCK_DISCARD, first), result::OK);
    for (handle, offset, len) in [
        (DISK, CAPACITY, 512),
        (DISK, CAPACITY - 1, 2),
        (DISK, 0, u64::MAX),
        (NET, 0, 512),
        (usize::MAX, 0, 512),
    ] {
        let outside = block(handle, offset, len);
        assert_eq!(ask(&calls, call::BLOCK_DISCARD, outside), result::INVALID);
    }
    calls.devices[disk].flags |= device_flag::READ_ONLY;
    let last = block(DISK, CAPACITY - 512, 512);
    assert_eq!(ask(&calls, call::BLOCK_DISCARD, last), result::INVALID);
    assert_eq!(ask(&calls, call::BLOCK_WRITE, last), result::INVALID);
    let mut bytes = [0; CAPACITY as usize];
    rustix::io::pread(&calls.devices[disk].fd, &mut bytes, 0).unwrap();
    assert_eq!(
        (&bytes[..512], &bytes[512..]),
        (&[0; 512][..], &[7; 3584][..])
    );
}

#[test]
fn a_handle_is_of_the_right_kind_or_none() {
    let (calls, _other) = calls();
    let memory = memory();
    for handle in [0, DISK as u64, 3, u64::MAX] {
        let net = hvt::Net {
            handle,
            data: DATA,
            len: 1,
            ..hvt::Net::default()
        };
        let answer = call(&calls, &memory, call::NET_WRITE, net).unwrap();
        assert_eq!(answer.ret, result::INVALID, "{handle}");
    }
    let block = hvt::Block {
        handle: NET as u64,
        len: 512,
        ..hvt::Block::default()
    };
    let answer = call(&calls, &memory, call::BLOCK_READ, block).unwrap();
    assert_eq!(answer.ret, result::INVALID);
}

#[test]
fn what_lies_outside_of_guest_memory_ends_the_guest() {
    let (calls, _other) = calls();
    let memory = memory();
    for (data, len) in [(MEMORY as u64, 1), (DATA, MEMORY as u64), (u64::MAX, 2)] {
        let puts = hvt::Puts { data, len };
        let violation = call(&calls, &memory, call::PUTS, puts).unwrap_err();
        assert_eq!(
            violation,
            Violation::Pointer(call::PUTS, Gpa::new(data), len).into()
        );
    }
    for number in 1..=call::HALT {
        let outside = calls.handle(&memory, CALL_PORT + number, !7);
        assert!(
            matches!(outside, Err(Cause::Violation(Violation::Pointer(..)))),
            "{number}"
        );
        let odd = calls.handle(&memory, CALL_PORT + number, 4);
        assert_eq!(odd, Err(Violation::Unaligned(number, Gpa::new(4)).into()));
    }
}

#[test]
fn a_port_that_is_no_call_ends_the_guest() {
    let (calls, _other) = calls();
    for port in [
        0,
        CALL_PORT - 1,
        CALL_PORT,
        CALL_PORT + call::HALT + 1,
        0x600,
        u16::MAX,
    ] {
        let outcome = calls.handle(&memory(), port, ARGUMENT);
        assert_eq!(outcome, Err(Violation::Port(port).into()));
    }
}

#[test]
fn a_guest_ends_with_its_status_and_its_trap() {
    let (calls, _other) = calls();
    let memory = memory();
    let halt = |memory: &GuestMemory, cookie| {
        let argument = hvt::Halt {
            cookie,
            status: 7,
            padding: 0,
        };
        put(memory, ARGUMENT.into(), argument.as_bytes());
        calls.handle(memory, CALL_PORT + call::HALT, ARGUMENT)
    };
    assert_eq!(halt(&memory, 0), Ok(Outcome::Halt(7, None)));
    assert_eq!(
        halt(&memory, DATA),
        Ok(Outcome::Halt(7, None)),
        "an opaque cookie"
    );
    let trap = Trap {
        magic: TRAP_MAGIC,
        vector: 14,
        ..Trap::default()
    };
    put(&memory, DATA, trap.as_bytes());
    assert_eq!(halt(&memory, DATA), Ok(Outcome::Halt(7, Some(trap))));
    let end = MEMORY as u64 - COOKIE_BYTES + 1;
    assert!(matches!(
        halt(&memory, end),
        Err(Cause::Violation(Violation::Pointer(..)))
    ));
}

proptest! {
    #[test]
    fn no_argument_makes_a_call_panic(
        number in 0u16..10,
        address in prop_oneof![any::<u32>(), 0..MEMORY as u32],
        words in prop::collection::vec(
            prop_oneof![any::<u64>(), 0..MEMORY as u64, 0u64..4],
            5,
        ),
    ) {
        // A wait would last as long as the guest says, and what it prints is of no interest here.
        prop_assume!(number != call::POLL && number != call::PUTS);
        let (calls, _other) = calls();
        let memory = memory();
        let argument = words.as_bytes();
        let place = (address as usize).min(MEMORY - argument.len());
        put(&memory, place as u64, argument);
        let _ = calls.handle(&memory, CALL_PORT + number, address);
    }
}
