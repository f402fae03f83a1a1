//! The end of a guest that found itself wrong.

use crate::console;

/// Prints message and place, and ends the guest with Solo5's abort status. Memory exhaustion ends
/// up here too: the allocator's error is a panic.
pub fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    console::print(format_args!("{info}\n"));
    crate::exit(abi::exit::ABORT)
}
