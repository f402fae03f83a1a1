//! The jail: what a guest may ask of the kernel, and everything else taken away.

use crate::attach::Attached;
use crate::core_file::FRONT_BYTES;
use abi::PAGE_SIZE;
use abi::extension::device_flag;
use abi::manifest::Device;
use abi::spt::{CONSOLE_FD, DISCARD_BYTES, TRANSFER_BYTES, syscall};
use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, Scope};
use linux::descriptor;
use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{AsRawFd, RawFd};

/// What the guest has been given.
#[derive(Clone, Debug)]
pub struct Grants {
    /// The epoll descriptor.
    pub epoll_fd: RawFd,
    /// The same without networks, if there is one.
    pub quiet_fd: Option<RawFd>,
    /// The timer descriptor.
    pub timer_fd: RawFd,
    /// The event of the shared file, kept open to be waited for.
    pub event_fd: Option<RawFd>,
    /// What keeps PCIe devices attached, and wakes the guest up; no call takes it.
    pub held: Vec<RawFd>,
    /// Connections to processes that are devices, of those that are held.
    pub sockets: Vec<RawFd>,
    /// What wakes the other ends of links up.
    pub bells: Vec<RawFd>,
    /// The devices.
    pub devices: Vec<Granted>,
    /// What this process writes a core file to if the guest fails, and how many bytes of memory
    /// the guest has.
    pub core_file: Option<(RawFd, u64)>,
}

/// A device that was given.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    /// Its descriptor.
    pub fd: RawFd,
    /// What it is.
    pub device: Device,
    /// Bits of [`device_flag`].
    pub flags: u32,
}

impl Granted {
    /// The device that was attached.
    pub fn of(attached: &Attached) -> Self {
        Self {
            fd: attached.fd.as_raw_fd(),
            device: attached.device,
            flags: attached.flags,
        }
    }

    /// Whether it is a disk that is not to be written.
    pub fn is_read_only(&self) -> bool {
        self.flags & device_flag::READ_ONLY != 0
    }
}

/// A system call that the guest may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its number.
    pub syscall: u64,
    /// What its arguments must be; those not named here are free.
    pub arguments: Vec<Argument>,
    /// Why a guest needs it.
    pub reason: &'static str,
}

/// A condition on an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The `int` at this position is this; the kernel looks at no other bits of it.
    Int(u8, u32),
    /// The 64 bits at this position are this.
    Long(u8, u64),
    /// The 64 bits at this position, without sign, are at most this.
    LongAtMost(u8, u64),
}

/// Why a guest cannot be jailed.
#[derive(Debug)]
pub enum Error {
    /// A step that the kernel refused.
    Step(Step, std::io::Error),
    /// Landlock, other than that the kernel has none.
    Landlock(RulesetError),
    /// The filter cannot be compiled.
    Compile(seccompiler::BackendError),
    /// The kernel refused the filter.
    Apply(seccompiler::Error),
}

/// A step towards a jail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To drop all capabilities.
    Capabilities,
    /// To forbid other processes to trace this one.
    NotDumpable,
    /// To close all descriptors but those that were granted.
    Descriptors,
    /// To start the thread that serves the rings.
    RingThread,
    /// To start the threads that serve a disk.
    DiskThreads,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the jail cannot be closed: ")?;
        match self {
            Self::Step(step, error) => write!(f, "{}: {error}; {}", step.name(), step.advice()),
            Self::Landlock(error) => {
                write!(f, "Landlock: {error}; type: outboard doctor")
            }
            Self::Compile(error) => write!(
                f,
                "the filter does not compile: {error}; attach fewer devices"
            ),
            Self::Apply(error) => write!(
                f,
                "the kernel refuses the filter: {error}; it needs seccomp (CONFIG_SECCOMP_FILTER)"
            ),
        }
    }
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Capabilities => "capabilities",
            Self::NotDumpable => "not dumpable",
            Self::Descriptors => "descriptors",
            Self::RingThread => "the thread of the rings",
            Self::DiskThreads => "the threads of a disk",
        }
    }

    /// What the user can do where this step fails.
    fn advice(self) -> &'static str {
        match self {
            Self::Capabilities => {
                "run it outside of a sandbox that forbids capset and prctl, as Docker's may"
            }
            Self::NotDumpable => "run it outside of a sandbox that forbids prctl",
            Self::Descriptors => "it needs close_range: Linux 5.9 or later",
            Self::RingThread | Self::DiskThreads => "raise the limit of processes: ulimit -u",
        }
    }
}

