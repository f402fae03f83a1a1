//! What answers a program may itself ask of the kernel, once it has all that it needs.
//!
//! A program that finds a mistake in what reads its calls has a process that moves bytes, and may
//! read what its user may; it has no network, makes no file, and starts no program.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::fmt;

/// `EPERM`.
const REFUSED: u32 = 1;
/// `AF_UNIX`.
const UNIX: u64 = 1;
/// The bits of `O_ACCMODE`, `O_CREAT` and `O_TRUNC`: open(2).
const WRITES: u64 = 0o3 | 0o100 | 0o1000;
/// `PROT_EXEC`: mmap(2).
const EXECUTES: u64 = 4;

/// Calls with any arguments, by their numbers in `asm/unistd_64.h`, and what for.
const FREE: &[(i64, &str)] = &[
    (0, "read: calls that wait, signals, /proc"),
    (1, "write: the bell of the link, what is said"),
    (3, "close"),
    (5, "fstat"),
    (7, "poll: whether there is something"),
    (8, "lseek: /proc"),
    (11, "munmap"),
    (12, "brk"),
    (16, "ioctl: calls are taken and answered"),
    (24, "sched_yield"),
    (25, "mremap"),
    (28, "madvise"),
    (39, "getpid"),
    (42, "connect: sockets of the kernel's"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (48, "shutdown"),
    (49, "bind"),
    (50, "listen"),
    (51, "getsockname"),
    (52, "getpeername"),
    (54, "setsockopt"),
    (55, "getsockopt"),
    (61, "wait4: the program has ended"),
    (62, "kill: signals are passed on"),
    (72, "fcntl"),
    (128, "rt_sigtimedwait: signals that wait"),
    (13, "rt_sigaction: the library's, at the end"),
    (14, "rt_sigprocmask: the same"),
    (131, "sigaltstack: the same"),
    (202, "futex"),
    (228, "clock_gettime"),
    (231, "exit_group"),
    (60, "exit"),
    (18, "pwrite64: /etc/resolv.conf, which is the program's own"),
    (77, "ftruncate: the same"),
    (232, "epoll_wait"),
    (233, "epoll_ctl"),
    (262, "newfstatat: whether a thread is ours"),
    (271, "ppoll"),
    (281, "epoll_pwait"),
    (288, "accept4"),
    (310, "process_vm_readv: what a call names"),
    (311, "process_vm_writev: the same"),
    (318, "getrandom: keys of tables"),
    (332, "statx"),
    (434, "pidfd_open"),
    (438, "pidfd_getfd: the socket that a call names"),
    (441, "epoll_pwait2"),
];
const SOCKET: i64 = 41;
const OPENAT: i64 = 257;
const MMAP: i64 = 9;
const MPROTECT: i64 = 10;

/// Why there is no jail.
#[derive(Debug)]
pub enum Error {
    /// Capabilities cannot be dropped.
    Capabilities(Errno),
    /// The filter cannot be compiled.
    Compile(seccompiler::BackendError),
    /// The kernel refuses it.
    Apply(seccompiler::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capabilities(why) => write!(f, "the proxy cannot drop its capabilities: {why}"),
            Self::Compile(why) => write!(f, "the proxy's jail does not compile: {why}"),
            Self::Apply(why) => write!(f, "the kernel refuses the proxy's jail: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// Takes from this process all calls but those that it needs to answer a program.
///
/// # Errors
/// What the kernel says.
pub fn close() -> Result<(), Error> {
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // Over the program's namespace this process has all of them still, as its parent.
    set_capabilities(None, none).map_err(Error::Capabilities)?;
    let filter = filter().map_err(Error::Compile)?;
    seccompiler::apply_filter(&filter).map_err(Error::Apply)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (number, _) in FREE {
        rules.insert(*number, Vec::new());
    }
    let only = |argument, operator, value| -> Result<_, seccompiler::BackendError> {
        let width = SeccompCmpArgLen::Dword;
        let condition = SeccompCondition::new(argument, width, operator, value)?;
        Ok(vec![SeccompRule::new(vec![condition])?])
    };
    let without = SeccompCmpOp::MaskedEq;
    rules.insert(SOCKET, only(0, SeccompCmpOp::Eq, UNIX)?);
    rules.insert(OPENAT, only(2, without(WRITES), 0)?);
    rules.insert(MMAP, only(2, without(EXECUTES), 0)?);
    rules.insert(MPROTECT, only(2, without(EXECUTES), 0)?);
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Errno(REFUSED),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?;
    filter.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, socket};

    #[test]
    fn in_the_jail_there_is_no_network_and_nothing_is_written() {
        // The filter is this thread's alone.
        let jailed = std::thread::spawn(|| {
            close().unwrap();
            let ip = socket(AddressFamily::INET, SocketType::STREAM, None);
            let unix = socket(AddressFamily::UNIX, SocketType::STREAM, None);
            let path = std::env::temp_dir().join("proxy-jail");
            let written = std::fs::write(path, "x").map_err(|error| error.raw_os_error());
            let read = std::fs::read("/proc/self/status").is_ok();
            (ip.map(drop), unix.is_ok(), written, read)
        });
        let (ip, unix, written, read) = jailed.join().unwrap();
        assert_eq!(ip, Err(Errno::PERM));
        assert_eq!(written, Err(Some(1)));
        assert!(unix && read);
    }

    #[test]
    fn each_call_stands_once() {
        let mut numbers: Vec<_> = FREE.iter().map(|(number, _)| *number).collect();
        numbers.extend([SOCKET, OPENAT, MMAP, MPROTECT]);
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
