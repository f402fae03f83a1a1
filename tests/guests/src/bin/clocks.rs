//! The monotonic clock grows, the wall clock is in this century, both agree on a delay.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::time::Duration;
use unikernel::println;

unikernel::entry!(main);

const DELAY: Duration = Duration::from_millis(200);

fn main() {
    let (start, wall_start) = (unikernel::monotonic(), unikernel::wall());
    let mut last = start;
    while unikernel::monotonic() - start < DELAY {
        let now = unikernel::monotonic();
        assert!(now >= last, "the monotonic clock went back");
        last = now;
    }
    let wall = unikernel::wall();
    assert!(
        wall.as_secs() > 1_700_000_000,
        "the wall clock says {wall:?}"
    );
    let apart = (wall - wall_start).abs_diff(DELAY);
    assert!(
        apart < Duration::from_secs(5),
        "the clocks are {apart:?} apart"
    );
    println!("SUCCESS");
}
