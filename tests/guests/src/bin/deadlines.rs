//! Waiting without devices ends at the deadline, never before it; one in the past is no wait.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::time::Duration;
use unikernel::println;

unikernel::entry!(main);

fn main() {
    for milliseconds in [1, 10, 100] {
        let delay = Duration::from_millis(milliseconds);
        let start = unikernel::monotonic();
        let ready = unikernel::wait(Some(start + delay));
        let waited = unikernel::monotonic() - start;
        assert!(ready.is_empty(), "a guest without devices has one ready");
        assert!(waited >= delay, "woke {:?} early", delay - waited);
        println!("waited {milliseconds} ms");
    }
    let start = unikernel::monotonic();
    for _ in 0..100 {
        assert!(unikernel::wait(Some(start)).is_empty());
    }
    println!("SUCCESS");
}
