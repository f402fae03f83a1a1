//! What is left of the kernel once the guest runs: a guest that breaks out of KVM finds itself
//! here.

use std::io;
use std::os::fd::RawFd;
use tender::jail::{self, Argument, Error, Rule, Step};

const INPUT_FD: RawFd = 0;
const OUTPUT_FD: RawFd = 1;
const ERROR_FD: RawFd = 2;
/// `KVM_RUN` of Linux's `include/uapi/linux/kvm.h`.
const KVM_RUN: u32 = 0xae80;
/// Operations of futex(2) by which threads wait for each other: `FUTEX_WAIT_BITSET`, `FUTEX_WAKE`
/// and, without `FUTEX_PRIVATE_FLAG`, no others.
const FUTEX_WAIT_BITSET: u32 = 9 | 128;
const FUTEX_WAKE: u32 = 1 | 128;

/// What the monitor may still use, by number.
#[derive(Clone, Debug)]
pub struct Held {
    /// The machine: no call takes it, but without it KVM would forget its interrupts.
    pub vm: RawFd,
    /// The processor.
    pub vcpu: RawFd,
    /// The event that is the serial line's interrupt.
    pub serial: RawFd,
}

/// Takes everything from this process but what serving the guest takes, and has `start` start its
/// threads.
///
/// # Errors
/// The first step that fails.
pub fn close(held: &Held, start: impl FnOnce() -> io::Result<()>) -> Result<(), Error> {
    let filter = jail::compile(&rules(held), false)?;
    let keep = vec![
        INPUT_FD,
        OUTPUT_FD,
        ERROR_FD,
        held.vm,
        held.vcpu,
        held.serial,
    ];
    jail::confine(keep)?;
    start().map_err(|error| Error::Step(Step::RingThread, error))?;
    jail::forbid_calls(&filter)
}

/// All that it may ask.
fn rules(held: &Held) -> Vec<Rule> {
    use Argument::{Int, Long};
    let fd = |fd: RawFd| Int(0, fd.cast_unsigned());
    let rule = |syscall: i64, arguments: &[Argument], reason| Rule {
        syscall: syscall.cast_unsigned(),
        arguments: arguments.to_vec(),
        reason,
    };
    vec![
        rule(
            libc::SYS_ioctl,
            &[fd(held.vcpu), Int(1, KVM_RUN)],
            "run the guest",
        ),
        rule(libc::SYS_read, &[fd(INPUT_FD)], "what is typed"),
        rule(libc::SYS_write, &[fd(OUTPUT_FD)], "print on the console"),
        rule(libc::SYS_write, &[fd(ERROR_FD)], "say why a guest ended"),
        rule(
            libc::SYS_write,
            &[fd(held.serial), Long(2, 8)],
            "interrupt the guest for the serial line",
        ),
        rule(
            libc::SYS_futex,
            &[Int(1, FUTEX_WAIT_BITSET)],
            "wait for the other thread",
        ),
        rule(
            libc::SYS_futex,
            &[Int(1, FUTEX_WAKE)],
            "wake the other thread up",
        ),
        rule(
            libc::SYS_clock_nanosleep,
            &[],
            "wait until the guest has read what was typed",
        ),
        rule(
            libc::SYS_clock_gettime,
            &[],
            "read a clock where the kernel's page has none",
        ),
        rule(libc::SYS_exit_group, &[], "end"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Held = Held {
        vm: 10,
        vcpu: 11,
        serial: 12,
    };

    fn calls(rules: &[Rule], syscall: i64) -> Vec<&Rule> {
        let number = syscall.cast_unsigned();
        rules.iter().filter(|rule| rule.syscall == number).collect()
    }

    #[test]
    fn the_machine_cannot_be_changed() {
        let rules = rules(&HELD);
        let ioctls = calls(&rules, libc::SYS_ioctl);
        let run = [Argument::Int(0, 11), Argument::Int(1, KVM_RUN)];
        assert_eq!(ioctls.len(), 1);
        assert_eq!(ioctls[0].arguments, run);
    }

    #[test]
    fn descriptors_are_named_and_reasons_given() {
        let rules = rules(&HELD);
        for syscall in [libc::SYS_read, libc::SYS_write] {
            for rule in calls(&rules, syscall) {
                let is_named = |argument: &Argument| matches!(argument, Argument::Int(0, _));
                assert!(rule.arguments.iter().any(is_named), "{rule:?}");
            }
        }
        assert!(rules.iter().all(|rule| !rule.reason.is_empty()));
        for syscall in [
            libc::SYS_openat,
            libc::SYS_mmap,
            libc::SYS_execve,
            libc::SYS_socket,
            libc::SYS_clone,
            libc::SYS_sendmsg,
        ] {
            assert!(calls(&rules, syscall).is_empty());
        }
        jail::compile(&rules, false).unwrap();
    }
}
