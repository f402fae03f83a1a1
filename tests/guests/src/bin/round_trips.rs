//! Makes as many calls of the host as its argument says, the cheapest that there is, and prints how
//! many nanoseconds all of them took. For benchmarks: it promises nothing.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::hint::black_box;
use unikernel::println;

unikernel::entry!(main);

fn main() {
    let count = unikernel::arguments().next();
    let count: u32 = count.and_then(|n| n.parse().ok()).expect("a number");
    let begin = unikernel::monotonic();
    for _ in 0..count {
        black_box(unikernel::wall());
    }
    println!("{}", (unikernel::monotonic() - begin).as_nanos());
}
