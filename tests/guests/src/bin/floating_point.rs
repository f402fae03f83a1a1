//! Calculates with SSE, which KVM does not do where it interprets instructions.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::hint::black_box;
use unikernel::println;

unikernel::entry!(main);

fn main() {
    // A harmonic number, by its definition.
    let mut sum = 0.0_f64;
    for n in 1..=1024_u32 {
        sum += black_box(1.0) / f64::from(black_box(n));
    }
    assert!((sum - 7.509_175_672_278_132).abs() < 1e-12, "{sum}");
    println!("SUCCESS");
}
