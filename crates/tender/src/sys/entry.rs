//! The start of the program, without that of the standard library: it would look for the stack's
//! guard page, install handlers for SIGSEGV and SIGBUS and ignore SIGPIPE, and the guest would
//! inherit all of it. It also costs a tenth of the time to the guest's first instruction.

/// Makes `$main`, a function that takes the arguments and returns the exit status, the entry of a
/// program with `#![no_main]`.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        // SAFETY: this is the symbol that the C library calls, with the signature that it expects;
        // a program has no other.
        #[unsafe(no_mangle)]
        extern "C" fn main(_: std::ffi::c_int, _: *const *const std::ffi::c_char) -> i32 {
            $main(std::env::args_os().skip(1))
        }
    };
}
