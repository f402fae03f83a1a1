//! Writes nonsense wherever it may into the file that it shares with the host, until it is ended.

#![no_std]
#![no_main]

use abi::share::{
    BASE, CAPTURE_OFFSET, CONTROL_OFFSET, COUNTERS_OFFSET, RULE_COUNTERS_OFFSET,
    RULES_STATUS_OFFSET, SLOTS,
};
use unikernel::println;

unikernel::entry!(main);

const WORD: usize = size_of::<u64>();

fn main() {
    let mut state = 0x0b0a_0003;
    let everything = COUNTERS_OFFSET..CONTROL_OFFSET;
    for offset in everything.step_by(WORD) {
        write(offset, u64::MAX);
    }
    println!("SUCCESS");
    loop {
        for offset in (COUNTERS_OFFSET..RULES_STATUS_OFFSET).step_by(WORD) {
            write(offset, random(&mut state));
        }
        // Generation, slot and number of rules: now huge, now such that they could be true.
        for offset in (RULES_STATUS_OFFSET..RULE_COUNTERS_OFFSET).step_by(WORD) {
            write(offset, random(&mut state));
        }
        write(
            RULES_STATUS_OFFSET + WORD,
            random(&mut state) % SLOTS as u64,
        );
        write(CAPTURE_OFFSET, random(&mut state));
    }
}

/// Writes a word of the shared file.
fn write(offset: usize, value: u64) {
    let address = BASE as usize + offset;
    // SAFETY: the tender has mapped that part of the file writable at this address, and nothing
    // else of this guest's is there. It may not be so: to find out is what this guest is for.
    unsafe { core::ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(value) }
}

/// xorshift64 (Marsaglia, 2003); now and then a small number.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    match *state % 3 {
        0 => *state >> 56,
        1 => *state,
        _ => u64::MAX,
    }
}
