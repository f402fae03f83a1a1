//! What is left of the kernel once the guest runs: a guest that breaks out of KVM finds itself
//! here.

use crate::window::Lines;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use tender::jail::{self, Argument, Error, Rule, Step};

const INPUT_FD: RawFd = 0;
const OUTPUT_FD: RawFd = 1;
const ERROR_FD: RawFd = 2;
/// `KVM_RUN` of Linux's `include/uapi/linux/kvm.h`.
const KVM_RUN: u32 = 0xae80;
/// `KVM_IOEVENTFD` there, and `KVM_SET_IOREGION`.
const KVM_IOEVENTFD: u32 = 0x4040_ae79;
const KVM_SET_IOREGION: u32 = 0x4040_ae49;
/// Operations of futex(2) by which threads wait for each other: `FUTEX_WAIT_BITSET`, `FUTEX_WAKE`
/// and, without `FUTEX_PRIVATE_FLAG`, no others.
const FUTEX_WAIT_BITSET: u32 = 9 | 128;
const FUTEX_WAKE: u32 = 1 | 128;
/// `SIOCGIFFLAGS` of Linux's `include/uapi/linux/sockios.h`.
const SIOCGIFFLAGS: u32 = 0x8913;

/// What the monitor may still use, by number.
#[derive(Clone, Debug)]
pub struct Held {
    /// The machine: without it KVM would forget its interrupts.
    pub vm: RawFd,
    /// Whether registers of devices can move in it. Else no call takes it.
    pub moves: bool,
    /// The processor.
    pub vcpu: RawFd,
    /// The event that is the serial line's interrupt.
    pub serial: RawFd,
    /// The devices.
    pub devices: DevicesHeld,
    /// Events that kick threads of devices.
    pub kicks: Vec<RawFd>,
    /// Events of queues, which move with the registers of their devices.
    pub events: Vec<RawFd>,
}

/// What the devices of any guest use, and what their monitor uses of them.
#[derive(Clone, Debug, Default)]
pub struct DevicesHeld {
    /// Devices that this process has.
    pub here: Vec<DeviceHeld>,
    /// Sockets by which devices are asked.
    pub asked: Vec<RawFd>,
    /// Processes of devices, to be told of their ends.
    pub children: Vec<RawFd>,
}

/// What a device uses.
#[derive(Clone, Debug)]
pub struct DeviceHeld {
    doorbells: Vec<RawFd>,
    interrupt: RawFd,
    resample: Option<RawFd>,
    kick: Option<RawFd>,
    wire: Option<RawFd>,
    commands: Option<RawFd>,
    backing: Backing,
}

/// What is behind a device.
#[derive(Clone, Debug)]
pub enum Backing {
    /// A tap, and what tells whether that is up.
    Tap {
        /// The tap.
        tap: Option<RawFd>,
        /// A socket.
        interfaces: Option<RawFd>,
    },
    /// A file.
    Disk {
        /// The file.
        file: RawFd,
        /// Its size.
        bytes: u64,
        /// Whether it is only read.
        read_only: bool,
    },
    /// What gives random bytes.
    Random(RawFd),
}

/// Takes everything from this process but what serving the guest takes, and has `start` start its
/// threads.
///
/// # Errors
/// The first step that fails.
pub fn close(held: &Held, start: impl FnOnce() -> io::Result<()>) -> Result<(), Error> {
    let mut keep = vec![INPUT_FD, OUTPUT_FD, ERROR_FD];
    keep.extend([held.vm, held.vcpu, held.serial]);
    keep.extend(held.devices.descriptors());
    keep.extend(held.kicks.iter().chain(&held.events));
    confine(&rules(held), keep, start)
}

/// Takes everything from this process, which is a device, but what that uses.
///
/// # Errors
/// The first step that fails.
pub fn close_device(held: &DeviceHeld) -> Result<(), Error> {
    let mut keep: Vec<RawFd> = held.descriptors().collect();
    keep.push(ERROR_FD);
    confine(&device_rules(held), keep, || Ok(()))
}

