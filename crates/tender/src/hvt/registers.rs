//! Registers of a virtual machine's processor, for reports and core files.

use super::cpu::{CODE, DATA};
use crate::core_file::{self, Registers};
use abi::hvt::Trap;
use kvm_bindings::kvm_regs;

/// Registers as a debugger reads them: those of the trap if there was one, whose handler is of no
/// interest; else those of the processor.
pub fn registers(processor: &kvm_regs, trap: Option<&Trap>) -> Registers {
    let (general, rip, flags) = match trap {
        Some(trap) => (trap.registers, trap.rip, trap.rflags),
        None => (general(processor), processor.rip, processor.rflags),
    };
    core_file::registers(general, rip, flags, [u64::from(CODE), u64::from(DATA)])
}

/// The general registers, in the order of [`abi::backtrace::REGISTERS`].
pub fn general(processor: &kvm_regs) -> abi::backtrace::Registers {
    let r = processor;
    [
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_is_what_is_of_interest() {
        let processor = kvm_regs {
            rip: 0x10_0000,
            rsp: 0x20_0000,
            r15: 15,
            ..kvm_regs::default()
        };
        let [first, second, third] = registers(&processor, None);
        assert_eq!((first[0], second[7], third[1]), (15, 0x10_0000, 0x20_0000));
        let trap = Trap {
            rip: 0x12_3456,
            registers: [3; 16],
            ..Trap::default()
        };
        let [first, second, third] = registers(&processor, Some(&trap));
        assert_eq!((first[0], second[7], third[1]), (3, 0x12_3456, 3));
    }
}
