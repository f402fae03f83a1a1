//! The end of a guest that found itself wrong.

use crate::{boot, console};
use abi::backtrace::{Backtrace, Registers, call_of};
use abi::share::{REPORT_MAGIC, Report};
use core::arch::asm;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<AtomicU64>();

unsafe extern "C" {
    /// The image's own stack; the linker script defines it.
    #[link_name = "__stack_bottom"]
    static STACK_BOTTOM: u8;
    #[link_name = "__stack_top"]
    static STACK_TOP: u8;
}

/// Prints message and place, says who called, and ends the guest with Solo5's abort status. Memory
/// exhaustion ends up here too: the allocator's error is a panic.
pub fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    console::print(format_args!("{info}\n"));
    let trace = callers();
    let (mut report, mut leaves_core) = (None, false);
    boot::if_started(|boot| {
        let share = &boot.runtime.share;
        (report, leaves_core) = (share.report(), share.leaves_core());
    });
    match report {
        Some(report) => leave(report, &trace),
        None => print(&trace),
    }
    if leaves_core {
        // SAFETY: it ends the guest, by the tender's handler.
        unsafe { asm!("ud2", options(noreturn)) }
    }
    crate::exit(abi::exit::ABORT)
}

fn callers() -> Backtrace {
    let frame: u64;
    // SAFETY: it only reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags)) };
    let mut registers = Registers::default();
    registers[abi::backtrace::RBP] = frame;
    let (bottom, top) = (
        (&raw const STACK_BOTTOM).addr(),
        (&raw const STACK_TOP).addr(),
    );
    Backtrace::walk(&registers, false, |address| {
        let address = usize::try_from(address).ok()?;
        let behind = address.checked_add(2 * WORD)?;
        let words = core::ptr::with_exposed_provenance::<[u64; 2]>(address);
        // SAFETY: the words lie on the stack (checked here), all of which is mapped; nobody writes
        // there while this function runs but itself, and any value is a number.
        (bottom <= address && behind <= top).then(|| unsafe { words.read_volatile() })
    })
}

/// Leaves the callers where the monitor looks for them.
fn leave(report: &[AtomicU64], trace: &Backtrace) {
    let depth = offset_of!(Report, backtrace) / WORD;
    let numbers = [trace.depth].into_iter().chain(trace.addresses);
    for (word, number) in report.iter().skip(depth).zip(numbers) {
        word.store(number, Ordering::Relaxed);
    }
    // The other half of this word is the signal: none.
    if let Some(first) = report.first() {
        first.store(REPORT_MAGIC.into(), Ordering::Release);
    }
}

/// Says it on the console, where no monitor would.
fn print(trace: &Backtrace) {
    console::print(format_args!("called from"));
    for address in trace.addresses() {
        console::print(format_args!(" {:#x}", call_of(*address)));
    }
    console::print(format_args!("\n"));
}
