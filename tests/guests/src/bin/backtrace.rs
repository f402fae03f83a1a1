//! Fails below three functions that call each other, in the way that its argument names; some also
//! make the chain of frames one that must not be followed.

#![no_std]
#![no_main]

use core::arch::asm;
use core::hint::black_box;
use unikernel::println;

unikernel::entry!(main);

/// No guest has as much memory.
const FAR_AWAY: u64 = 1 << 40;
/// More frames than a report has room for.
const DEEP: u32 = 1000;

#[inline(never)]
fn outer(how: &str) -> u64 {
    middle(black_box(how)) + 1
}

#[inline(never)]
fn middle(how: &str) -> u64 {
    inner(black_box(how)) + 1
}

#[inline(never)]
fn inner(how: &str) -> u64 {
    assert!(how != "panic", "as asked");
    if how == "deep" {
        return recurse(DEEP);
    }
    // SAFETY: none; each of these ends the guest.
    unsafe {
        match how {
            "read" => asm!("mov {0}, [{0}]", inout(reg) FAR_AWAY => _),
            "jump" => asm!("call {0}", in(reg) FAR_AWAY),
            "loop" => asm!("push rbp", "mov [rsp], rsp", "mov rbp, rsp", "ud2"),
            "null" => asm!("xor ebp, ebp", "ud2"),
            "odd" => asm!("mov rbp, rsp", "inc rbp", "ud2"),
            "text" => asm!("lea rbp, [rip]", "and rbp, -16", "ud2"),
            "outside" => asm!("mov rbp, {0}", "ud2", in(reg) FAR_AWAY),
            "top" => asm!("mov rbp, -8", "ud2"),
            "end" => asm!("mov rbp, {0}", "ud2", in(reg) unikernel::memory_bytes() - 8),
            _ => {}
        }
    }
    0
}

#[inline(never)]
fn recurse(depth: u32) -> u64 {
    if depth == 0 {
        // SAFETY: none; it ends the guest.
        unsafe { asm!("ud2") };
        return 0;
    }
    recurse(black_box(depth - 1)) + 1
}

fn main() {
    let how = unikernel::arguments().next().unwrap_or_default();
    println!("FAILURE: {}", outer(how));
}
