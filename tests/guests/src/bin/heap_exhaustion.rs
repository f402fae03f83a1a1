//! Takes memory until there is none: the allocator's error is a panic, status 255.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;
use unikernel::println;

unikernel::entry!(main);

const PIECE_BYTES: usize = 256 << 10;

fn main() {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut piece: Vec<u8> = Vec::with_capacity(PIECE_BYTES);
        piece.push(1);
        pieces.push(piece);
        let taken = pieces.len() * PIECE_BYTES;
        if taken as u64 > unikernel::memory_bytes() {
            println!("FAILURE: got {taken} bytes");
            return;
        }
    }
}
