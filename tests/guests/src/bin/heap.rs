//! Memory that was given back is given out again; most of what --mem gives can be used.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec;
use alloc::vec::Vec;
use unikernel::println;

unikernel::entry!(main);

fn main() {
    let most = (unikernel::memory_bytes() as usize - (2 << 20)) / 10 * 9;
    for _ in 0..3 {
        let mut all: Vec<u8> = Vec::with_capacity(most);
        all.resize(1, 1);
    }
    let pieces: Vec<_> = (0..1000_usize).map(|n| vec![n as u8; n]).collect();
    for (n, piece) in pieces.iter().enumerate() {
        assert!(piece.len() == n && piece.iter().all(|byte| *byte == n as u8));
    }
    println!("SUCCESS");
}