/// Takes everything from this process but the descriptors in `keep` and what `rules` allow, and has
/// `start` start its threads in between.
///
/// # Errors
/// The first step that fails.
pub fn confine(
    rules: &[Rule],
    keep: Vec<RawFd>,
    start: impl FnOnce() -> io::Result<()>,
) -> Result<(), Error> {
    let filter = jail::compile(rules, false)?;
    jail::confine(keep)?;
    start().map_err(|error| Error::Step(Step::RingThread, error))?;
    jail::forbid_calls(&filter)
}

impl DevicesHeld {
    /// Their numbers.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let here = self.here.iter().flat_map(DeviceHeld::descriptors);
        here.chain(self.asked.iter().chain(&self.children).copied())
    }

    /// What is asked of the kernel for them.
    pub fn rules(&self) -> impl Iterator<Item = Rule> {
        let asked = self.asked.iter().flat_map(|socket| messages(*socket));
        asked.chain(self.here.iter().flat_map(lines))
    }
}

impl DeviceHeld {
    /// Of a device with these lines.
    pub fn new(lines: &Lines, backing: Backing) -> Self {
        Self {
            doorbells: lines.doorbells.iter().map(AsRawFd::as_raw_fd).collect(),
            interrupt: lines.interrupt.as_raw_fd(),
            resample: lines.resample.as_ref().map(AsRawFd::as_raw_fd),
            kick: lines.kick.as_ref().map(AsRawFd::as_raw_fd),
            wire: lines.wire.as_ref().map(AsRawFd::as_raw_fd),
            commands: lines.commands.as_ref().map(AsRawFd::as_raw_fd),
            backing,
        }
    }

    /// Their numbers.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let behind = match self.backing {
            Backing::Tap { tap, interfaces } => [tap, interfaces],
            Backing::Disk { file: fd, .. } | Backing::Random(fd) => [Some(fd), None],
        };
        let one = [
            Some(self.interrupt),
            self.resample,
            self.kick,
            self.wire,
            self.commands,
        ];
        let one = one.into_iter().chain(behind).flatten();
        self.doorbells.iter().copied().chain(one)
    }
}

fn fd(fd: RawFd) -> Argument {
    Argument::Int(0, fd.cast_unsigned())
}

/// One rule, by the number that libc has for its system call.
pub fn rule(syscall: i64, arguments: &[Argument], reason: &'static str) -> Rule {
    Rule {
        syscall: syscall.cast_unsigned(),
        arguments: arguments.to_vec(),
        reason,
    }
}

/// All that the monitor may ask.
fn rules(held: &Held) -> Vec<Rule> {
    use Argument::{Int, Long};
    let mut rules = vec![
        rule(
            libc::SYS_ioctl,
            &[fd(held.vcpu), Int(1, KVM_RUN)],
            "run the guest",
        ),
        rule(libc::SYS_read, &[fd(INPUT_FD)], "what is typed"),
        rule(libc::SYS_write, &[fd(OUTPUT_FD)], "print on the console"),
        rule(
            libc::SYS_write,
            &[fd(held.serial), Long(2, 8)],
            "interrupt the guest for the serial line",
        ),
        rule(
            libc::SYS_clock_nanosleep,
            &[],
            "wait until the guest has read what was typed",
        ),
    ];
    if held.moves {
        for (call, reason) in [
            (KVM_IOEVENTFD, "an event moves with the register it is of"),
            (KVM_SET_IOREGION, "registers move"),
        ] {
            let arguments = [fd(held.vm), Int(1, call)];
            rules.push(rule(libc::SYS_ioctl, &arguments, reason));
        }
    }
    for kick in &held.kicks {
        let arguments = [fd(*kick), Long(2, 8)];
        rules.push(rule(libc::SYS_write, &arguments, "kick a device"));
    }
    rules.extend(held.devices.rules());
    rules.extend(common());
    rules
}

/// All that a device in a process of its own may ask.
fn device_rules(held: &DeviceHeld) -> Vec<Rule> {
    let mut rules = lines(held);
    rules.extend(common());
    rules
}

