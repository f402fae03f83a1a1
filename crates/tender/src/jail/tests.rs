use super::*;
use crate::attach::EXTENDED_DISKS_MAX;

const EPOLL: RawFd = 5;
const QUIET: RawFd = 17;
const TIMER: RawFd = 6;
const SOCKET: RawFd = 15;
const EVENT: RawFd = 9;
const BELL: RawFd = 16;
const NET: RawFd = 7;
const DISK: RawFd = 8;
/// A disk of an image that knows of more than blocks, and one that is not to be written.
const MORE: RawFd = 18;
const READ: RawFd = 19;
const SMALL: u64 = 8 << 20;
const CAPACITY: u64 = 1 << 33;
const BLOCK: u16 = 4096;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const X32_BIT: u64 = 0x4000_0000;

fn granted(fd: RawFd, device: Device, flags: u32) -> Granted {
    Granted { fd, device, flags }
}

/// A network, disks, and what else a guest is lent.
pub(crate) fn grants() -> Grants {
    let net = Device::Net {
        mac: [2; 6],
        mtu: 1500,
    };
    let disk = Device::Block {
        capacity: CAPACITY,
        block_size: BLOCK,
    };
    let small = Device::Block {
        capacity: SMALL,
        block_size: BLOCK,
    };
    Grants {
        epoll_fd: EPOLL,
        quiet_fd: Some(QUIET),
        timer_fd: TIMER,
        event_fd: Some(EVENT),
        held: Vec::new(),
        sockets: vec![SOCKET],
        bells: vec![BELL],
        devices: vec![
            granted(NET, net, 0),
            granted(DISK, disk, 0),
            granted(MORE, small, device_flag::DISK),
            granted(READ, disk, device_flag::DISK | device_flag::READ_ONLY),
        ],
        core_file: None,
    }
}

/// `struct seccomp_data` (`include/uapi/linux/seccomp.h`), as a filter sees a system call.
fn data(arch: u32, number: u64, arguments: [u64; 6]) -> [u8; 64] {
    let mut data = [0; 64];
    data[0..4].copy_from_slice(&(number as u32).to_le_bytes());
    data[4..8].copy_from_slice(&arch.to_le_bytes());
    for (i, argument) in arguments.iter().enumerate() {
        data[16 + 8 * i..24 + 8 * i].copy_from_slice(&argument.to_le_bytes());
    }
    data
}

/// Runs a filter as the kernel does; the instructions are those of classic BPF that seccomp allows
/// and seccompiler emits.
fn run(program: &BpfProgram, data: &[u8; 64]) -> u32 {
    let mut accumulator = 0u32;
    let mut at = 0;
    loop {
        let i = &program[at];
        at += 1;
        let jump = |taken| usize::from(if taken { i.jt } else { i.jf });
        match i.code {
            0x20 => {
                let k = i.k as usize;
                accumulator = u32::from_le_bytes(data[k..k + 4].try_into().unwrap());
            }
            0x54 => accumulator &= i.k,
            0x05 => at += i.k as usize,
            0x15 => at += jump(accumulator == i.k),
            0x25 => at += jump(accumulator > i.k),
            0x35 => at += jump(accumulator >= i.k),
            0x06 => return i.k,
            code => panic!("instruction {code:#x}"),
        }
    }
}

pub(crate) const ALLOW: u32 = 0x7fff_0000;
pub(crate) const KILL_PROCESS: u32 = 0x8000_0000;
const TRAP: u32 = 0x0003_0000;

fn verdict(number: u64, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    verdict_of(&rules(&grants()), number, all)
}

/// What becomes of a system call under `rules`.
pub(crate) fn verdict_of(rules: &[Rule], number: u64, arguments: [u64; 6]) -> u32 {
    let program = compile(rules, false).unwrap();
    run(&program, &data(X86_64, number, arguments))
}

#[track_caller]
fn allowed(number: u64, arguments: &[u64]) {
    assert_eq!(verdict(number, arguments), ALLOW, "{number} {arguments:?}");
}

#[track_caller]
fn forbidden(number: u64, arguments: &[u64]) {
    assert_eq!(
        verdict(number, arguments),
        KILL_PROCESS,
        "{number} {arguments:?}"
    );
}

const NET_FD: u64 = NET as u64;
const DISK_FD: u64 = DISK as u64;

