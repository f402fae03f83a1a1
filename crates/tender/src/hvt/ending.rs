//! How a guest in a virtual machine ended, and what its tender says and leaves behind.

use super::call::Violation;
use super::core::{self, Core};
use crate::sys::fault;
use crate::sys::machine::{Exit, Running};
use abi::exit;
use abi::hvt::{Trap, vector};
use abi::share::{REPORT_MAGIC, Report};
use std::io::{self, Write};

/// How it ended.
#[derive(Debug)]
pub enum Ending {
    /// By itself: with this status, and perhaps because of an exception.
    Halted(i32, Option<Trap>),
    /// It asked for something that it must not.
    Violated(Violation),
    /// Its processor stopped, at this instruction.
    Stopped(Exit, u64),
    /// The host could not go on.
    Host(io::Error),
}

/// `SI_KERNEL`, `SEGV_MAPERR` and `SEGV_ACCERR` of Linux's `asm-generic/siginfo.h`, and the code of
/// what an instruction did.
const SI_KERNEL: i32 = 0x80;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const BY_INSTRUCTION: i32 = 1;

/// The report of an exception, in the terms of the host `spt`: the signal that a process would have
/// got.
pub fn report(trap: &Trap) -> Report {
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
    }
}

impl Ending {
    /// The signal of a core file; `None` if the guest did not fail. A panic is an abort.
    fn signal(&self) -> Option<i32> {
        match self {
            Self::Halted(_, Some(trap)) => Some(trap.signal()),
            Self::Halted(exit::ABORT, None) => Some(libc::SIGABRT),
            Self::Violated(_) => Some(libc::SIGSYS),
            Self::Stopped(..) => Some(libc::SIGSEGV),
            Self::Halted(_, None) | Self::Host(_) => None,
        }
    }

    /// Fills the core file if the guest has failed, and says so.
    pub fn leave(&self, core: &Core, machine: &Running) {
        let Some(signal) = self.signal() else { return };
        let trap = match self {
            Self::Halted(_, trap) => trap.as_ref(),
            _ => None,
        };
        let processor = machine.vcpu().get_regs().unwrap_or_default();
        let registers = core::registers(&processor, trap);
        let path = core.path.display();
        let _ = match core.write(signal, registers, machine.memory(), machine.bytes()) {
            Ok(()) => writeln!(io::stderr(), "outboard-tender: core file: {path}"),
            Err(error) => writeln!(io::stderr(), "outboard-tender: core file {path}: {error}"),
        };
    }

    /// Says why the guest has ended if that was no wish of its own, leaves the report of an
    /// exception in the shared file if there is one, and returns the exit status. It allocates
    /// nothing, for the jail is closed.
    pub fn conclude(&self, shared: bool) -> i32 {
        let mut error = io::stderr();
        match self {
            Self::Halted(status, None) => *status,
            Self::Halted(_, Some(trap)) => {
                let report = report(trap);
                if shared {
                    fault::leave(report);
                } else {
                    let _ = writeln!(
                        error,
                        "outboard-tender: the guest raised exception {} (error code {:#x}) at \
                         instruction {:#x}, address {:#x}",
                        trap.vector, trap.error, trap.rip, trap.address
                    );
                }
                exit::SIGNAL_BASE + report.signal.cast_signed()
            }
            Self::Violated(Violation::DeviceGone(index)) => {
                let gone = Violation::DeviceGone(*index);
                let _ = writeln!(error, "outboard-tender: the guest was ended: {gone}");
                exit::DEVICE_GONE
            }
            Self::Violated(violation) => {
                let _ = writeln!(error, "outboard-tender: the guest was ended: {violation}");
                exit::SIGNAL_BASE + libc::SIGSYS
            }
            Self::Stopped(stop, rip) => {
                let _ = writeln!(
                    error,
                    "outboard-tender: the guest was ended at instruction {rip:#x}: {}",
                    why(*stop)
                );
                match stop {
                    Exit::Internal | Exit::Refused(_) | Exit::Unknown => exit::FAILURE,
                    _ => exit::SIGNAL_BASE + libc::SIGSEGV,
                }
            }
            Self::Host(reason) => {
                let _ = writeln!(error, "outboard-tender: KVM cannot go on: {reason}");
                exit::FAILURE
            }
        }
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
    use super::*;

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
}
