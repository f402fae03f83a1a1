//! What the tender of a virtual machine may still ask of the kernel: a guest that breaks out of KVM
//! finds itself here.

use super::ring_service::Descriptors;
use crate::jail::{self, Argument, Error, Granted, Grants, Rule, Step};
use abi::extension::device_flag;
use abi::manifest::Device;
use abi::spt::CONSOLE_FD;
use abi::spt::syscall::{DISCARD, MSG_NOSIGNAL};
use std::io;
use std::os::fd::RawFd;

const ERROR_FD: RawFd = 2;
/// `KVM_RUN` and `KVM_GET_REGS` of Linux's `include/uapi/linux/kvm.h`.
const KVM_RUN: u32 = 0xae80;
const KVM_GET_REGS: u32 = 0x8090_ae81;

/// What the tender of a virtual machine may still use, by number.
#[derive(Clone, Debug)]
pub struct TenderGrants {
    /// What it lends the guest.
    pub guest: Grants,
    /// The processor.
    pub vcpu: RawFd,
    /// What a core file is written to.
    pub core_file: Option<RawFd>,
    /// What the thread that serves the rings uses.
    pub rings: Option<Descriptors>,
    /// Where it reads how often the guest was left.
    pub statistics: Option<RawFd>,
    /// The process, thread and signal by which that thread stops the processor.
    pub stop: Option<[i32; 3]>,
}

impl TenderGrants {
    /// The numbers of all of it.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let grants = &self.guest;
        let mut keep: Vec<RawFd> = grants.devices.iter().map(|one| one.fd).collect();
        keep.extend([grants.epoll_fd, grants.timer_fd, self.vcpu]);
        keep.extend([CONSOLE_FD, ERROR_FD]);
        keep.extend(grants.event_fd);
        keep.extend(&grants.held);
        keep.extend(&grants.sockets);
        keep.extend(self.core_file);
        if let Some(rings) = self.rings {
            keep.extend([rings.epoll, rings.wake, rings.kick]);
        }
        keep.extend(self.statistics);
        keep
    }
}

/// Takes everything from this process but what serving the guest takes, and has `start` start what
/// else is to run.
///
/// # Errors
/// The first step that fails.
pub fn close(tender: &TenderGrants, start: impl FnOnce() -> io::Result<()>) -> Result<(), Error> {
    let filter = jail::compile(&rules(tender), false)?;
    jail::confine(tender.descriptors())?;
    start().map_err(|error| Error::Step(Step::RingThread, error))?;
    jail::forbid_calls(&filter)
}

/// All that it may ask.
pub fn rules(tender: &TenderGrants) -> Vec<Rule> {
    let TenderGrants {
        guest: grants,
        vcpu,
        ..
    } = tender;
    use Argument::{Int, Long};
    let fd = |fd: RawFd| Int(0, fd.cast_unsigned());
    let rule = |syscall: i64, arguments: &[Argument], reason| Rule {
        syscall: syscall.cast_unsigned(),
        arguments: arguments.to_vec(),
        reason,
    };
    let mut rules = vec![
        rule(
            libc::SYS_ioctl,
            &[fd(*vcpu), Int(1, KVM_RUN)],
            "run the guest",
        ),
        rule(
            libc::SYS_ioctl,
            &[fd(*vcpu), Int(1, KVM_GET_REGS)],
            "say where a guest ended",
        ),
        rule(libc::SYS_write, &[fd(CONSOLE_FD)], "print on the console"),
        rule(libc::SYS_write, &[fd(ERROR_FD)], "say why a guest ended"),
        rule(
            libc::SYS_epoll_pwait,
            &[fd(grants.epoll_fd), Long(4, 0)],
            "wait for devices and the timer; with no signal mask, so that nothing can be blocked",
        ),
        rule(
            libc::SYS_timerfd_settime,
            &[fd(grants.timer_fd)],
            "wait until a time",
        ),
        rule(
            libc::SYS_clock_gettime,
            &[Int(0, libc::CLOCK_REALTIME.cast_unsigned())],
            "read the wall clock where the kernel's page has none",
        ),
        rule(libc::SYS_exit_group, &[], "end"),
    ];
    for socket in &grants.sockets {
        let fd = fd(*socket);
        let message = [fd, Int(3, MSG_NOSIGNAL), Long(4, 0)];
        rules.push(rule(
            libc::SYS_sendto,
            &message,
            "reach a register by message",
        ));
        rules.push(rule(libc::SYS_read, &[fd], "the answer"));
    }
    for granted in &grants.devices {
        let fd = fd(granted.fd);
        match granted.device {
            Device::Net { .. } => {
                rules.push(rule(libc::SYS_read, &[fd], "receive a frame"));
                rules.push(rule(libc::SYS_write, &[fd], "send a frame"));
            }
            Device::Block { capacity, .. } => rules.extend(disk(granted, capacity)),
            // No jail has any.
            Device::Sockets => {}
        }
    }
    if let Some(rings) = tender.rings {
        rules.extend([
            rule(
                libc::SYS_epoll_pwait,
                &[fd(rings.epoll), Long(4, 0)],
                "wait for frames and the guest's kick, with no signal mask",
            ),
            rule(libc::SYS_write, &[fd(rings.wake)], "wake the guest up"),
        ]);
    }
    if let Some([process, thread, signal]) = tender.stop {
        let number = |at, number: i32| Int(at, number.cast_unsigned());
        let target = [number(0, process), number(1, thread), number(2, signal)];
        rules.extend([
            rule(
                libc::SYS_tgkill,
                &target,
                "stop a guest that has broken a rule of the rings, to say where it was",
            ),
            rule(
                libc::SYS_rt_sigtimedwait,
                &[],
                "take that signal away, and wait for the other thread",
            ),
        ]);
    }
    if let Some(statistics) = tender.statistics {
        let reason = "read how often the guest was left";
        rules.push(rule(libc::SYS_pread64, &[fd(statistics)], reason));
    }
    if let Some(core_file) = tender.core_file {
        let reason = "leave memory and registers of a guest that failed";
        rules.push(rule(libc::SYS_pwrite64, &[fd(core_file)], reason));
    }
    rules
}