#[test]
fn a_device_that_is_a_process_is_sent_messages_and_nothing_else() {
    let (socket, signal) = (SOCKET as u64, u64::from(syscall::MSG_NOSIGNAL));
    allowed(syscall::SENDTO, &[socket, 0x10_0000, 36, signal, 0, 0]);
    allowed(syscall::READ, &[socket, 0x10_0000, 36]);
    // To somebody else, with other flags, to another descriptor; and not as a frame.
    forbidden(
        syscall::SENDTO,
        &[socket, 0x10_0000, 36, signal, 0x10_0000, 16],
    );
    for flags in [0, signal | 1, 0x2000_0000] {
        forbidden(syscall::SENDTO, &[socket, 0x10_0000, 36, flags, 0, 0]);
    }
    for fd in [0, 1, NET_FD, DISK_FD, EPOLL as u64] {
        forbidden(syscall::SENDTO, &[fd, 0x10_0000, 36, signal, 0, 0]);
    }
    forbidden(syscall::WRITE, &[socket, 0x10_0000, 36]);
    const SENDMSG: u64 = 46;
    forbidden(SENDMSG, &[socket]);
}

#[test]
fn the_network_is_read_and_written_and_nothing_else_is_read() {
    allowed(syscall::READ, &[NET_FD, 0x10_0000, 65549]);
    allowed(syscall::WRITE, &[NET_FD, 0x10_0000, 65549]);
    for fd in [
        0,
        1,
        2,
        DISK_FD,
        EPOLL as u64,
        TIMER as u64,
        u64::from(u32::MAX),
    ] {
        forbidden(syscall::READ, &[fd]);
    }
    for fd in [0, 2, DISK_FD, EPOLL as u64, TIMER as u64] {
        forbidden(syscall::WRITE, &[fd]);
    }
    allowed(syscall::WRITE, &[1, 0x10_0000, 1]);
}

#[test]
fn a_disk_is_read_and_written_by_whole_blocks_inside() {
    let block = u64::from(BLOCK);
    let last = CAPACITY - block;
    for number in [syscall::PREAD64, syscall::PWRITE64] {
        for offset in [0, 1, 1 << 32, (1 << 32) - 1, last] {
            allowed(number, &[DISK_FD, 0x10_0000, block, offset]);
        }
        for offset in [last + 1, CAPACITY, 1 << 34, u64::MAX, 1 << 63] {
            forbidden(number, &[DISK_FD, 0x10_0000, block, offset]);
        }
        for length in [0, 1, 512, block - 1, block + 1, block | 1 << 32] {
            forbidden(number, &[DISK_FD, 0x10_0000, length, 0]);
        }
        forbidden(number, &[NET_FD, 0x10_0000, block, 0]);
        forbidden(number, &[1, 0x10_0000, block, 0]);
    }
}

#[test]
fn an_image_that_knows_of_more_does_more_and_never_past_the_end() {
    const MORE_FD: u64 = MORE as u64;
    let block = u64::from(BLOCK);
    for number in [syscall::PREAD64, syscall::PWRITE64] {
        let several = TRANSFER_BYTES;
        for (length, offset) in [
            (several, 0),
            (several, SMALL - several),
            (3 * block, SMALL - several),
            (block, SMALL - block),
        ] {
            allowed(number, &[MORE_FD, 0x10_0000, length, offset]);
            // Others do one block.
            let verdict = verdict(number, &[DISK_FD, 0x10_0000, length, offset]);
            assert_eq!(verdict == ALLOW, length == block, "{length} {offset}");
        }
        for (length, offset) in [
            (several + 1, 0),
            (several, SMALL - several + 1),
            (2 * block, SMALL - block),
            (block, SMALL),
            (block, u64::MAX),
            (u64::MAX, 0),
        ] {
            forbidden(number, &[MORE_FD, 0x10_0000, length, offset]);
        }
    }
}

