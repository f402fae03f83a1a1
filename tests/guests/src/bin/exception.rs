//! Raises an exception of the processor's, in the way that its argument names.

#![no_std]
#![no_main]

use core::arch::asm;
use unikernel::println;

unikernel::entry!(main);

/// An address that is none: its upper bits differ (Intel SDM volume 1, 3.3.7.1).
const NOT_CANONICAL: u64 = 1 << 63;
/// No guest has as much memory.
const FAR_AWAY: u64 = 1 << 40;

fn main() {
    let how = unikernel::arguments().next().unwrap_or_default();
    // SAFETY: none; the promise is that each of these ends the guest.
    unsafe {
        match how {
            "divide" => asm!("div {0:e}", in(reg) 0, inout("eax") 1 => _, inout("edx") 0 => _),
            "breakpoint" => asm!("int3"),
            "undefined" => asm!("ud2"),
            "read" => asm!("mov {0}, [{0}]", inout(reg) FAR_AWAY => _),
            "write" => asm!("mov [{0}], {0}", in(reg) FAR_AWAY),
            "execute" => asm!("call {0}", in(reg) FAR_AWAY),
            "protection" => asm!("mov {0}, [{0}]", inout(reg) NOT_CANONICAL => _),
            // Without a stack there is no return address; the fault needs a stack of its own.
            "stack" => asm!("xor esp, esp", "push rax"),
            "x87" => asm!(
                "sub rsp, 8",
                "fninit",
                // Division by zero is an exception: bit 2 of the control word is clear.
                "mov word ptr [rsp], 0x37b",
                "fldcw [rsp]",
                "fld1",
                "fldz",
                "fdivp st(1), st",
                "fwait",
            ),
            // Without a table of handlers, a fault leads to a double fault, and that to the end of
            // the machine.
            "triple" => asm!(
                "sub rsp, 16",
                "mov qword ptr [rsp], 0",
                "mov qword ptr [rsp + 8], 0",
                "lidt [rsp]",
                "ud2"
            ),
            // Handlers of faults whose stack is no address: the double fault has its own.
            "double" => asm!(
                "sub rsp, 16",
                "sgdt [rsp]",
                "mov {0}, [rsp + 2]",
                "movzx {1:e}, word ptr [{0} + 26]",
                "movzx {2:e}, byte ptr [{0} + 28]",
                "shl {2:e}, 16",
                "or {1:e}, {2:e}",
                "movzx {2:e}, byte ptr [{0} + 31]",
                "shl {2:e}, 24",
                "or {1:e}, {2:e}",
                "mov qword ptr [{1} + 36], 4096",
                "ud2",
                out(reg) _, out(reg) _, out(reg) _,
            ),
            "halt" => asm!("hlt"),
            // Ports of hypercalls, used in ways that are none.
            "in" => asm!("in eax, dx", in("dx") 0x501, out("eax") _),
            "byte" => asm!("out dx, al", in("dx") 0x501, in("al") 0u8),
            _ => {}
        }
    }
    println!("FAILURE: {how} went by");
}
