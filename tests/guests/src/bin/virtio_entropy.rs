//! Asks a virtio source of entropy for bytes, more than once.

#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use unikernel::println;

unikernel::entry!(main);

/// Bytes each time: more than a request has.
const BYTES: usize = 256;
/// Different bytes of so many random ones: fewer come once in more than 10^20 times.
const DIFFERENT_MIN: usize = 100;

fn main() {
    let mut source = match appliance::entropy("entropy") {
        Ok(source) => source,
        Err(error) => panic!("{error}"),
    };
    let mut blocks = [[0; BYTES]; 4];
    for block in &mut blocks {
        source.fill(block).expect("random bytes");
        let different = (0..=u8::MAX).filter(|byte| block.contains(byte)).count();
        assert!(different >= DIFFERENT_MIN, "{different} different bytes");
    }
    let [first, rest @ ..] = &blocks;
    assert!(!rest.contains(first), "the same bytes again");
    println!("SUCCESS");
}
