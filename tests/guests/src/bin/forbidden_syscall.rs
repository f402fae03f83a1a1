//! Makes a system call that the jail does not know (argument: its number, else getpid).

#![no_std]
#![no_main]

use unikernel::println;

unikernel::entry!(main);

const GETPID: u64 = 39;

fn main() {
    let argument = unikernel::arguments().next();
    let number: u64 = argument
        .and_then(|text| text.parse().ok())
        .unwrap_or(GETPID);
    let result: i64;
    // SAFETY: all arguments are zero; the promise is that the call is not made.
    unsafe {
        core::arch::asm!("syscall", inlateout("rax") number => result, in("rdi") 0, in("rsi") 0,
            in("rdx") 0, in("r10") 0, in("r8") 0, in("r9") 0, lateout("rcx") _, lateout("r11") _);
    }
    println!("FAILURE: system call {number} returned {result}");
}