/// All that a guest with `grants` may ask of the kernel.
pub fn rules(grants: &Grants) -> Vec<Rule> {
    use Argument::Int;
    let int = |fd: RawFd| fd.cast_unsigned();
    let rule = |syscall, arguments: &[Argument], reason| Rule {
        syscall,
        arguments: arguments.to_vec(),
        reason,
    };
    let mut rules = Vec::with_capacity(8 + 2 * grants.devices.len());
    for granted in &grants.devices {
        let fd = Int(0, int(granted.fd));
        match granted.device {
            Device::Net { .. } => {
                rules.push(rule(syscall::READ, &[fd], "receive a frame"));
                rules.push(rule(syscall::WRITE, &[fd], "send a frame"));
            }
            Device::Block {
                capacity,
                block_size,
            } => rules.extend(disk(granted, capacity, block_size.into())),
            // No jail has any.
            Device::Sockets => {}
        }
    }
    rules.extend(grants.sockets.iter().flat_map(|socket| ask(*socket)));
    rules.extend(grants.bells.iter().map(|bell| ring(*bell)));
    let core_file = grants.core_file;
    rules.extend(
        core_file
            .into_iter()
            .flat_map(|(fd, memory)| core(fd, memory)),
    );
    rules.push(rule(
        syscall::WRITE,
        &[Int(0, int(CONSOLE_FD))],
        "print on the console",
    ));
    rules.push(wait(grants.epoll_fd));
    rules.extend(grants.quiet_fd.map(wait));
    let timer = Int(0, int(grants.timer_fd));
    rules.push(rule(
        syscall::TIMERFD_SETTIME,
        &[timer],
        "wait until a time",
    ));
    for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
        rules.push(rule(
            syscall::CLOCK_GETTIME,
            &[Int(0, int(clock))],
            "read a clock",
        ));
    }
    let set_fs = Int(0, syscall::ARCH_SET_FS as u32);
    rules.push(rule(
        syscall::ARCH_PRCTL,
        &[set_fs],
        "thread-local storage of C guests",
    ));
    rules.push(rule(syscall::EXIT_GROUP, &[], "end"));
    rules
}

/// To use a disk of so many bytes in blocks of this size: one block at once, never past the end,
/// where a file would grow. An image that knows of more may flush it, discard blocks of it, and do
/// more at once as far from the end as that reaches.
fn disk(granted: &Granted, capacity: u64, block: u64) -> Vec<Rule> {
    use Argument::{Int, Long, LongAtMost};
    let fd = Int(0, granted.fd.cast_unsigned());
    let (mut rules, knows_more) = (Vec::new(), granted.flags & device_flag::DISK != 0);
    // One that knows of nothing gets an error for each write.
    let writes = !(knows_more && granted.is_read_only());
    let mut add = |syscall, arguments: &[Argument], reason| {
        rules.push(Rule {
            syscall,
            arguments: arguments.to_vec(),
            reason,
        });
    };
    let last = capacity.saturating_sub(block);
    let one = [fd, Long(2, block), LongAtMost(3, last)];
    add(syscall::PREAD64, &one, "read one block");
    if writes {
        add(syscall::PWRITE64, &one, "write one block");
    }
    if !knows_more {
        return rules;
    }
    if let Some(last) = capacity.checked_sub(TRANSFER_BYTES) {
        let several = [fd, LongAtMost(2, TRANSFER_BYTES), LongAtMost(3, last)];
        add(syscall::PREAD64, &several, "read several blocks");
        if writes {
            add(syscall::PWRITE64, &several, "write several blocks");
        }
    }
    if writes {
        add(syscall::FDATASYNC, &[fd], "make what was written durable");
        let hole = Int(1, syscall::DISCARD);
        let one = [fd, hole, LongAtMost(2, last), Long(3, block)];
        add(syscall::FALLOCATE, &one, "discard one block");
        if let Some(last) = capacity.checked_sub(DISCARD_BYTES) {
            let several = [fd, hole, LongAtMost(2, last), LongAtMost(3, DISCARD_BYTES)];
            add(syscall::FALLOCATE, &several, "discard several blocks");
        }
    }
    rules
}

/// To wait for what is in this set.
fn wait(set: RawFd) -> Rule {
    Rule {
        syscall: syscall::EPOLL_PWAIT,
        arguments: vec![Argument::Int(0, set.cast_unsigned()), Argument::Long(4, 0)],
        reason: "wait for devices and the timer; with no signal mask, so that nothing can be \
                 blocked",
    }
}

/// To exchange messages with a device that is a process.
fn ask(socket: RawFd) -> [Rule; 2] {
    let fd = Argument::Int(0, socket.cast_unsigned());
    let nobody_else = Argument::Long(4, 0);
    [
        Rule {
            syscall: syscall::SENDTO,
            arguments: vec![fd, Argument::Int(3, syscall::MSG_NOSIGNAL), nobody_else],
            reason: "reach a register by message; to nobody else, and without descriptors",
        },
        Rule {
            syscall: syscall::READ,
            arguments: vec![fd],
            reason: "the answer",
        },
    ]
}

/// To add to a number, by which the other end of a link is woken up.
fn ring(bell: RawFd) -> Rule {
    let eight = Argument::Long(2, size_of::<u64>() as u64);
    Rule {
        syscall: syscall::WRITE,
        arguments: vec![Argument::Int(0, bell.cast_unsigned()), eight],
        reason: "wake the other end of a link up",
    }
}

