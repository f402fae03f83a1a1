//! The first instruction of an image.

use crate::{boot, host};
use abi::note::{ABI_TARGET_OFFSET, Target};

unsafe extern "C" {
    /// Start of the image's own ABI note; the linker script defines it.
    #[link_name = "__abi_note"]
    static ABI_NOTE: [u32; ABI_TARGET_OFFSET / 4 + 1];
}

unsafe extern "Rust" {
    /// The appliance: see [`crate::entry!`].
    fn outboard_main() -> i32;
}

/// Entered with `rdi` holding the address of the boot information. Moves to the image's own stack,
/// below which lies a read-only page, so that an overflow faults instead of running into the heap.
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    core::arch::naked_asm!(
        "lea rsp, [rip + __stack_top]",
        "xor ebp, ebp",
        "call {start}",
        "ud2",
        start = sym start,
    )
}

extern "C" fn start(boot_info: u64) -> ! {
    // The tender, or `image::retarget`, wrote this word after the compiler saw it: a plain read
    // would be folded.
    // SAFETY: the linker script places the whole ABI note, which is longer than this array, in a
    // readable segment, 4-byte aligned.
    let target = unsafe { (&raw const ABI_NOTE).read_volatile() }[ABI_TARGET_OFFSET / 4];
    let Some(target) = Target::from_number(target) else {
        // No tender of this version starts such an image, and no call works elsewhere.
        stop()
    };
    // SAFETY: every tender enters with the address of boot information that stays mapped and
    // unchanged while the guest runs, and this function is entered once.
    let start = unsafe { host::begin(target, boot_info) };
    // SAFETY: this runs once.
    unsafe { boot::init(target, &start) };
    // SAFETY: `entry!` defines this function with this signature.
    let status = unsafe { outboard_main() };
    crate::exit(status)
}

fn stop() -> ! {
    loop {
        core::hint::spin_loop();
    }
}
