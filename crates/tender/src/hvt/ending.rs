//! How a guest in a virtual machine ended, and what its tender says and leaves behind.

use super::cause::{Cause, Named, Names};
use super::exit::Exit;
use super::registers;
use crate::core_file::{CoreFile, Page};
use crate::memory::Gpa;
use crate::sys::fault;
use crate::sys::machine::Running;
use abi::backtrace::{Backtrace, call_of};
use abi::exit;
use abi::hvt::{Trap, vector};
use abi::share::{CODE_EXPLAINED, REPORT_MAGIC, Report};
use kvm_bindings::kvm_regs;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use zerocopy::IntoBytes;

/// How it ended.
#[derive(Debug)]
pub enum Ending {
    /// By itself: with this status, and perhaps because of an exception.
    Halted(i32, Option<Trap>),
    /// By the tender: the cause says who is to blame.
    Ended(Cause),
    /// Its processor stopped, at this instruction.
    Stopped(Exit, u64),
    /// The host has no page behind an address that the guest shares with its PCIe devices.
    NoPage,
}

impl From<Cause> for Ending {
    fn from(cause: Cause) -> Self {
        Self::Ended(cause)
    }
}

/// `SI_KERNEL`, `SEGV_MAPERR` and `SEGV_ACCERR` of Linux's `asm-generic/siginfo.h`, and the code of
/// what an instruction did.
const SI_KERNEL: i32 = 0x80;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const BY_INSTRUCTION: i32 = 1;

/// The report of an exception, in the terms of the host `spt`: the signal that a process would have
/// got. The callers are still to be looked for.
fn report(trap: &Trap) -> Report {
    const PRESENT: u64 = 1;
    let signal = trap.signal();
    let code = match trap.vector {
        vector::PAGE_FAULT if trap.error & PRESENT == 0 => SEGV_MAPERR,
        vector::PAGE_FAULT => SEGV_ACCERR,
        _ if signal == libc::SIGSEGV => SI_KERNEL,
        _ => BY_INSTRUCTION,
    };
    Report {
        magic: REPORT_MAGIC,
        signal: signal.cast_unsigned(),
        code,
        syscall: 0,
        address: trap.address,
        instruction: trap.rip,
        flags: trap.rflags,
        registers: trap.registers,
        backtrace: Backtrace::default(),
    }
}

/// The report of a guest that the tender has ended, with this signal; why is on standard error.
fn ended(signal: i32, processor: &kvm_regs) -> Report {
    Report {
        magic: REPORT_MAGIC,
        signal: signal.cast_unsigned(),
        code: CODE_EXPLAINED,
        instruction: processor.rip,
        flags: processor.rflags,
        registers: registers::general(processor),
        ..Report::default()
    }
}

/// What leads to the lines of an instruction and its callers.
struct Trail<'a>(&'a Report, &'a Path);

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(report, image) = self;
        let (image, instruction) = (image.display(), report.instruction);
        write!(
            f,
            "to see the lines: addr2line -fipCe {image} {instruction:#x}"
        )?;
        let calls = report.backtrace.addresses().iter();
        calls
            .copied()
            .map(call_of)
            .try_for_each(|call| write!(f, " {call:#x}"))
    }
}

impl Ending {
    /// The signal of a core file; `None` if the guest did not fail. A panic is an abort.
    fn signal(&self) -> Option<i32> {
        match self {
            Self::Halted(_, Some(trap)) => Some(trap.signal()),
            Self::Halted(exit::ABORT, None) => Some(libc::SIGABRT),
            Self::Ended(Cause::Violation(_)) => Some(libc::SIGSYS),
            Self::Stopped(..) => Some(libc::SIGSEGV),
            Self::NoPage => Some(libc::SIGBUS),
            Self::Halted(_, None) | Self::Ended(Cause::DeviceGone(_) | Cause::Host(..)) => None,
        }
    }