/// To write the core file of a guest with so many bytes of memory. The guest could do it, too, and
/// write nothing else: the file is no larger than its memory and a page.
fn core(core_file: RawFd, memory: u64) -> [Rule; 2] {
    let rule = |bytes, offset, reason| Rule {
        syscall: syscall::PWRITE64,
        arguments: vec![
            Argument::Int(0, core_file.cast_unsigned()),
            Argument::Long(2, bytes),
            Argument::LongAtMost(3, offset),
        ],
        reason,
    };
    [
        rule(FRONT_BYTES, 0, "leave registers of a guest that failed"),
        rule(PAGE_SIZE, memory, "leave its memory"),
    ]
}

/// The filter program for `rules`. What they do not allow kills the process, or raises SIGSYS if
/// `trap`, for a handler that reports it.
///
/// # Errors
/// If there are more rules than a filter program can hold.
pub fn compile(rules: &[Rule], trap: bool) -> Result<BpfProgram, Error> {
    let mut by_number: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for rule in rules {
        let conditions = by_number.entry(rule.syscall.cast_signed()).or_default();
        if rule.arguments.is_empty() {
            continue;
        }
        let arguments = rule
            .arguments
            .iter()
            .map(condition)
            .collect::<Result<_, _>>();
        let one = arguments
            .and_then(SeccompRule::new)
            .map_err(Error::Compile)?;
        conditions.push(one);
    }
    let mismatch = if trap {
        SeccompAction::Trap
    } else {
        SeccompAction::KillProcess
    };
    let (allow, arch) = (SeccompAction::Allow, TargetArch::x86_64);
    SeccompFilter::new(by_number, mismatch, allow, arch)
        .and_then(BpfProgram::try_from)
        .map_err(Error::Compile)
}

fn condition(argument: &Argument) -> Result<SeccompCondition, seccompiler::BackendError> {
    let (index, length, operator, value) = match *argument {
        Argument::Int(index, value) => (
            index,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            u64::from(value),
        ),
        Argument::Long(index, value) => (index, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value),
        Argument::LongAtMost(index, value) => {
            (index, SeccompCmpArgLen::Qword, SeccompCmpOp::Le, value)
        }
    };
    SeccompCondition::new(index, length, operator, value)
}

/// Takes everything from this process but `grants` and the console. What comes after can only jump
/// into the guest: even freeing memory may be a forbidden system call.
///
/// # Errors
/// The first step that fails.
pub fn close(grants: &Grants, filter: &BpfProgram) -> Result<(), Error> {
    let mut keep: Vec<RawFd> = grants.devices.iter().map(|one| one.fd).collect();
    keep.extend([CONSOLE_FD, grants.epoll_fd, grants.timer_fd]);
    keep.extend(grants.quiet_fd);
    keep.extend(grants.event_fd);
    keep.extend(&grants.held);
    keep.extend(&grants.bells);
    keep.extend(grants.core_file.map(|(core_file, _)| core_file));
    enter(keep, filter)
}

/// Takes everything from this process but the descriptors in `keep` and what `filter` allows.
fn enter(keep: Vec<RawFd>, filter: &BpfProgram) -> Result<(), Error> {
    confine(keep)?;
    seccompiler::apply_filter(filter).map_err(Error::Apply)
}

/// Takes everything from this process, which has one thread, but the descriptors in `keep` and
/// system calls. Threads that begin now have no more.
///
/// # Errors
/// The first step that fails.
pub fn confine(mut keep: Vec<RawFd>) -> Result<(), Error> {
    let step = |step| move |error: Errno| Error::Step(step, error.into());
    drop_capabilities().map_err(step(Step::Capabilities))?;
    forbid_files().map_err(Error::Landlock)?;
    let not_dumpable = DumpableBehavior::NotDumpable;
    rustix::process::set_dumpable_behavior(not_dumpable).map_err(step(Step::NotDumpable))?;
    let descriptors = descriptor::close_all_but(&mut keep);
    let result = descriptors.map_err(|error| Error::Step(Step::Descriptors, error));
    std::mem::forget(keep);
    result
}

/// Takes all system calls but those that `filter` allows from all threads of this process.
///
/// # Errors
/// The kernel's.
pub fn forbid_calls(filter: &BpfProgram) -> Result<(), Error> {
    seccompiler::apply_filter_all_threads(filter).map_err(Error::Apply)
}

/// Numbers of capabilities end somewhere below this one.
const CAPABILITIES_MAX: u32 = 64;

fn drop_capabilities() -> Result<(), Errno> {
    for number in 0..CAPABILITIES_MAX {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // INVAL: the kernel has no more. PERM: we have none, and so cannot gain any either.
            Err(Errno::INVAL | Errno::PERM) => break,
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    rustix::thread::set_capabilities(None, sets)
}

/// A Landlock ruleset that handles all and allows nothing, as far as the kernel knows it. Sets
/// "no new privileges" too.
fn forbid_files() -> Result<(), RulesetError> {
    let abi = ABI::V6;
    Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?
        .restrict_self()
        .map(drop)
}

#[cfg(test)]
pub(crate) mod tests;
