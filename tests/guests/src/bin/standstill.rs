//! Has a few turns, and then loops, or sleeps for ever if it is told to.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::hint::spin_loop;
use core::time::Duration;
use unikernel::println;

unikernel::entry!(main);

/// Turns before it loops.
const TURNS: usize = 5;
/// How long a step of the loop is.
const SPINS: usize = 10_000;
const TURN: Duration = Duration::from_millis(100);

fn main() {
    if unikernel::arguments().any(|argument| argument == "sleep") {
        println!("asleep");
        loop {
            unikernel::wait(None);
        }
    }
    for _ in 0..TURNS {
        unikernel::wait(Some(unikernel::monotonic() + TURN));
    }
    println!("looping");
    stand();
}

#[inline(never)]
fn stand() {
    loop {
        step();
    }
}

/// Called again and again, so that a debugger that comes late can still stop at its beginning. It
/// takes long, so that whoever looks at another moment finds it with its frame.
#[inline(never)]
fn step() {
    for _ in 0..SPINS {
        spin_loop();
    }
}