    /// Fills the core file if the guest has failed, and says so unless the monitor does: it has
    /// `shared` a file.
    pub fn leave(&self, file: &CoreFile, machine: &Running, shared: bool) {
        let Some(signal) = self.signal() else { return };
        let trap = match self {
            Self::Halted(_, trap) => trap.as_ref(),
            _ => None,
        };
        let processor = machine.vcpu().get_regs().unwrap_or_default();
        let registers = registers::registers(&processor, trap);
        let memory = machine.memory();
        let copy = |address, page: &mut Page| memory.copy_out(Gpa::new(address), page).ok();
        let path = file.path.display();
        let _ = match file.write(signal, registers, machine.bytes(), copy) {
            Ok(()) if shared => Ok(()),
            Ok(()) => writeln!(io::stderr(), "outboard-tender: core file: {path}"),
            Err(error) => writeln!(io::stderr(), "outboard-tender: core file {path}: {error}"),
        };
    }

    /// Says why the guest of `image` has ended if that was no wish of its own, and where it was: in
    /// the shared file if there is one. Returns the exit status. It allocates nothing, for the jail
    /// is closed.
    pub fn conclude(&self, machine: &Running, shared: bool, names: &Names, image: &Path) -> i32 {
        let status = self.say(shared, names);
        if let Some(report) = self.located(machine) {
            if shared {
                fault::leave(report);
            } else {
                let _ = writeln!(io::stderr(), "{}: {}", names.program, Trail(&report, image));
            }
        }
        status
    }

    /// Where the guest was, and its callers, if its end was a failure that has a place.
    fn located(&self, machine: &Running) -> Option<Report> {
        let mut report = match self {
            Self::Halted(_, trap) => report(trap.as_ref()?),
            Self::Ended(Cause::DeviceGone(_) | Cause::Host(..)) => return None,
            Self::Ended(Cause::Violation(_)) => {
                ended(libc::SIGSYS, &machine.vcpu().get_regs().ok()?)
            }
            Self::Stopped(..) => ended(libc::SIGSEGV, &machine.vcpu().get_regs().ok()?),
            Self::NoPage => ended(libc::SIGBUS, &machine.vcpu().get_regs().ok()?),
        };
        let called = match self {
            Self::Halted(_, Some(trap)) => {
                trap.vector == vector::PAGE_FAULT && trap.address == trap.rip
            }
            _ => false,
        };
        report.backtrace = Backtrace::walk(&report.registers, called, |address| {
            // Virtual and guest-physical addresses of the image, heap and stack are the same.
            let mut words = [0; 2];
            let copied = machine
                .memory()
                .copy_out(Gpa::new(address), words.as_mut_bytes());
            copied.ok().map(|()| words)
        });
        Some(report)
    }

    /// Says why, and returns the exit status.
    pub fn say(&self, shared: bool, names: &Names) -> i32 {
        let mut error = io::stderr();
        let program = names.program;
        match self {
            Self::Halted(status, None) => *status,
            Self::Halted(_, Some(trap)) => {
                if !shared {
                    let _ = writeln!(
                        error,
                        "{program}: the guest raised exception {} (error code {:#x}) at \
                         instruction {:#x}, address {:#x}",
                        trap.vector, trap.error, trap.rip, trap.address
                    );
                }
                exit::SIGNAL_BASE + trap.signal()
            }
            Self::Ended(cause) => {
                let named = Named(cause, names);
                let _ = writeln!(error, "{program}: the guest was ended: {named}");
                status(cause)
            }
            Self::Stopped(stop, rip) => {
                let _ = writeln!(
                    error,
                    "{program}: the guest was ended at instruction {rip:#x}: {}",
                    why(*stop)
                );
                stopped(*stop)
            }
            Self::NoPage => {
                let _ = writeln!(
                    error,
                    "{program}: the guest was ended: the host has no page for memory that \
                     it shares with its PCI devices: one that is a process can take pages away, \
                     and one that was unplugged has no registers"
                );
                exit::SIGNAL_BASE + libc::SIGBUS
            }
        }
    }
}