/// What any of these processes does.
pub fn common() -> Vec<Rule> {
    use Argument::{Int, Long};
    let read_write = (libc::PROT_READ | libc::PROT_WRITE).cast_unsigned();
    // Nowhere in particular, so that it replaces nothing.
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let flags = |more: i32| Int(3, (private | more).cast_unsigned());
    let no_file = Int(4, u32::MAX);
    vec![
        rule(libc::SYS_write, &[fd(ERROR_FD)], "say why it ended"),
        rule(
            libc::SYS_futex,
            &[Int(1, FUTEX_WAIT_BITSET)],
            "wait for another thread",
        ),
        rule(
            libc::SYS_futex,
            &[Int(1, FUTEX_WAKE)],
            "wake another thread up",
        ),
        rule(libc::SYS_sched_yield, &[], "let another thread go first"),
        rule(
            libc::SYS_clock_gettime,
            &[],
            "read a clock where the kernel's page has none",
        ),
        rule(libc::SYS_ppoll, &[Long(3, 0)], "wait, with no signal mask"),
        // A device notes what its driver did wrong.
        rule(libc::SYS_brk, &[], "more memory"),
        rule(
            libc::SYS_mmap,
            &[Int(2, read_write), flags(0), no_file],
            "more memory, of no file",
        ),
        rule(
            libc::SYS_mmap,
            &[Int(2, 0), flags(libc::MAP_NORESERVE), no_file],
            "room for the memory of a thread",
        ),
        rule(
            libc::SYS_mprotect,
            &[Int(2, read_write)],
            "more memory of that room; never to be executed",
        ),
        rule(
            libc::SYS_mremap,
            &[Long(3, libc::MREMAP_MAYMOVE as u64)],
            "more memory in the place of less; never at an address of its own choice",
        ),
        rule(libc::SYS_munmap, &[], "less memory"),
        rule(libc::SYS_madvise, &[], "less memory"),
        rule(libc::SYS_exit_group, &[], "end"),
    ]
}

/// Commands and answers on a socket.
fn messages(socket: RawFd) -> [Rule; 2] {
    use Argument::{Int, Long};
    let flags = Int(3, libc::MSG_NOSIGNAL.cast_unsigned());
    [
        rule(
            libc::SYS_sendto,
            &[fd(socket), flags, Long(4, 0)],
            "a message, to nobody else and without descriptors",
        ),
        rule(libc::SYS_recvfrom, &[fd(socket), Long(4, 0)], "a message"),
    ]
}

