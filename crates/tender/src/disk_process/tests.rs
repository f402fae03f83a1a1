use super::lanes::{End, Lanes};
use super::*;
use crate::jail::tests::{ALLOW, KILL_PROCESS, verdict_of};
use crate::memory::Gpa;
use abi::ring::{Client, Jump, Operation, Request, WORDS, first_word, waiting, word};
use rustix::fs::MemfdFlags;
use std::sync::atomic::AtomicU64;

const CAPACITY: u64 = 1 << 20;
const BUFFERS: usize = 256 << 10;

/// A disk that is served here, and the guest's side of it.
struct World {
    lanes: &'static Lanes,
    words: &'static [AtomicU64],
    memory: GuestMemory,
    bell: OwnedFd,
    guest_bell: OwnedFd,
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE).unwrap()
}

fn world(flags: u32) -> World {
    let disk = rustix::fs::memfd_create("disk", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&disk, CAPACITY).unwrap();
    let words: Vec<_> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
    let words: &'static [AtomicU64] = words.leak();
    let memory = GuestMemory::anonymous(BUFFERS).unwrap();
    let (bell, guest_bell) = (event(), event());
    let served = Served {
        disk: Attached {
            index: 1,
            device: Device::Block {
                capacity: CAPACITY,
                block_size: 512,
            },
            fd: disk,
            flags,
        },
        rings: Rings::new(words).unwrap(),
        memory: memory.clone(),
        bell: bell.try_clone().unwrap(),
        guest_bell: guest_bell.try_clone().unwrap(),
        guest: rustix::pipe::pipe().unwrap().0,
    };
    World {
        lanes: Box::leak(Box::new(Lanes::new(served, CAPACITY).0)),
        words,
        memory,
        bell,
        guest_bell,
    }
}

impl World {
    fn lane(&self, number: usize) -> Client<'static> {
        Rings::new(self.words).unwrap().client(number).unwrap()
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        &self.words[number]
    }
}

/// How often it was rung since the last look.
fn rung(bell: &OwnedFd) -> usize {
    (0..10)
        .take_while(|_| rustix::io::read(bell, &mut [0; 8]).is_ok())
        .count()
}

fn request(operation: Operation, offset: u64, address: u64, length: u32) -> Request {
    Request {
        address,
        length,
        operation,
        offset,
    }
}

#[test]
fn requests_of_all_lanes_are_served_from_any_thread() {
    let world = world(device_flag::DISK);
    let mut lanes: Vec<_> = (0..LANES).map(|lane| world.lane(lane)).collect();
    for (number, lane) in lanes.iter_mut().enumerate() {
        let at = number as u64 * 512;
        let bytes = [number as u8 + 1; 512];
        world.memory.copy_in(Gpa::new(at), &bytes).unwrap();
        assert!(lane.write(request(Operation::Write, at, at, 512)));
        assert!(lane.write(request(Operation::Flush, 0, 0, 0)));
        assert!(lane.write(request(Operation::Read, at, (64 << 10) | at, 512)));
        lane.post();
    }
    while world.lanes.turn(5).unwrap() {}
    for (number, lane) in lanes.iter_mut().enumerate() {
        let results = [lane.take(), lane.take(), lane.take(), lane.take()];
        assert_eq!(
            results,
            [Ok(Some(512)), Ok(Some(0)), Ok(Some(512)), Ok(None)]
        );
        let mut bytes = [0; 512];
        let at = Gpa::new((64 << 10) | (number as u64 * 512));
        world.memory.copy_out(at, &mut bytes).unwrap();
        assert_eq!(bytes, [number as u8 + 1; 512]);
    }
}

#[test]
fn what_is_not_the_disks_or_not_the_regions_is_an_error_of_its_request() {
    let world = world(device_flag::DISK | device_flag::READ_ONLY);
    let mut lane = world.lane(0);
    let asked = [
        (request(Operation::Read, CAPACITY, 0, 512), Errno::INVAL),
        (request(Operation::Read, u64::MAX, 0, 512), Errno::INVAL),
        (
            request(Operation::Read, 0, BUFFERS as u64, 512),
            Errno::FAULT,
        ),
        (request(Operation::Read, 0, u64::MAX, 512), Errno::FAULT),
        (request(Operation::Write, 0, 0, 512), Errno::ROFS),
        (request(Operation::Discard, 0, 0, 512), Errno::INVAL),
    ];
    for (request, _) in asked {
        assert!(lane.write(request));
    }
    lane.post();
    while world.lanes.turn(0).unwrap() {}
    for (request, errno) in asked {
        let expected = -i64::from(errno.raw_os_error());
        assert_eq!(lane.take(), Ok(Some(expected)), "{request:?}");
    }
}

