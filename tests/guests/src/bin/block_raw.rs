//! Reads a disk past what the jail allows (argument: past, half, double): the call ends the guest.

#![no_std]
#![no_main]

use unikernel::println;

unikernel::entry!(main);

/// Descriptors that a tender may have given the disk.
const DESCRIPTORS: core::ops::Range<u64> = 3..64;

fn main() {
    let disk = unikernel::block("disk").expect("disk");
    let size = disk.block_size() as u64;
    let (length, offset) = match unikernel::arguments().next() {
        Some("half") => (size / 2, disk.capacity() - size / 2),
        Some("double") => (size * 2, disk.capacity() - size),
        _ => (size, disk.capacity()),
    };
    let mut buffer = [0_u8; 16384];
    for descriptor in DESCRIPTORS {
        let result: i64;
        // SAFETY: the buffer is longer than any length asked for.
        unsafe {
            core::arch::asm!("syscall", inlateout("rax") 17_u64 => result, in("rdi") descriptor,
                in("rsi") buffer.as_mut_ptr(), in("rdx") length, in("r10") offset,
                lateout("rcx") _, lateout("r11") _);
        }
        println!("FAILURE: pread64 returned {result}");
    }
}