/// What a device does.
fn lines(held: &DeviceHeld) -> Vec<Rule> {
    use Argument::{Int, Long, LongAtMost};
    let eight = Long(2, 8);
    let mut rules = vec![rule(
        libc::SYS_write,
        &[fd(held.interrupt), eight],
        "interrupt the guest",
    )];
    let events = held.doorbells.iter().chain(&held.resample);
    for event in events.chain(&held.kick) {
        let arguments = [fd(*event), eight];
        rules.push(rule(libc::SYS_read, &arguments, "set an event back"));
    }
    rules.extend(held.commands.into_iter().flat_map(messages));
    match held.backing {
        Backing::Tap { tap, interfaces } => {
            if let Some(tap) = tap {
                rules.push(rule(libc::SYS_readv, &[fd(tap)], "receive a frame"));
                rules.push(rule(libc::SYS_writev, &[fd(tap)], "send a frame"));
            }
            if let Some(socket) = interfaces {
                let arguments = [fd(socket), Int(1, SIOCGIFFLAGS)];
                rules.push(rule(libc::SYS_ioctl, &arguments, "is the tap up?"));
            }
        }
        Backing::Disk {
            file,
            bytes,
            read_only,
        } => {
            let at = [fd(file), LongAtMost(3, bytes)];
            rules.push(rule(libc::SYS_preadv, &at, "read a disk"));
            rules.push(rule(libc::SYS_fdatasync, &[fd(file)], "flush a disk"));
            if !read_only {
                let from = [fd(file), LongAtMost(2, bytes)];
                rules.push(rule(libc::SYS_pwritev, &at, "write a disk"));
                rules.push(rule(libc::SYS_pwrite64, &at, "zero a disk"));
                rules.push(rule(libc::SYS_fallocate, &from, "discard, and zero a disk"));
            }
        }
        Backing::Random(source) => {
            rules.push(rule(libc::SYS_read, &[fd(source)], "random bytes"));
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Held {
        let disk = DeviceHeld {
            doorbells: vec![20, 21],
            interrupt: 22,
            resample: Some(25),
            kick: Some(26),
            wire: None,
            commands: Some(23),
            backing: Backing::Disk {
                file: 24,
                bytes: 1 << 20,
                read_only: true,
            },
        };
        let tap = Backing::Tap {
            tap: Some(30),
            interfaces: Some(31),
        };
        let net = DeviceHeld {
            wire: Some(32),
            backing: tap,
            ..disk.clone()
        };
        Held {
            vm: 10,
            moves: false,
            vcpu: 11,
            serial: 12,
            devices: DevicesHeld {
                here: vec![disk, net],
                asked: vec![13],
                children: vec![14],
            },
            kicks: vec![15],
            events: vec![16],
        }
    }

    fn calls(rules: &[Rule], syscall: i64) -> Vec<&Rule> {
        let number = syscall.cast_unsigned();
        rules.iter().filter(|rule| rule.syscall == number).collect()
    }

    #[test]
    fn the_machine_cannot_be_changed() {
        let rules = rules(&held());
        let ioctls = calls(&rules, libc::SYS_ioctl);
        let run = [Argument::Int(0, 11), Argument::Int(1, KVM_RUN)];
        let is_up = [Argument::Int(0, 31), Argument::Int(1, SIOCGIFFLAGS)];
        assert_eq!(ioctls.len(), 2);
        assert_eq!(ioctls[0].arguments, run);
        assert_eq!(ioctls[1].arguments, is_up);
    }

    /// It gets no memory and no interrupt, wherever registers are.
    #[test]
    fn registers_can_move_where_they_have_to() {
        let held = Held {
            moves: true,
            ..held()
        };
        let rules = super::rules(&held);
        let ioctls = calls(&rules, libc::SYS_ioctl);
        let of_vm = ioctls.iter().filter_map(|rule| {
            let [Argument::Int(0, 10), Argument::Int(1, call)] = rule.arguments[..] else {
                return None;
            };
            Some(call)
        });
        assert!(of_vm.eq([KVM_IOEVENTFD, KVM_SET_IOREGION]));
    }

    #[test]
    fn descriptors_are_named_and_reasons_given() {
        let held = held();
        let device = device_rules(&held.devices.here[0]);
        for rules in [rules(&held), device] {
            for syscall in [
                libc::SYS_read,
                libc::SYS_readv,
                libc::SYS_preadv,
                libc::SYS_write,
                libc::SYS_writev,
                libc::SYS_sendto,
                libc::SYS_recvfrom,
                libc::SYS_fdatasync,
            ] {
                for rule in calls(&rules, syscall) {
                    let is_named = |argument: &Argument| matches!(argument, Argument::Int(0, _));
                    assert!(rule.arguments.iter().any(is_named), "{rule:?}");
                }
            }
            assert!(rules.iter().all(|rule| !rule.reason.is_empty()));
            for syscall in [
                libc::SYS_openat,
                libc::SYS_execve,
                libc::SYS_socket,
                libc::SYS_clone,
                libc::SYS_sendmsg,
                libc::SYS_recvmsg,
                libc::SYS_pwritev,
                libc::SYS_fallocate,
            ] {
                assert!(calls(&rules, syscall).is_empty());
            }
            jail::compile(&rules, false).unwrap();
        }
    }

    /// Memory that is asked for is of no file, and never executed.
    #[test]
    fn nothing_can_be_mapped_to_be_executed() {
        let rules = rules(&held());
        let executable = Argument::Int(2, 7);
        let mapping = calls(&rules, libc::SYS_mmap);
        let protecting = calls(&rules, libc::SYS_mprotect);
        for rule in mapping.iter().chain(&protecting) {
            let of_pages = |argument: &&Argument| matches!(argument, Argument::Int(2, _));
            let pages = rule.arguments.iter().find(of_pages);
            assert!(pages.is_some_and(|pages| *pages != executable), "{rule:?}");
        }
        for rule in mapping {
            assert!(rule.arguments.contains(&Argument::Int(4, u32::MAX)));
        }
        for rule in calls(&rules, libc::SYS_mremap) {
            assert!(rule.arguments.contains(&Argument::Long(3, 1)));
        }
    }

    #[test]
    fn all_that_a_device_uses_stays_open() {
        let found: Vec<RawFd> = held().devices.here[1].descriptors().collect();
        assert_eq!(found, [20, 21, 22, 25, 26, 32, 23, 30, 31]);
    }
}
