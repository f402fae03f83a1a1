//! Has a NIC and much DMA memory, and ends at once. For benchmarks: it promises nothing.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

unikernel::entry!(main);

fn main() {}
