//! What the kernel says of a signal that interrupts the guest, for reports and core files.

use crate::core_file::{self, Registers};
use abi::backtrace::Backtrace;
use abi::share::{REPORT_MAGIC, Report};

/// The part of `siginfo_t` behind its three integers: `si_addr`, or, for SIGSYS, the address of
/// the call, its number and the architecture (`include/uapi/asm-generic/siginfo.h`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Fault {
    signal: i32,
    errno: i32,
    code: i32,
    padding: i32,
    address: u64,
    syscall: u32,
    architecture: u32,
}

/// `gregs` of a `mcontext_t`: the registers that the kernel saves.
pub type Saved = [libc::greg_t; 23];

/// The general registers, in the order of [`abi::backtrace::REGISTERS`].
const GENERAL: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RBX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_RSP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Selectors of 64-bit code and of data, of every process (`__USER_CS`, `__USER_DS`).
const SELECTORS: [u64; 2] = [0x33, 0x2b];

impl Fault {
    /// The report of this fault. The callers are still to be looked for.
    pub fn report(&self, signal: i32, saved: &Saved) -> Report {
        let is_syscall = signal == libc::SIGSYS;
        Report {
            magic: REPORT_MAGIC,
            signal: signal.cast_unsigned(),
            code: self.code,
            syscall: if is_syscall { self.syscall } else { 0 },
            address: if is_syscall { 0 } else { self.address },
            instruction: register(saved, libc::REG_RIP),
            flags: register(saved, libc::REG_EFL),
            registers: GENERAL.map(|number| register(saved, number)),
            backtrace: Backtrace::default(),
        }
    }
}

/// One of them.
fn register(saved: &Saved, number: libc::c_int) -> u64 {
    saved[number as usize].cast_unsigned()
}

/// All of them, as a debugger reads them.
pub fn registers(saved: &Saved) -> Registers {
    let general = GENERAL.map(|number| register(saved, number));
    let (rip, flags) = (
        register(saved, libc::REG_RIP),
        register(saved, libc::REG_EFL),
    );
    core_file::registers(general, rip, flags, SELECTORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_register_is_where_a_debugger_looks() {
        let saved: Saved = std::array::from_fn(|number| number as i64 + 100);
        let at = |number: libc::c_int| number as u64 + 100;
        let [first, second, third] = registers(&saved);
        assert_eq!((first[0], first[5]), (at(libc::REG_R15), at(libc::REG_RBX)));
        assert_eq!(
            (second[1], second[7]),
            (at(libc::REG_RAX), at(libc::REG_RIP))
        );
        assert_eq!((third[0], third[1]), (at(libc::REG_EFL), at(libc::REG_RSP)));
    }

    #[test]
    fn a_forbidden_call_has_a_number_and_another_fault_an_address() {
        let fault = Fault {
            signal: 0,
            errno: 0,
            code: 1,
            padding: 0,
            address: 0x1234,
            syscall: 57,
            architecture: 0,
        };
        let said = |signal| {
            let report = fault.report(signal, &[0; 23]);
            (report.signal, report.syscall, report.address)
        };
        assert_eq!(said(libc::SIGSYS), (31, 57, 0));
        assert_eq!(said(libc::SIGSEGV), (11, 0, 0x1234));
    }
}