#[test]
fn a_disk_is_flushed_and_discarded_in_one_way_where_the_image_knows_of_it() {
    const MORE_FD: u64 = MORE as u64;
    let (hole, block) = (u64::from(syscall::DISCARD), u64::from(BLOCK));
    allowed(syscall::FDATASYNC, &[MORE_FD]);
    for (offset, length) in [
        (0, block),
        (SMALL - block, block),
        (0, DISCARD_BYTES),
        (SMALL - DISCARD_BYTES, DISCARD_BYTES),
    ] {
        allowed(syscall::FALLOCATE, &[MORE_FD, hole, offset, length]);
        // Without KEEP_SIZE, without the hole, and what else there is: a file would grow or shrink.
        for mode in [0, 1, 2, 3 | 4, 8, 0x10, 0x11, 0x20, 0x40] {
            forbidden(syscall::FALLOCATE, &[MORE_FD, mode, offset, length]);
        }
    }
    for (offset, length) in [
        (SMALL, block),
        (SMALL - DISCARD_BYTES + 1, DISCARD_BYTES),
        (0, DISCARD_BYTES + 1),
        (SMALL - block, 2 * block),
        (u64::MAX, block),
    ] {
        forbidden(syscall::FALLOCATE, &[MORE_FD, hole, offset, length]);
    }
    for fd in [0, 1, NET_FD, DISK_FD, READ as u64, EPOLL as u64] {
        forbidden(syscall::FDATASYNC, &[fd]);
        forbidden(syscall::FALLOCATE, &[fd, hole, 0, block]);
    }
}

#[test]
fn a_disk_that_is_read_only_is_not_written() {
    const READ_FD: u64 = READ as u64;
    let block = u64::from(BLOCK);
    for length in [block, TRANSFER_BYTES] {
        allowed(syscall::PREAD64, &[READ_FD, 0x10_0000, length, 0]);
        forbidden(syscall::PWRITE64, &[READ_FD, 0x10_0000, length, 0]);
    }
}

#[test]
fn a_core_file_is_written_by_whole_pages_and_never_past_the_end_of_memory() {
    const CORE: RawFd = 17;
    const CORE_FD: u64 = CORE as u64;
    const MEMORY: u64 = 16 << 20;
    let rules = rules(&Grants {
        core_file: Some((CORE, MEMORY)),
        ..grants()
    });
    let verdict = |number, length, offset| {
        verdict_of(&rules, number, [CORE_FD, 0x10_0000, length, offset, 0, 0])
    };
    assert_eq!(verdict(syscall::PWRITE64, FRONT_BYTES, 0), ALLOW);
    for offset in [PAGE_SIZE, 5 * PAGE_SIZE, MEMORY] {
        assert_eq!(verdict(syscall::PWRITE64, PAGE_SIZE, offset), ALLOW);
    }
    for (length, offset) in [
        (FRONT_BYTES, 1),
        (FRONT_BYTES + 1, 0),
        (2 * PAGE_SIZE, PAGE_SIZE),
        (PAGE_SIZE, MEMORY + 1),
        (PAGE_SIZE, u64::MAX),
    ] {
        let verdict = verdict(syscall::PWRITE64, length, offset);
        assert_eq!(verdict, KILL_PROCESS, "{length} {offset}");
    }
    for number in [syscall::READ, syscall::WRITE, syscall::PREAD64] {
        assert_eq!(
            verdict(number, PAGE_SIZE, PAGE_SIZE),
            KILL_PROCESS,
            "{number}"
        );
    }
    // Whoever asks for none has none.
    forbidden(syscall::PWRITE64, &[CORE_FD, 0x10_0000, PAGE_SIZE, 0]);
}

#[test]
fn waiting_is_on_our_descriptors_and_without_a_signal_mask() {
    for set in [EPOLL, QUIET] {
        allowed(
            syscall::EPOLL_PWAIT,
            &[set as u64, 0x10_0000, 64, u64::MAX, 0, 0],
        );
    }
    forbidden(
        syscall::EPOLL_PWAIT,
        &[QUIET as u64, 0x10_0000, 64, 0, 0x10_0000, 8],
    );
    forbidden(
        syscall::EPOLL_PWAIT,
        &[EPOLL as u64, 0x10_0000, 64, 0, 0x10_0000, 8],
    );
    forbidden(
        syscall::EPOLL_PWAIT,
        &[EPOLL as u64, 0x10_0000, 64, 0, 1 << 32, 8],
    );
    forbidden(syscall::EPOLL_PWAIT, &[TIMER as u64]);
    allowed(syscall::TIMERFD_SETTIME, &[TIMER as u64, 1, 0x10_0000, 0]);
    forbidden(syscall::TIMERFD_SETTIME, &[EPOLL as u64]);
}

#[test]
fn clocks_and_thread_pointer_are_the_named_ones() {
    allowed(syscall::CLOCK_GETTIME, &[0]);
    allowed(syscall::CLOCK_GETTIME, &[1]);
    for clock in [2, 4, 7, u64::from(u32::MAX)] {
        forbidden(syscall::CLOCK_GETTIME, &[clock]);
    }
    allowed(syscall::ARCH_PRCTL, &[0x1002, 0]);
    for code in [0x1001, 0x1003, 0x1004, 0] {
        forbidden(syscall::ARCH_PRCTL, &[code]);
    }
}