/// To use a disk of so many bytes for a guest.
fn disk(granted: &Granted, capacity: u64) -> Vec<Rule> {
    use Argument::{Int, LongAtMost};
    let fd = Int(0, granted.fd.cast_unsigned());
    let rule = |syscall: i64, arguments: &[Argument], reason| Rule {
        syscall: syscall.cast_unsigned(),
        arguments: arguments.to_vec(),
        reason,
    };
    let last = capacity.saturating_sub(1);
    let bounds = [fd, LongAtMost(2, capacity), LongAtMost(3, last)];
    let mut rules = vec![rule(libc::SYS_pread64, &bounds, "read a disk")];
    if granted.is_read_only() {
        return rules;
    }
    rules.push(rule(libc::SYS_pwrite64, &bounds, "write a disk"));
    if granted.flags & device_flag::DISK != 0 {
        let hole = Int(1, DISCARD);
        let bounds = [fd, hole, LongAtMost(2, last), LongAtMost(3, capacity)];
        rules.push(rule(libc::SYS_fdatasync, &[fd], "flush a disk"));
        rules.push(rule(
            libc::SYS_fallocate,
            &bounds,
            "discard parts of a disk",
        ));
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jail::tests::{ALLOW, KILL_PROCESS, grants, verdict_of};

    const VCPU: RawFd = 20;
    const CORE: RawFd = 21;

    fn all_grants() -> TenderGrants {
        TenderGrants {
            guest: grants(),
            vcpu: VCPU,
            core_file: Some(CORE),
            rings: Some(Descriptors {
                epoll: 22,
                wake: 23,
                kick: 24,
            }),
            statistics: Some(25),
            stop: Some([100, 101, libc::SIGURG]),
        }
    }

    /// A call that the rule is there for.
    fn example(rule: &Rule) -> (u64, [u64; 6]) {
        let mut arguments = [0; 6];
        for argument in &rule.arguments {
            match *argument {
                Argument::Int(at, value) => arguments[usize::from(at)] = value.into(),
                Argument::Long(at, value) | Argument::LongAtMost(at, value) => {
                    arguments[usize::from(at)] = value;
                }
            }
        }
        (rule.syscall, arguments)
    }

    #[test]
    fn no_rule_can_be_left_out_and_each_has_a_reason() {
        let all = rules(&all_grants());
        for (number, rule) in all.iter().enumerate() {
            let mut others = all.clone();
            others.remove(number);
            let (syscall, arguments) = example(rule);
            assert_eq!(verdict_of(&all, syscall, arguments), ALLOW, "{rule:?}");
            let without = verdict_of(&others, syscall, arguments);
            assert_eq!(without, KILL_PROCESS, "{rule:?}");
            assert!(!rule.reason.is_empty());
        }
    }

    /// What a guest that took the tender over would like to do.
    #[test]
    fn a_tender_that_was_taken_over_can_do_no_more() {
        const KVM_SET_USER_MEMORY_REGION: u64 = 0x4020_ae46;
        const KVM_SET_SREGS: u64 = 0x4138_ae84;
        let all = rules(&TenderGrants {
            core_file: None,
            ..all_grants()
        });
        let refused = |syscall: i64, arguments: [u64; 6]| {
            let verdict = verdict_of(&all, syscall.cast_unsigned(), arguments);
            assert_eq!(verdict, KILL_PROCESS, "{syscall} {arguments:?}");
        };
        let vcpu = VCPU as u64;
        for request in [KVM_SET_USER_MEMORY_REGION, KVM_SET_SREGS, 0x5421] {
            refused(libc::SYS_ioctl, [vcpu, request, 0, 0, 0, 0]);
        }
        for syscall in [
            libc::SYS_openat,
            libc::SYS_mmap,
            libc::SYS_mprotect,
            libc::SYS_execve,
            libc::SYS_socket,
            libc::SYS_clone,
            libc::SYS_ptrace,
            libc::SYS_io_uring_setup,
            libc::SYS_sendmsg,
            libc::SYS_epoll_ctl,
        ] {
            refused(syscall, [0; 6]);
        }
        for stranger in [[1, 101], [100, 1]] {
            let [process, thread] = stranger;
            let signal = libc::SIGURG as u64;
            refused(libc::SYS_tgkill, [process, thread, signal, 0, 0, 0]);
        }
        refused(libc::SYS_tgkill, [100, 101, 9, 0, 0, 0]);
        // Without --dumpcore, nothing but disks is written at offsets.
        refused(libc::SYS_pwrite64, [CORE as u64, 0, 1, 0, 0, 0]);
    }
}