#[test]
fn an_index_that_jumps_ends_the_process() {
    let world = world(0);
    let posted = first_word(3) + word::POSTED;
    world.word(posted).store(u64::MAX, Ordering::Relaxed);
    let jump = Jump {
        from: 0,
        to: u64::MAX,
    };
    assert_eq!(world.lanes.turn(0), Err(End::Ring(jump)));
    assert_eq!(world.lanes.serve(0), End::Ring(jump));
}

#[test]
fn one_thread_wakes_the_next_while_there_is_more_to_do() {
    let world = world(0);
    let mut lanes = [world.lane(0), world.lane(1)];
    for lane in &mut lanes {
        assert!(lane.write(request(Operation::Read, 0, 0, 512)));
        lane.post();
    }
    world.word(word::ASLEEP).store(1, Ordering::Relaxed);
    assert!(world.lanes.turn(0).unwrap());
    assert_eq!(rung(&world.bell), 1);
    // There is nothing for anybody else now.
    assert!(world.lanes.turn(0).unwrap());
    assert_eq!(rung(&world.bell), 0);
}

#[test]
fn the_guest_is_woken_once_from_each_sleep() {
    let world = world(0);
    let mut lane = world.lane(0);
    let mut serve = |count: usize| {
        for _ in 0..count {
            assert!(lane.write(request(Operation::Read, 0, 0, 512)));
        }
        lane.post();
        while world.lanes.turn(0).unwrap() {}
        rung(&world.guest_bell)
    };
    assert_eq!(serve(2), 0);
    let sleeps = |number| {
        let bits = (number * waiting::SLEEP) | waiting::RECEIVE;
        world.word(word::WAITING).store(bits, Ordering::Relaxed);
    };
    sleeps(1);
    assert_eq!(serve(3), 1);
    assert_eq!(serve(1), 0);
    sleeps(2);
    assert_eq!(serve(1), 1);
}

const GRANTS: Grants = Grants {
    disk: 10,
    capacity: CAPACITY,
    writes: true,
    knows_more: true,
    bell: 11,
    guest_bell: 12,
    guest: 13,
    gate: 14,
};

#[test]
fn the_process_may_do_what_serving_takes_and_no_more() {
    let all = rules(&GRANTS);
    let verdict =
        |syscall: i64, arguments: [u64; 6]| verdict_of(&all, syscall.cast_unsigned(), arguments);
    let hole = u64::from(DISCARD);
    let allowed = [
        (libc::SYS_pread64, [10, 0, 1 << 20, 0, 0, 0]),
        (libc::SYS_pwrite64, [10, 0, 512, CAPACITY - 512, 0, 0]),
        (libc::SYS_fdatasync, [10, 0, 0, 0, 0, 0]),
        (libc::SYS_fallocate, [10, hole, 0, CAPACITY, 0, 0]),
        (libc::SYS_read, [11, 0, 8, 0, 0, 0]),
        (libc::SYS_read, [13, 0, 8, 0, 0, 0]),
        (libc::SYS_read, [14, 0, 8, 0, 0, 0]),
        (libc::SYS_write, [14, 0, 8, 0, 0, 0]),
        (libc::SYS_write, [11, 0, 8, 0, 0, 0]),
        (libc::SYS_write, [12, 0, 8, 0, 0, 0]),
        (libc::SYS_exit_group, [0; 6]),
    ];
    for (syscall, arguments) in allowed {
        assert_eq!(
            verdict(syscall, arguments),
            ALLOW,
            "{syscall} {arguments:?}"
        );
    }
    let refused = [
        (libc::SYS_pread64, [11, 0, 512, 0, 0, 0]),
        (libc::SYS_pread64, [10, 0, (1 << 20) + 1, 0, 0, 0]),
        (libc::SYS_pwrite64, [10, 0, 512, CAPACITY, 0, 0]),
        (libc::SYS_fallocate, [10, 0, 0, 512, 0, 0]),
        (libc::SYS_read, [12, 0, 8, 0, 0, 0]),
        (libc::SYS_write, [10, 0, 8, 0, 0, 0]),
        (libc::SYS_write, [1, 0, 8, 0, 0, 0]),
        (libc::SYS_openat, [0; 6]),
        (libc::SYS_mmap, [0; 6]),
        (libc::SYS_clone, [0; 6]),
        (libc::SYS_futex, [0; 6]),
        (libc::SYS_kill, [0; 6]),
        (libc::SYS_io_uring_setup, [0; 6]),
    ];
    for (syscall, arguments) in refused {
        let verdict = verdict(syscall, arguments);
        assert_eq!(verdict, KILL_PROCESS, "{syscall} {arguments:?}");
    }
}

#[test]
fn a_disk_that_is_only_read_is_not_written() {
    let read_only = Grants {
        writes: false,
        ..GRANTS
    };
    for rule in rules(&read_only) {
        let syscall = rule.syscall.cast_signed();
        let writes = [libc::SYS_pwrite64, libc::SYS_fallocate, libc::SYS_fdatasync];
        assert!(!writes.contains(&syscall), "{rule:?}");
    }
}
