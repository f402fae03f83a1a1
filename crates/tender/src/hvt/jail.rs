//! What the tender of a virtual machine may still ask of the kernel: a guest that breaks out of KVM
//! finds itself here.

use super::call::Calls;
use super::core::Core;
use crate::jail::{self, Argument, Error, Rule};
use crate::sys::machine::Machine;
use abi::manifest::Device;
use abi::spt::CONSOLE_FD;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const ERROR_FD: RawFd = 2;
/// `KVM_RUN` and `KVM_GET_REGS` of Linux's `include/uapi/linux/kvm.h`.
const KVM_RUN: u32 = 0xae80;
const KVM_GET_REGS: u32 = 0x8090_ae81;

/// Takes everything from this process but what serving the guest takes.
///
/// # Errors
/// The first step that fails.
pub fn close(
    calls: &Calls,
    event: Option<&OwnedFd>,
    core: Option<&Core>,
    machine: &Machine,
) -> Result<(), Error> {
    let vcpu = machine.vcpu().as_raw_fd();
    let core = core.map(|core| core.file.as_raw_fd());
    let filter = jail::compile(&rules(calls, vcpu, core), false)?;
    let mut keep: Vec<RawFd> = calls.devices.iter().map(|d| d.fd.as_raw_fd()).collect();
    let own = [calls.epoll.as_raw_fd(), calls.timer.as_raw_fd(), vcpu];
    keep.extend(own);
    keep.extend([CONSOLE_FD, ERROR_FD]);
    keep.extend(event.map(AsRawFd::as_raw_fd));
    keep.extend(core);
    jail::enter(keep, &filter)
}

/// All that it may ask.
fn rules(calls: &Calls, vcpu: RawFd, core: Option<RawFd>) -> Vec<Rule> {
    use Argument::Int;
    let fd = |fd: RawFd| Int(0, fd.cast_unsigned());
    let rule = |syscall: i64, arguments: &[Argument], reason| Rule {
        syscall: syscall.cast_unsigned(),
        arguments: arguments.to_vec(),
        reason,
    };
    let mut rules = vec![
        rule(
            libc::SYS_ioctl,
            &[fd(vcpu), Int(1, KVM_RUN)],
            "run the guest",
        ),
        rule(
            libc::SYS_ioctl,
            &[fd(vcpu), Int(1, KVM_GET_REGS)],
            "say where a guest ended",
        ),
        rule(libc::SYS_write, &[fd(CONSOLE_FD)], "print on the console"),
        rule(libc::SYS_write, &[fd(ERROR_FD)], "say why a guest ended"),
        rule(
            libc::SYS_epoll_wait,
            &[fd(calls.epoll.as_raw_fd())],
            "wait for devices and the timer",
        ),
        rule(
            libc::SYS_epoll_pwait,
            &[fd(calls.epoll.as_raw_fd())],
            "wait for devices and the timer",
        ),
        rule(
            libc::SYS_timerfd_settime,
            &[fd(calls.timer.as_raw_fd())],
            "wait until a time",
        ),
        rule(
            libc::SYS_clock_gettime,
            &[Int(0, libc::CLOCK_REALTIME.cast_unsigned())],
            "read the wall clock where the kernel's page has none",
        ),
        rule(libc::SYS_exit_group, &[], "end"),
    ];
    for device in &calls.devices {
        let fd = fd(device.fd.as_raw_fd());
        let (read, write) = match device.device {
            Device::Net { .. } => (libc::SYS_read, libc::SYS_write),
            Device::Block { .. } => (libc::SYS_pread64, libc::SYS_pwrite64),
        };
        rules.push(rule(read, &[fd], "take from a device"));
        rules.push(rule(write, &[fd], "give to a device"));
    }
    if let Some(core) = core {
        let reason = "leave memory and registers of a guest that failed";
        rules.push(rule(libc::SYS_pwrite64, &[fd(core)], reason));
    }
    rules
}
