//! Recurses without end: the page below the stack is read-only.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use unikernel::println;

unikernel::entry!(main);

#[inline(never)]
#[expect(unconditional_recursion, reason = "that is the point")]
fn recurse(depth: u64, last: &[u64; 64]) -> u64 {
    let mut frame = [depth; 64];
    frame[(depth % 64) as usize] = last[0];
    let deeper = recurse(depth + 1, core::hint::black_box(&frame));
    deeper + core::hint::black_box(&frame)[1]
}

fn main() {
    println!("FAILURE: {}", recurse(unikernel::memory_bytes(), &[0; 64]));
}