/// The kernel looks at 32 bits of an `int`: what lies above them is neither trusted nor tested.
#[test]
fn only_the_low_half_of_a_descriptor_counts() {
    allowed(syscall::READ, &[NET_FD | 1 << 32]);
    forbidden(syscall::READ, &[DISK_FD | 1 << 32]);
}

#[test]
fn every_other_number_ends_the_guest() {
    let named: Vec<u64> = rules(&grants()).iter().map(|rule| rule.syscall).collect();
    for number in 0..512 {
        if !named.contains(&number) {
            forbidden(number, &[NET_FD]);
        }
    }
    allowed(syscall::EXIT_GROUP, &[255]);
}

#[test]
fn other_calling_conventions_end_the_guest() {
    let program = compile(&rules(&grants()), false).unwrap();
    let exit = [0; 6];
    assert_eq!(
        run(&program, &data(I386, syscall::EXIT_GROUP, exit)),
        KILL_PROCESS
    );
    let x32 = syscall::EXIT_GROUP | X32_BIT;
    assert_eq!(run(&program, &data(X86_64, x32, exit)), KILL_PROCESS);
}

#[test]
fn the_event_can_only_be_waited_for() {
    for number in [syscall::READ, syscall::WRITE, syscall::PREAD64] {
        assert_eq!(verdict(number, &[EVENT as u64]), KILL_PROCESS, "{number}");
    }
}

#[test]
fn with_a_handler_the_guest_is_trapped() {
    let program = compile(&rules(&grants()), true).unwrap();
    assert_eq!(run(&program, &data(X86_64, 39, [0; 6])), TRAP);
    assert_eq!(
        run(&program, &data(X86_64, syscall::EXIT_GROUP, [0; 6])),
        ALLOW
    );
}

#[test]
fn a_guest_without_devices_cannot_read() {
    let grants = Grants {
        epoll_fd: EPOLL,
        quiet_fd: None,
        timer_fd: TIMER,
        event_fd: Some(EVENT),
        held: Vec::new(),
        sockets: Vec::new(),
        bells: Vec::new(),
        devices: vec![],
        core_file: None,
    };
    let rules = rules(&grants);
    let reads = [syscall::READ, syscall::PREAD64, syscall::PWRITE64];
    assert!(rules.iter().all(|rule| !reads.contains(&rule.syscall)));
    assert!(rules.iter().all(|rule| !rule.reason.is_empty()));
}

#[test]
fn a_manifest_full_of_disks_fits_into_a_filter() {
    let disk = Device::Block {
        capacity: CAPACITY,
        block_size: BLOCK,
    };
    let devices = (10..73).map(|fd| granted(fd, disk, 0)).collect();
    let grants = Grants {
        epoll_fd: EPOLL,
        quiet_fd: None,
        timer_fd: TIMER,
        event_fd: Some(EVENT),
        held: Vec::new(),
        sockets: Vec::new(),
        bells: Vec::new(),
        devices,
        core_file: None,
    };
    let program = compile(&rules(&grants), false).unwrap();
    let last = data(
        X86_64,
        syscall::PWRITE64,
        [72, 0, u64::from(BLOCK), 0, 0, 0],
    );
    assert_eq!(run(&program, &last), ALLOW);
    let beyond = data(
        X86_64,
        syscall::PWRITE64,
        [73, 0, u64::from(BLOCK), 0, 0, 0],
    );
    assert_eq!(run(&program, &beyond), KILL_PROCESS);
    // As many as there may be that do more.
    let devices = &grants.devices;
    let more = devices[..EXTENDED_DISKS_MAX].iter().map(|one| Granted {
        flags: device_flag::DISK,
        ..*one
    });
    let devices = more.chain(devices[EXTENDED_DISKS_MAX..].iter().copied());
    let grants = Grants {
        devices: devices.collect(),
        ..grants
    };
    compile(&rules(&grants), false).unwrap();
}

#[test]
fn advice_belongs_to_the_step_that_failed() {
    let said = |step| Error::Step(step, std::io::ErrorKind::PermissionDenied.into()).to_string();
    assert!(said(Step::Descriptors).contains("Linux 5.9"));
    assert!(said(Step::Capabilities).contains("capset"));
    assert!(said(Step::NotDumpable).contains("prctl"));
    assert!(said(Step::RingThread).contains("ulimit -u"));
}
