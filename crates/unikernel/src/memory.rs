//! What the compiler expects of a C library (`core`'s documentation, "How to use the core
//! library"). `rep movsb` and `rep stosb` are fast on every processor with ERMS; the loops compare
//! by the word and are written so that the compiler cannot turn them into calls of themselves.

use core::arch::asm;

/// # Safety
/// As C's `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller vouches for both ranges; the direction flag is clear by the ABI.
    unsafe {
        asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= count {
        // SAFETY: copying upwards never reads a byte that was written; otherwise as the caller's.
        return unsafe { memcpy(to, from, count) };
    }
    // SAFETY: the caller vouches for both ranges. Copies downwards from the last byte, and sets
    // the direction flag back as the ABI wants it.
    unsafe {
        asm!("std", "rep movsb", "cld", inout("rcx") count => _,
            inout("rdi") to.wrapping_add(count).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(count).wrapping_sub(1) => _, options(nostack));
    }
    to
}

/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, count: usize) -> *mut u8 {
    // SAFETY: the caller vouches for the range; the direction flag is clear by the ABI.
    unsafe {
        asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") byte as u8,
            options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    let mut i = 0;
    while i + 8 <= count {
        // SAFETY: the caller vouches for `count` bytes, and `i + 8` is at most that.
        let left = unsafe { a.wrapping_add(i).cast::<u64>().read_unaligned() };
        // SAFETY: as above.
        let right = unsafe { b.wrapping_add(i).cast::<u64>().read_unaligned() };
        if left != right {
            return if left.swap_bytes() < right.swap_bytes() {
                -1
            } else {
                1
            };
        }
        i += 8;
    }
    while i < count {
        // SAFETY: `i` is below `count`; volatile keeps the loop a loop.
        let left = unsafe { a.wrapping_add(i).read_volatile() };
        // SAFETY: as above.
        let right = unsafe { b.wrapping_add(i).read_volatile() };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
        i += 1;
    }
    0
}

/// # Safety
/// As BSD's `bcmp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    // SAFETY: the contract is the same.
    unsafe { memcmp(a, b, count) }
}

/// # Safety
/// As C's `strlen`.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(string: *const u8) -> usize {
    let mut length = 0;
    // SAFETY: the caller vouches for every byte up to the NUL; volatile keeps the loop a loop.
    while unsafe { string.wrapping_add(length).read_volatile() } != 0 {
        length += 1;
    }
    length
}

// An image built without optimisation keeps the landing pads of `core`, which never run.

#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() {}