/// The exit status of a guest that the tender has ended.
fn status(cause: &Cause) -> i32 {
    match cause {
        Cause::Violation(_) => exit::SIGNAL_BASE + libc::SIGSYS,
        Cause::DeviceGone(_) => exit::DEVICE_GONE,
        Cause::Host(..) => exit::HOST_FAILED,
    }
}

/// The exit status for a processor that has stopped: whether the guest or the host is to blame.
fn stopped(stop: Exit) -> i32 {
    match stop {
        Exit::Internal | Exit::Refused(_) | Exit::Unknown => exit::HOST_FAILED,
        _ => exit::SIGNAL_BASE + libc::SIGSEGV,
    }
}

fn why(stop: Exit) -> &'static str {
    match stop {
        Exit::OtherPort(_) => "it used a port in a way that is no hypercall",
        Exit::Nowhere(_) => "it touched a guest-physical address where nothing is",
        Exit::Shutdown => "an exception that nothing handled (a triple fault), or a halt",
        Exit::Refused(_) => "the processor does not accept its state",
        Exit::Internal => {
            "KVM cannot run it; if it interprets instructions here, as on some clouds, start the \
             image with --host=spt"
        }
        Exit::Port(..) | Exit::Interrupted | Exit::Unknown => "KVM stopped for an unknown reason",
    }
}

#[cfg(test)]
mod tests {
    use super::super::cause::{HostStep, Violation};
    use super::*;
    use rustix::io::Errno;

    fn reported(vector: u64, error: u64) -> (i32, i32) {
        let trap = Trap {
            vector,
            error,
            ..Trap::default()
        };
        let report = report(&trap);
        (report.signal.cast_signed(), report.code)
    }

    #[test]
    fn exceptions_are_the_signals_that_a_process_gets() {
        assert_eq!(reported(0, 0).0, libc::SIGFPE);
        assert_eq!(reported(3, 0).0, libc::SIGTRAP);
        assert_eq!(reported(6, 0).0, libc::SIGILL);
        assert_eq!(reported(8, 0), (libc::SIGSEGV, SI_KERNEL));
        assert_eq!(reported(13, 0), (libc::SIGSEGV, SI_KERNEL));
        assert_eq!(reported(14, 2), (libc::SIGSEGV, SEGV_MAPERR));
        assert_eq!(reported(14, 3), (libc::SIGSEGV, SEGV_ACCERR));
    }

    #[test]
    fn the_host_is_to_blame_for_what_it_fails_at() {
        for step in [
            HostStep::Timer,
            HostStep::Wait,
            HostStep::Wake,
            HostStep::Run,
        ] {
            let ending = Ending::from(Cause::Host(step, Errno::NOMEM));
            assert_eq!(ending.say(true, &Names::default()), exit::HOST_FAILED);
            assert_eq!(
                ending.signal(),
                None,
                "there is nothing to debug in the guest"
            );
        }
        for stop in [Exit::Internal, Exit::Refused(7), Exit::Unknown] {
            assert_eq!(stopped(stop), exit::HOST_FAILED);
        }
    }

    #[test]
    fn the_guest_is_to_blame_for_what_it_asks_for() {
        let ending = Ending::from(Cause::from(Violation::Port(7)));
        assert_eq!(
            ending.say(true, &Names::default()),
            exit::SIGNAL_BASE + libc::SIGSYS
        );
        assert_eq!(ending.signal(), Some(libc::SIGSYS));
        let nowhere = stopped(Exit::Nowhere(Gpa::default()));
        assert_eq!(nowhere, exit::SIGNAL_BASE + libc::SIGSEGV);
        let gone = Ending::from(Cause::DeviceGone(2));
        assert_eq!(gone.say(true, &Names::default()), exit::DEVICE_GONE);
    }
}
